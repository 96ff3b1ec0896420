"""What a settled group of ours does about one thing at a time, with nothing else going on.

Faults excuse much. Where there are none, more can be promised than that the group settles:

6  A round that somebody asks for, where nothing has changed, moves nothing.
J  A member that joins is given its share in a few rounds, and what moves lies idle for one
   cooperative round and no longer.
D  A member that drains is relieved as promptly (`kafka_coop.simulation.planned_leave`).

A run does one of the first two, or neither, chosen by its seed, and then the third: all of them
would cost every schedule a third of its time.
"""

from __future__ import annotations

from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.planned_leave import (
    LONGEST_IDLE,
    STEP,
    leave_as_planned,
    nobody_is_missing,
    time_to_hand_over,
)
from kafka_coop.simulation.process import Process
from kafka_coop.simulation.settling import unsettled, wanted_topics
from kafka_coop.simulation.world import GROUP, World
from kafka_coop.types import RebalanceProtocol, TopicPartition

_KINDS = 4
"""Of so many schedules one asks for a round, and one has a member join."""

_ROUNDS = 3
"""Of a join: its own, the follow-up, and one more where members hear of it far apart."""

_JOINER = "joiner"


def one_thing_at_a_time(world: World) -> None:
    """Disturbs a settled world, gently.

    Raises:
        InvariantViolated: 6, J or D, or whatever else does not hold.
    """
    kind = world.scenario.seed % _KINDS
    if kind == 0:
        ask_for_a_round(world)
    elif kind == 1:
        join(world)
    leave_as_planned(world)


def ask_for_a_round(world: World) -> None:
    """Has the first member that wants topics ask for a round."""
    asking = [p for p in _calm(world) if any(p.wanted)]
    if not asking:
        return
    before, generation = _owners(world), _generation(world)
    asking[0].enforce_rebalance()
    _until_settled(world, "6", f"{asking[0].name} asks for a round", since=generation)
    after = _owners(world)
    if moved := {of for of in before.keys() | after.keys() if before.get(of) != after.get(of)}:
        text = f"{asking[0].name} asks for a round, and {sorted(moved)} move"
        raise InvariantViolated("6", text)


def join(world: World) -> None:
    """Has one more member join, who wants what the first of them wants."""
    members = [p for p in _calm(world) if any(p.wanted)]
    cooperative = all(p.settings.protocol is RebalanceProtocol.COOPERATIVE for p in members)
    if not members or not cooperative or not wanted_topics(world, members[0]):
        return
    watcher, generation = world.watcher, _generation(world)
    watcher.watch_idleness()
    world.enter(_JOINER, like=members[0])
    _until_settled(world, "J", "a member joins", since=generation)
    if watcher.longest_idle > LONGEST_IDLE:
        text = f"a member joins, and a partition is idle for {watcher.longest_idle:.3f} s"
        raise InvariantViolated("J", text)
    if (rounds := _generation(world) - generation) > _ROUNDS:
        raise InvariantViolated("J", f"a member joins, in {rounds} rounds")
    _check_share(world)


def _check_share(world: World) -> None:
    """Nobody who could give the newcomer a partition has two more than it."""
    joiner = world.processes[_JOINER]
    topics = wanted_topics(world, joiner)
    for name, process in world.processes.items():
        more = len(process.user.owned) - len(joiner.user.owned)
        if process.alive and more > 1 and any(of.topic in topics for of in process.user.owned):
            text = f"a member joins, and has {more} partitions less than {name}"
            raise InvariantViolated("J", text)


def _calm(world: World) -> list[Process]:
    """All processes that run, if all are ours and poll, and the group waits for nobody."""
    alive = [p for p in world.processes.values() if p.alive]
    calm = all(p.user.polling and p.dialect is None for p in alive)
    return alive if calm and nobody_is_missing(world, alive) else []


def _until_settled(world: World, invariant: str, what: str, *, since: int) -> None:
    bound = time_to_hand_over(world.scenario.timing)
    ends = world.agenda.now + bound
    while _generation(world) == since or (why := unsettled(world)):
        if world.agenda.now >= ends:
            why = "no round has begun" if _generation(world) == since else why
            raise InvariantViolated(invariant, f"{what}: not settled in {bound:.1f} s: {why}")
        world.run_until(world.agenda.now + STEP)


def _owners(world: World) -> dict[TopicPartition, str]:
    return {of: p.name for p in world.processes.values() if p.alive for of in p.user.owned}


def _generation(world: World) -> int:
    return world.cluster.coordinator.generation(GROUP)
