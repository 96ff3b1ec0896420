"""One partition's records from one offset up to another: librdkafka assigned by hand.

For tasks that read ranges which somebody else planned. What librdkafka has prefetched beyond a
range's end is kept: the next range mostly begins there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from kafka_coop.fetching.native import position_at
from kafka_coop.types import TopicPartition

_NEEDED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # what is gone is told, never skipped
    "enable.partition.eof": True,  # the end of a range may hold no record: see read
}

_AT_ONCE = 2_000
"""Messages of one `consume`. More are slower: they no longer fit the processor's second cache."""

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


class NoProgressError(Exception):
    """Nothing came in time."""


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
        self._of: TopicPartition | None = None
        self._next = -1
        self._ahead: list[Message] = []

    def stands_at(self, of: TopicPartition, offset: int) -> bool:
        """Whether reading on from there needs no new fetch."""
        return self._of == of and self._next == offset

    def go_to(self, of: TopicPartition, offset: int) -> None:
        """Begins to fetch from there, unless it stands there: what comes is there to be read soon.

        Raises:
            KafkaException: librdkafka refuses.
        """
        if not self.stands_at(of, offset):
            self._assign(of, offset)

    def read(
        self, of: TopicPartition, start: int, stop: int, *, patience: timedelta
    ) -> Iterator[list[Message]]:
        """Reads the records in [start, stop), in order.

        Offsets may have no record: compaction removes them, and transactions end with markers
        that are not delivered. So the range ends when a record at or beyond ``stop`` comes, or
        librdkafka reports the end of the log there, not when enough records came.

        Args:
            of: The partition.
            start: The first offset.
            stop: The offset after the last.
            patience: How long to wait without any progress.

        Yields:
            Records, never none.

        Raises:
            OffsetsGoneError: The next offset does not exist any more. Reading may be taken up
                again elsewhere.
            NoProgressError: Nothing came in time.
            KafkaException: librdkafka failed, or the partition did.
        """
        self.go_to(of, start)
        deadline = time.monotonic() + patience.total_seconds()
        while self._next < stop:
            messages = self._ahead or self._fetch(stop)
            self._ahead = []
            before = self._next
            records = self._take(messages, stop)
            if records:
                yield records  # for as long as it takes
            if self._next > before:
                deadline = time.monotonic() + patience.total_seconds()
            elif time.monotonic() >= deadline:
                raise NoProgressError(
                    f"no record of {of.topic}:{of.partition} at offset {self._next} came in "
                    f"{patience.total_seconds():g} s"
                )

    def extent(self, of: TopicPartition, timeout: timedelta) -> tuple[int, int]:
        """The first offset of the log, and the one after its last.

        Raises:
            KafkaException: No broker told.
        """
        native = confluent_kafka.TopicPartition(*of)
        low, high = self._consumer.get_watermark_offsets(native, timeout.total_seconds())
        return low, high

    def _begin_anew(self, of: TopicPartition, offset: int) -> None:
        """Librdkafka would reset the position. It does so for other reasons, too.

        For instance where the leader's epoch can't be validated in time. So: ask.

        Raises:
            OffsetsGoneError: The log does not have the offset.
        """
        self._of = None  # nothing of this assignment is to be used again
        believed = time.monotonic() + self._doubt
        with contextlib.suppress(KafkaException):  # not known: tried again, while there is time
            low, high = self.extent(of, _ASK)
            while high < offset and time.monotonic() < believed:
                time.sleep(_SLICE)
                low, high = self.extent(of, _ASK)
            if not low <= offset <= high:
                raise OffsetsGoneError(of, offset)
        self._assign(of, offset)

    def close(self) -> None:
        """Ends the consumer and frees what it holds."""
        self._consumer.close()

    def _assign(self, of: TopicPartition, offset: int) -> None:
        native = confluent_kafka.TopicPartition(of.topic, of.partition, offset)
        self._of, self._next, self._ahead = None, -1, []  # should the next line raise
        self._consumer.assign([native])
        self._of, self._next = of, offset

    def _fetch(self, stop: int) -> list[Message]:
        """What is there; if nothing is, what comes first."""
        wanted = min(_AT_ONCE, stop - self._next)
        if got := self._consumer.consume(wanted, 0.0):
            return got
        one = self._consumer.poll(_SLICE)
        return [] if one is None else [one]

    def _take(self, messages: list[Message], stop: int) -> list[Message]:
        """The records of the range; moves on, and keeps what lies beyond."""
        # Mostly there is none, and any() tells so in a quarter of the time.
        if any(map(Message.error, messages)):
            # By identity: a KafkaError compared with None raises.
            errors = enumerate(map(Message.error, messages))
            first = next(n for n, error in errors if error is not None)
            return self._take_until_error(messages, first, stop)
        if not messages:
            return messages
        last = position_at(messages[-1])
        self._next = last + 1
        if last < stop:
            return messages
        count = next(n for n, message in enumerate(messages) if position_at(message) >= stop)
        self._ahead = messages[count:]
        self._next = stop
        return messages[:count]

    def _take_until_error(self, messages: list[Message], at: int, stop: int) -> list[Message]:
        """The records before it first; the error itself when it is the next."""
        if at > 0:
            rest = messages[at:]
            taken = self._take(messages[:at], stop)
            self._ahead += rest
            return taken
        self._meet(messages[0])
        self._ahead = messages[1:]
        return []

    def _meet(self, message: Message) -> None:
        error = message.error()
        assert error is not None, "the caller has seen one"
        assert self._of is not None, "something is being read"
        code = error.code()
        if code == _EOF:
            # The log ends here, or did when librdkafka looked: all before it was delivered.
            self._next = max(self._next, position_at(message))
        elif code in _GONE:
            self._begin_anew(self._of, self._next)
        elif error.fatal() or not (error.retriable() or code in _TRANSPORT):
            self._of = None
            raise KafkaException(error)
