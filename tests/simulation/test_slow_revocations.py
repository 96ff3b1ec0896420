"""A member whose on_revoke takes long keeps only itself waiting."""

from __future__ import annotations

from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.settling import settle, unsettled
from kafka_coop.simulation.world import MemberPlan, Scenario, World

TOPICS = {"alpha": 6, "beta": 6}
PATIENT = MemberPlan(topics=tuple(TOPICS))
LONG = 5.0
"""Seconds of a callback; a session is 3, and the rebalance timeout 6."""


def settled() -> World:
    """Three members, of which the first takes long to give up."""
    members = dict.fromkeys(("m0", "m1", "m2", "m3"), PATIENT)
    incidents = [ft.Incident(at=0.0, fault=ft.Start(member=m)) for m in ("m0", "m1", "m2")]
    world = World(
        Scenario(seed=1, topics=TOPICS, members=members, incidents=tuple(incidents), quiet_at=1.0)
    )
    world.run_until(1.0)
    settle(world)
    world._happen(ft.SlowCallbacks(member="m0", seconds=LONG))
    return world


def test_what_others_give_up_has_its_next_owner_at_once() -> None:
    world = settled()
    world.watcher.watch_idleness()
    began = world.agenda.now
    world._happen(ft.Start(member="m3"))
    newcomer = None
    while newcomer is None or not newcomer.user.owned:
        world.run_until(world.agenda.now + 0.05)
        newcomer = world.processes.get("m3")
        assert world.agenda.now - began < LONG / 2, "the newcomer waits for a slow user"
    assert world.watcher.longest_idle < LONG / 2
    while unsettled(world):
        world.run_until(world.agenda.now + 0.05)
        assert world.agenda.now - began < 3 * LONG
    assert world.agenda.now - began > LONG
    assert {len(p.user.owned) for p in world.processes.values()} == {3}
    assert world.watcher.longest_idle < LONG / 2
