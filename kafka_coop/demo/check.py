"""The judge: which published records were processed, how often, and by whom. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Positions: TypeAlias = NDArray[np.int64]
"""Places in a topic: each a partition and an offset in one number, see `positions`."""

_OFFSET_BITS = 48
_NONE: Positions = np.empty(0, np.int64)


def positions(partition: NDArray[np.integer], offset: NDArray[np.integer]) -> Positions:
    """Partitions and offsets as one number each: 15 bits and 48 bits."""
    return (partition.astype(np.int64) << _OFFSET_BITS) | offset.astype(np.int64)


def position(partition: int, offset: int) -> int:
    """The same for a single record."""
    return (partition << _OFFSET_BITS) | offset


def end_offsets(published: Positions) -> dict[int, int]:
    """For each partition, the offset after its last record."""
    partitions, offsets = published >> _OFFSET_BITS, published & ((1 << _OFFSET_BITS) - 1)
    return {int(p): int(offsets[partitions == p].max()) + 1 for p in np.unique(partitions)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A member that was killed.

    Attributes:
        committed: Where the group was committed, for each partition that it owned then.
    """

    name: str
    committed: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of the published records.

    Attributes:
        published: How many there were.
        processed: How many of them were processed at least once.
        lost: Positions of those that were not.
        unpublished: How many positions were processed that nobody published.
        repeated: How many times a record was processed beyond the first.
        repeated_after_kill: Of these, repeats of what the killed member had processed and not
            committed.
    """

    published: int
    processed: int
    lost: Positions
    unpublished: int
    repeated: int
    repeated_after_kill: int

    @property
    def at_least_once(self) -> bool:
        """Whether nothing was lost, and nothing made up."""
        return self.lost.size == 0 and self.unpublished == 0


def judge(
    published: Positions, processed: Mapping[str, Positions], *, killed: Killed | None = None
) -> Verdict:
    """Compares what was published with what each member processed.

    Args:
        published: Each published record once.
        processed: What each member processed, repeats and all.
        killed: Who was killed, if anyone: what it had processed and not committed, others must
            process again.
    """
    expected = np.unique(published)
    everything = np.concatenate([_NONE, *processed.values()])
    distinct, times = np.unique(everything, return_counts=True)
    known = np.isin(distinct, expected, assume_unique=True)
    extra = np.where(known, times - 1, 0)
    after_kill = _NONE if killed is None else _uncommitted(processed[killed.name], killed.committed)
    return Verdict(
        published=expected.size,
        processed=int(known.sum()),
        lost=np.setdiff1d(expected, distinct, assume_unique=True),
        unpublished=int((~known).sum()),
        repeated=int(extra.sum()),
        repeated_after_kill=int(extra[np.isin(distinct, after_kill)].sum()),
    )


def _uncommitted(processed: Positions, committed: Mapping[int, int]) -> Positions:
    """What lies at or after the committed offsets, of the partitions that have one."""
    parts = [
        processed[(processed >= position(p, offset)) & (processed < position(p + 1, 0))]
        for p, offset in committed.items()
    ]
    return np.concatenate([_NONE, *parts])


def first_of_each(at: Positions) -> NDArray[np.intp]:
    """Indices that pick one entry per position: what remains when repeats are dropped."""
    return np.unique(at, return_index=True)[1]
