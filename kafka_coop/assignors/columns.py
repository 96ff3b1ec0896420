"""The columns that everything here is made of."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int32]
"""Indices: of members, topics or subscriber sets. -1 where there is none."""
Counts: TypeAlias = npt.NDArray[np.int64]
"""Numbers of partitions, and positions in columns."""
Flags: TypeAlias = npt.NDArray[np.bool_]

NOBODY = -1


def by_index(values: Ints | Counts, size: int) -> tuple[Counts, Counts]:
    """Groups the places of an array by the index that they hold, in order within each group.

    Args:
        values: Indices below ``size``; places that hold -1 are left out.
        size: How many indices there are.

    Returns:
        The places, group after group, and where each group begins, with one more entry.
        Indices below 2¹⁶ are sorted by radix, several times faster than by comparison.
    """
    sizes = np.bincount(values[values >= 0], minlength=size)
    if size < np.iinfo(np.uint16).max:
        order = np.argsort(values.astype(np.uint16), kind="stable")  # -1 becomes the largest
        order = order[: int(sizes.sum())]
    else:
        order = np.argsort(values, kind="stable")[values.size - int(sizes.sum()) :]
    return order, np.concatenate(([0], np.cumsum(sizes)))
