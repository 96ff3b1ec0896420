"""How many records to take out of librdkafka at a time."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Message

_BYTES = 1 << 20
"""Large records are taken in smaller batches: librdkafka bounds what *it* holds
(``queued.max.messages.kbytes``), and refills at once what was taken out."""

_HELD = 8
"""So many batches at most are held of what newcomers bring, or the bytes of so many."""


class BatchSize:
    """Follows the size of the records that come.

    Attributes:
        size: Records of the next batch.
    """

    __slots__ = ("_most", "size")

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = most

    def came(self, batch: Sequence[Message]) -> None:
        """Learns from the last record of a batch, which may be empty."""
        if batch:
            record_bytes = len(batch[-1]) or 1
            self.size = max(1, min(self._most, _BYTES // record_bytes))

    def beside(self, held: int, held_bytes: int, *, least: int) -> int:
        """How many to take while so many are held back of newcomers, ``least`` in any case.

        By bytes, too: the size of a batch is by its last record, which may be another partition's
        and small, where megabytes are held of one.
        """
        room = 0 if held_bytes >= _HELD * _BYTES else _HELD * self.size - held
        return min(self.size, max(least, room))
