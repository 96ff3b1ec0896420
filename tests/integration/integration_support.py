"""Members that tests poll by turns in one thread, and everything that these were told."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import pytest
from confluent_kafka import KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.backend.classic import ClassicBackend

PATIENCE = 90.0
"""Seconds after which a test gives up waiting for what must come."""

SLICE = 0.01
"""Seconds of one poll."""

since_kip_848 = pytest.mark.since("4.0", "group.protocol=consumer (KIP-848)")
"""For what needs it: older brokers, which CI runs these tests on too, do not speak it."""

_NUMBERS = itertools.count()
_RUN = time.time_ns() % 1_000_000_000

Kind: TypeAlias = Literal["assigned", "revoked", "lost"]
Pairs: TypeAlias = tuple[tuple[str, int], ...]


class Cluster(Protocol):
    """What the embedded broker and the real one have in common."""

    @property
    def bootstrap_servers(self) -> str: ...

    def create_topic(self, name: str, *, partitions: int = 1) -> None: ...


def unique(stem: str) -> str:
    """A name that no other test of this or an earlier run uses."""
    return f"{stem}-{_RUN}-{next(_NUMBERS)}"


def pairs(partitions: Sequence[Any]) -> Pairs:
    return tuple(sorted((p.topic, p.partition) for p in partitions))


class Member:
    """A consumer, and what it was told.

    Attributes:
        told: Each callback with its partitions, in order.
        records: (topic, partition, offset) of every record, in order.
        messages: The records themselves.
        raised: What poll raised.
        errors: Partition-level errors that came as messages.
        hooks: Run inside the callback of that kind, after it was noted.
    """

    def __init__(
        self, cluster: Cluster, group: str, *topics: str, assignors: Any = None, **config: Any
    ) -> None:
        self.group = group
        self.config = settings(cluster, group, **config)
        self.registry = CollectorRegistry()
        self.consumer = CoopConsumer(self.config, assignors=assignors, registry=self.registry)
        self.told: list[tuple[Kind, Pairs]] = []
        self.records: list[tuple[str, int, int]] = []
        self.messages: list[Message] = []
        self.raised: list[BaseException] = []
        self.errors: list[Message] = []
        self.hooks: dict[Kind, Callable[[CoopConsumer, list[TopicPartition]], object]] = {}
        if topics:
            self.subscribe(*topics)

    def subscribe(self, *topics: str) -> None:
        self.consumer.subscribe(
            list(topics),
            on_assign=lambda c, ps: self._note("assigned", c, ps),
            on_revoke=lambda c, ps: self._note("revoked", c, ps),
            on_lost=lambda c, ps: self._note("lost", c, ps),
        )

    def _note(self, kind: Kind, consumer: CoopConsumer, partitions: list[TopicPartition]) -> None:
        self.told.append((kind, pairs(partitions)))
        if hook := self.hooks.get(kind):
            hook(consumer, partitions)

    def step(self, timeout: float = SLICE) -> Message | None:
        """One poll. Returns the record, if it brought one."""
        try:
            message = self.consumer.poll(timeout)
        except (KafkaException, UserError) as error:
            self.raised.append(error)
            return None
        if message is None:
            return None
        if message.error() is not None:
            self.errors.append(message)
            return None
        self.records.append(where(message))
        self.messages.append(message)
        return message

    @property
    def owned(self) -> Pairs:
        return pairs(self.consumer.assignment())

    def count(self, kind: Kind) -> int:
        return sum(1 for told, _ in self.told if told == kind)

    def calls(self, kind: Kind) -> list[Pairs]:
        return [partitions for told, partitions in self.told if told == kind]

    def balance(self) -> Pairs:
        """What the callbacks add up to."""
        owned: set[tuple[str, int]] = set()
        for kind, partitions in self.told:
            changed = set(partitions)
            if kind == "assigned":
                assert not owned & changed, "assigned what was owned"
                owned |= changed
            else:
                assert changed <= owned, "taken away what was not owned"
                owned -= changed
        return tuple(sorted(owned))

    @property
    def offsets(self) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in self.records:
            found.setdefault((topic, partition), []).append(offset)
        return found


class UserError(Exception):
    """What a user's callback raises in these tests."""


def settings(cluster: Cluster, group: str, **config: Any) -> dict[str, Any]:
    """Short sessions; keys with underscores for dots, those of callbacks excepted."""
    pace = {"session.timeout.ms": 1100, "heartbeat.interval.ms": 50}
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        **({} if config.get("group_protocol") == "consumer" else pace),
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 20,
        "retry.backoff.ms": 10,
        "log_level": 0,
        **{k if callable(v) else k.replace("_", "."): v for k, v in config.items()},
    }


def classic(member: Member) -> ClassicBackend:
    """What runs the member's own membership, to look inside."""
    backend = member.consumer._backend
    assert isinstance(backend, ClassicBackend)
    return backend


def where(message: Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


@contextlib.contextmanager
def members(*made: Member) -> Iterator[None]:
    """Closes them all at the end, one by one, whatever happened."""
    try:
        yield
    finally:
        for member in made:
            with contextlib.suppress(KafkaException, UserError):
                member.consumer.close()


@contextlib.contextmanager
def in_background(work: Callable[[], object]) -> Iterator[None]:
    """Does it again and again in a thread of its own; what it raises is raised at the end."""
    stop = threading.Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:  # noqa: BLE001  # raised by the test's thread
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    if raised:
        raise raised[0]


def until(
    ready: Callable[[], bool], *polled: Member, within: float = PATIENCE, what: str = ""
) -> None:
    """Polls the members by turns until it is so."""
    deadline = time.monotonic() + within
    while not ready():
        if time.monotonic() >= deadline:
            state = [(m.owned, m.told[-6:], m.raised[-3:], m.records[-6:]) for m in polled]
            raise TimeoutError(f"{what or 'what was waited for'} did not come: {state}")
        for member in polled:
            member.step()
        if not polled:
            time.sleep(SLICE)


def shared(topic: str, partitions: int, *polled: Member) -> None:
    """Polls until they own all partitions, each its fair share, and nobody owns twice."""
    everything = [(topic, p) for p in range(partitions)]
    least = partitions // len(polled)

    def balanced() -> bool:
        owned = sorted(pair for m in polled for pair in m.owned)
        return owned == everything and all(len(m.owned) >= least for m in polled)

    until(balanced, *polled, what="a balanced assignment")


def publish(
    cluster: Cluster, topic: str, records: int, *partitions: int, value: bytes = b"value"
) -> None:
    """Publishes so many records to each of these partitions."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
    for _ in range(records):
        for partition in partitions:
            producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE) == 0


def group_description(cluster: Cluster, group: str) -> Any:
    """What the coordinator tells of a group."""
    # It must outlive its question: else there is no answer.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (described,) = admin.describe_consumer_groups([group]).values()
    return described.result(PATIENCE)


def code(error: BaseException) -> int:
    """The KafkaError code inside an exception."""
    return int(error.args[0].code())


def at(topic: str, partition: int, offset: int) -> TopicPartition:
    return TopicPartition(topic, partition, offset)
