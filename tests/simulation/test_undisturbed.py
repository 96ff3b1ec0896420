"""One thing at a time in a settled box, and what the watcher asks beyond that: can it fail?"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_coop.membership import steps
from kafka_coop.membership.effects import CallRevoked, EndLease, Release
from kafka_coop.membership.events import HeartbeatAnswered
from kafka_coop.membership.interest import subscription_bytes
from kafka_coop.membership.pulse import Pulse
from kafka_coop.membership.steps import GivingUp
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.simulation import faults as ft
from kafka_coop.simulation import settling
from kafka_coop.simulation.check import run
from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.settling import settle
from kafka_coop.simulation.undisturbed import ask_for_a_round, join
from kafka_coop.simulation.world import MemberPlan, Scenario, World
from kafka_coop.types import NO_PARTITIONS, Partitions

EVERYTHING = ("alpha", "beta")
PLAN = MemberPlan(topics=EVERYTHING)


def scenario(*incidents: tuple[float, ft.Fault], plan: MemberPlan = PLAN) -> Scenario:
    """Two members, and what happens to them from two seconds on."""
    starts = [(0.0, ft.Start(member=member)) for member in ("m0", "m1")]
    return Scenario(
        seed=2,
        topics=dict.fromkeys(EVERYTHING, 3),
        members={"m0": plan, "m1": plan},
        incidents=tuple(ft.Incident(at=at, fault=fault) for at, fault in (*starts, *incidents)),
        quiet_at=4.0,
    )


def settled(plan: MemberPlan = PLAN) -> World:
    world = World(scenario(plan=plan))
    world.run_until(2.0)
    settle(world)
    return world


def test_a_group_in_which_rounds_never_end_is_not_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told so, whatever each look finds: it was taken for an error of the machine."""
    generations = itertools.count()
    monkeypatch.setattr(settling, "_generation", lambda _: next(generations))
    verdict = run(scenario())
    assert verdict.violated == "3"
    assert "not settled after" in verdict.text
    assert "rounds go on" in verdict.text


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "fairest-sticky", "range"])
def test_a_round_for_nothing_moves_nothing(strategy: str) -> None:
    ask_for_a_round(settled(replace(PLAN, strategies=(strategy,))))


def test_a_round_that_moves_something_for_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    forgetful: Callable[..., bytes] = lambda assignor, **about: subscription_bytes(  # noqa: E731
        assignor, **{**about, "owned": NO_PARTITIONS}
    )
    monkeypatch.setattr("kafka_coop.membership.joining.subscription_bytes", forgetful)
    with pytest.raises(InvariantViolated):
        ask_for_a_round(world)


def test_a_join_is_prompt() -> None:
    world = settled()
    join(world)
    assert 0.0 < world.watcher.longest_idle < 0.1
    assert len(world.processes["joiner"].user.owned) == 2


def test_a_join_whose_follow_up_nobody_hurries_for_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    monkeypatch.setattr(Pulse, "announce", lambda *_, **__: None)
    with pytest.raises(InvariantViolated, match="J: a member joins, and a partition is idle"):
        join(world)


def test_what_was_delivered_is_committed_before_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(partitions: Partitions, **_: bool) -> GivingUp:
        if not partitions:
            return GivingUp()
        actions = (CallRevoked(partitions=partitions), Release(partitions=partitions))
        return GivingUp(actions=actions, revoked=partitions)

    closes = scenario((2.5, ft.Close(member="m0")))
    assert not run(closes).violated
    monkeypatch.setattr("kafka_coop.membership.leaving.revoke", careless)
    assert run(closes).violated == "2"
    assert steps.revoke is not careless


def test_records_are_not_withheld_because_a_round_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = Pulse.answered

    def timid(self: Pulse, event: HeartbeatAnswered, now: float) -> Any:
        effects, error, sender = answered(self, event, now)
        hurries = error is ErrorCode.rebalance_in_progress
        return (*effects, *((EndLease(),) if hurries else ())), error, sender

    # The round waits for a callback: meanwhile what stays flows on.
    slow = (
        (2.0, ft.SlowCallbacks(member="m1", seconds=1.5)),
        (2.1, ft.Resubscribe(member="m1", topics=("alpha",))),
    )
    often = replace(PLAN, habits=replace(PLAN.habits, poll_interval=0.05))
    assert not run(scenario(*slow, plan=often)).violated
    monkeypatch.setattr(Pulse, "answered", timid)
    assert run(scenario(*slow, plan=often)).violated == "4"


def test_no_lease_is_longer_than_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Pulse._end_of_lease
    assert not run(scenario()).violated
    monkeypatch.setattr(Pulse, "_end_of_lease", lambda self: end(self) + 0.1)
    assert run(scenario()).violated == "1"


def test_a_clock_that_jumps_ends_the_lease_and_nothing_else() -> None:
    jumps = scenario((2.5, ft.Jump(member="m0", seconds=2.9)))
    world = World(jumps)
    world.run_until(2.5)
    process, generation = world.processes["m0"], world.processes["m0"].member.generation
    assert process.mailbox.lease_until < 2.5
    settle(world)
    assert process.member.generation >= generation
    assert process.mailbox.lease_until > world.agenda.now


def test_a_clock_that_jumps_beyond_the_poll_interval_costs_the_place_and_no_record() -> None:
    assert not run(scenario((2.5, ft.Jump(member="m0", seconds=60.0)))).violated
