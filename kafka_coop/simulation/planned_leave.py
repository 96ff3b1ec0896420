"""D, the invariant of planned leaves: a settled group relieves a member who drains.

Nothing else happens meanwhile: the members are ours and cooperative, their users poll, and others
want what the leaver owns. Then it is relieved long before its time is up, each partition lies idle
for one cooperative round and no longer, and the coordinator knows it no more once it has closed, be
it a static member or not. In the midst of faults nobody can promise that. What holds there, too, is
checked by `invariants` and `settling`: a member says that it drains exactly while it does, and the
draining ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.process import Process
from kafka_coop.simulation.settling import unsettled, wanted_topics
from kafka_coop.simulation.world import GROUP, Timing, World
from kafka_coop.types import RebalanceProtocol

STEP = 0.05
"""Virtual seconds between two looks."""

LONGEST_IDLE = 0.5
"""Seconds: a few times what the beats of a hurry, JoinGroup and SyncGroup take at the slowest."""


def time_to_hand_over(timing: Timing) -> float:
    """The bound on a planned leave, seconds: three rounds, each heard of by a heartbeat."""
    return 3 * ((timing.heartbeat or 1.0) + LONGEST_IDLE)


def leave_as_planned(world: World) -> None:
    """Has the scenario's `last_leaver` drain and close, if others can take over.

    Call it of a settled world alone.

    Raises:
        InvariantViolated: D, or whatever else does not hold.
    """
    leaver = world.processes.get(world.scenario.last_leaver)
    if leaver is None or not _can_be_relieved(world, leaver):
        return
    watcher, agenda = world.watcher, world.agenda
    watcher.watch_idleness()
    bound = time_to_hand_over(world.scenario.timing)
    ends = agenda.now + bound
    leaver.user.drain(2 * bound)
    while why := unsettled(world):
        if agenda.now >= ends:
            raise InvariantViolated("D", f"{leaver.name} is not relieved in {bound:.1f} s: {why}")
        world.run_until(agenda.now + STEP)
    if watcher.longest_idle > LONGEST_IDLE:
        text = f"{leaver.name} leaves, and a partition is idle for {watcher.longest_idle:.3f} s"
        raise InvariantViolated("D", text)
    group = world.cluster.coordinator.group(GROUP)
    if group and any(m.client_id == leaver.settings.client_id for m in group.members):
        raise InvariantViolated("D", f"{leaver.name} has drained and closed, and is still a member")


def _can_be_relieved(world: World, leaver: Process) -> bool:
    alive = [p for p in world.processes.values() if p.alive]
    if not nobody_is_missing(world, alive):
        return False
    others: set[str] = set()
    for process in alive:
        if not process.user.polling or process.dialect is not None:
            return False
        if process.settings.protocol is not RebalanceProtocol.COOPERATIVE:
            return False  # half-way through an upgrade: it gives all up in every round
        if process is not leaver:
            others |= wanted_topics(world, process)
    owned = {partition.topic for partition in leaver.user.owned}
    return leaver.alive and leaver.hands_over and bool(owned) and owned <= others


def nobody_is_missing(world: World, alive: Iterable[Process]) -> bool:
    """Whether no member has died, or has yet to join: a round would wait for it."""
    group = world.cluster.coordinator.group(GROUP)
    if group is None or group.pending_join:
        return False
    living = {process.member.member_id for process in alive}
    return all(member.member_id in living for member in group.members)
