"""Liveness: once nothing disturbs it any more, the group settles, and then rests.

Settled: every process that wants topics is a stable member, every partition that is wanted by
anyone has exactly one owner, who wants it, fetches it and has a lease, and nobody owns more.
"""

from __future__ import annotations

import re

from kafka_coop.membership.states import State
from kafka_coop.simulation.group import GroupState
from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.process import Process
from kafka_coop.simulation.world import GROUP, Timing, World
from kafka_coop.types import TopicPartition

_STEP = 0.25
"""Virtual seconds between two looks."""

_REST = 1.2
"""Heartbeat intervals, or metadata refreshes, whichever take longer, of calm after which nobody has
anything left to tell the others: a round for each refresh would be found."""

_JOIN_GRACE = 5.0
"""What a lost JoinGroup may cost beyond the rebalance timeout: the client waits so long."""


def time_to_settle(timing: Timing) -> float:
    """The bound on a group's settling, in seconds, once all faults are over.

    In the worst case one after the other: a slow poll or callback that still runs and the
    request that was lost before it (each a rebalance timeout and a little), members that died
    during their first join, those that died later, a phase that waits for a member that will
    never come, and the rounds that follow each of these.
    """
    lost_join = timing.rebalance + _JOIN_GRACE
    return 2 * lost_join + timing.new_member + 2 * timing.session + 4 * timing.rebalance


def rounds_to_settle(members: int) -> int:
    """The bound on the generations until it has settled."""
    return 3 * members + 8


def settle(world: World) -> tuple[float, int]:
    """Heals the world and runs it until the group has settled and rested.

    Returns:
        The virtual seconds and the rounds it took.

    Raises:
        InvariantViolated: It did not settle within the bounds (3), or something else is wrong.
    """
    timing = world.scenario.timing
    world.heal()
    healed_at = world.agenda.now
    first = generation = _generation(world)
    calm_since = settled_at = healed_at
    rest = _REST * max(timing.heartbeat or 1.0, timing.metadata_max_age)
    while True:
        world.run_until(world.agenda.now + _STEP)
        world.make_up_for_unseen_changes()
        now = world.agenda.now
        present, why = _generation(world), unsettled(world)
        if present != generation or why:
            generation, calm_since, settled_at = present, now, now
        elif now - calm_since >= rest:
            break
        if now - healed_at > time_to_settle(timing):
            why = why or f"rounds go on, this is generation {present}"
            raise InvariantViolated("3", f"not settled after {now - healed_at:.1f} s: {why}")
    rounds = generation - first
    if rounds > rounds_to_settle(len(world.processes)):
        raise InvariantViolated("3", f"it took {rounds} rounds to settle")
    return settled_at - healed_at, rounds


def unsettled(world: World) -> str:
    """What keeps the group from being settled; empty: nothing."""
    wanted: dict[TopicPartition, list[str]] = {}
    for name, process in world.processes.items():
        if not process.alive:
            continue
        if why := _not_at_rest(process):
            return f"{name} {why}"
        topics = wanted_topics(world, process)
        for topic in topics:
            for index in range(world.cluster.topics.partitions(topic)):
                wanted.setdefault(TopicPartition(topic, index), [])
        for partition in process.user.owned:
            if partition.topic not in topics:
                return f"{name} owns {partition}, which it does not want"
            wanted.setdefault(partition, []).append(name)
    return _misplaced(world, wanted) or _restless(world)


def _misplaced(world: World, wanted: dict[TopicPartition, list[str]]) -> str:
    for partition, owners in wanted.items():
        if len(owners) != 1:
            return f"{partition} is owned by {owners}"
        if not world.cluster.topics.exists(partition):
            return f"{partition} is owned, and does not exist"
    return ""


def _restless(world: World) -> str:
    state = world.cluster.coordinator.state(GROUP)
    if state in (None, GroupState.STABLE, GroupState.EMPTY):
        return ""
    return f"the group is {state.value}"


def _not_at_rest(process: Process) -> str:
    member, user = process.member, process.user
    now = process.world.agenda.now
    at_rest = State.STABLE if any(process.wanted) else State.UNSUBSCRIBED
    if user.closing or user.drains_until < float("inf"):
        return "is about to close"
    if member.state is not at_rest:
        return f"is {member.state.name}"
    if user.owned != set(member.owned):
        return "has news for its user"
    if user.owned != user.positions.keys():
        return "does not know where to start"
    if user.owned and process.mailbox.lease_until <= now:
        return "has no lease"
    return ""


def wanted_topics(world: World, process: Process) -> set[str]:
    """The topics that exist and that the process subscribes to."""
    if process.dialect is not None and process.dialect.malice is not None:
        return set()  # what it wants, nobody can know
    names, patterns = process.wanted
    existing = world.cluster.topics.names()
    return {t for t in existing if t in names or any(re.match(p, t) for p in patterns)}


def _generation(world: World) -> int:
    return world.cluster.coordinator.generation(GROUP)
