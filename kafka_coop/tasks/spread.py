"""Replicas over clients, levelled along the moves that are allowed.

The objective is that of an optimal semi-matching (Harvey, Ladner, Lovász, Tamir 2006), per
thread: no chain of allowed moves, however long, takes a replica from client a to client b with
``load(a) / threads(a) > (load(b) + 1) / threads(b)``. Where every move is allowed this is
d'Hondt's apportionment, and with equal threads counts differ by at most one.

Replicas move only where that strictly improves, so a levelled spread is left alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from kafka_coop.tasks.snapshot import NOBODY

_Groups = dict[int, set[int]]
"""Subtopology -> tasks. No set in it is empty."""


class Spread:
    """Who holds which replicas, where each may go, and how loaded that leaves everyone.

    A replica *floats* if its task may go to every client, which takes no list of them: when
    nobody has any state a million pairs would be allowed. It is *fixed* on a client that is not
    among those its task may go to.

    Args:
        threads: Per client its number of threads. Clients with none hold nothing.
        groups: Per task its subtopology: which of several replicas moves is decided so as to
            spread each subtopology (KIP-441, "data parallel workload balance").
        base: Per client the load it has come what may.
        kinds: Per client its kind; replicas move between clients of one kind alone.

    Attributes:
        load: Per client its base and replicas.
        held: Per task the clients that hold it.
    """

    def __init__(
        self,
        *,
        threads: Sequence[int],
        groups: Sequence[int],
        base: Sequence[int],
        kinds: Sequence[int] | None = None,
    ) -> None:
        clients = range(len(threads))
        self._threads = threads
        self._groups = groups
        self._base = base
        self._kinds = kinds if kinds is not None else [0] * len(threads)
        self._able = [c for c in clients if threads[c]]
        self._floats: list[_Groups] = [{} for _ in clients]
        self._arcs: list[dict[int, _Groups]] = [{} for _ in clients]
        self._count: list[dict[int, int]] = [{} for _ in clients]
        self._open: list[frozenset[int] | None] = [None] * len(groups)
        self._barred: list[set[int]] = [set() for _ in groups]
        self.load = list(base)
        self.held: list[set[int]] = [set() for _ in groups]

    def place(
        self,
        t: int,
        holders: Iterable[int],
        *,
        may_go_to: Iterable[int] | None,
        barred: Iterable[int] = (),
    ) -> None:
        """Puts a task's replicas where they begin.

        Args:
            t: The task, not yet placed.
            holders: The clients that hold it.
            may_go_to: The clients between which its replicas may move. None: all of them.
            barred: Clients that must never hold it.
        """
        self._open[t] = None if may_go_to is None else frozenset(may_go_to)
        self.held[t].update(holders)
        self._barred[t].update(self.held[t], barred)
        for c in sorted(self.held[t]):
            self._weigh(t, c, 1)
            self._link(t, c)

    def cost(self, c: int) -> float:
        """The load per thread that one more replica would give the client.

        Quotients of small integers are equal as floats exactly if they are equal.
        """
        return (self.load[c] + 1) / self._threads[c]

    def lead(self, preferred: Iterable[tuple[int, int]]) -> None:
        """Makes the moves of those given that the levelling needs in any case.

        Each takes a replica from a client above its quota to one below, so together they are
        never more than levelling takes. What was begun in one round is thereby gone on with in
        the next, rather than begun anew elsewhere (KAFKA-21001).

        Args:
            preferred: Tasks and where they should go, best first.
        """
        quota = self._quotas()
        for t, b in preferred:
            if self.load[b] < quota[b] and b not in self._barred[t]:
                givers = [a for a in self.held[t] if self.load[a] > quota[a] and self._may(t, a, b)]
                if givers:
                    giver = max(givers, key=lambda a: (self.load[a] / self._threads[a], -a))
                    self._move(t, giver, b)

    def level(self) -> None:
        """Moves replicas until no chain of moves improves.

        From the most loaded client on: one from which nothing improves is settled, and so is
        whoever it reaches, since they are all loaded as much and reach nobody else. Costs a
        breadth-first search per move, and one per group that is settled together.
        """
        unsettled = dict.fromkeys(self._able)
        heap = [(-self.load[c] / self._threads[c], c) for c in self._able]
        heapq.heapify(heap)
        while heap:
            cost, a = heapq.heappop(heap)
            if a not in unsettled:
                continue
            if cost != -self.load[a] / self._threads[a]:
                heapq.heappush(heap, (-self.load[a] / self._threads[a], a))
                continue
            parents = self._reach(a, unsettled)
            end = min(parents, key=lambda b: (self.cost(b), b)) if parents else NOBODY
            if end == NOBODY or self.cost(end) >= self.load[a] / self._threads[a]:
                for b in (a, *parents):
                    unsettled.pop(b)
                continue
            self._shift(parents, end)
            for c in (a, end):
                heapq.heappush(heap, (-self.load[c] / self._threads[c], c))

    def _reach(self, start: int, unsettled: Iterable[int]) -> dict[int, int]:
        """Who can be reached by moves, by the fewest; per client the one before it."""
        left = set(unsettled) - {start}
        parents: dict[int, int] = {}
        queue = [start]
        for a in queue:
            if not left:
                break
            found = self._next(a, left)
            left.difference_update(found)
            parents.update(dict.fromkeys(found, a))
            queue += found
        return parents

    def _next(self, a: int, left: set[int]) -> list[int]:
        """Those of `left` that a replica on `a` may go to at once, ascending."""
        found = left & self._arcs[a].keys()
        missing = {b for b in left - found if self._kinds[b] == self._kinds[a]}
        for tasks in self._floats[a].values():
            for t in tasks:
                if not missing:
                    return sorted(found)
                newly = missing - self._barred[t]
                found |= newly
                missing -= newly
        return sorted(found)

    def _shift(self, parents: dict[int, int], end: int) -> None:
        """One replica along each step of the path, from its end: each step frees the next."""
        b = end
        while b in parents:
            a = parents[b]
            self._move(self._pick(a, b), a, b)
            b = a

    def _pick(self, a: int, b: int) -> int:
        """The replica to move: of the subtopology that `a` has most of compared with `b`."""
        here, there = self._count[a], self._count[b]
        stores = (self._arcs[a].get(b, {}), self._floats[a])
        groups = {group for store in stores for group in store}
        for group in sorted(groups, key=lambda g: (there.get(g, 0) - here.get(g, 0), g)):
            for store in stores:
                movable = (t for t in store.get(group, ()) if b not in self._barred[t])
                task = min(movable, default=NOBODY)
                if task != NOBODY:
                    return task
        raise AssertionError("a path was found through a and b")

    def _move(self, t: int, a: int, b: int) -> None:
        """Every holder's arcs change with it: two replicas of a task never meet."""
        for c in self.held[t]:
            self._unlink(t, c)
        self.held[t].remove(a)
        self._barred[t].remove(a)
        self.held[t].add(b)
        self._barred[t].add(b)
        self._weigh(t, a, -1)
        self._weigh(t, b, 1)
        for c in self.held[t]:
            self._link(t, c)

    def _weigh(self, t: int, c: int, by: int) -> None:
        self.load[c] += by
        group = self._groups[t]
        self._count[c][group] = self._count[c].get(group, 0) + by

    def _may(self, t: int, a: int, b: int) -> bool:
        allowed = self._open[t]
        return self._kinds[a] == self._kinds[b] and (
            allowed is None or (a in allowed and b in allowed)
        )

    def _targets(self, t: int, a: int) -> list[int]:
        """Where a listed task's replica on `a` may go now."""
        allowed = self._open[t]
        if allowed is None or a not in allowed:
            return []
        return [b for b in allowed - self._barred[t] if self._kinds[b] == self._kinds[a]]

    def _link(self, t: int, a: int) -> None:
        group = self._groups[t]
        if self._open[t] is None:
            self._floats[a].setdefault(group, set()).add(t)
        for b in self._targets(t, a):
            self._arcs[a].setdefault(b, {}).setdefault(group, set()).add(t)

    def _unlink(self, t: int, a: int) -> None:
        if self._open[t] is None:
            _discard(self._floats[a], self._groups[t], t)
        for b in self._targets(t, a):
            _discard(self._arcs[a][b], self._groups[t], t)
            if not self._arcs[a][b]:
                del self._arcs[a][b]

    def _quotas(self) -> list[int]:
        """The loads of a spread levelled without limits; ties go to who has the replicas now."""
        quota = list(self._base)
        replicas = sum(self.load) - sum(quota)

        def turn(c: int) -> tuple[float, bool, int]:
            return ((quota[c] + 1) / self._threads[c], quota[c] >= self.load[c], c)

        heap = [turn(c) for c in self._able]
        heapq.heapify(heap)
        for _ in range(replicas if heap else 0):
            c = heap[0][2]
            quota[c] += 1
            heapq.heapreplace(heap, turn(c))
        return quota


def _discard(groups: _Groups, group: int, t: int) -> None:
    tasks = groups[group]
    tasks.remove(t)
    if not tasks:
        del groups[group]
