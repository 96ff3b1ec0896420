"""Partitions' records from one offset up to another: librdkafka assigned by hand.

For tasks that read ranges which somebody else planned. What librdkafka has prefetched beyond a
range's end is kept: the next range mostly begins there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import groupby
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from kafka_coop.fetching.native import native_partitions, position_at
from kafka_coop.types import TopicPartition

_NEEDED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # what is gone is told, never skipped
    "enable.partition.eof": True,  # the end of a range may hold no record: see read
}

_AT_ONCE = 2_000
"""Messages of one `consume`. More are slower: they no longer fit the processor's second cache."""

_AHEAD = 20_000
_AHEAD_BYTES = 16 << 20
"""Messages, or bytes, that are kept in all of partitions whose ranges are read while others' are
not. With more these partitions are fetched no further, and what was kept is fetched anew with their
next ranges: librdkafka, which has handed them over, does not count them in its own limits."""

_SLICE = 0.25
"""Seconds of one wait inside librdkafka, which only a message ends: signals are handled after."""

_ASK = timedelta(seconds=10)
"""For one question for a log's first and last offsets."""

_EOF: int = KafkaError._PARTITION_EOF  # noqa: SLF001  # the names of confluent's public constants
_GONE: frozenset[int] = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
)
_TRANSPORT: frozenset[int] = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}  # noqa: SLF001
)


class OffsetsGoneError(Exception):
    """The log does not have the next offset any more: retention, a deleted topic, truncation.

    Attributes:
        of: The partition.
        offset: The offset that is gone.
    """

    def __init__(self, of: TopicPartition, offset: int) -> None:
        super().__init__(f"{of.topic}:{of.partition} has no offset {offset} any more")
        self.of = of
        self.offset = offset


class UnreadableError(KafkaException):
    """The brokers refuse a partition for good, or the client can't go on.

    Attributes:
        of: The partition; None: all of them.
    """

    def __init__(self, of: TopicPartition | None, error: KafkaError) -> None:
        super().__init__(error)
        self.of = of


class NoProgressError(Exception):
    """Nothing came in time.

    Attributes:
        waited_for: The next offset of each partition whose range is not read to its end.
    """

    def __init__(self, waited_for: Mapping[TopicPartition, int], patience: timedelta) -> None:
        of, offset = next(iter(waited_for.items()))
        others = f", nor of {len(waited_for) - 1} other partitions," if len(waited_for) > 1 else ""
        super().__init__(
            f"no record of {of.topic}:{of.partition} at offset {offset}{others} came in "
            f"{patience.total_seconds():g} s"
        )
        self.waited_for = waited_for


class RangeFetcher:
    """A librdkafka consumer that reads ranges. One thread at a time.

    Args:
        config: librdkafka's configuration. ``group.id`` is required by librdkafka, which never
            joins that group here, nor commits to it.
        doubt: How long a log that ends before the next offset is asked for its end again, until
            that offset counts as gone: a broker that has crashed and is back may at first tell an
            end from long before.

    Raises:
        KafkaException: The configuration is not valid for librdkafka.
    """

    def __init__(self, config: Mapping[str, Any], *, doubt: timedelta) -> None:
        self._doubt = doubt.total_seconds()
        self._consumer = confluent_kafka.Consumer({**config, **_NEEDED})
        self._next: dict[TopicPartition, int] = {}  # of what librdkafka fetches
        self._kept: dict[TopicPartition, list[Message]] = {}  # what it gave, not read yet
        self._seen: set[TopicPartition] = set()  # what was ever fetched

    def stands_at(self, of: TopicPartition, offset: int) -> bool:
        """Whether reading on from there needs no new fetch."""
        return self._next.get(of) == offset

    def go_to(self, starts: Mapping[TopicPartition, int]) -> None:
        """Begins to fetch from there, and nothing else; what stands there goes on.

        Raises:
            KafkaException: librdkafka refuses.
        """
        stay = {of for of, offset in starts.items() if self.stands_at(of, offset)}
        self._let_go([of for of in self._next if of not in stay])
        self._fetch_from({of: offset for of, offset in starts.items() if of not in stay})

    def read(
        self, ranges: Mapping[TopicPartition, range], *, patience: timedelta
    ) -> Iterator[tuple[TopicPartition, list[Message]]]:
        """Reads ranges of partitions at the same time: each one's records in order.

        Offsets may have no record: compaction removes them, and transactions end with markers
        that are not delivered. So a range ends when a record at or beyond its end comes, or
        librdkafka reports the end of the log there, not when enough records came.

        Args:
            ranges: Of each partition, from its first offset up to the one after its last.
            patience: How long to wait without any progress.

        Yields:
            Records of one partition, never none. The list is the caller's, who may empty it.

        Raises:
            OffsetsGoneError: A partition's next offset does not exist any more. Reading may be
                taken up again elsewhere, and for the others where they are.
            NoProgressError: Nothing came in time.
            KafkaException: librdkafka failed, or a partition did.
        """
        ranges = {of: span for of, span in ranges.items() if span}
        self.go_to({of: span.start for of, span in ranges.items()})
        stops = {of: span.stop for of, span in ranges.items()}
        deadline = time.monotonic() + patience.total_seconds()
        while stops:
            if self._kept.keys().isdisjoint(stops):
                self._sort(self._fetch(stops))
                self._forget_what_is_too_far_ahead(stops)
            for of in [of for of in stops if of in self._kept]:
                before = self._next[of]
                if records := self._take(of, self._kept.pop(of), stops[of]):
                    yield of, records  # for as long as it takes
                if self._next[of] > before:
                    deadline = time.monotonic() + patience.total_seconds()
                if self._next[of] >= stops[of]:
                    del stops[of]
            if stops and time.monotonic() >= deadline:
                raise NoProgressError({of: self._next[of] for of in stops}, patience)

    def extent(self, of: TopicPartition, timeout: timedelta) -> tuple[int, int]:
        """The first offset of the log, and the one after its last.

        Raises:
            KafkaException: No broker told.
        """
        native = confluent_kafka.TopicPartition(*of)
        low, high = self._consumer.get_watermark_offsets(native, timeout.total_seconds())
        return low, high

    def close(self) -> None:
        """Ends the consumer and frees what it holds."""
        self._consumer.close()

    def _let_go(self, partitions: list[TopicPartition]) -> None:
        for of in partitions:
            del self._next[of]
            self._kept.pop(of, None)
        if partitions:
            self._consumer.incremental_unassign(native_partitions(partitions))

    def _fetch_from(self, starts: Mapping[TopicPartition, int]) -> None:
        if starts:
            self._consumer.incremental_assign(
                [confluent_kafka.TopicPartition(*of, at) for of, at in starts.items()]
            )
            self._next |= starts
            self._seen |= starts.keys()

    def _begin_anew(self, of: TopicPartition) -> None:
        """Librdkafka would reset the position. It does so for other reasons, too.

        For instance where the leader's epoch can't be validated in time. So: ask.

        Raises:
            OffsetsGoneError: The log does not have the offset.
        """
        offset = self._next[of]
        self._let_go([of])  # nothing of this assignment is to be used again
        believed = time.monotonic() + self._doubt
        with contextlib.suppress(KafkaException):  # not known: tried again, while there is time
            low, high = self.extent(of, _ASK)
            while high < offset and time.monotonic() < believed:
                time.sleep(_SLICE)
                low, high = self.extent(of, _ASK)
            if not low <= offset <= high:
                raise OffsetsGoneError(of, offset)
        self._fetch_from({of: offset})

    def _fetch(self, stops: Mapping[TopicPartition, int]) -> list[Message]:
        """What is there; if nothing is, what comes first."""
        most = _AT_ONCE
        if len(self._next) == 1:
            most = min(most, *(stop - self._next[of] for of, stop in stops.items()))
        if got := self._consumer.consume(most, 0.0):
            return got
        one = self._consumer.poll(_SLICE)
        return [] if one is None else [one]

    def _sort(self, messages: list[Message]) -> None:
        """Keeps them by partition."""
        if len(self._seen) == 1:
            self._keep(next(iter(self._seen)), messages)
            return
        for of, some in _runs(messages):
            if of in self._next:
                self._keep(of, some)
            elif not of.topic:  # the client's own errors; else of what was let go
                for message in some:
                    self._meet(None, message)

    def _keep(self, of: TopicPartition, messages: list[Message]) -> None:
        if kept := self._kept.get(of):
            kept += messages
        elif messages:
            self._kept[of] = messages

    def _forget_what_is_too_far_ahead(self, stops: Mapping[TopicPartition, int]) -> None:
        beyond = {of: kept for of, kept in self._kept.items() if of not in stops}
        # One record stands for its partition's: measuring each would cost a call each.
        size = sum(len(kept) * len(kept[-1]) for kept in beyond.values())
        if size > _AHEAD_BYTES or sum(map(len, beyond.values())) > _AHEAD:
            self._let_go([*beyond])

    def _take(self, of: TopicPartition, messages: list[Message], stop: int) -> list[Message]:
        """The records of the range; moves on, and keeps what lies beyond."""
        # Mostly there is none, and any() tells so in a quarter of the time.
        if any(map(Message.error, messages)):
            # By identity: a KafkaError compared with None raises.
            errors = enumerate(map(Message.error, messages))
            first = next(n for n, error in errors if error is not None)
            return self._take_until_error(of, messages, first, stop)
        last = position_at(messages[-1])
        self._next[of] = last + 1
        if last < stop:
            return messages
        count = next(n for n, message in enumerate(messages) if position_at(message) >= stop)
        self._kept[of] = messages[count:]
        self._next[of] = stop
        return messages[:count]

    def _take_until_error(
        self, of: TopicPartition, messages: list[Message], at: int, stop: int
    ) -> list[Message]:
        """The records before it first; the error itself when it is the next."""
        if at > 0:
            taken = self._take(of, messages[:at], stop)
            self._kept[of] = self._kept.get(of, []) + messages[at:]
            return taken
        self._keep(of, messages[1:])
        self._meet(of, messages[0])
        return []

    def _meet(self, of: TopicPartition | None, message: Message) -> None:
        """An error; of a partition, or of the client."""
        error = message.error()
        assert error is not None, "the caller has seen one"
        code = error.code()
        if of is not None and code == _EOF:
            # The log ends here, or did when librdkafka looked: all before it was delivered.
            self._next[of] = max(self._next[of], position_at(message))
        elif of is not None and code in _GONE:
            self._begin_anew(of)
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            pass  # librdkafka looks for the group's coordinator, which nothing here has use for
        elif error.fatal() or not (error.retriable() or code in _TRANSPORT):
            raise UnreadableError(of, error)


def _runs(messages: list[Message]) -> Iterator[tuple[TopicPartition, list[Message]]]:
    """Divides messages where the partition changes: what one answer brought lies together.

    In two steps, as asking each message for both at once takes four times as long.
    """
    for topic, its in groupby(messages, Message.topic):
        for partition, some in groupby(its, Message.partition):
            yield TopicPartition(topic or "", -1 if partition is None else partition), list(some)
