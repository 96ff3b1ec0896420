"""Many members' partitions as columns: what a group's bytes are read into and written from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kafka_coop.types import NO_PARTITIONS, PartitionColumns, PartitionIndices, Partitions

Longs: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionSets:
    """Sets of partitions, one after the other, each as *runs*: a topic and its partitions.

    Attributes:
        names: The topics by number. Not every one need occur.
        topics: Per run its topic's number; within a set, topics ascend by name.
        counts: Per run how many partitions it has, none of them zero.
        begins: Per set its first run, and one more entry.
        numbers: The partitions, run after run, ascending within each.
    """

    names: Sequence[str]
    topics: Longs
    counts: Longs
    begins: Longs
    numbers: PartitionIndices

    @classmethod
    def of(cls, sets: Sequence[Partitions]) -> PartitionSets:
        """Takes over the columns of each set."""
        columns = [s.columns() for s in sets]
        numbers: dict[str, int] = {}
        # Sets with the same topics often share the tuple, so its names are looked up once. The
        # values keep the tuples alive, so ids are not reused.
        known: dict[int, tuple[tuple[str, ...], Longs]] = {}
        for topics, _, _ in columns:
            if id(topics) not in known:
                mine = [numbers.setdefault(t, len(numbers)) for t in topics]
                known[id(topics)] = topics, np.array(mine, np.int64)
        sizes = [len(c.topics) for c in columns]
        return cls(
            names=list(numbers),
            topics=np.concatenate([_NONE, *(known[id(c.topics)][1] for c in columns)]),
            counts=np.concatenate([_NONE, *(c.counts for c in columns)]),
            begins=np.concatenate((_ZERO, np.cumsum(sizes, dtype=np.int64))),
            numbers=np.concatenate([np.empty(0, np.int32), *(c.indices for c in columns)]),
        )

    def values(self) -> list[Partitions]:
        """Each set by itself. Those of equal topics share one tuple of names."""
        tuples: dict[bytes, tuple[str, ...]] = {}
        name_of = np.array([*self.names, None], object)
        runs = self.begins.tolist()
        ends = np.concatenate((_ZERO, np.cumsum(self.counts)))[self.begins].tolist()
        result: list[Partitions] = []
        for run, run_end, number, number_end in zip(runs, runs[1:], ends, ends[1:], strict=False):
            if run == run_end:
                result.append(NO_PARTITIONS)
                continue
            mine = self.topics[run:run_end]
            topics = tuples.get(key := mine.tobytes())
            if topics is None:
                topics = tuples[key] = tuple(name_of[mine].tolist())
            columns = PartitionColumns(
                topics, self.counts[run:run_end], self.numbers[number:number_end]
            )
            result.append(Partitions.from_columns(columns))
        return result

    def flat(self) -> tuple[Longs, Longs]:
        """Per partition its set and its topic's number."""
        sets = np.repeat(np.arange(self.begins.size - 1), np.diff(self.begins))
        if self.numbers.size == self.counts.size:
            return sets, self.topics
        return np.repeat(sets, self.counts), np.repeat(self.topics, self.counts)


_NONE: Longs = np.empty(0, np.int64)
_ZERO: Longs = np.zeros(1, np.int64)
