"""A plan as one column: who gets what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from kafka_coop.assignors.columns import Counts, Ints
from kafka_coop.assignors.snapshot import Snapshot
from kafka_coop.protocol.partition_sets import PartitionSets
from kafka_coop.types import NO_PARTITIONS, Assignment, PartitionColumns, Partitions

_INT32_BITS = 32


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
        members = len(snapshot.members)
        # Member, topic and number are sorted as one number, with as many bits as each needs.
        number_bits = int(snapshot.counts.max(initial=0)).bit_length()
        member_bits = len(snapshot.topics).bit_length() + number_bits
        dtype: Any = np.int32 if members.bit_length() + member_bits < _INT32_BITS else np.int64
        key: Ints | Counts = self.owner.astype(dtype)
        key <<= member_bits
        first = np.arange(len(snapshot.topics)) << number_bits
        key += np.repeat((first - snapshot.offsets[:-1]).astype(dtype), snapshot.counts)
        key += np.arange(key.size, dtype=dtype)
        key.sort()
        key = key[int(np.searchsorted(key, dtype(0))) :]  # nobody is -1, and sorts first
        runs = key >> number_bits  # member and topic
        starts = np.ones(key.size, np.bool_)
        np.not_equal(runs[1:], runs[:-1], out=starts[1:])
        if starts.all():
            counts = np.ones(key.size, np.int64)
        else:
            at = np.flatnonzero(starts)
            runs = runs.take(at)
            counts = np.diff(at, append=key.size)
        ends = np.arange(members + 1, dtype=dtype) << (member_bits - number_bits)
        return PartitionSets(
            names=snapshot.topics,
            topics=(runs & ((1 << (member_bits - number_bits)) - 1)).astype(np.int64),
            counts=counts,
            begins=np.searchsorted(runs, ends),
            numbers=(key & ((1 << number_bits) - 1)).astype(np.int32),
        )


def partitions_at(snapshot: Snapshot, positions: Counts) -> Partitions:
    """Names the partitions at these ascending positions."""
    if not positions.size:
        return NO_PARTITIONS
    topics, counts = np.unique(snapshot.topic_of[positions], return_counts=True)
    names = tuple(snapshot.topics[t] for t in topics.tolist())
    return Partitions.from_columns(
        PartitionColumns(names, counts.astype(np.int64), snapshot.number_of[positions])
    )
