"""What could be committed: stored offsets, and what the group has committed already."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Partitions, TopicPartition


class Ledger:
    """The offsets of the partitions owned, between the user's hands and the coordinator.

    With ``enable.auto.offset.store`` the position counts as stored, and the caller passes
    positions in; without, only what `store` was given does. Not thread-safe: the caller holds
    the fetcher's lock.
    """

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed: dict[TopicPartition, int] = {}

    def store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Remembers offsets for the next commit without arguments.

        What is none (a position that is not known yet) leaves nothing to commit, as librdkafka
        has it: committed, it would undo what the group has.
        """
        for partition, at in offsets.items():
            if at.offset >= 0:
                self._stored[partition] = at
            else:
                self._stored.pop(partition, None)

    def stored(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """What was stored for these partitions."""
        return {p: self._stored[p] for p in partitions if p in self._stored}

    def started(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Fetching begins here: committing the same again would say nothing new."""
        self._committed.update({p: o.offset for p, o in starts.items()})

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The coordinator has taken these."""
        self._committed.update({p: o.offset for p, o in offsets.items()})

    def news(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those that differ from what is committed."""
        return {p: o for p, o in offsets.items() if self._committed.get(p) != o.offset}

    def forget(self, partitions: Partitions) -> None:
        """They are not ours any more."""
        for partition in partitions:
            self._stored.pop(partition, None)
            self._committed.pop(partition, None)
