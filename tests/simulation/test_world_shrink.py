"""A failing scenario is made as short as its failure allows."""

from __future__ import annotations

import pytest

from kafka_coop.membership import core
from kafka_coop.membership import effects as ef
from kafka_coop.membership.steps import GivingUp
from kafka_coop.simulation import check
from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.schedule import random_scenario
from kafka_coop.simulation.shrink import shrink
from kafka_coop.simulation.user import UserHabits
from kafka_coop.simulation.world import MemberPlan, Scenario, Timing
from kafka_coop.simulation.written import written
from kafka_coop.types import Partitions


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


def test_times_are_as_round_as_the_failure_allows() -> None:
    drawn = Scenario(
        seed=1,
        members={"m0": MemberPlan(strategies=("range",), habits=UserHabits(callback=0.3))},
        timing=Timing(session=2.0, rebalance=3.0),
        incidents=(
            ft.Incident(at=0.0005990022746487147, fault=ft.Start(member="m0")),
            ft.Incident(at=1.2345678901234567, fault=ft.Stall(member="m0", seconds=2.8499)),
        ),
        quiet_at=3.1415926535,
    )

    def fails(scenario: Scenario) -> bool:
        stalls = [i for i in scenario.incidents if isinstance(i.fault, ft.Stall)]
        return scenario.timing.session == 2.0 and any(1.2 < i.at < 1.3 for i in stalls)

    assert shrink(drawn, fails) == Scenario(
        seed=1,
        timing=Timing(session=2.0),
        incidents=(ft.Incident(at=1.23, fault=ft.Stall(member="m0", seconds=3.0)),),
        quiet_at=3.0,
    )


@pytest.mark.parametrize("seed", range(0, 50, 7))
def test_a_scenario_is_written_as_python_makes_it(seed: int) -> None:
    scenario = random_scenario(seed)
    text = written(scenario)
    names = {kind.__name__: kind for kind in (Scenario, MemberPlan, Timing, UserHabits)}
    assert eval(text, {"ft": ft, **names}) == scenario
    assert max(map(len, text.splitlines())) <= 101, "a comma may follow"
    assert "brokers" not in text
    assert "'" not in text


def _without_a_word(owned: Partitions) -> GivingUp:
    """Seeded fault: ownership ends, and then on_lost is called."""
    if not owned:
        return GivingUp()
    actions = (ef.Release(partitions=owned), ef.CallLost(partitions=owned))
    return GivingUp(actions=actions, lost=owned)


def test_a_seeded_fault_is_explained_in_a_few_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core, "lose", _without_a_word)
    long = (s for s in map(random_scenario, range(500)) if len(s.incidents) > 8)
    seed = next(s.seed for s in long if check.run(s).violated)
    arguments = ["--seeds", "1", "--first", str(seed), "--jobs", "1"]
    assert check.main(arguments) == 1
    again = f"kafka-coop simulate check --seeds 1 --first {seed} --explain"
    assert again in capsys.readouterr().out

    assert check.main([*arguments, "--explain"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "1 schedules, 1 violations"
    assert 1 <= sum("ft.Incident" in line for line in said) <= 4
    assert len(said) <= 40
    assert "loses" in said[-2]
    assert again not in said
