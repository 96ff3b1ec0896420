"""When faults come and end, by a clock that only sleeping moves; where the brokers keep a group."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import VirtualTime

from kafka_coop.testing.trial import run
from kafka_coop.testing.trial.faults import FAULTS, Deck, Started, place_of
from kafka_coop.testing.trial.outcome import NANO, Injected, Plan, Result

PLAN = Plan(faults=10, lasting=timedelta(seconds=40), members=3)
PACE = 4.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    clock = VirtualTime()
    monkeypatch.setattr(run, "time", clock)
    return clock


@pytest.fixture
def torment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Injected]]:
    """Runs the plan; the faults are those that a function makes."""

    def go(draw: Callable[[], Started | None]) -> list[Injected]:
        def drawn(*_: Any) -> tuple[str, Started] | None:
            started = draw()
            return None if started is None else ("f", started)

        monkeypatch.setattr(Deck, "draw", drawn)
        crew = SimpleNamespace(deserters=list, statuses=dict)
        kafka = SimpleNamespace(require_brokers=lambda: None)
        arena: Any = SimpleNamespace(crew=crew, kafka=kafka, chance=random.Random(1), others={})
        result = Result(plan=PLAN.to_dict())
        run._torment(PLAN, arena, result, lambda _: None)
        return result.faults

    return go


def seconds(faults: list[Injected]) -> list[float]:
    return [f.at / NANO for f in faults]


@pytest.mark.usefixtures("clock")
def test_faults_come_at_their_pace(torment: Callable[..., list[Injected]]) -> None:
    faults = torment(lambda: Started(what="", ends=timedelta(seconds=1), member="m1"))
    assert seconds(faults) == [PACE * n for n in range(10)]
    assert [f.until for f in faults] == [f.at + NANO for f in faults]
    assert {(f.member, f.lasting) for f in faults} == {("m1", 1.0)}


def test_what_a_slow_fault_held_up_comes_after_it_but_not_all_at_once(
    clock: VirtualTime, torment: Callable[..., list[Injected]]
) -> None:
    def slow() -> Started:
        if not clock.now:
            clock.sleep(11)
        return Started(what="")

    moments = seconds(torment(slow))
    assert moments[:6] == [0, 13, 15, 17, 19, 21]
    assert moments[-1] == PACE * 9, "and the pace is made up for"


def test_a_fault_in_parts_ends_with_its_last(
    clock: VirtualTime, torment: Callable[..., list[Injected]]
) -> None:
    done: list[float] = []

    def part(left: int) -> Started:
        def end() -> Started | None:
            done.append(clock.now)
            clock.sleep(0.5)
            return part(left - 1) if left > 1 else None

        return Started(what="", ends=timedelta(seconds=2), end=end)

    faults = torment(lambda: part(3) if not clock.now else Started(what=""))
    assert done == [2, 4.5, 7]
    assert faults[0].until == round(7.5 * NANO)
    assert seconds(faults)[:4] == [0, 4, 8, 12]


@pytest.mark.parametrize(
    ("takes", "came"),
    [
        (10, [0, 12, 24, 36, 48, 60, 72, 84, 96, 108]),
        (60, [0, 62, 124, 186, 248, 310]),
    ],
)
def test_a_machine_too_slow_for_the_pace_suffers_fewer(
    clock: VirtualTime, torment: Callable[..., list[Injected]], takes: int, came: list[int]
) -> None:
    """40 s become 340: enough for ten slow faults of ten seconds, not for ten of a minute."""

    def slow() -> Started:
        clock.sleep(takes)
        return Started(what="")

    assert seconds(torment(slow)) == came


@pytest.mark.usefixtures("clock")
def test_where_no_fault_can_be_had_there_is_none(torment: Callable[..., list[Injected]]) -> None:
    assert torment(lambda: None) == []


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Draws so many; the kinds that some function refuses can't be had then."""

    def go(
        count: int, seed: int = 1, refused: Callable[[int], list[str]] = lambda _: []
    ) -> list[str]:
        found: list[str] = []

        def fault(name: str) -> Callable[[Any], Started | None]:
            return lambda _: None if name in refused(len(found)) else Started(what=name)

        faults = {name: (fault(name), weight) for name, (_, weight) in FAULTS.items()}
        monkeypatch.setattr("kafka_coop.testing.trial.faults.FAULTS", faults)
        arena: Any = SimpleNamespace(chance=random.Random(seed))
        deck = Deck(arena.chance)
        for _ in range(count):
            drawn = deck.draw(arena)
            assert drawn is not None
            found.append(drawn[0])
        return found

    return go


def test_each_kind_comes_once_before_any_comes_by_chance(kinds: Callable[..., list[str]]) -> None:
    first, other = kinds(len(FAULTS)), kinds(len(FAULTS), seed=2)
    assert sorted(first) == sorted(other) == sorted(FAULTS)
    assert first != other
    assert first == kinds(len(FAULTS)), "the same seed, the same order"
    after = Counter(kinds(1000)[len(FAULTS) :])
    assert after.most_common(1)[0][0] in {n for n, (_, weight) in FAULTS.items() if weight >= 8}


def test_a_kind_that_can_not_be_had_comes_when_it_can(kinds: Callable[..., list[str]]) -> None:
    many = [name for name in FAULTS if name.startswith("broker")]
    found = kinds(60, refused=lambda drawn: many if drawn < 30 else [])
    assert not {*many} & {*found[:30]}
    assert {*found[: len(FAULTS) - len(many)]} == {*FAULTS} - {*many}
    assert {*found[30:34]} == {*many}


def test_a_group_is_kept_where_javas_hash_says() -> None:
    assert place_of("hello", 50) == 99162322 % 50
    assert place_of("hello world", 50) == 1794106052 % 50
    assert place_of("zzzzzz", 50) == 685785664 % 50, "its hash is negative"
    assert place_of("polygenelubricants", 50) == 0, "its hash is the int without a positive"
