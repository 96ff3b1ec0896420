"""What could be committed: stored offsets, and what the group has committed already."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Partitions, TopicPartition


class Ledger:
    """The offsets of the partitions owned, between the user's hands and the coordinator.

    With ``enable.auto.offset.store`` the position counts as stored, and the caller passes
    positions in; without, only what `store` was given does. Not thread-safe: the caller holds
    the fetcher's lock, but for `next_commit`.
    """

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._serials = itertools.count()
        self._told: dict[TopicPartition, int] = {}
        self._sought: dict[TopicPartition, int] = {}

    def next_commit(self) -> int:
        """The serial number of a commit that is about to be asked for. Any thread.

        How it ended may be told later than how a later one did: of two threads' commits, or of one
        that is reported inside a poll.
        """
        return next(self._serials)

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

    def started(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Fetching begins here: committing the same again would say nothing new."""
        self.committed(starts, self.next_commit())

    def sought(self, partition: TopicPartition) -> None:
        """The user has moved the position: what they store from now on may be less than before."""
        self._sought[partition] = self.next_commit()

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], serial: int) -> None:
        """The coordinator has taken these, with the commit of this `next_commit`."""
        for partition, at in offsets.items():
            if serial >= self._told.get(partition, serial):
                self._told[partition] = serial
                self._committed[partition] = at.offset
                if self._sought.get(partition, serial) < serial:
                    del self._sought[partition]

    def news(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those that differ from what is committed."""
        return {p: o for p, o in offsets.items() if self._committed.get(p) != o.offset}

    def news_stored(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of what was stored for these partitions, what is to be committed.

        Not less than what is, as librdkafka has it: of several workers a slow one stores late, and
        would undo what the others did. Who sought back means to.
        """
        stored = {p: self._stored[p] for p in partitions if p in self._stored}
        return {
            p: o
            for p, o in self.news(stored).items()
            if p in self._sought or o.offset > self._committed.get(p, -1)
        }

    def forget(self, partitions: Partitions) -> None:
        """They are not ours any more."""
        for partition in partitions:
            for known in (self._stored, self._committed, self._told, self._sought):
                known.pop(partition, None)
