"""The general case: members subscribe to different topics, or live in different racks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Counts, Ints, by_index, loads
from kafka_coop.assignors.dealing import deal, surplus
from kafka_coop.assignors.racks import Racks
from kafka_coop.assignors.snapshot import Snapshot
from kafka_coop.assignors.transport import Transport, solve


def balance_general(snapshot: Snapshot, owner: Ints, racks: Racks | None = None) -> Ints:
    """Balances any group to the optimum, moving as few partitions as possible.

    Args:
        snapshot: The group.
        owner: Per position its rightful owner, or `NOBODY`.
        racks: Where given, as few partitions as possible are in another rack than their member
            (KIP-881): that comes after balance, and before partitions that move.

    Returns:
        Per position the member to own it; see `transport` for what is optimal about it.
    """
    rows = _Rows(snapshot, racks)
    arc_of = rows.arc_of(owner)
    owned = np.bincount(arc_of[arc_of >= 0], minlength=rows.member.size)
    flow = solve(
        Transport(
            begins=rows.begins,
            member=rows.member,
            supply=rows.supply,
            owned=owned,
            price=rows.prices(racks, snapshot.size + 1),
            fixed=np.zeros(len(snapshot.members), np.int64),
        )
    )
    planned = owner.copy()
    planned[surplus(arc_of, np.maximum(owned - flow, 0), snapshot.topic_of)] = NOBODY
    rows.fill(planned, np.maximum(flow - owned, 0))
    return planned


def fill_general(snapshot: Snapshot, owner: Ints) -> Ints:
    """Takes nothing from anybody; what has no owner is placed as evenly as that allows."""
    rows = _Rows(snapshot, None)
    nothing = np.zeros(rows.member.size, np.int64)
    missing = solve(
        Transport(
            begins=rows.begins,
            member=rows.member,
            supply=np.bincount(rows.row_of[owner == NOBODY], minlength=rows.supply.size),
            owned=nothing,
            price=nothing,
            fixed=loads(owner, len(snapshot.members)),
        )
    )
    planned = owner.copy()
    rows.fill(planned, missing)
    return planned


class _Rows:
    """Partitions with equal sets of subscribers, and of racks where those count, as one row.

    Attributes:
        begins, member, supply: As in `Transport`.
        row: Per arc its row.
        place: Per row its set of racks (`Racks.place_of`).
        row_of: Per position its row.
    """

    def __init__(self, snapshot: Snapshot, racks: Racks | None) -> None:
        kind_of_topic, sets = subscriber_sets(snapshot)
        kind_of = kind_of_topic[snapshot.topic_of]
        if racks is None:
            self.row_of = kind_of
            kinds, self.place = np.arange(len(sets)), np.zeros(len(sets), np.int64)
        else:
            places = len(racks.near)
            keys, row_of = np.unique(
                kind_of * np.int64(places) + racks.place_of, return_inverse=True
            )
            self.row_of = row_of.astype(np.int32)
            kinds, self.place = np.divmod(keys, places)
        sizes = np.array([s.size for s in sets], np.int64)[kinds]
        self.begins: Counts = np.concatenate(([0], np.cumsum(sizes)))
        self.member: Counts = np.concatenate(
            [np.empty(0, np.int64), *(sets[k] for k in kinds.tolist())]
        )
        self.row: Ints = np.repeat(np.arange(kinds.size, dtype=np.int32), sizes)
        self.supply: Counts = np.bincount(self.row_of, minlength=kinds.size)
        self._width = np.int64(max(len(snapshot.members), 1))

    def prices(self, racks: Racks | None, price: int) -> Counts:
        """Per arc what a partition in another rack costs."""
        if racks is None:
            return np.zeros(self.member.size, np.int64)
        near = racks.near[self.place[self.row], racks.rack_of[self.member]]
        return np.where(near, 0, np.int64(price))

    def arc_of(self, owner: Ints) -> Counts:
        """Per position the arc from its row to its owner, or -1."""
        arcs = np.full(owner.size, -1, np.int64)
        held = np.flatnonzero(owner >= 0)
        arcs[held] = np.searchsorted(
            self.row * self._width + self.member, self.row_of[held] * self._width + owner[held]
        )
        return arcs

    def fill(self, planned: Ints, missing: Counts) -> None:
        """Gives what has no owner in the plan to the members, as many per arc as it misses."""
        free = np.flatnonzero(planned == NOBODY)
        free = free[by_index(self.row_of[free], self.supply.size)[0]]
        planned[free] = self.member[deal(missing, self.row)]


def subscriber_sets(snapshot: Snapshot) -> tuple[Ints, list[Ints]]:
    """Numbers the distinct sets of subscribers.

    Returns:
        Each topic's number, and the sets, as ascending indices of members.
    """
    known: dict[bytes, int] = {}
    sets: list[Ints] = []
    number: list[int] = []
    subscribers, begins = snapshot.subscribers()
    for a, b in pairwise(begins.tolist()):
        members = subscribers[a:b]
        kind = known.setdefault(members.tobytes(), len(sets))
        if kind == len(sets):
            sets.append(members)
        number.append(kind)
    return np.array(number, np.int32), sets
