"""A plan as one column: who gets what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from kafka_coop.assignors.columns import Counts, Ints, by_index
from kafka_coop.assignors.snapshot import Snapshot
from kafka_coop.protocol.partition_sets import PartitionSets
from kafka_coop.types import Assignment, PartitionColumns, Partitions


class Plan(Mapping[str, Assignment]):
    """Who gets what, as one array: a partition can't be given twice, by construction.

    Attributes:
        snapshot: What was assigned.
        owner: Per position the member's index, or `NOBODY`. Read-only.
        user_data: What the assignments carry for the assignor: one for all, or one each.
        notes: What the assignor wants the operator to read.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        owner: Ints,
        *,
        user_data: bytes | Mapping[str, bytes] = b"",
        notes: tuple[str, ...] = (),
    ) -> None:
        owner.setflags(write=False)
        self.snapshot = snapshot
        self.owner = owner
        self.user_data = user_data
        self.notes = notes

    def __getitem__(self, member: str) -> Assignment:
        return Assignment(partitions=self.partitions[member], user_data=self.data_for(member))

    def data_for(self, member: str) -> bytes:
        """The user data of the member's assignment."""
        return self.user_data if isinstance(self.user_data, bytes) else self.user_data[member]

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot.members)

    def __len__(self) -> int:
        return len(self.snapshot.members)

    @cached_property
    def partitions(self) -> dict[str, Partitions]:
        """Everybody's partitions."""
        return dict(zip(self.snapshot.members, self.sets().values(), strict=True))

    def sets(self) -> PartitionSets:
        """Everybody's partitions as columns, in the order of members."""
        snapshot = self.snapshot
        order, ends = by_index(self.owner, len(snapshot.members))
        topic = snapshot.topic_of[order]
        starts = np.ones(order.size, np.bool_)
        starts[1:] = topic[1:] != topic[:-1]
        starts[ends[:-1][np.diff(ends) > 0]] = True
        runs = np.flatnonzero(starts)
        topics = topic[runs].astype(np.int64)
        counts = np.diff(runs, append=order.size)
        firsts = snapshot.offsets[topic]
        return PartitionSets(
            names=snapshot.topics,
            topics=topics,
            counts=counts,
            begins=np.searchsorted(runs, ends),
            numbers=(order - firsts).astype(np.int32),
        )


def partitions_at(snapshot: Snapshot, positions: Counts) -> Partitions:
    """Names the partitions at these ascending positions."""
    topics, counts = np.unique(snapshot.topic_of[positions], return_counts=True)
    names = tuple(snapshot.topics[t] for t in topics.tolist())
    return Partitions.from_columns(
        PartitionColumns(names, counts.astype(np.int64), snapshot.number_of[positions])
    )
