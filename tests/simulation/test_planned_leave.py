"""Members that drain in the box: relieved by the others, or ended by time."""

from __future__ import annotations

import pytest

from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.check import run
from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.planned_leave import leave_as_planned
from kafka_coop.simulation.schedule import random_scenario
from kafka_coop.simulation.settling import settle
from kafka_coop.simulation.world import GROUP, MemberPlan, Scenario, World

TOPICS = ("alpha", "beta")


def settled(*plans: MemberPlan, last_leaver: str = "") -> World:
    members = {f"m{i}": plan for i, plan in enumerate(plans)}
    world = World(
        Scenario(
            seed=1,
            topics=dict.fromkeys(TOPICS, 4),
            members=members,
            incidents=tuple(ft.Incident(at=0.0, fault=ft.Start(member=m)) for m in members),
            quiet_at=1.0,
            last_leaver=last_leaver,
        )
    )
    world.run_until(1.0)
    settle(world)
    return world


def generation(world: World) -> int:
    return world.cluster.coordinator.generation(GROUP)


@pytest.mark.parametrize("instance_id", [None, "static-0"])
def test_who_drains_is_relieved_and_leaves_for_real(instance_id: str | None) -> None:
    leaver = MemberPlan(topics=TOPICS, instance_id=instance_id)
    world = settled(leaver, MemberPlan(topics=TOPICS), MemberPlan(topics=TOPICS), last_leaver="m0")
    before = generation(world)
    leave_as_planned(world)
    assert not world.processes["m0"].alive
    assert 0.0 < world.watcher.longest_idle < 0.1
    assert generation(world) - before <= 3
    assert all(len(owners) == 1 for owners in world.watcher.owners.values())


def test_what_nobody_else_wants_stays_until_time_is_up() -> None:
    world = settled(MemberPlan(topics=TOPICS), MemberPlan(topics=("alpha",)))
    process = world.processes["m0"]
    world._happen(ft.Drain(member="m0", seconds=5.0))
    world.run_until(world.agenda.now + 4.9)
    assert {p.topic for p in process.user.owned} == {"beta"}
    world.run_until(world.agenda.now + 1.0)
    assert not process.alive


def test_where_everybody_drains_they_go_on_until_time_is_up() -> None:
    world = settled(MemberPlan(topics=TOPICS), MemberPlan(topics=TOPICS))
    for name in world.processes:
        world._happen(ft.Drain(member=name, seconds=5.0))
    world.run_until(world.agenda.now + 4.9)
    assert all(len(owners) == 1 for owners in world.watcher.owners.values())
    world.run_until(world.agenda.now + 1.0)
    assert not any(p.alive for p in world.processes.values())


@pytest.mark.parametrize(
    "plan",
    [MemberPlan(topics=TOPICS, strategies=("range",)), MemberPlan(topics=TOPICS, client="java")],
)
def test_eager_members_and_other_clients_close_at_once(plan: MemberPlan) -> None:
    world = settled(plan, plan)
    world._happen(ft.Drain(member="m0", seconds=100.0))
    world.run_until(world.agenda.now + 1.0)
    assert not world.processes["m0"].alive


def test_a_new_subscription_ends_the_draining() -> None:
    world = settled(MemberPlan(topics=TOPICS), MemberPlan(topics=TOPICS))
    world._happen(ft.Drain(member="m0", seconds=5.0))
    world._happen(ft.Resubscribe(member="m0", topics=TOPICS))
    settle(world)
    assert world.processes["m0"].user.owned


def test_a_group_that_relieves_nobody_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kafka_coop.protocol.group.GroupColumns.relieving", lambda group, _draining, **_: group
    )
    world = settled(MemberPlan(topics=TOPICS), MemberPlan(topics=TOPICS), last_leaver="m1")
    with pytest.raises(
        InvariantViolated, match=r"D: m1#2 is not relieved in .* m1 is about to close"
    ):
        leave_as_planned(world)


def test_random_schedules_drain() -> None:
    schedules = [random_scenario(seed) for seed in range(200)]
    assert sum(any(isinstance(i.fault, ft.Drain) for i in s.incidents) for s in schedules) > 20
    assert sum(bool(s.last_leaver) for s in schedules) > 100


def test_a_static_member_that_owns_nothing_drains_for_real_too() -> None:
    """It closes at once, and would else stay in the books until its session is over."""
    idle = MemberPlan(topics=("gamma",), instance_id="static-0")
    world = settled(idle, MemberPlan(topics=TOPICS))
    world._happen(ft.Drain(member="m0", seconds=5.0))
    world.run_until(world.agenda.now + 0.1)
    group = world.cluster.coordinator.group(GROUP)
    assert group is not None
    assert [m.client_id for m in group.members] == ["m1"]


@pytest.mark.parametrize("seed", [8281, 8813, 9477])
def test_a_group_that_still_waits_for_the_dead_is_asked_to_relieve_nobody(seed: int) -> None:
    """Its next round lasts until their sessions are over."""
    assert not run(random_scenario(seed)).violated
