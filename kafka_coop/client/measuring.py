"""What partitions cost, measured for strategies that want to know and were given no meter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, runtime_checkable

from confluent_kafka import KafkaException

from kafka_coop.backend import clock
from kafka_coop.client.positions import Positions
from kafka_coop.loads import ProgressMeter
from kafka_coop.types import Assignor, Partitions, TopicPartition


@runtime_checkable
class MeasuresLoad(Protocol):
    """A strategy that publishes what partitions cost: `LoadAwareSticky`, or one of the user's."""

    def measure_with(self, load: Callable[[Partitions], Mapping[TopicPartition, float]], /) -> bool:
        """Offers the consumer's own measure, in records a second; returns whether it is taken."""


@runtime_checkable
class Warns(Protocol):
    """A strategy that goes on where something of the user's fails, and says so."""

    def warn_with(self, warn: Callable[[str], object], /) -> None:
        """Offers the consumer's log."""


class Measuring:
    """One consumer's measuring, if any of its strategies wants it.

    Args:
        assignors: Its strategies.
        positions: How far the user has come.
        warn: Of what a strategy has to say.

    Attributes:
        due: On `backend.clock`: when `attend` is to be called; infinity where nobody wants it.
    """

    def __init__(
        self,
        assignors: Collection[Assignor],
        positions: Positions,
        warn: Callable[[str], object],
    ) -> None:
        for assignor in assignors:
            if isinstance(assignor, Warns):
                assignor.warn_with(warn)
        self._positions = positions
        self._meter = ProgressMeter(clock=clock.now)
        asking = [a for a in assignors if isinstance(a, MeasuresLoad)]
        wanted = [a.measure_with(self._meter) for a in asking]
        self.due = self._meter.due if any(wanted) else float("inf")

    def attend(self) -> None:
        """Looks how far the user has come. For the polling thread."""
        with contextlib.suppress(KafkaException):  # librdkafka can't say: the next time, then
            self._meter.follow(self._positions.offsets)
        self.due = self._meter.due

    def restart(self, partition: TopicPartition) -> None:
        """The user moved the position. For any thread."""
        self._meter.restart(partition)
