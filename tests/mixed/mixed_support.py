"""Trials: a group of several clients' processes under load, followed and judged from outside."""

from __future__ import annotations

import importlib.util
import io
import itertools
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]  # its stubs hide them
from integration_support import Kind, Member, where
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribeGroupsResponse
from kio.schema.types import GroupId
from kio.serial import entity_reader, entity_writer

from kafka_coop import CoopConsumer
from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.testing.trial import journal
from kafka_coop.testing.trial.crew import Crew
from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.load import Load
from kafka_coop.testing.trial.verdict import Tenure, Verdict, judge

PATIENCE = 90.0
"""Seconds after which a trial is given up. A JVM that starts on a busy machine takes ten."""

PARTITIONS = 12
RATE = 200

CONFIG = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 300}
"""Of every client alike. A round waits for the slowest heart: librdkafka's beats once a second."""

without_kafka_python = pytest.mark.skipif(
    importlib.util.find_spec("kafka") is None and not os.environ.get("CI"),
    reason="kafka-python is not installed: pip install 'kafka-python>=3'",
)

_LED = re.compile(
    r"Assignment received from leader (\S+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r" for group (\S+) for generation (\d+)"
)
"""What a coordinator logs of each round: the leader's client id, the group, the generation."""

_NUMBERS = itertools.count()
_RUN = time.time_ns() % 1_000_000_000


class Guest(Member):
    """A member in the test's own process, with a journal as those of other processes.

    Attributes:
        commits: When each ended, and of each partition the offset and the error.
    """

    _KINDS: Final[dict[Kind, journal.Kind]] = {"assigned": "A", "revoked": "V", "lost": "L"}

    def __init__(self, trial: Trial, name: str, **config: Any) -> None:
        self.journal: list[Event] = []
        self.commits: list[tuple[int, dict[int, tuple[int, str]]]] = []
        trial.guests[name] = self.journal
        super().__init__(
            trial.kafka,
            trial.group,
            trial.topic,
            client_id=name,
            on_commit=self._on_commit,
            **config,
        )

    def _on_commit(self, _error: KafkaError | None, answered: list[Any]) -> None:
        taken = {of.partition: (of.offset, str(of.error or "")) for of in answered}
        self.commits.append((time.monotonic_ns(), taken))

    def _note(self, kind: Kind, consumer: CoopConsumer, partitions: list[TopicPartition]) -> None:
        super()._note(kind, consumer, partitions)
        self.journal.append(
            Event(
                kind=self._KINDS[kind],
                at=time.monotonic_ns(),
                partitions=tuple(p.partition for p in partitions),
                generation=self.generation,
            )
        )

    @property
    def generation(self) -> int:
        return self.consumer._backend.metadata().generation

    def step(self, timeout: float = 0.01) -> Message | None:
        message = super().step(timeout)
        if message is not None:
            _, partition, offset = where(message)
            now = time.monotonic_ns()
            self.journal.append(Event(kind="R", at=now, partitions=(partition,), offset=offset))
        return message


class Trial(Crew):
    """A crew under load.

    Attributes:
        guests: Journals of members that are no processes of the crew.
    """

    def __init__(
        self, kafka: KafkaCluster, folder: Path, config: dict[str, Any] | None = None
    ) -> None:
        name = f"trial-{_RUN}-{next(_NUMBERS)}"
        super().__init__(kafka.bootstrap_servers, name, name, folder, {**CONFIG, **(config or {})})
        self.kafka = kafka
        self.guests: dict[str, list[Event]] = {}
        self.partitions = PARTITIONS
        kafka.create_topic(self.topic, partitions=PARTITIONS)
        self.load = Load(kafka.bootstrap_servers, self.topic, PARTITIONS, RATE)

    def until(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if time.monotonic() >= deadline:
                owned = {name: sorted(self.owned(name)) for name in self.running}
                said = {name: self.last_words(name)[-400:] for name in self.running}
                errors = {
                    n: [e for e in j if e.kind == "E"][-2:] for n, j in self.journals().items()
                }
                raise TimeoutError(f"{what} did not come: {owned}, {errors}, {said}")
            time.sleep(0.1)  # between two looks at the journals

    def until_shared(self, *names: str) -> None:
        """Waits until these members own everything, each its fair share, and nobody else runs."""

        def shared() -> bool:
            owned = [self.owned(name) for name in names]
            sizes = [len(o) for o in owned]
            fair = max(sizes) - min(sizes) <= 1
            return fair and sum(sizes) == self.partitions == len(set().union(*owned))

        assert {*names} == {*self.running}
        self.until(shared, f"a fair share for {names}")

    def journals(self) -> dict[str, list[Event]]:
        return {**super().journals(), **self.guests}

    def leader(self) -> str:
        """The client id of whoever gave the group its last assignment: the coordinator logs it.

        No API tells. A broker's log lies beside its data, where it runs from its jars.
        """
        rounds = [
            (int(generation), name)
            for log in _broker_logs(self.kafka)
            for name, group, generation in _LED.findall(log.read_text(errors="replace"))
            if group == self.group
        ]
        assert rounds, "no round is logged"
        _, last = max(rounds)
        return str(last)

    def stopped_in_vain(self, *names: str) -> list[Tenure]:
        """What these members gave up and were given again, when nobody had had it meanwhile.

        They could have kept it: that is what cooperative rebalancing is about.
        """
        return [
            again
            for before, again in self.handovers()
            if before.member == again.member
            if again.member in names
        ]

    def handovers(self) -> list[tuple[Tenure, Tenure]]:
        """Each tenure with the next one of its partition."""
        held = sorted(self.tenures(), key=lambda t: (t.partition, t.start))
        return [
            (gone, after)
            for gone, after in itertools.pairwise(held)
            if gone.partition == after.partition
        ]

    def until_everyone_works(self) -> None:
        """Waits until each member, those that are gone included, has processed something."""

        def idle() -> list[str]:
            found = self.journals().items()
            return [name for name, events in found if not any(e.kind == "R" for e in events)]

        self.until(lambda: not idle(), "a record for everyone")

    def until_read(self) -> None:
        """Stops the load and waits until all of it was processed."""
        self.load.stop()
        ends = self.kafka.end_offsets(self.topic)

        def read() -> bool:
            seen = {
                (e.partitions[0], e.offset)
                for events in self.journals().values()
                for e in events
                if e.kind == "R"
            }
            return len(seen) >= sum(ends.values())

        self.until(read, "the last record")

    def in_trouble(self) -> dict[str, str]:
        """Members that have lost partitions or told of an error, and the last that each said."""
        told = {n: [e for e in j if e.kind in "EL"] for n, j in self.journals().items()}
        return {n: f"{found}: {self.last_words(n)}" for n, found in told.items() if found}

    def end_soundly(self) -> None:
        """Stops the load, waits until all of it was processed, and has the journals judged."""
        self.until_read()
        verdict = self.verdict()
        assert verdict.sound, str(verdict)

    def verdict(self) -> Verdict:
        ends = self.kafka.end_offsets(self.topic)
        return judge(self.journals(), ends, killed=self.killed)


def described(group: Trial) -> DescribedGroup:
    """What the coordinator holds of a group.

    It shows neither a protocol nor members' bytes while a round is under way, as a follow-up
    round may be.
    """
    found: list[DescribedGroup] = []

    def stable() -> bool:
        found[:] = [_described_now(group)]
        return found[0].group_state == "Stable"

    wait_until(stable, f"{group.group} is not stable", timedelta(seconds=60))
    return found[0]


def _described_now(group: Trial) -> DescribedGroup:
    request = DescribeGroupsRequest(
        groups=(GroupId.parse(group.group),), include_authorized_operations=False
    )
    buffer = io.BytesIO()
    entity_writer(DescribeGroupsRequest)(buffer, request)
    payload = b"\0\x0f\0\x05\0\0\0\1\xff\xff\0" + buffer.getvalue()  # key, version, id, no client
    host, _, port = group.kafka.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(len(payload).to_bytes(4, "big") + payload)
        with connection.makefile("rb") as stream:
            answer = stream.read(int.from_bytes(stream.read(4), "big"))
    (found,) = entity_reader(DescribeGroupsResponse)(answer, 5)[0].groups  # after the header
    return found


def _broker_logs(kafka: KafkaCluster) -> list[Path]:
    admin = kafka.admin()
    brokers = [str(broker) for broker in admin.list_topics(timeout=PATIENCE).brokers]
    asked = admin.describe_configs([ConfigResource(ResourceType.BROKER, b) for b in brokers])
    folders = [Path(answer.result(PATIENCE)["log.dirs"].value) for answer in asked.values()]
    return [folder.with_name("server.log") for folder in folders]


@contextmanager
def trial(
    kafka: KafkaCluster, folder: Path, config: dict[str, Any] | None = None
) -> Iterator[Trial]:
    with Trial(kafka, folder, config) as made, made.load:
        yield made
