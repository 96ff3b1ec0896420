"""A failing scenario is made as short as its failure allows."""

from __future__ import annotations

from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.schedule import random_scenario
from kafka_coop.simulation.shrink import shrink
from kafka_coop.simulation.world import Scenario


def _has(scenario: Scenario, *kinds: type[object]) -> bool:
    found = [type(i.fault) for i in scenario.incidents]
    return all(kind in found for kind in kinds)


def test_only_what_the_failure_needs_is_left() -> None:
    kinds = (ft.Start, ft.Crash)
    scenario = next(s for s in map(random_scenario, range(100)) if _has(s, *kinds))
    short = shrink(scenario, lambda s: _has(s, *kinds))
    assert sorted(type(i.fault).__name__ for i in short.incidents) == ["Crash", "Start"]
    assert len(short.members) == 1
    assert not short.topics


def test_what_can_not_be_shortened_stays() -> None:
    scenario = random_scenario(1)
    assert shrink(scenario, lambda s: s == scenario) == scenario
