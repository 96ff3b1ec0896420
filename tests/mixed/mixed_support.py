"""Trials: a group of several clients' processes under load, followed and judged from outside."""

from __future__ import annotations

import importlib.util
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.trial.crew import Crew
from kafka_coop.testing.trial.load import Load
from kafka_coop.testing.trial.verdict import Verdict, judge

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

_NUMBERS = itertools.count()
_RUN = time.time_ns() % 1_000_000_000


class Trial(Crew):
    """A crew under load."""

    def __init__(
        self, kafka: KafkaCluster, folder: Path, config: dict[str, Any] | None = None
    ) -> None:
        name = f"trial-{_RUN}-{next(_NUMBERS)}"
        super().__init__(kafka.bootstrap_servers, name, name, folder, {**CONFIG, **(config or {})})
        self.kafka = kafka
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
                raise AssertionError(f"{what} did not come: {owned}, {errors}, {said}")
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

    def verdict(self) -> Verdict:
        ends = self.kafka.end_offsets(self.topic)
        return judge(self.journals(), ends, killed=self.killed)


@contextmanager
def trial(
    kafka: KafkaCluster, folder: Path, config: dict[str, Any] | None = None
) -> Iterator[Trial]:
    with Trial(kafka, folder, config) as made, made.load:
        yield made
