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

from kafka_coop.assignors.columns import Counts, Flags, by_index, runs_of

_FAR = np.int64(1) << 60
"""The label of a node from which no place can be reached. Sums of two do not overflow."""
_STRIDE = 7919
"""A prime, to spread what must begin somewhere."""
_MOST_BLOCKS = 8
_FEWEST_ROWS = 16
"""Rows that place what they have are taken in so many blocks, of so many at least: more would cost
more calls of numpy than they save offers that are turned down."""


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
    member: Counts
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
                member=number[p.member[stays]],
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
        self.row = np.repeat(np.arange(rows), np.diff(p.begins))
        self.flow = np.where(p.price == 0, p.owned, 0)
        held = np.flatnonzero(self.flow)
        load = p.fixed + _sums(p.member[held], self.flow[held], members)
        total = int(p.supply.sum() + p.fixed.sum())
        self.low, odd = divmod(total, members) if members else (0, 0)
        self.high = self.low + (odd > 0)
        self.share = np.clip(load, self.low, self.high)
        self.row_excess = p.supply - _sums(self.row[held], self.flow[held], rows)
        self.excess = load - self.share
        self.pool = int(self.share.sum()) - total
        self.step = np.int64(2 * (rows + members) + 4)  # more than any path has steps
        self.new_cost = p.price * self.step + 1

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
        forth = self._enter_costs()
        self._list_held()
        back = self._leave_costs(self.held)
        row_of = self.row[self.held]
        ordered = bool((forth > 0).all() and (back > 0).all())
        self.label = np.where(self.excess < 0, 0, _FAR)
        self.row_label = np.full(self.p.supply.size, _FAR)
        self.pool_label = 0 if self.pool < 0 else int(_FAR)
        borrows, lends = self.share < self.high, self.share > self.low
        pool_news = self.pool_label
        while True:
            rows = _nearest(forth + self.label.take(self.p.member), self.p.begins)
            news = min(int(rows[rows < self.row_label].min(initial=_FAR)), pool_news)
            np.minimum(self.row_label, rows, out=self.row_label)
            if ordered and news < _FAR and self._all_nearer_than(news + 1):
                return
            members = _nearest(back + self.row_label.take(row_of), self.held_begins)
            members[borrows] = np.minimum(members[borrows], self.pool_label + 1)
            news = int(members[members < self.label].min(initial=_FAR))
            np.minimum(self.label, members, out=self.label)
            lent = int(self.label[lends].min(initial=_FAR - 1)) + 1
            pool_news = lent if lent < self.pool_label else int(_FAR)
            if news == _FAR and pool_news == _FAR:
                return
            self.pool_label = min(self.pool_label, lent)

    def _list_held(self) -> None:
        """Lists the arcs that something can be taken off, member after member."""
        held = np.flatnonzero(self.flow)
        order, self.held_begins = by_index(self.p.member[held], self.p.fixed.size)
        self.held = held[order]

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

    def _leave_costs(self, arcs: Counts) -> Counts:
        """What it costs to take one unit off an arc that has one."""
        p = self.p
        return ((self.flow[arcs] <= p.owned[arcs]) - p.price[arcs]) * self.step + 1

    def _enter_costs(self, arcs: Counts | slice = slice(None)) -> Counts:
        """What it costs to put one more unit on an arc."""
        costs = self.new_cost[arcs]
        keeps = self.flow[arcs] < self.p.owned[arcs]
        return costs - keeps * self.step if keeps.any() else costs

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
        """Rows' unplaced partitions to the nearest of their members, a block of rows at a time.

        The next block sees what this one left: the fewer offers are turned down.
        """
        blocks = min(_MOST_BLOCKS, 1 + rows.size // _FEWEST_ROWS)
        for block in np.array_split(rows, blocks):
            self._push_block(block)

    def _push_block(self, rows: Counts) -> None:
        """Rows offer what they have to place, members take what they have places for.

        What was turned down is offered again, until it is placed or no place is left. Members
        that only pass on what they get have places for all.
        """
        p = self.p
        which, arcs = runs_of(p.begins, rows)
        cost = self._enter_costs(arcs)
        label = self.label.take(p.member.take(arcs))
        near = np.flatnonzero(label + cost == self.row_label[rows].take(which))
        which, arcs = which.take(near), arcs.take(near)
        member = p.member.take(arcs)
        missing = p.owned.take(arcs) - self.flow.take(arcs)
        room = np.where(missing > 0, missing, _FAR)
        while True:
            places = np.where(self.label == 0, np.maximum(-self.excess, 0), _FAR)
            np.minimum(room, places.take(member), out=room)
            wanted = self.row_excess[rows]
            stays = np.flatnonzero((room > 0) & (wanted > 0).take(which))
            if not stays.size:
                return
            if stays.size < room.size:
                which, arcs = which.take(stays), arcs.take(stays)
                member, room = member.take(stays), room.take(stays)
            offers = _offers(wanted, room, which, rows)
            some = np.flatnonzero(offers)
            to = member.take(some)
            given = _taken(places, to, offers.take(some))
            room[some] -= given
            self.flow[arcs.take(some)] += given
            self.excess += _sums(to, given, places.size)
            self.row_excess[rows] -= _sums(which.take(some), given, rows.size)

    def _push_members(self, members: Counts) -> None:
        """Members' overload back into the rows it came from, or to the pool."""
        if self.pool_label < _FAR:
            members = self._push_to_pool(members)
        p = self.p
        # Each starts with another of its rows: they push at once, and not all into the same.
        who, arcs = _rotated_runs(self.held_begins, members)
        arcs = self.held[arcs]
        flow, owned = self.flow[arcs], p.owned[arcs]
        cost = self._leave_costs(arcs)
        near = (self.row_label[self.row[arcs]] + cost == self.label[members][who]) & (flow > 0)
        room = np.where(near, np.where(flow > owned, flow - owned, flow), 0)
        before = np.cumsum(room) - room
        first = np.searchsorted(who, np.arange(members.size)) % max(who.size, 1)
        before -= before[first][who] if who.size else 0
        taken = np.clip(self.excess[members][who] - before, 0, room)
        self.flow[arcs] -= taken
        self.row_excess += _sums(self.row[arcs], taken, p.supply.size)
        self.excess[members] -= _sums(who, taken, members.size)

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


def _nearest(labels: Counts, begins: Counts) -> Counts:
    """The least label of each run; `_FAR` where a run is empty or leads nowhere."""
    nearest = np.full(begins.size - 1, _FAR)
    runs = np.flatnonzero(np.diff(begins))
    if runs.size:
        least = np.minimum.reduceat(labels, begins[runs])
        nearest[runs] = np.where(least < _FAR // 2, least, _FAR)
    return nearest


def _rotated_runs(begins: Counts, which: Counts) -> tuple[Counts, Counts]:
    """As `runs_of`, but that run k's entries begin at another place than run k + 1's."""
    run, entries = runs_of(begins, which)
    first = begins[which][run]
    lengths = (begins[which + 1] - begins[which])[run]
    return run, first + (entries - first + (which * _STRIDE)[run]) % lengths


def _offers(wanted: Counts, room: Counts, which: Counts, rows: Counts) -> Counts:
    """Spreads what rows have to place over arcs, in proportion to their room.

    Args:
        wanted: Per row how many it has to place.
        room: Per arc how many it has room for, more than none.
        which: Per arc its row, ascending.
        rows: Their numbers, so that each starts elsewhere.

    Returns:
        Per arc how many it is offered: of each row all that it wants, or all it has room for.
    """
    arcs = np.bincount(which, minlength=wanted.size)
    # Those without bounds share alike. The other rooms add up to no more than all partitions.
    alike = -(-wanted // np.maximum(arcs, 1))
    room = np.where(room < _FAR // 2, room, alike.take(which))
    ends = np.cumsum(arcs)
    summed = np.cumsum(room)
    total = np.append(summed, 0)[ends - 1]
    before = np.concatenate(([0], total[:-1]))
    total -= before
    begin = rows * _STRIDE % np.maximum(total, 1)
    placed = np.minimum(wanted, total)
    upto = (summed - before.take(which)) * placed.take(which) + begin.take(which)
    upto //= total.take(which)
    offers: Counts = np.diff(upto, prepend=0)
    firsts = (ends - arcs)[arcs > 0]
    offers[firsts] = upto[firsts]
    return offers


def _taken(places: Counts, member: Counts, offers: Counts) -> Counts:
    """How much of each offer its member takes: the first ones, until its places are filled."""
    if (_sums(member, offers, places.size) <= places).all():
        return offers
    order, begins = by_index(member, places.size)
    offered = offers.take(order)
    before = np.cumsum(offered) - offered
    before -= np.repeat(np.append(before, 0)[begins[:-1]], np.diff(begins))
    taken = np.empty_like(offers)
    taken[order] = np.clip(places.take(member.take(order)) - before, 0, offered)
    return taken


def _sums(index: Counts, values: Counts, size: int) -> Counts:
    """Adds up the values of each index."""
    return np.bincount(index, values, size).astype(np.int64)
