"""Where to start: the group's committed offset, or what ``auto.offset.reset`` says.

librdkafka is given absolute offsets only. Were it given a logical one (its end, say), nobody
could commit a position before the first record came; a partition that moved on before that
would start at its end again, and the records in between would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_coop.config import OffsetReset
from kafka_coop.offsets.responses import LIST_OFFSETS, OFFSET_FETCH, Reaction
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    ClusterMetadata,
    FetchedOffset,
    ListedOffset,
    OffsetAndMetadata,
    OffsetsFetched,
    OffsetsListed,
)
from kafka_coop.types import Partitions, TopicPartition

_MISSES_BELIEVED = 8
"""Some five seconds with the default backoff. librdkafka waits 30 s
(``topic.metadata.propagation.max.ms``)."""


@dataclass(slots=True)
class Starts:
    """The search for the starting positions of some partitions, as far as it got.

    Attributes:
        unfetched: Their committed offset is still to be asked for.
        unlisted: They have none: the offset at this timestamp is still to be asked for.
        committed: Where to start, as the group has committed.
        listed_at: Where to start, as ``auto.offset.reset`` says.
        without: They have none, and ``auto.offset.reset`` is ``error``.
        failed: They can't be had, for an error that is told once.
        must_exist: What goes on missing from the cluster's metadata fails.
    """

    reset: OffsetReset
    unfetched: Partitions
    unlisted: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    listed_at: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    without: list[TopicPartition] = field(default_factory=list)
    failed: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    must_exist: bool = False
    _missed: dict[TopicPartition, int] = field(default_factory=dict)
    _refused: set[TopicPartition] = field(default_factory=set)
    _told: dict[TopicPartition, ErrorCode] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to ask, for the moment."""
        return not self.unfetched and not self.unlisted

    @property
    def settled(self) -> bool:
        """Whether nothing is left to ask for good."""
        return self.complete and not self._refused

    @property
    def refused(self) -> Partitions:
        """They failed, and are to be asked for later: a right may be granted, a topic be made."""
        return Partitions.of(self._refused)

    def ask_again(self) -> None:
        """What was refused is to be asked for from the beginning: it may be committed since."""
        self.unfetched |= self.refused
        self._refused.clear()

    def _refuse(self, partition: TopicPartition, error: ErrorCode) -> None:
        self._refused.add(partition)
        if self._told.get(partition) is not error:
            self._told[partition] = self.failed[partition] = error

    def fetched(self, answer: OffsetsFetched) -> None:
        """Takes the coordinator's answer in."""
        again: list[TopicPartition] = []
        for partition in self.unfetched:
            offset = answer.offsets.get(partition, FetchedOffset(offset=-1))
            error = answer.error if answer.error is not ErrorCode.none else offset.error
            match OFFSET_FETCH[error]:
                case Reaction.DONE:
                    self._start_at(partition, offset)
                case Reaction.RAISE:
                    self._refuse(partition, error)
                case _:
                    again.append(partition)
        self.unfetched = Partitions.of(again)

    def fetched_ahead(self, answer: OffsetsFetched) -> None:
        """The same, of one that was asked for before it was known whose offsets are wanted.

        What it does not speak of, or not well, is still to be asked for.
        """
        told = {
            partition: offset
            for partition in self.unfetched
            if (offset := answer.offsets.get(partition)) and offset.error is ErrorCode.none
        }
        for partition, offset in told.items():
            self._start_at(partition, offset)
        self.unfetched -= Partitions.of(told)

    def looked_up(self, metadata: ClusterMetadata) -> None:
        """Takes in what the cluster says of the partitions still to be listed.

        A topic made a moment ago is not known to every broker yet, so that a miss is believed
        only when it was repeated.
        """
        for partition in list(self.unlisted):
            topic = metadata.topics.get(partition.topic)
            error = ErrorCode.unknown_topic_or_partition if topic is None else topic.error
            if topic is not None and error is ErrorCode.none:
                if any(p.partition == partition.partition for p in topic.partitions):
                    self._missed.pop(partition, None)
                    continue
                error = ErrorCode.unknown_topic_or_partition
            if LIST_OFFSETS[error] is Reaction.RAISE or self._is_missing(partition, error):
                del self.unlisted[partition]
                self._refuse(partition, error)

    def _is_missing(self, partition: TopicPartition, error: ErrorCode) -> bool:
        if not self.must_exist or error is not ErrorCode.unknown_topic_or_partition:
            return False
        missed = self._missed[partition] = self._missed.get(partition, 0) + 1
        return missed >= _MISSES_BELIEVED

    def keep(self, still_wanted: Callable[[Partitions], Partitions]) -> None:
        """Gives up those that are not wanted any more."""
        self.unfetched = still_wanted(self.unfetched)
        self._refused = set(still_wanted(self.refused))
        kept = still_wanted(Partitions.of(self.unlisted))
        self.unlisted = {p: t for p, t in self.unlisted.items() if p in kept}

    def listed(self, answer: OffsetsListed) -> None:
        """Takes a partition leader's answer in."""
        for partition, listed in answer.offsets.items():
            if partition not in self.unlisted:
                continue
            match LIST_OFFSETS[listed.error]:
                case Reaction.DONE:
                    self.listed_at[partition] = _position(listed)
                    del self.unlisted[partition]
                case Reaction.RAISE:
                    self._refuse(partition, listed.error)
                    del self.unlisted[partition]
                case _:
                    pass

    def _start_at(self, partition: TopicPartition, offset: FetchedOffset) -> None:
        if offset.offset >= 0:
            self.committed[partition] = OffsetAndMetadata(
                offset=offset.offset, leader_epoch=offset.leader_epoch, metadata=offset.metadata
            )
            return
        match self.reset:
            case OffsetReset.EARLIEST:
                self.unlisted[partition] = OFFSET_EARLIEST
            case OffsetReset.LATEST:
                self.unlisted[partition] = OFFSET_LATEST
            case OffsetReset.ERROR:
                self.without.append(partition)


def by_leader(
    wanted: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, int]
) -> dict[int, dict[TopicPartition, int]]:
    """Splits a ListOffsets by the broker to ask; partitions without a leader are left out."""
    split: dict[int, dict[TopicPartition, int]] = {}
    for partition, timestamp in sorted(wanted.items()):
        leader = leaders.get(partition, -1)
        if leader >= 0:
            split.setdefault(leader, {})[partition] = timestamp
    return split


def leaders_of(metadata: ClusterMetadata) -> dict[TopicPartition, int]:
    """Each partition's leader; -1: none at the moment."""
    return {
        TopicPartition(name, p.partition): p.leader_id
        for name, topic in metadata.topics.items()
        for p in topic.partitions
    }


def _position(listed: ListedOffset) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset=listed.offset, leader_epoch=listed.leader_epoch)
