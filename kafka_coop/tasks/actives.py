"""Who runs each task now, and who is to run it in the end (KIP-441, "Assignment Algorithm").

*Now* is as level as it gets among the clients that are closest to caught up; *in the end* is
level among all. Both begin with the owners, so what need not move does not.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka_coop.tasks.snapshot import NOBODY, Snapshot
from kafka_coop.tasks.spread import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Actives:
    """Per task who runs it, or `NOBODY` where there is no client with threads.

    Attributes:
        now: In this round.
        target: Once every client has caught up.
        load: Per client how many tasks it runs now.
        target_load: Per client how many stateful tasks it is to run.
    """

    now: list[int]
    target: list[int]
    load: list[int]
    target_load: list[int]


def place_actives(snapshot: Snapshot) -> Actives:
    """Places the stateful tasks, then the stateless ones where they level what came of that."""
    stateful = [t for t, task in enumerate(snapshot.tasks) if task.stateful]
    stateless = [t for t, task in enumerate(snapshot.tasks) if not task.stateful]
    nothing = [0] * len(snapshot.clients)
    closest = {t: snapshot.closest(t) for t in stateful}
    current = _spread(snapshot, nothing)
    for t, c in _homes(snapshot, stateful, closest, nothing).items():
        current.place(t, [c], may_go_to=closest[t])
    current.lead(by_closeness(snapshot, stateful))  # of which only the closest may be gone to
    current.level()

    target = _spread(snapshot, nothing)
    for t in stateful:
        target.place(t, current.held[t], may_go_to=None)
    target.lead(by_closeness(snapshot, stateful))
    target.level()

    light = _spread(snapshot, current.load)
    for t, c in _homes(snapshot, stateless, {}, current.load).items():
        light.place(t, [c], may_go_to=None)
    light.level()
    for t in stateless:
        current.held[t] = target.held[t] = light.held[t]
    return Actives(
        now=[_only(held) for held in current.held],
        target=[_only(held) for held in target.held],
        load=light.load,
        target_load=target.load,
    )


def by_closeness(snapshot: Snapshot, tasks: Iterable[int]) -> list[tuple[int, int]]:
    """Tasks and clients with state of them, the best destinations first.

    A replica that was being restored comes before any left-over state, though that may lack
    less: else a warm-up could be dropped for another in every round (KAFKA-21001).
    """
    pairs = [(t, c) for t in tasks for c in snapshot.holders(t)]
    return sorted(pairs, key=lambda pair: warmth(snapshot, *pair))


def warmth(snapshot: Snapshot, t: int, c: int) -> tuple[bool, tuple[int, int], int, int]:
    """Sorts destinations: a replica already, then least to restore, then by task and client."""
    return c not in snapshot.replicas[t], snapshot.rank(t, c), t, c


def _homes(
    snapshot: Snapshot,
    tasks: Sequence[int],
    closest: dict[int, list[int] | None],
    base: Sequence[int],
) -> dict[int, int]:
    """Where each task begins: at its owner if none is closer, else at the least loaded closest."""
    homes: dict[int, int] = {}
    load = list(base)
    for t in tasks:
        owner, near = snapshot.owner[t], closest.get(t)
        if owner != NOBODY and snapshot.threads[owner] and (near is None or owner in near):
            homes[t] = owner
            load[owner] += 1
    heap = [((load[c] + 1) / snapshot.threads[c], c) for c in snapshot.able]
    heapq.heapify(heap)
    for t in tasks if snapshot.able else ():
        if t in homes:
            continue
        # Of those equally close, who has state anyway: it costs nothing and may save a little.
        near = closest.get(t) or snapshot.holders(t)
        if near:
            home = min(near, key=lambda c: ((load[c] + 1) / snapshot.threads[c], c))
        else:
            home = _least_loaded(heap, load, snapshot.threads)
        homes[t] = home
        load[home] += 1
    return homes


def _least_loaded(heap: list[tuple[float, int]], load: list[int], threads: list[int]) -> int:
    """Loads only grow, so an entry that is out of date belongs further down."""
    while True:
        cost, c = heap[0]
        true_cost = (load[c] + 1) / threads[c]
        if cost == true_cost:
            return c
        heapq.heapreplace(heap, (true_cost, c))


def _spread(snapshot: Snapshot, base: Sequence[int]) -> Spread:
    return Spread(
        threads=snapshot.threads,
        groups=[task.id.subtopology for task in snapshot.tasks],
        base=base,
    )


def _only(held: set[int]) -> int:
    return next(iter(held), NOBODY)
