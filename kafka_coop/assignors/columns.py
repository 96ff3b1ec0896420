"""The columns that everything here is made of."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int32]
"""Indices: of members, topics or subscriber sets. -1 where there is none."""
Counts: TypeAlias = npt.NDArray[np.int64]
"""Numbers of partitions, and positions in columns."""
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

NOBODY = -1


def by_index(values: Ints | Counts, size: int) -> tuple[Counts, Counts]:
    """Groups the places of an array by the index that they hold, in order within each group.

    Index and place are sorted as one number each: numpy sorts int64 several times faster than it
    sorts places by what they hold.

    Args:
        values: Indices below ``size``; places that hold -1 are left out.
        size: How many indices there are.

    Returns:
        The places, group after group, and where each group begins, with one more entry.
    """
    bits = np.int64(values.size.bit_length())
    both = (values.astype(np.int64) << bits) + np.arange(values.size)
    both.sort()
    none = int(np.searchsorted(both, 0))  # -1 sorts first
    both = both[none:]
    begins = np.searchsorted(both, np.arange(size + 1, dtype=np.int64) << bits)
    return both & ((np.int64(1) << bits) - 1), begins


def loads(owner: Ints, members: int) -> Counts:
    """Per member how many positions it owns; `NOBODY`'s are left out."""
    counts: Counts = np.bincount(owner + 1, minlength=members + 1)[1:]
    return counts


def runs_of(begins: Counts, which: Ints | Counts) -> tuple[Counts, Counts]:
    """Lists the entries of the chosen runs, one run after the other.

    Args:
        begins: Where each run begins, and one more entry.
        which: The chosen ones.

    Returns:
        Per entry the place in ``which`` of its run, and the entry.
    """
    lengths = begins[which + 1] - begins[which]
    run = np.repeat(np.arange(which.size), lengths)
    shift = begins[which] - (np.cumsum(lengths) - lengths)
    return run, np.arange(run.size) + np.repeat(shift, lengths)
