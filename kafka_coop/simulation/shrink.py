"""Shortens a scenario that violates an invariant, so that a person can read what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.user import UserHabits
from kafka_coop.simulation.world import MemberPlan, Scenario, Timing

Fails = Callable[[Scenario], bool]

_MOST_DIGITS = 4
"""Behind the point. More are as chance drew them, and nobody's to read."""


def shrink(scenario: Scenario, fails: Fails) -> Scenario:
    """Returns a scenario that fails, too, and from which nothing can be left out any more.

    Greedy: runs of incidents are dropped, longest first, then members, topics, habits and
    timeouts are made plainer and times rounder, until a whole pass changes nothing. A run costs
    one call of ``fails``; there are O(n log n) of them in n incidents, as a rule.
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
    yield from _plainer_members(scenario)
    for setting in fields(Timing):
        if getattr(scenario.timing, setting.name) != setting.default:
            usual: dict[str, Any] = {setting.name: setting.default}
            yield replace(scenario, timing=replace(scenario.timing, **usual))
    yield from _rounder(scenario)


def _plainer_members(scenario: Scenario) -> Iterator[Scenario]:
    for name, plan in scenario.members.items():
        for simpler in _plainer_plans(plan):
            if simpler != plan:
                yield replace(scenario, members={**scenario.members, name: simpler})


def _plainer_plans(plan: MemberPlan) -> Iterator[MemberPlan]:
    yield replace(plan, habits=UserHabits())
    for habit in fields(UserHabits):
        usual: dict[str, Any] = {habit.name: habit.default}
        yield replace(plan, habits=replace(plan.habits, **usual))
    yield replace(plan, instance_id=None)
    yield replace(plan, client="")
    if len(plan.topics) > 1:
        for topic in plan.topics:
            yield replace(plan, topics=tuple(t for t in plan.topics if t != topic))


def _rounder(scenario: Scenario) -> Iterator[Scenario]:
    """With fewer digits in all times, or in those of one incident."""
    for digits in range(_MOST_DIGITS):
        incidents = tuple(_rounded(i, digits) for i in scenario.incidents)
        quiet_at = round(scenario.quiet_at, digits)
        yield from _if_new(scenario, replace(scenario, incidents=incidents, quiet_at=quiet_at))
        yield from _if_new(scenario, replace(scenario, quiet_at=quiet_at))
        for at, incident in enumerate(scenario.incidents):
            before, after = scenario.incidents[:at], scenario.incidents[at + 1 :]
            rounded = _rounded(incident, digits)
            for one in (replace(incident, at=rounded.at), replace(rounded, at=incident.at)):
                candidate = replace(scenario, incidents=(*before, one, *after))
                yield from _if_new(scenario, candidate)


def _if_new(scenario: Scenario, candidate: Scenario) -> Iterator[Scenario]:
    if candidate != scenario:
        yield candidate


def _rounded(incident: ft.Incident, digits: int) -> ft.Incident:
    fault, at = incident.fault, round(incident.at, digits)
    match fault:
        case (
            ft.Stall(seconds=seconds)
            | ft.Jump(seconds=seconds)
            | ft.SlowPoll(seconds=seconds)
            | ft.SlowCallbacks(seconds=seconds)
            | ft.SlowAssignor(seconds=seconds)
            | ft.Drain(seconds=seconds)
            | ft.Partition(seconds=seconds)
            | ft.HoldMetadata(seconds=seconds)
        ):
            rounder = replace(fault, seconds=round(seconds, digits))
            return ft.Incident(at=at, fault=rounder)
        case _:
            return ft.Incident(at=at, fault=fault)
