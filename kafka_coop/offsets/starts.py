"""Where to start: the group's committed offset, or what ``auto.offset.reset`` says.

librdkafka is given absolute offsets only. Were it given a logical one (its end, say), nobody
could commit a position before the first record came; a partition that moved on before that
would start at its end again, and the records in between would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_coop.config import OffsetReset
from kafka_coop.offsets.responses import LIST_OFFSETS, OFFSET_FETCH, Reaction
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    FetchedOffset,
    ListedOffset,
    OffsetAndMetadata,
    OffsetsFetched,
    OffsetsListed,
)
from kafka_coop.types import Partitions, TopicPartition


@dataclass(slots=True)
class Starts:
    """The search for the starting positions of some partitions, as far as it got.

    Attributes:
        unfetched: Their committed offset is still to be asked for.
        unlisted: They have none: the offset at this timestamp is still to be asked for.
        committed: Where to start, as the group has committed.
        listed_at: Where to start, as ``auto.offset.reset`` says.
        without: They have none, and ``auto.offset.reset`` is ``error``.
        failed: They can't be had.
        rediscover: The coordinator is elsewhere.
    """

    reset: OffsetReset
    unfetched: Partitions
    unlisted: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    listed_at: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    without: list[TopicPartition] = field(default_factory=list)
    failed: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    rediscover: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing is left to ask."""
        return not self.unfetched and not self.unlisted

    def fetched(self, answer: OffsetsFetched) -> None:
        """Takes the coordinator's answer in."""
        self.rediscover = OFFSET_FETCH[answer.error] is Reaction.REDISCOVER
        again: list[TopicPartition] = []
        for partition in self.unfetched:
            offset = answer.offsets.get(partition, FetchedOffset(offset=-1))
            error = answer.error if answer.error is not ErrorCode.none else offset.error
            match OFFSET_FETCH[error]:
                case Reaction.DONE:
                    self._start_at(partition, offset)
                case Reaction.RAISE:
                    self.failed[partition] = error
                case _:
                    again.append(partition)
        self.unfetched = Partitions.of(again)

    def listed(self, answer: OffsetsListed) -> None:
        """Takes a partition leader's answer in."""
        for partition, listed in answer.offsets.items():
            if partition not in self.unlisted:
                continue
            match LIST_OFFSETS[listed.error]:
                case Reaction.DONE:
                    del self.unlisted[partition]
                    self.listed_at[partition] = _position(listed)
                case Reaction.RAISE:
                    del self.unlisted[partition]
                    self.failed[partition] = listed.error
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


def _position(listed: ListedOffset) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset=listed.offset, leader_epoch=listed.leader_epoch)
