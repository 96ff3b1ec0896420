"""Shortens a scenario that violates an invariant, so that a person can read what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.user import UserHabits
from kafka_coop.simulation.world import Scenario

Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails) -> Scenario:
    """Returns a scenario that fails, too, and from which nothing can be left out any more.

    Greedy: runs of incidents are dropped, longest first, then members, topics and habits are
    made plainer, until a whole pass changes nothing. A run costs one call of ``fails``; there
    are O(n log n) of them in n incidents, as a rule.
    """
    assert fails(scenario), "the scenario to shrink must fail"
    while True:
        before = scenario
        scenario = _drop_incidents(scenario, fails)
        for candidate in _plainer(scenario):
            if fails(candidate):
                scenario = candidate
                break
        if scenario == before:
            return scenario


def _drop_incidents(scenario: Scenario, fails: Fails) -> Scenario:
    size = max(len(scenario.incidents) // 2, 1)
    while size:
        at = 0
        while at < len(scenario.incidents):
            fewer = scenario.incidents[:at] + scenario.incidents[at + size :]
            candidate = replace(scenario, incidents=fewer)
            if fails(candidate):
                scenario = candidate
            else:
                at += size
        size //= 2
    return scenario


def _plainer(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with one thing less."""
    started = {i.fault.member for i in scenario.incidents if isinstance(i.fault, ft.Start)}
    if scenario.last_leaver:
        yield replace(scenario, last_leaver="")
    needed = {m: p for m, p in scenario.members.items() if m in started}
    if len(needed) < len(scenario.members):
        yield replace(scenario, members=needed)
    for topic in scenario.topics:
        yield replace(scenario, topics={t: n for t, n in scenario.topics.items() if t != topic})
    for topic, count in scenario.topics.items():
        if count > 1:
            yield replace(scenario, topics={**scenario.topics, topic: count - 1})
    for name, plan in scenario.members.items():
        for simpler in (replace(plan, habits=UserHabits()), replace(plan, instance_id=None)):
            if simpler != plan:
                yield replace(scenario, members={**scenario.members, name: simpler})
