"""What partitions cost, measured where they are consumed: for `LoadAwareSticky`.

Unasked, the consumer measures records a second with a `ProgressMeter`. What else is to count,
the user counts:

meter = LoadMeter("bytes")
consumer = CoopConsumer(config, assignors=[LoadAwareSticky(meter)])
...
messages = consumer.consume(500, 1)
meter.note(messages)
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import timedelta
from typing import Literal, Protocol, TypeAlias

from kafka_coop.types import Partitions, TopicPartition

_LEAST_SECONDS = 1.0
"""A burst at the beginning says nothing of the rate."""

_SECONDS_BETWEEN = 1.0
_TIMES_ITS_COST = 1000
"""Between two looks at the positions: so that they cost a thousandth of the time at most."""

_HALF_LIFE = timedelta(minutes=1)

Unit: TypeAlias = Literal["records", "bytes"]


class _Record(Protocol):
    """What is needed of a `confluent_kafka.Message`."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def error(self) -> object: ...
    def __len__(self) -> int: ...


class _Rates:
    """Amounts a second, averaged with weights that halve every ``half_life``. Not thread-safe."""

    def __init__(self, half_life: timedelta, now: float) -> None:
        if half_life <= timedelta():
            raise ValueError(f"half_life is {half_life}; more than zero is needed")
        self._half_life = half_life.total_seconds()
        self._folded = now
        self._amounts: dict[TopicPartition, float] = {}
        self._seconds: dict[TopicPartition, float] = {}
        self._began: dict[TopicPartition, float] = {}

    def begin(self, at: TopicPartition, now: float) -> None:
        """Has its time begin now, unless it has begun."""
        if at not in self._amounts:
            self._amounts[at] = self._seconds[at] = 0.0
            self._began[at] = now

    def due(self, now: float) -> bool:
        """Whether what is new has been kept apart for long."""
        return now - self._folded > self._half_life / 8

    def fold(self, fresh: Mapping[TopicPartition, float], now: float) -> None:
        """Ages what was counted, and adds what is new, which came since the last time."""
        before, self._folded = self._folded, now
        passed = now - before
        kept = 0.5 ** (passed / self._half_life)
        for at in self._amounts.keys() | fresh.keys():
            self._amounts[at] = self._amounts.get(at, 0.0) * kept + fresh.get(at, 0.0)
            lasted = now - self._began.pop(at, before)
            self._seconds[at] = self._seconds.get(at, 0.0) * kept + lasted

    def keep(self, owned: Container[TopicPartition]) -> None:
        """Forgets all others."""
        for at in [at for at in self._amounts if at not in owned]:
            del self._amounts[at], self._seconds[at]
            self._began.pop(at, None)

    def read(self) -> dict[TopicPartition, float]:
        """Units a second of what was measured for a second at least."""
        return {at: self._amounts[at] / s for at, s in self._seconds.items() if s >= _LEAST_SECONDS}


class LoadMeter:
    """Records or bytes a second and partition, averaged over the recent past.

    An average with weights that halve every `half_life`: what a partition got in the last
    half-life counts as much as all before. A partition is known a second after it came, and
    forgotten when the member owns it no more. When it came `LoadAwareSticky` says (`owning`); else
    it is when the meter first heard of it.

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
        half_life: timedelta = _HALF_LIFE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if unit not in {"records", "bytes"}:
            raise ValueError(f"unit is {unit!r}; 'records' or 'bytes' is needed")
        self._bytes = unit == "bytes"
        self._clock = clock
        self._lock = threading.Lock()
        self._rates = _Rates(half_life, clock())
        self._fresh: dict[TopicPartition, float] = {}

    def __getstate__(self) -> dict[str, object]:
        """For `copy.deepcopy`, which locks refuse: a plan asks a copy, and this one goes on."""
        with self._lock:
            rates, fresh = copy.deepcopy(self._rates), dict(self._fresh)
        return {**vars(self), "_lock": None, "_rates": rates, "_fresh": fresh}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def note(self, messages: Iterable[_Record]) -> None:
        """Counts records that were consumed; those that are errors count for nothing.

        Costs about half a microsecond a record.
        """
        with self._lock:
            now = self._clock()
            if self._rates.due(now):
                self._fold(now)
            for message in messages:
                topic, partition = message.topic(), message.partition()
                if message.error() is None and topic is not None and partition is not None:
                    at = TopicPartition(topic, partition)
                    weight = len(message) if self._bytes else 1
                    if at not in self._fresh:
                        self._rates.begin(at, now)
                    self._fresh[at] = self._fresh.get(at, 0.0) + weight

    def owning(self, owned: Partitions) -> None:
        """Measures from now on what of these is new, and forgets all others."""
        with self._lock:
            self._keep(owned)

    def __call__(self, owned: Partitions) -> dict[TopicPartition, float]:
        """Units a second of those partitions that were measured for a second at least.

        A partition of which nothing came in that time is idle, not unknown.
        """
        with self._lock:
            self._keep(owned)
            return self._rates.read()

    def _keep(self, owned: Partitions) -> None:
        now = self._clock()
        self._fresh = {at: n for at, n in self._fresh.items() if at in owned}
        self._rates.keep(owned)
        for at in owned:
            self._rates.begin(at, now)
        self._fold(now)

    def _fold(self, now: float) -> None:
        self._rates.fold(self._fresh, now)
        self._fresh.clear()


class ProgressMeter:
    """Records a second and partition, as a `LoadMeter`'s, read from how positions move.

    Nothing is done for a record, and no more than a thousandth of the time is spent here,
    however many the partitions: positions are asked for once a second, or more seldom. What
    compaction and transactions leave out of the log counts as consumed.

    Callable from any thread; `follow` belongs to one.

    Args:
        half_life, clock: As of `LoadMeter`.

    Attributes:
        due: By ``clock``: when `follow` is to be called next.
    """

    def __init__(
        self,
        *,
        half_life: timedelta = _HALF_LIFE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.due = 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self._rates = _Rates(half_life, clock())
        self._last: dict[TopicPartition, int] = {}

    def follow(self, positions: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Counts what was consumed since the last time.

        Args:
            positions: The next offsets of the partitions owned, where they are known.
        """
        began = self._clock()
        found = positions()
        with self._lock:
            fresh = {
                at: float(max(offset - self._last[at], 0))
                for at, offset in found.items()
                if at in self._last
            }
            self._last = dict(found)
            self._rates.keep(fresh)
            self._rates.fold(fresh, began)
        ended = self._clock()
        self.due = ended + max(_SECONDS_BETWEEN, _TIMES_ITS_COST * (ended - began))

    def restart(self, partition: TopicPartition) -> None:
        """Measures it anew: its position was moved, which is no progress."""
        with self._lock:
            self._last.pop(partition, None)

    def __call__(self, owned: Partitions) -> dict[TopicPartition, float]:
        """Records a second of those partitions that were measured for a second at least."""
        with self._lock:
            return {at: rate for at, rate in self._rates.read().items() if at in owned}
