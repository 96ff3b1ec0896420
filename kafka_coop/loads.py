"""What partitions cost, measured where they are consumed: for `LoadAwareSticky`.

meter = LoadMeter("bytes")
consumer = CoopConsumer(config, assignors=[LoadAwareSticky(meter)])
...
messages = consumer.consume(500, 1)
meter.note(messages)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Literal, Protocol, TypeAlias

from kafka_coop.types import Partitions, TopicPartition

_LEAST_SECONDS = 1.0
"""A burst at the beginning says nothing of the rate."""

Unit: TypeAlias = Literal["records", "bytes"]


class _Record(Protocol):
    """What is needed of a `confluent_kafka.Message`."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def error(self) -> object: ...
    def __len__(self) -> int: ...


class LoadMeter:
    """Records or bytes a second and partition, averaged over the recent past.

    An average with weights that halve every `half_life`: what a partition got in the last
    half-life counts as much as all before. A partition is known after a second, and forgotten
    when the member owns it no more.

    Every member of a group must measure the same. Callable from any thread.

    Args:
        unit: What is counted; of bytes those of keys and values are (``len(message)``).
        half_life: Short follows bursts, long keeps partitions where they are.
        clock: Seconds, never going backwards.

    Raises:
        ValueError: The unit is not known, or the half-life not positive.
    """

    def __init__(
        self,
        unit: Unit = "records",
        *,
        half_life: timedelta = timedelta(minutes=1),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if unit not in {"records", "bytes"}:
            raise ValueError(f"unit is {unit!r}; 'records' or 'bytes' is needed")
        if half_life <= timedelta():
            raise ValueError(f"half_life is {half_life}; more than zero is needed")
        self._bytes = unit == "bytes"
        self._half_life = half_life.total_seconds()
        self._clock = clock
        self._lock = threading.Lock()
        self._folded = clock()
        self._fresh: dict[TopicPartition, float] = {}
        self._amounts: dict[TopicPartition, float] = {}
        self._seconds: dict[TopicPartition, float] = {}

    def note(self, messages: Iterable[_Record]) -> None:
        """Counts records that were consumed; those that are errors count for nothing.

        Costs about half a microsecond a record.
        """
        with self._lock:
            if self._clock() - self._folded > self._half_life / 8:
                self._fold()
            for message in messages:
                topic, partition = message.topic(), message.partition()
                if message.error() is None and topic is not None and partition is not None:
                    at = TopicPartition(topic, partition)
                    weight = len(message) if self._bytes else 1
                    self._fresh[at] = self._fresh.get(at, 0.0) + weight

    def __call__(self, owned: Partitions) -> dict[TopicPartition, float]:
        """Units a second of those partitions that were measured for a second at least.

        A partition of which nothing came in that time is idle, not unknown.
        """
        with self._lock:
            for at in owned:
                self._fresh.setdefault(at, 0.0)
            for at in self._amounts.keys() | self._fresh.keys():
                if at not in owned:
                    self._amounts.pop(at, None)
                    self._seconds.pop(at, None)
                    self._fresh.pop(at, None)
            self._fold()
            return {
                at: self._amounts[at] / s for at, s in self._seconds.items() if s >= _LEAST_SECONDS
            }

    def _fold(self) -> None:
        """Ages what was counted, and adds what is new, which came since the last time."""
        now = self._clock()
        passed, self._folded = now - self._folded, now
        kept = 0.5 ** (passed / self._half_life)
        for at in self._amounts.keys() | self._fresh.keys():
            self._amounts[at] = self._amounts.get(at, 0.0) * kept + self._fresh.get(at, 0.0)
            self._seconds[at] = self._seconds.get(at, 0.0) * kept + passed
        self._fresh.clear()
