"""``load-aware-sticky``: balances what partitions cost, not how many there are."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from kafka_coop.assignors import is_built_in
from kafka_coop.assignors.balance import balance
from kafka_coop.assignors.columns import NOBODY, Counts, Floats, Ints, loads
from kafka_coop.assignors.general import subscriber_sets
from kafka_coop.assignors.memory import RemembersGeneration
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import Snapshot, SnapshotGroup, snapshot_of
from kafka_coop.assignors.underway import Underway
from kafka_coop.errors import text_of
from kafka_coop.protocol.marks import SubscriptionMarks, append_marks, split_marks
from kafka_coop.types import (
    NO_PARTITIONS,
    Assignment,
    Cluster,
    GroupMetadata,
    GroupSubscription,
    Partitions,
    RebalanceProtocol,
    TopicPartition,
    distinct,
)

Loads: TypeAlias = Mapping[TopicPartition, float]


@runtime_checkable
class _Told(Protocol):
    """A measure that wants to know when partitions come: `kafka_coop.loads.LoadMeter`."""

    def owning(self, owned: Partitions) -> None: ...


_AVERAGE = 1_000_000
"""What an average partition costs. Costs are whole numbers: sums of floats depend on their
order, and levelling by them might never end."""
_LEAST = _AVERAGE // 100
"""What an idle partition costs: it has to be fetched all the same."""


class LoadAwareSticky(RemembersGeneration):
    """Balances the load of members within a tolerance, and leaves alone what is within it.

    Members publish what each of their partitions costs: lag, records or bytes a second, in
    whatever unit the group agrees on. A partition nobody has measured costs what this leader last
    heard of it, else the average of those measured; an idle one a hundredth of that, so that
    counts break ties. Where nobody has measured anything, counts are balanced, as
    `CooperativeSticky` does.

    **Objective.** Owners keep what they have; what is unowned is placed heaviest first, each on
    the least loaded subscriber. Let h be tolerance · average load. A *move* takes a partition p
    from a member A to a subscriber B with load(A) - load(B) > h and
    load(B) + cost(p) < load(A) - h/2. As long as there is one, that is made which brings the two
    closest, from the most loaded such A to the least loaded such B. What moved and could as well
    have stayed goes back.

    **Bound.** In the end there is no move left; and no partition moved in vain: with any one of
    them back at its owner there would be a move. With equal subscriptions, then, any two members'
    loads differ by at most the larger of h and h/2 plus the cheapest partition of the more loaded
    one. Each move lowers the sum of squared loads, so they do end. They are not always the fewest
    possible: that is a knapsack.

    **Hysteresis.** Loads may wobble within h, and nothing moves. What has moved from A to B comes
    back only when the difference of the two has since changed by h: B's load was at least h/2
    less than A's had been, and has to exceed A's by as much.
    """

    name = "load-aware-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(
        self,
        load: Callable[[Partitions], Loads] | None = None,
        *,
        tolerance: float = 0.1,
        smoothing: float = 0.5,
    ) -> None:
        """Makes the strategy of one consumer.

        Args:
            load: Says what the partitions given to it cost now; those it leaves out are not
                measured, nor any where it raises, which is logged as a warning. Called before each
                join, on the thread that joins: it must not block.
                None: what the consumer measures by itself, records a second
                (`kafka_coop.loads.ProgressMeter`).
            tolerance: By which part of the average load two members may differ before
                partitions are moved. Only the leader's counts.
            smoothing: How much of the new measurement goes into the value published, from 0
                (nothing) to 1 (all of it).

        Raises:
            ValueError: Tolerance is negative or no number, or smoothing not from 0 to 1.
        """
        super().__init__()
        if not tolerance >= 0:  # by a negative one, levelling would have no end
            raise ValueError(f"tolerance is {tolerance}; at least 0 is needed")
        if not 0 <= smoothing <= 1:
            raise ValueError(f"smoothing is {smoothing}; from 0 to 1 is needed")
        self._load = load
        self._tolerance = tolerance
        self._smoothing = smoothing
        self._owned = NO_PARTITIONS
        self._published: dict[TopicPartition, float] = {}
        self._left: dict[TopicPartition, float] = {}
        self._heard: dict[TopicPartition, float] = {}
        self._underway = Underway()
        self._fails = False
        self._warn: Callable[[str], object] = _say_nothing

    def measure_with(self, load: Callable[[Partitions], Loads]) -> bool:
        """Offers what the consumer measures by itself.

        Returns:
            Whether it is taken: not where the user gave something else.
        """
        if self._load is None:
            self._load = load
        return self._load is load

    def warn_with(self, warn: Callable[[str], object]) -> None:
        """Offers the consumer's log."""
        self._warn = warn

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Returns the generation last assigned under, and the load behind it as a mark."""
        user_data = super().subscription_user_data(topics)
        if self._load is None:
            return user_data
        measured = self._measured(self._load)
        kept = 1 - self._smoothing
        self._published = {
            p: self._smoothing * v + kept * self._published.get(p, v) for p, v in measured.items()
        }
        return append_marks(user_data, SubscriptionMarks(load=self._left | self._published))

    def _measured(self, load: Callable[[Partitions], Loads]) -> dict[TopicPartition, float]:
        """Nothing where the user's function fails: without a JoinGroup the whole group would wait.

        As long as max.poll.interval.ms, and this member would be thrown out.
        """
        try:
            said = {p: v for p, v in load(self._owned).items() if v >= 0 and math.isfinite(v)}
        except Exception as error:  # noqa: BLE001  # a user's code may raise anything
            if not self._fails:
                self._warn(
                    f"load= of {self.name} raised {text_of(error)}: this member's partitions are"
                    " not measured until it no longer does, and count as average"
                )
            self._fails = True
            return {}
        self._fails = False
        return said

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Remembers what is to be measured.

        What left with this assignment is published once more, at its last value: in the next
        round nobody owns it, and were it taken for an average one, it could come straight back.
        """
        super().on_assignment(assignment, metadata)
        left = self._owned - assignment.partitions
        self._left = {p: self._published[p] for p in left if p in self._published}
        self._owned = assignment.partitions
        load: object = self._load
        if isinstance(load, _Told):  # a round may last: what it gave has only begun
            load.owning(self._owned)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
        """Plans for the group; see the class for what it promises.

        A plan whose members have to give something up is carried out in the round that follows,
        and not thought over by what has been measured since.

        Who has just got a partition has yet to measure it, and there is a round as soon as someone
        joins: taken for average, what is heavy would have others moved to its owner, and back when
        it is known.
        """
        snapshot = snapshot_of(cluster, group)
        heard = self._heard | _said(snapshot, _loads_of(group))
        at = snapshot.claims_of([Partitions.of(heard)]).position
        self._heard = {p: heard[p] for p in snapshot.named(at)}  # what exists still
        # What one derived from it makes of a plan, or whether it asks twice, is not known here.
        remembers = is_built_in(self)
        plan = self._underway.rest_of(snapshot) if remembers else None
        if plan is None:
            costs = _costs(snapshot.size, at, np.array(list(self._heard.values())))
            plan = Plan(snapshot, self._levelled(snapshot, costs))
        if remembers:
            self._underway.begins(plan)
        return plan

    def _levelled(self, snapshot: Snapshot, costs: Counts | None) -> Ints:
        owner = snapshot.owned.owner
        if costs is None:
            return balance(snapshot, owner)
        board = _Board(snapshot, owner.copy(), costs)
        board.place(np.flatnonzero(owner == NOBODY))
        least = self._tolerance * float(board.loads.mean()) if board.loads.size else 0.0
        board.level(least)
        board.give_back(owner, least)
        return board.owner


def _say_nothing(_: str) -> None:
    """No consumer has offered its log."""


def _loads_of(group: GroupSubscription) -> Mapping[str, Loads]:
    if isinstance(group, SnapshotGroup):
        return group.loads
    found = {m: split_marks(s.user_data)[1] for m, s in group.items()}
    return {m: x.load for m, x in found.items() if isinstance(x, SubscriptionMarks) and x.load}


def _said(snapshot: Snapshot, loads: Mapping[str, Loads]) -> dict[TopicPartition, float]:
    """What partitions cost: their rightful owner's word, else the largest that anyone says."""
    found: dict[TopicPartition, float] = {}
    for index, member in enumerate(snapshot.members):
        load = loads.get(member)
        if load:
            at = snapshot.claims_of([Partitions.of(load)]).position
            owner = snapshot.owned.owner[at]
            for p in snapshot.named(at[owner == index]):
                found[p] = load[p]
            for p in snapshot.named(at[owner == NOBODY]):
                found[p] = max(load[p], found.get(p, 0.0))
    return found


def _costs(size: int, at: Counts, known: Floats) -> Counts | None:
    """What each partition costs, of which these are known; None where nothing is."""
    average = float(known.mean()) if known.size else 0.0
    if not average:
        return None
    costs = np.full(size, average)
    costs[at] = known
    whole: Counts = np.rint(costs / average * _AVERAGE).astype(np.int64)
    np.maximum(whole, _LEAST, out=whole)
    return whole


class _Board:
    """Who has what while loads are levelled.

    Topics with the same subscribers are one *set*: what is asked of a topic is asked once a set.
    """

    def __init__(self, snapshot: Snapshot, owner: Ints, costs: Counts) -> None:
        self.owner = owner
        self._costs = costs
        set_of_topic, self._takers = subscriber_sets(snapshot)
        self._set_of: Ints = set_of_topic[snapshot.topic_of]
        held = owner >= 0
        self.loads = np.zeros(len(snapshot.members), np.int64)
        np.add.at(self.loads, owner[held], costs[held])
        self._counts = loads(owner, len(snapshot.members))

    def place(self, free: Counts) -> None:
        """Heaviest first, each on the least loaded subscriber, of those on the one with fewest."""
        waiting: dict[int, list[tuple[int, int, int]]] = {}
        for position in free[np.argsort(-self._costs[free], kind="stable")].tolist():
            which = int(self._set_of[position])
            heap = waiting.get(which)
            if heap is None:
                heap = waiting[which] = [self._standing(m) for m in self._takers[which].tolist()]
                heapq.heapify(heap)
            # Members got more through other sets since: bring what is on top up to date.
            while heap[0] != (now := self._standing(heap[0][2])):
                heapq.heapreplace(heap, now)
            self._move(position, heap[0][2])

    def level(self, least: float) -> None:
        """Moves single partitions until no move is left that the objective asks for.

        Who had no taker is not asked again for as long as no set has a lighter one than it had
        then: with hot partitions that nobody could take, most would be asked after every move.
        """
        stuck: set[int] = set()
        lightest = self._lightest()
        while len(stuck) < self.loads.size:
            ranking = np.lexsort((self._counts, self.loads))[::-1]
            giver = next(m for m in ranking.tolist() if m not in stuck)
            move = self._best_move(giver, least)
            if move is None:
                stuck.add(giver)
                continue
            position, taker = move
            self._move(position, taker)
            stuck.discard(taker)
            before, lightest = lightest, self._lightest()
            for which in np.flatnonzero(lightest < before).tolist():  # the giver may take there now
                stuck.difference_update(self._takers[which].tolist())

    def give_back(self, before: Ints, least: float) -> None:
        """Undoes moves that turned out needless, the cheapest first, until none is.

        Levelling is greedy: a later move may have done what an earlier one was for.
        """
        undone = True
        while undone:
            undone = False
            moved = np.flatnonzero((before != NOBODY) & (before != self.owner))
            for position in moved[np.argsort(self._costs[moved], kind="stable")].tolist():
                taker = int(self.owner[position])
                self._move(position, int(before[position]))
                if self._settled(int(before[position]), taker, least):
                    undone = True
                else:
                    self._move(position, taker)

    def _settled(self, giver: int, taker: int, least: float) -> bool:
        """Whether no move is left after the one has got, and the other lost, a partition."""
        if self._best_move(giver, least) is not None:
            return False
        gap = (self.loads - self.loads[taker])[self.owner]
        at = np.flatnonzero((gap > least) & (self._costs < gap - least / 2))
        return not any(taker in self._takers[s] for s in distinct(self._set_of[at]).tolist())

    def _best_move(self, giver: int, least: float) -> tuple[int, int] | None:
        best: tuple[int, int, int, int] | None = None
        positions = np.flatnonzero(self.owner == giver)
        set_of = self._set_of[positions]
        for which in distinct(set_of).tolist():
            members = self._takers[which]
            taker = int(members[np.lexsort((self._counts[members], self.loads[members]))[0]])
            gap = int(self.loads[giver] - self.loads[taker])
            if gap <= least:
                continue
            at = positions[set_of == which]
            at = at[self._costs[at] < gap - least / 2]
            if at.size:
                off = np.abs(2 * self._costs[at] - gap)
                nth = int(np.argmin(off))
                found = (int(self.loads[taker]), int(off[nth]), int(at[nth]), taker)
                best = found if best is None else min(best, found)
        return None if best is None else best[2:]

    def _lightest(self) -> Counts:
        """Per set the load of its least loaded member."""
        return np.array([self.loads[takers].min() for takers in self._takers], np.int64)

    def _standing(self, member: int) -> tuple[int, int, int]:
        return int(self.loads[member]), int(self._counts[member]), member

    def _move(self, position: int, to: int) -> None:
        was = self.owner[position]
        if was != NOBODY:
            self.loads[was] -= self._costs[position]
            self._counts[was] -= 1
        self.owner[position] = to
        self.loads[to] += self._costs[position]
        self._counts[to] += 1
