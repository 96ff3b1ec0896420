"""Who keeps the replicas of each stateful task (KIP-441; tags: KIP-708).

Replicas go to the clients closest to caught up, next after the active one, so that a failure
finds a replica that is ready. Where another client would be better for the balance, or for the
tags, but has to restore first, the replica stays for now, and that is a movement to come.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_coop.tasks.actives import Actives, by_closeness, warmth
from kafka_coop.tasks.model import Reason
from kafka_coop.tasks.snapshot import Rank, Snapshot
from kafka_coop.tasks.spread import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyMove:
    """A replica that is to go elsewhere once there is a caught-up one there."""

    task: int
    source: int
    destination: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Standbys:
    """Per task who holds its replicas now, and what is to change later."""

    now: list[set[int]]
    moves: list[StandbyMove]


def place_standbys(snapshot: Snapshot, actives: Actives) -> Standbys:
    """Places the configured number of replicas, or as many as there are other clients."""
    if not snapshot.standbys:
        return Standbys(now=[set() for _ in snapshot.tasks], moves=[])
    tasks = [t for t, task in enumerate(snapshot.tasks) if task.stateful]
    kinds = _Kinds(snapshot)
    now = _current(snapshot, actives, kinds, tasks)
    # While the active one is about to move, its old place is about to become a replica.
    settled = [t for t in tasks if actives.now[t] == actives.target[t]]
    moves = list(_diversifying(snapshot, actives, kinds, settled, now))
    moving = {move.task for move in moves}
    still = [t for t in settled if t not in moving]
    moves += _levelling(snapshot, actives, kinds, still, now)
    later = [move for move in moves if not _done_now(snapshot, now, move)]
    return Standbys(now=now, moves=later)


def _done_now(snapshot: Snapshot, now: list[set[int]], move: StandbyMove) -> bool:
    """Where the source has no more of the state than the destination, waiting gains nothing."""
    t = move.task
    if snapshot.rank(t, move.destination) > snapshot.rank(t, move.source):
        return False
    now[t].remove(move.source)
    now[t].add(move.destination)
    return True


class _Kinds:
    """Clients with equal values of all rack-aware tags are of one kind.

    A client without a tag has no value of it: it adds nothing to a task's diversity.

    Attributes:
        of: Per client its kind. All the same without tags.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        tags = snapshot.config.rack_aware_tags
        self._values = [
            tuple((tag, c.tags[tag]) for tag in tags if tag in c.tags) for c in snapshot.clients
        ]
        number = {values: kind for kind, values in enumerate(sorted(set(self._values)))}
        self.of = [number[values] for values in self._values]
        self.matter = bool(tags)

    def among(self, clients: Iterable[int]) -> set[tuple[str, str]]:
        """The values of tags that these have, each once."""
        return {value for c in clients for value in self._values[c]}

    def adds(self, c: int, known: set[tuple[str, str]]) -> int:
        """How many values the client has that are not known."""
        return sum(value not in known for value in self._values[c])


def _current(
    snapshot: Snapshot, actives: Actives, kinds: _Kinds, tasks: Sequence[int]
) -> list[set[int]]:
    """The replicas of this round, level as far as clients equally caught up allow.

    They level what the actives' targets leave, since those of this round are passing.
    """
    spread = _spread(snapshot, actives, kinds)
    for t in tasks:
        chosen = _choose(snapshot, actives, kinds, t, spread)
        last = max(snapshot.rank(t, c) for c in chosen)
        spread.place(t, chosen, may_go_to=_level_with(snapshot, t, last), barred=(actives.now[t],))
    spread.level()
    return [set(held) for held in spread.held]


def _choose(
    snapshot: Snapshot, actives: Actives, kinds: _Kinds, t: int, spread: Spread
) -> list[int]:
    """The closest to caught up; of those who share least tags; who has it; the least loaded."""
    active, held = actives.now[t], snapshot.replicas[t]
    promised = actives.target[t]

    def order(c: int) -> tuple[Rank, bool, bool, float, int]:
        return snapshot.rank(t, c), c not in held, c != promised, spread.cost(c), c

    if not kinds.matter:
        return heapq.nsmallest(
            snapshot.standbys, (c for c in snapshot.able if c != active), key=order
        )
    chosen = [active]
    left = [c for c in snapshot.able if c != active]
    for _ in range(snapshot.standbys):
        known = kinds.among(chosen)
        best = min(left, key=lambda c: (order(c)[0], -kinds.adds(c, known), *order(c)[1:]))
        left.remove(best)
        chosen.append(best)
    return chosen[1:]


def _level_with(snapshot: Snapshot, t: int, rank: Rank) -> list[int] | None:
    """The clients of this rank, between which a replica may move for free. None: all clients.

    Those without any state are listed only where they are everyone: the list would be long for
    every task of a group that scales out, and the later movements level them as well.
    """
    holders = snapshot.holders(t)
    if rank != snapshot.absent[t]:
        return [c for c in holders if snapshot.rank(t, c) == rank]
    return [] if any(snapshot.rank(t, c) != rank for c in holders) else None


def _diversifying(
    snapshot: Snapshot,
    actives: Actives,
    kinds: _Kinds,
    tasks: Sequence[int],
    now: list[set[int]],
) -> Iterator[StandbyMove]:
    """Moves after which the replicas of a task share fewer values of tags (KIP-708)."""
    load = list(actives.target_load)
    for held in now:
        for c in held:
            load[c] += 1
    for t in tasks if kinds.matter else ():
        ideal = [actives.now[t]]
        left = [c for c in snapshot.able if c != actives.now[t]]
        for _ in now[t]:
            known = kinds.among(ideal)
            best = min(
                left,
                key=lambda c: (
                    -kinds.adds(c, known),
                    c not in now[t],
                    warmth(snapshot, t, c)[:2],
                    (load[c] + 1) / snapshot.threads[c],
                    c,
                ),
            )
            left.remove(best)
            ideal.append(best)
        if len(kinds.among(ideal)) > len(kinds.among([actives.now[t], *now[t]])):
            leaving, coming = sorted(now[t].difference(ideal)), sorted(set(ideal[1:]) - now[t])
            for source, destination in zip(leaving, coming, strict=True):
                load[source] -= 1
                load[destination] += 1
                yield StandbyMove(
                    task=t, source=source, destination=destination, reason=Reason.TAGS
                )


def _levelling(
    snapshot: Snapshot,
    actives: Actives,
    kinds: _Kinds,
    tasks: Sequence[int],
    now: list[set[int]],
) -> Iterator[StandbyMove]:
    """Moves after which no client is more loaded than another by a replica it could take."""
    spread = _spread(snapshot, actives, kinds)
    movable = set(tasks)
    for t, held in enumerate(now):
        spread.place(t, held, may_go_to=None if t in movable else (), barred=(actives.now[t],))
    spread.lead(by_closeness(snapshot, tasks))
    spread.level()
    for t in tasks:
        leaving, coming = sorted(now[t] - spread.held[t]), sorted(spread.held[t] - now[t])
        for source, destination in zip(leaving, coming, strict=True):
            yield StandbyMove(task=t, source=source, destination=destination, reason=Reason.BALANCE)


def _spread(snapshot: Snapshot, actives: Actives, kinds: _Kinds) -> Spread:
    return Spread(
        threads=snapshot.threads,
        groups=[task.id.subtopology for task in snapshot.tasks],
        base=actives.target_load,
        kinds=kinds.of,
    )
