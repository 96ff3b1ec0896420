"""What changes hands and why, and which destinations may warm up (KIP-441, "warm-ups")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kafka_coop.tasks.actives import Actives, warmth
from kafka_coop.tasks.model import Movement, Reason, Role
from kafka_coop.tasks.snapshot import NOBODY, Snapshot
from kafka_coop.tasks.standbys import Standbys


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is pending, and which replicas warm up for it.

    Attributes:
        warmups: Per client the tasks it restores beyond its standbys.
        pending: The movements to come, actives first, the next to be done first.
    """

    warmups: list[list[int]]
    pending: list[Movement]


def plan_warmups(snapshot: Snapshot, actives: Actives, standbys: Standbys) -> Plan:
    """Gives the places for warm-ups to actives, what is left of them to standbys.

    A destination that is a standby of the task anyway needs no place.
    """
    budget = snapshot.config.max_warmup_replicas
    plan = Plan(warmups=[[] for _ in snapshot.clients], pending=[])
    for movement in _pending(snapshot, actives, standbys):
        t, c, described = movement
        warming = c in standbys.now[t] or budget > 0
        if warming and c not in standbys.now[t]:
            plan.warmups[c].append(t)
            budget -= 1
        plan.pending.append(replace(described, warming_up=warming))
    return plan


def _pending(
    snapshot: Snapshot, actives: Actives, standbys: Standbys
) -> Iterator[tuple[int, int, Movement]]:
    """Task, destination, and what is to be said of it, those nearest to their end first."""
    moving = [
        (t, a, b)
        for t, (a, b) in enumerate(zip(actives.now, actives.target, strict=True))
        if a != b
    ]
    for t, a, b in sorted(moving, key=lambda move: warmth(snapshot, move[0], move[2])):
        yield t, b, _described(snapshot, t, Role.ACTIVE, (a, b), Reason.BALANCE, pending=True)
    later = sorted(standbys.moves, key=lambda m: warmth(snapshot, m.task, m.destination))
    for m in later:
        way = (m.source, m.destination)
        yield (
            m.task,
            m.destination,
            _described(snapshot, m.task, Role.STANDBY, way, m.reason, pending=True),
        )


def movements_now(snapshot: Snapshot, actives: Actives, standbys: Standbys) -> Iterator[Movement]:
    """What changes hands in this round, against what the clients said they had."""
    for t, (before, now) in enumerate(zip(snapshot.owner, actives.now, strict=True)):
        if now not in (before, NOBODY):
            reason = _why_active(snapshot, t, before, now)
            yield _described(snapshot, t, Role.ACTIVE, (before, now), reason)
    for t, held in enumerate(standbys.now):
        coming = sorted(held - snapshot.replicas[t])
        left = sorted(snapshot.replicas[t] - held)
        for i, c in enumerate(coming):
            before = left[i] if i < len(left) else NOBODY
            reason = _why_standby(snapshot, t, before, c, actives.now[t])
            yield _described(snapshot, t, Role.STANDBY, (before, c), reason)


def _why_active(snapshot: Snapshot, t: int, before: int, now: int) -> Reason:
    if before == NOBODY:
        return Reason.UNOWNED
    if not snapshot.threads[before]:
        return Reason.OWNER_WITHOUT_CAPACITY
    closer = snapshot.tasks[t].stateful and snapshot.rank(t, now) < snapshot.rank(t, before)
    return Reason.MORE_CAUGHT_UP if closer else Reason.BALANCE


def _why_standby(snapshot: Snapshot, t: int, before: int, now: int, active: int) -> Reason:
    if before == NOBODY:
        return Reason.UNOWNED
    if before == active:
        return Reason.PROMOTED
    if snapshot.rank(t, now) < snapshot.rank(t, before):
        return Reason.MORE_CAUGHT_UP
    tags = snapshot.config.rack_aware_tags
    one, other = snapshot.clients[before].tags, snapshot.clients[now].tags
    differ = any(one.get(tag) != other.get(tag) for tag in tags)
    return Reason.TAGS if differ else Reason.BALANCE


def _described(
    snapshot: Snapshot,
    t: int,
    role: Role,
    way: tuple[int, int],
    reason: Reason,
    *,
    pending: bool = False,
) -> Movement:
    source, destination = way
    return Movement(
        task=snapshot.tasks[t].id,
        role=role,
        source=None if source == NOBODY else snapshot.clients[source].id,
        destination=snapshot.clients[destination].id,
        reason=reason,
        pending=pending,
    )
