"""The part of confluent's Consumer that the fetcher uses, in memory.

Exceptions strike inside when a test says so, as those of signal handlers do.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message
from fetching_support import record

from kafka_coop.fetching.native import partition_of

NATIVE = list[confluent_kafka.TopicPartition]
INVALID = confluent_kafka.OFFSET_INVALID


class InterruptionError(Exception):
    """Stands for what a signal handler raises."""


class StandIn:
    """Two partitions of a hundred records, in the part of confluent's Consumer that is used."""

    def __init__(self, config: dict[str, object]) -> None:
        self.log = {p: [record(p, offset, epoch=7) for offset in range(100)] for p in (0, 1)}
        self.upcoming: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.consume_raises = False
        self.seeks_until_raising = -1
        self.not_started = False
        self.stopping: set[int] = set()
        self.paused: set[int] = set()
        self.met: set[int] = set()

    def list_topics(self, _topic: str | None, _timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={})

    def assignment(self) -> NATIVE:
        return [confluent_kafka.TopicPartition("t", p) for p in self.upcoming]

    def incremental_assign(self, partitions: NATIVE) -> None:
        if any(p.partition in self.upcoming for p in partitions):
            raise KafkaException(KafkaError(KafkaError._CONFLICT))
        self.upcoming |= {p.partition: p.offset for p in partitions}
        self.met |= {p.partition for p in partitions}

    def incremental_unassign(self, partitions: NATIVE) -> None:
        if any(p.partition not in self.upcoming for p in partitions):
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        for p in partitions:
            del self.upcoming[p.partition]
            self.stopping.add(p.partition)

    def get_watermark_offsets(
        self, of: confluent_kafka.TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        assert cached, f"nobody is to be asked for {timeout} s"
        self.met.add(of.partition)
        return INVALID, INVALID

    def pause(self, partitions: NATIVE) -> None:
        """Comes after the stop in the partition's queue: the stop is done. Outlives it."""
        self.paused.update({p.partition for p in partitions} & self.met)
        for p in self.stopping:
            self.positions.pop(p, None)
        self.stopping.clear()

    def resume(self, partitions: NATIVE) -> None:
        self.paused.difference_update(p.partition for p in partitions)

    def position(self, partitions: NATIVE) -> NATIVE:
        return [
            confluent_kafka.TopicPartition(
                p.topic, p.partition, self.positions.get(p.partition, INVALID)
            )
            for p in partitions
        ]

    def seek(self, to: confluent_kafka.TopicPartition) -> None:
        if self.not_started:
            raise KafkaException(KafkaError(KafkaError._STATE))
        if self.seeks_until_raising == 0:
            raise InterruptionError
        self.seeks_until_raising -= 1
        self.upcoming[to.partition] = to.offset
        self.positions.pop(to.partition, None)

    def consume(self, n: int, _: float) -> list[Message]:
        """As many of each partition; swallowed if it is to raise."""
        taken = []
        for partition in [p for p in self.upcoming if p not in self.paused]:
            at = self.upcoming[partition]
            found = self.log[partition][at : at + n // len(self.upcoming)]
            taken += found
            self.upcoming[partition] = self.positions[partition] = at + len(found)
        if self.consume_raises:
            raise InterruptionError
        return taken

    def poll(self, _: float) -> Message | None:
        taken = self.consume(len(self.upcoming), 0.0)
        for message in taken[1:]:  # of the others, that is
            self.upcoming[partition_of(message).partition] -= 1
        return taken[0] if taken else None


class Striking:
    """A `StandIn`, one of whose next calls ends with an exception.

    Attributes:
        inner: It.
        calls_left: That one's number, from 1 on. Zero or less: none does.
        too_late: It strikes when the call has done its work, not before.
    """

    kind: type[StandIn] = StandIn

    def __init__(self, config: dict[str, object]) -> None:
        self.inner: Any = self.kind(config)
        self.calls_left = 0
        self.too_late = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls_left -= 1
            strikes = self.calls_left == 0
            if strikes and not self.too_late:
                raise InterruptionError
            result = method(*arguments, **named)
            if strikes:
                raise InterruptionError
            return result

        return call
