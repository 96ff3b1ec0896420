"""Members of other clients in a trial: who they are, what befalls them, what is judged."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from trial_journals import told

from kafka_coop.testing.trial.assess import assess
from kafka_coop.testing.trial.faults import FAULTS, Arena
from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.liveness import MACHINE
from kafka_coop.testing.trial.outcome import NANO, OTHERS_HEARTBEAT, SLOW, Injected, Plan, Result

PLAN = Plan(faults=1, lasting=timedelta(minutes=1), members=4, others=2)


class Crew:
    """Starts nobody, and notes what it was told."""

    def __init__(self) -> None:
        self.started: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.gone: set[str] = set()
        self.leaving: set[str] = set()
        self.slowed: set[str] = set()
        self.stopped: set[str] = set()

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(name for name in self.started if name not in self.gone)

    def start(self, name: str, client: str, strategies: list[str], **config: Any) -> None:
        assert strategies == ["cooperative-sticky"]
        self.started[name] = client, config

    def has_started(self, _: str) -> bool:
        return True

    def kill(self, name: str) -> None:
        self.gone.add(name)

    def stop(self, name: str) -> None:
        self.stopped.add(name)

    def resume(self, name: str) -> None:
        """By a thread, in the fault's time."""

    def ask_to_leave(self, name: str, *, drain: bool) -> None:
        assert not drain or self.client(name) == "ours"
        self.leaving.add(name)

    def slow_down(self, name: str, _: timedelta) -> None:
        self.slowed.add(name)

    def client(self, name: str) -> str:
        return self.started[name][0]


def arena(seed: int = 0) -> tuple[Arena, Crew]:
    """Two of ours, a Java member and one of librdkafka's."""
    crew: Any = Crew()
    nothing: Any = None
    made = Arena(
        kafka=nothing,
        crew=crew,
        load=nothing,
        chance=random.Random(seed),
        session=timedelta(seconds=6),
        partitions=4,
        most_partitions=4,
        aside="aside",
    )
    for client in ("ours", "ours", "java", "confluent"):
        made.recruit(client)
    return made, crew


def test_who_goes_is_followed_by_one_of_its_kind() -> None:
    for name in ("member killed", "member left"):
        for seed in range(20):
            suffers, crew = arena(seed)
            started = FAULTS[name][0](suffers)
            assert started is not None
            assert crew.client("m4") == crew.client(started.member)


@pytest.mark.parametrize("name", ["member drained", "member paused within its session"])
def test_what_others_can_not_do_or_bear_befalls_ours_alone(name: str) -> None:
    befell = set()
    for seed in range(20):
        started = FAULTS[name][0](arena(seed)[0])
        assert started is not None
        befell.add(started.member)
    assert befell == {"m0", "m1"}


def test_a_zombie_may_be_of_another_client() -> None:
    befell = set()
    for seed in range(20):
        suffers, crew = arena(seed)
        started = FAULTS["member paused beyond its session"][0](suffers)
        assert started is not None
        befell.add(crew.client(started.member))
    assert befell == {"ours", "java", "confluent"}


def test_others_users_are_quick() -> None:
    """Theirs may be evicted in on_revoke, and can't say so."""
    for seed in range(20):
        suffers, crew = arena(seed)
        assert FAULTS[SLOW][0](suffers) is not None
        assert {crew.client(name) for name in crew.slowed} == {"ours"}


def test_others_hear_in_time_and_have_no_topic_aside() -> None:
    _, crew = arena()
    beat = {"heartbeat_interval_ms": 1000}
    assert crew.started["m2"] == ("java", {**beat, "metadata_max_age_ms": 1000})
    assert crew.started["m3"] == ("confluent", beat)
    assert crew.started["m0"][1] == {"output": "", "aside": "aside"}


def judged(others: list[str], journals: Mapping[str, list[Event]]) -> Result:
    result = Result(plan=PLAN.to_dict(), ends={0: 3}, others=others)
    assess(result, journals)
    return result


@pytest.mark.parametrize("others", [["a"], ["b"], []])
def test_late_records_are_judged_of_ours_alone(others: list[str]) -> None:
    late = {
        "a": told("A 1 0", "R 2 0 0", "R 6 0 1", "L 7 0", second=NANO),
        "b": told("A 4 0", "R 5 0 1", "R 7 0 2", "X 8", second=NANO),
    }
    result = judged(others, late)
    assert (result.late, result.late_of_others) == ((0, 1) if others == ["a"] else (1, 0))
    assert result.sound is (others == ["a"])


@pytest.mark.parametrize("others", [["a"], []])
def test_records_in_hand_are_told_of_ours_alone(others: list[str]) -> None:
    stopped = Injected(
        at=3 * NANO,
        name="member paused beyond its session",
        what="",
        member="a",
        lasting=3.0,
        until=6 * NANO,
    )
    journals = {
        "a": told("A 1 0", "R 2 0 0", "R 6 0 1", "L 7 0", second=NANO),
        "b": told("A 4 0", "R 5 0 1", "R 7 0 2", "X 8", second=NANO),
    }
    result = Result(plan=PLAN.to_dict(), ends={0: 3}, others=others, faults=[stopped])
    assess(result, journals)
    assert (result.in_hand, result.late_of_others) == ((0, 1) if others else (1, 0))
    assert result.late == 0


@pytest.mark.parametrize("others", [["b"], []])
def test_others_have_the_time_to_hear_of_two_rounds(others: list[str]) -> None:
    session = timedelta(seconds=6)
    allowed = (session + MACHINE + (2 * OTHERS_HEARTBEAT if others else timedelta())).seconds
    for idle in (allowed, allowed + 1):
        heir = told(f"A {2 + idle} 0", f"R {2 + idle} 0 2", f"X {3 + idle}", second=NANO)
        first = told("A 1 0", "R 1 0 0", "R 2 0 1", "V 2 0", "X 3", second=NANO)
        result = judged(others, {"a": first, "b": heir})
        assert bool(result.ownerless_too_long) is (idle > allowed)


def test_a_result_of_old_has_nobody_of_others() -> None:
    values = Result(plan=replace(PLAN, others=0).to_dict()).to_json()
    assert '"others": []' in values
    assert Result.from_dict({"plan": {}, "faults": []}).others == []
