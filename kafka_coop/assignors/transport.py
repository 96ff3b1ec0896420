"""How many of which to whom: the optimal balance, and of those plans the cheapest.

Partitions with the same subscribers are alike, so a plan is a flow from *rows* (partitions with
one set of subscribers) to members. Two objectives, one before the other:

1. The sorted vector of loads is lexicographically least, largest first: an *optimal
   semi-matching* (Harvey, Ladner, Lovász, Tamir 2006). No chain of moves, however long, takes a
   partition from one member to another that has at least two fewer.
2. Among those plans the price is least: by default the partitions that leave their owner.

**Balance by splitting** (Fujishige's decomposition for lexicographically optimal bases). If
loads ⌊λ⌋ and ⌈λ⌉ are feasible for everyone, λ being the average, they are optimal. If not, the
flow gets stuck, and the nodes from which no place can be reached are a *tight set*: members that
in every optimal plan hold exactly the partitions that nobody else may have. The problem then
splits there into two independent ones.

**Price by shortest paths** (primal-dual min-cost flow). The flow starts as "everyone keeps what
they own", which costs nothing and overloads some; overload then travels along cheapest paths to
where places are. A flow that only ever used cheapest paths has no cheaper one of its loads.
Labels and flows are computed for all nodes at once; each phase costs O(arcs) a step of path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kafka_coop.assignors.columns import Counts, Flags, Ints, by_index

_FAR = np.int64(1) << 60
"""The label of a node from which no place can be reached. Sums of two do not overflow."""
_STRIDE = 7919
"""A prime, to spread what must begin somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transport:
    """Rows of like partitions to be spread over members.

    Arcs are grouped by row, ascending by member within: ``begins[r]:begins[r + 1]`` are row r's.

    Attributes:
        begins: Per row its first arc, and one more entry.
        member: Per arc the member that may take from the row.
        supply: Per row its number of partitions.
        owned: Per arc how many of the row the member owns: to keep one costs nothing more than
            the arc's price, to give it up costs 1.
        price: Per arc what each of its units costs besides (KIP-881: another rack), ≥ 0. More
            than all moves together where it is to come before stickiness.
        fixed: Per member a load it has come what may.
    """

    begins: Counts
    member: Ints
    supply: Counts
    owned: Counts
    price: Counts
    fixed: Counts


def solve(problem: Transport) -> Counts:
    """Returns per arc how many partitions of its row the member is to get."""
    flow = np.zeros(problem.member.size, np.int64)
    whole = _Block(
        problem=problem,
        arcs=np.arange(problem.member.size),
    )
    blocks = [whole]
    while blocks:
        block = blocks.pop()
        settled = _Flow(block).settle()
        if isinstance(settled, _Cut):
            blocks += block.split(settled)
        else:
            flow[block.arcs] = settled
    return flow


class _Cut(NamedTuple):
    rows: Flags
    members: Flags


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """A problem of its own, and which arcs of the whole its arcs are."""

    problem: Transport
    arcs: Counts

    def split(self, cut: _Cut) -> tuple[_Block, _Block]:
        """The tight set with its own rows, and the other members with the other rows."""
        return self._part(cut.rows, cut.members), self._part(~cut.rows, ~cut.members)

    def _part(self, rows: Flags, members: Flags) -> _Block:
        p = self.problem
        row = np.repeat(np.arange(p.supply.size), np.diff(p.begins))
        stays = rows[row] & members[p.member]
        lengths = np.bincount(row[stays], minlength=p.supply.size)[rows]
        number = np.cumsum(members) - 1
        return _Block(
            arcs=self.arcs[stays],
            problem=Transport(
                begins=np.concatenate(([0], np.cumsum(lengths))),
                member=number[p.member[stays]].astype(np.int32),
                supply=p.supply[rows],
                owned=p.owned[stays],
                price=p.price[stays],
                fixed=p.fixed[members],
            ),
        )


class _Flow:
    """One block's flow on its way to loads of ⌊λ⌋ and ⌈λ⌉.

    Every node has an *excess*, negative where it is short: rows of partitions not placed,
    members of load beyond their share, and the *pool*, from which shares of one more than ⌊λ⌋
    are lent. They add up to zero; the flow is settled when all are.
    """

    def __init__(self, block: _Block) -> None:
        p = self.p = block.problem
        rows, members = p.supply.size, p.fixed.size
        self.row = np.repeat(np.arange(rows, dtype=np.int32), np.diff(p.begins))
        self.by_member, self.member_begins = by_index(p.member, members)
        self.flow = np.where(p.price == 0, p.owned, 0)
        load = p.fixed + self._per_member(self.flow)
        total = int(p.supply.sum() + p.fixed.sum())
        self.low, odd = divmod(total, members) if members else (0, 0)
        self.high = self.low + (odd > 0)
        self.share = np.clip(load, self.low, self.high)
        self.row_excess = p.supply - self._per_row(self.flow)
        self.excess = load - self.share
        self.pool = int(self.share.sum()) - total
        self.step = np.int64(2 * (rows + members) + 4)  # more than any path has steps

    def settle(self) -> Counts | _Cut:
        """Runs phases until every excess has found a place, or none can."""
        left = self._unplaced()
        while left:
            self._label()
            longest = self._longest()
            if not longest:
                return _Cut(self.row_label >= _FAR, self.label >= _FAR)
            self._push(longest)
            before, left = left, self._unplaced()
            assert left < before, "a phase takes one unit to a place at least"
        return self.flow

    def _unplaced(self) -> int:
        return int(self.row_excess.sum() + np.maximum(self.excess, 0).sum() + max(self.pool, 0))

    # --- labels: the price, then the number of steps, to the nearest place ------------------

    def _label(self) -> None:
        """Bellman-Ford towards the places, all nodes at once: prices of steps may be negative.

        As long as none is, it stops when every excess is nearer than whatever could still change.
        """
        back, forth = self._leave_costs(), self._enter_costs()
        ordered = bool((forth > 0).all() and (back > 0).all())
        self.label = np.where(self.excess < 0, 0, _FAR)
        self.row_label = np.full(self.p.supply.size, _FAR)
        self.pool_label = 0 if self.pool < 0 else int(_FAR)
        row_of = self.row[self.by_member]
        borrows, lends = self.share < self.high, self.share > self.low
        pool_news = self.pool_label
        while True:
            rows = self._nearest(forth + self.label[self.p.member], self.p.begins)
            news = min(int(rows[rows < self.row_label].min(initial=_FAR)), pool_news)
            np.minimum(self.row_label, rows, out=self.row_label)
            if ordered and news < _FAR and self._all_nearer_than(news + 1):
                return
            members = self._nearest(back + self.row_label[row_of], self.member_begins)
            members[borrows] = np.minimum(members[borrows], self.pool_label + 1)
            news = int(members[members < self.label].min(initial=_FAR))
            np.minimum(self.label, members, out=self.label)
            lent = int(self.label[lends].min(initial=_FAR - 1)) + 1
            pool_news = lent if lent < self.pool_label else int(_FAR)
            if news == _FAR and pool_news == _FAR:
                return
            self.pool_label = min(self.pool_label, lent)

    def _all_nearer_than(self, label: int) -> bool:
        return bool(
            (self.row_label[self.row_excess > 0] <= label).all()
            and (self.label[self.excess > 0] <= label).all()
            and (self.pool <= 0 or self.pool_label <= label)
        )

    def _longest(self) -> int:
        """The steps that the excess with the longest way has to go; 0: none has a way."""
        labels = np.concatenate(
            (
                self.row_label[self.row_excess > 0],
                self.label[self.excess > 0],
                [self.pool_label] if self.pool > 0 else [],
            )
        )
        return int((labels[labels < _FAR] % self.step).max(initial=0))

    def _leave_costs(self) -> Counts:
        """What it costs to take one unit off an arc, in the members' order of arcs."""
        p = self.p
        cost = ((self.flow <= p.owned).astype(np.int64) - p.price) * self.step + 1
        cost[self.flow == 0] = _FAR
        return cost[self.by_member]

    def _enter_costs(self) -> Counts:
        """What it costs to put one more unit on an arc."""
        return (self.p.price - (self.flow < self.p.owned)) * self.step + 1

    @staticmethod
    def _nearest(labels: Counts, begins: Counts) -> Counts:
        """The least label of each run; `_FAR` where a run is empty or leads nowhere."""
        nearest = np.full(begins.size - 1, _FAR)
        runs = np.flatnonzero(np.diff(begins))
        if runs.size:
            least = np.minimum.reduceat(labels, begins[runs])
            nearest[runs] = np.where(least < _FAR // 2, least, _FAR)
        return nearest

    # --- pushes: each excess one step nearer, the longest way first --------------------------

    def _push(self, longest: int) -> None:
        """Moves all excess along cheapest paths, ever fewer steps from a place.

        A label is a price and a number of steps less than `step`. A step that gives a partition
        back to its owner lowers the price so far, so nodes are taken by steps, not by label.
        """
        row_steps = np.where(self.row_label < _FAR, self.row_label % self.step, 0)
        member_steps = np.where(self.label < _FAR, self.label % self.step, 0)
        for steps in range(longest, 0, -1):
            rows = np.flatnonzero((row_steps == steps) & (self.row_excess > 0))
            if rows.size:
                self._push_rows(rows)
            members = np.flatnonzero((member_steps == steps) & (self.excess > 0))
            if members.size:
                self._push_members(members)
            if self.pool > 0 and self.pool_label < _FAR and self.pool_label % self.step == steps:
                self._push_pool()

    def _push_rows(self, rows: Counts) -> None:
        """Rows' unplaced partitions to the nearest of their members.

        Rows take turns, so that each sees what the others left. Places are filled in
        proportion; where there are none at this distance, all the members nearest to some get
        equally many, to pass them on.
        """
        p = self.p
        which, arcs = _runs(p.begins, rows)
        member, flow, owned = p.member[arcs], self.flow[arcs], p.owned[arcs]
        keeps = flow < owned
        cost = (p.price[arcs] - keeps) * self.step + 1
        near = np.flatnonzero(self.label[member] + cost == self.row_label[rows][which])
        arcs, member = arcs[near], member[near]
        room = np.where(keeps[near], (owned - flow)[near], np.int64(_FAR))
        final = self.label[member] == 0
        ends = np.searchsorted(which[near], np.arange(rows.size + 1)).tolist()
        for row, a, b in zip(rows.tolist(), ends, ends[1:], strict=False):
            to = member[a:b]
            wanted = int(self.row_excess[row])
            places = np.where(final[a:b], np.maximum(-self.excess[to], 0), wanted)
            given = _share_out(wanted, np.minimum(places, room[a:b]), row)
            self.flow[arcs[a:b]] += given
            self.excess[to] += given
            self.row_excess[row] -= int(given.sum())

    def _push_members(self, members: Counts) -> None:
        """Members' overload back into the rows it came from, or to the pool."""
        if self.pool_label < _FAR:
            members = self._push_to_pool(members)
        p = self.p
        # Each starts with another of its rows: they push at once, and not all into the same.
        who, arcs = _runs(self.member_begins, members, rotate=True)
        arcs = self.by_member[arcs]
        flow, owned = self.flow[arcs], p.owned[arcs]
        cost = ((flow <= owned) - p.price[arcs]) * self.step + 1
        near = (self.row_label[self.row[arcs]] + cost == self.label[members][who]) & (flow > 0)
        room = np.where(near, np.where(flow > owned, flow - owned, flow), 0)
        before = np.cumsum(room) - room
        first = np.searchsorted(who, np.arange(members.size)) % max(who.size, 1)
        before -= before[first][who] if who.size else 0
        taken = np.clip(self.excess[members][who] - before, 0, room)
        self.flow[arcs] -= taken
        self.row_excess += np.bincount(self.row[arcs], taken, p.supply.size).astype(np.int64)
        self.excess[members] -= np.bincount(who, taken, members.size).astype(np.int64)

    def _push_to_pool(self, members: Counts) -> Counts:
        borrows: Flags = self.share[members] < self.high
        near = borrows & (self.label[members] == self.pool_label + 1)
        takers = members[near]
        if self.pool_label == 0:
            takers = takers[: max(-self.pool, 0)]
        self.share[takers] += 1
        self.excess[takers] -= 1
        self.pool += takers.size
        left: Counts = members[self.excess[members] > 0]
        return left

    def _push_pool(self) -> None:
        """Shares lent beyond what is left to lend are called back."""
        lends = np.flatnonzero((self.share > self.low) & (self.label + 1 == self.pool_label))
        lends = lends[: self.pool]
        self.share[lends] -= 1
        self.excess[lends] += 1
        self.pool -= lends.size

    def _per_member(self, values: Counts) -> Counts:
        p = self.p
        return np.bincount(p.member, values, p.fixed.size).astype(np.int64)

    def _per_row(self, values: Counts) -> Counts:
        return np.bincount(self.row, values, self.p.supply.size).astype(np.int64)


def _runs(begins: Counts, which: Counts, *, rotate: bool = False) -> tuple[Counts, Counts]:
    """Lists the entries of the chosen runs, one run after the other.

    Returns:
        Per entry the place in ``which`` of its run, and the entry. Rotated: run k's entries
        begin at another place than run k + 1's.
    """
    lengths = begins[which + 1] - begins[which]
    run = np.repeat(np.arange(which.size), lengths)
    nth = np.arange(run.size) - (np.cumsum(lengths) - lengths)[run]
    if rotate:
        nth = (nth + (which * _STRIDE)[run]) % lengths[run]
    return run, begins[which][run] + nth


def _share_out(wanted: int, room: Counts, turn: int) -> Counts:
    """Splits up to ``wanted`` in proportion to room; odd ones go round, beginning by ``turn``."""
    total = int(room.sum())
    if total <= wanted:
        return room
    given = room * wanted // total
    has_room = np.flatnonzero(given < room)
    odd = wanted - int(given.sum())
    begin = turn * _STRIDE % has_room.size
    given[has_room[begin : begin + odd]] += 1
    given[has_room[: max(begin + odd - has_room.size, 0)]] += 1
    return given
