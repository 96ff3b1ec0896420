"""Committed offsets at the coordinator: who committed what, in which generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, OffsetAndMetadata, OffsetCommit
from kafka_coop.types import Generation, MemberId, Partitions, TopicPartition

NO_OFFSET = -1
"""OffsetFetch: the group has committed none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """One commit of one partition.

    Attributes:
        at: Virtual time, seconds: when it was written, in a transaction or not.
        sequence: Its place in the log, across groups: of two commits the later one stands, even
            where the earlier one's transaction ends last.
        producer_id: The transaction's; None outside one.
    """

    at: float
    sequence: int
    group_id: str
    partition: TopicPartition
    position: OffsetAndMetadata
    member_id: MemberId
    instance_id: str | None
    generation: Generation
    producer_id: int | None = None


class CommittedOffsets:
    """The offsets of all groups. They outlive the coordinator.

    Attributes:
        history: Every commit that was accepted, in order; those of transactions that were
            aborted later are among them.
    """

    def __init__(self) -> None:
        self.history: list[CommittedOffset] = []
        self._standing: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._open: dict[int, dict[tuple[str, TopicPartition], CommittedOffset]] = {}

    def of_group(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """What the group has committed; offsets of open transactions are not among it."""
        return dict(self._standing.get(group_id, {}))

    def groups(self) -> tuple[str, ...]:
        """The groups that have committed anything, sorted."""
        pending = {group_id for keys in self._open.values() for group_id, _ in keys}
        return tuple(sorted(self._standing.keys() | pending))

    def commit(
        self,
        request: OffsetCommit,
        partition: TopicPartition,
        *,
        at: float,
        producer_id: int | None = None,
    ) -> None:
        """Writes one offset of the request; in a transaction it takes effect at its end."""
        committed = CommittedOffset(
            at=at,
            sequence=len(self.history),
            group_id=request.group_id,
            partition=partition,
            position=request.offsets[partition],
            member_id=request.member_id,
            instance_id=request.instance_id,
            generation=request.generation,
            producer_id=producer_id,
        )
        self.history.append(committed)
        if producer_id is None:
            self._standing.setdefault(request.group_id, {})[partition] = committed
        else:
            self._open.setdefault(producer_id, {})[request.group_id, partition] = committed

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Applies or drops what the producer's transaction wrote; without one, does nothing."""
        written = self._open.pop(producer_id, {})
        if not committed:
            return
        for (group_id, partition), pending in written.items():
            standing = self._standing.setdefault(group_id, {})
            earlier = standing.get(partition)
            if earlier is None or earlier.sequence < pending.sequence:
                standing[partition] = pending

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction holds an offset of the partition (KIP-447)."""
        return any((group_id, partition) in pending for pending in self._open.values())

    def fetch(
        self, group_id: str, partitions: Partitions, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """What OffsetFetch is answered, partition by partition; existing or not."""
        return {
            partition: self._fetch_one(group_id, partition, require_stable=require_stable)
            for partition in partitions
        }

    def _fetch_one(
        self, group_id: str, partition: TopicPartition, *, require_stable: bool
    ) -> FetchedOffset:
        if require_stable and self.is_unstable(group_id, partition):
            return FetchedOffset(offset=NO_OFFSET, error=ErrorCode.unstable_offset_commit)
        committed = self._standing.get(group_id, {}).get(partition)
        if committed is None:
            return FetchedOffset(offset=NO_OFFSET)
        position = committed.position
        return FetchedOffset(
            offset=position.offset,
            leader_epoch=position.leader_epoch,
            metadata=position.metadata,
        )

    def drop_topic(self, topic: str) -> None:
        """The topic was deleted: every group's offsets of it go, open transactions' too."""
        for standing in self._standing.values():
            for partition in [p for p in standing if p.topic == topic]:
                del standing[partition]
        for pending in self._open.values():
            for key in [k for k in pending if k[1].topic == topic]:
                del pending[key]

    def drop_group(self, group_id: str) -> None:
        """The group was deleted, and its offsets with it."""
        self._standing.pop(group_id, None)
        for pending in self._open.values():
            for key in [k for k in pending if k[0] == group_id]:
                del pending[key]
