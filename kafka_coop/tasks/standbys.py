"""Who keeps the replicas of each stateful task (KIP-441; tags: KIP-708).

Replicas go to the clients closest to caught up, next after the active one, so that a failure
finds a replica that is ready. Where another client would be better for the balance, or for the
tags, but has to restore first, the replica stays for now, and that is a movement to come.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_coop.tasks.actives import Actives, by_closeness
from kafka_coop.tasks.model import Reason
from kafka_coop.tasks.snapshot import NOBODY, Rank, Snapshot
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
    wanted = min(snapshot.config.num_standby_replicas, len(snapshot.able) - 1)
    if wanted <= 0:
        return Standbys(now=[set() for _ in snapshot.tasks], moves=[])
    tasks = [t for t, task in enumerate(snapshot.tasks) if task.stateful]
    kinds = Kinds(snapshot)
    current = _current(snapshot, actives, kinds, tasks, wanted)
    settled = [t for t in tasks if actives.now[t] == actives.target[t]]
    moves = list(_spreading(snapshot, actives, kinds, settled, current))
    moving = {move.task for move in moves}
    still = [t for t in settled if t not in moving]
    moves += _levelling(snapshot, actives, kinds, still, current)
    return Standbys(now=current.held, moves=moves)


class Kinds:
    """Clients with equal values of all rack-aware tags are of one kind.

    A client without a tag shares its absence with no one: absence adds nothing to diversity.

    Attributes:
        of: Per client its kind. All the same without tags.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        tags = snapshot.config.rack_aware_tags
        self.values = [
            tuple((tag, c.tags[tag]) for tag in tags if tag in c.tags) for c in snapshot.clients
        ]
        number = {values: kind for kind, values in enumerate(sorted(set(self.values)))}
        self.of = [number[values] for values in self.values]
        self.matter = bool(tags)

    def diversity(self, clients: Iterable[int]) -> int:
        """How many values of tags are among these."""
        return len({value for c in clients for value in self.values[c]})


def _current(
    snapshot: Snapshot, actives: Actives, kinds: Kinds, tasks: Sequence[int], wanted: int
) -> Spread:
    """The replicas of this round, level as far as clients equally caught up allow."""
    spread = _spread(snapshot, actives, kinds)
    begun = {(t, actives.target[t]) for t in tasks if actives.target[t] != actives.now[t]}
    for t in tasks:
        active = actives.now[t]
        held = snapshot.replicas[t]
        load = spread.load

        def order(
            c: int, t: int = t, held: set[int] = held, load: list[int] = load
        ) -> tuple[Rank, bool, bool, float, int]:
            new = c not in held
            return snapshot.rank(t, c), new, (t, c) not in begun, spread.cost(c), c

        chosen = _choose(snapshot, kinds, active, wanted, order)
        last = max(snapshot.rank(t, c) for c in chosen)
        spread.place(t, chosen, may_go_to=_ranked(snapshot, t, last), barred=(active,))
    spread.level()
    return spread
