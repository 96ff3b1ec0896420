"""Who owns what, and for how long nobody does: columns over all partitions."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

NOBODY = -1


class Ownership:
    """The partitions of a group, by position.

    Attributes:
        owner: The owner's number, or `NOBODY`.
        unowned: For how long each partition had no owner, in all, seconds.
        stopped: How often an owner stopped, over all partitions.
        moved, minimum: How many partitions changed owners from one settled state of the group
            to the next, and how many had to, in all.
    """

    def __init__(self, owner: Ints) -> None:
        self.owner = owner
        self.unowned: Floats = np.zeros(owner.size)
        self.stopped = 0
        self.moved = 0
        self.minimum = 0
        self._since: Floats = np.zeros(owner.size)
        self._settled = owner.copy()

    def lose(self, positions: Ints, at: Floats | float) -> None:
        """Ownership of these ends."""
        self.stopped += int(positions.size)
        self.owner[positions] = NOBODY
        self._since[positions] = at

    def gain(self, positions: Ints, owners: Ints, at: float) -> None:
        """Ownership of these, which nobody owns, begins."""
        self.unowned[positions] += np.maximum(at - self._since[positions], 0.0)
        self.owner[positions] = owners

    def end(self, at: float) -> None:
        """The run is over: what nobody owns now had no owner until then."""
        open_ = np.flatnonzero(self.owner == NOBODY)
        self.unowned[open_] += np.maximum(at - self._since[open_], 0.0)

    def of(self, members: Flags) -> Ints:
        """The positions that some of these members own."""
        return np.flatnonzero((self.owner >= 0) & members[self.owner])

    def settle(self, members: Ints) -> None:
        """The group is stable, with these members: what has moved since it last was?"""
        self.moved += int(np.count_nonzero(self._settled != self.owner))
        self.minimum += fewest_moves(self._settled, members)
        self._settled = self.owner.copy()


def fewest_moves(owner: Ints, members: Ints) -> int:
    """How many partitions have to move, so that these members share them evenly.

    All of those whose owner is no member, and what members have beyond their share. The larger
    shares go to those who have most.
    """
    if not members.size:
        return 0
    held = owner[np.isin(owner, members)]
    counts = np.bincount(held, minlength=int(members.max()) + 1)[members]
    share, larger = divmod(owner.size, members.size)
    shares = np.full(members.size, share)
    shares[:larger] += 1
    beyond = np.maximum(np.sort(counts)[::-1] - shares, 0)
    return int(owner.size - held.size + beyond.sum())
