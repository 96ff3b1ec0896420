"""Up to where records were delivered, in case an exception swallows some.

`confluent_kafka.Consumer.consume` destroys the records it has gathered when a signal handler
raises meanwhile (Ctrl-C), yet librdkafka counts them as consumed: whoever carries on, or
commits on the way out, skips them. The fetcher therefore knows what it has delivered, and
seeks back.

Asking librdkafka for all positions costs 0.75 µs a partition; looking at every record costs
0.13 µs. Either would show in a batch of a few hundred records. So the positions are asked for
once in a while, and what was delivered since is only *kept* (references to it, a bounded
number of bytes); it is looked at when something was swallowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import confluent_kafka
from confluent_kafka import Message

from kafka_coop.fetching.native import known_positions, partition_of, position_after
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import TopicPartition

_RECORDS_PER_PARTITION = 50
"""Positions are asked for after this many records a partition: 0.015 µs a record."""

_MOST_RECORDS = 4096
_RECORD_BYTES = 1024
"""A larger record counts as several, so that no more than 4 MiB are kept."""


def _size(message: Message) -> int:
    """Of its value, which may be anything by now: a user's deserializer sets it (``set_value``)."""
    value = message.value()
    return len(value) if isinstance(value, bytes) else _RECORD_BYTES


class DeliveryLedger:
    """Positions when last asked for, and the records delivered since.

    Attributes:
        room: How many more records can be noted before the positions are due. Zero or
            less: `settle` before anything else is consumed.
    """

    __slots__ = ("_journal", "_reached", "_settled", "room")

    def __init__(self) -> None:
        self.room = 0
        self._reached: dict[TopicPartition, int] = {}
        self._settled: dict[TopicPartition, OffsetAndMetadata] = {}
        self._journal: list[Sequence[Message]] = []

    def settle(self, positions: Iterable[confluent_kafka.TopicPartition]) -> None:
        """Starts anew from what `confluent_kafka.Consumer.position` says."""
        settled = known_positions(positions)
        room = min(_RECORDS_PER_PARTITION * (len(settled) + 1), _MOST_RECORDS)
        # All at once: no call in between, at whose end a signal handler could raise.
        self._settled, self._journal, self.room = settled, [], room
        self._reached = {of: at.offset for of, at in settled.items()}

    def note(self, batch: Sequence[Message]) -> bool:
        """Keeps a non-empty batch that was delivered. O(1).

        Returns:
            Whether offsets have gone back in a partition, as far as the batch's ends show: it was
            sought, or what was read of it is gone and ``auto.offset.reset`` began it anew.
            librdkafka's position does not go back then, and whoever went by it would skip what
            comes between. Where it matters many records come again, or batches are small.
        """
        went_back = False
        for message in (batch[0], batch[-1])[: len(batch)]:
            if message.error() is None:
                of, offset = partition_of(message), position_after(message).offset
                went_back |= offset <= self._reached.get(of, -1)
                self._reached[of] = offset
        self._journal.append(batch)
        self.room -= len(batch) * (1 + _size(batch[-1]) // _RECORD_BYTES)
        return went_back

    def invalidate(self) -> None:
        """Positions were changed by other means than consuming: they are due again."""
        self.room = 0

    def expected(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where librdkafka's positions must be if no record was swallowed.

        Partitions of which nothing was ever consumed are absent. O(records noted).
        """
        positions = dict(self._settled)
        for batch in self._journal:
            for message in batch:
                if message.error() is None:
                    positions[partition_of(message)] = position_after(message)
        return positions
