"""A plan as one column: who gets what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from kafka_coop.assignors.columns import Counts, Ints, by_index
from kafka_coop.assignors.snapshot import Snapshot
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
        """Everybody's partitions, cut out of one sorted column."""
        snapshot = self.snapshot
        order, ends = by_index(self.owner, len(snapshot.members))
        topic = snapshot.topic_of[order]
        indices = snapshot.number_of[order]
        begins = np.ones(order.size, np.bool_)
        begins[1:] = topic[1:] != topic[:-1]
        begins[ends[:-1][np.diff(ends) > 0]] = True
        runs = np.flatnonzero(begins)
        counts = np.diff(runs, append=order.size)
        run_topics = topic[runs]
        run_ends = np.searchsorted(runs, ends).tolist()
        topic_names = np.array([*snapshot.topics, None], object)
        names: dict[bytes, tuple[str, ...]] = {}
        partitions: dict[str, Partitions] = {}
        for i, (member, a, b) in enumerate(
            zip(snapshot.members, run_ends, run_ends[1:], strict=False)
        ):
            mine = run_topics[a:b]
            key = mine.tobytes()
            topics = names.get(key)
            if topics is None:
                topics = names[key] = tuple(topic_names[mine].tolist())
            numbers = indices[ends[i] : ends[i + 1]]
            partitions[member] = Partitions.from_columns(
                PartitionColumns(topics, counts[a:b], numbers)
            )
        return partitions


def partitions_at(snapshot: Snapshot, positions: Counts) -> Partitions:
    """Names the partitions at these ascending positions."""
    topics, counts = np.unique(snapshot.topic_of[positions], return_counts=True)
    names = tuple(snapshot.topics[t] for t in topics.tolist())
    return Partitions.from_columns(
        PartitionColumns(names, counts.astype(np.int64), snapshot.number_of[positions])
    )
