"""Random schedules: nothing they bring about breaks an invariant, and each is repeatable."""

from __future__ import annotations

import pytest

from kafka_coop.simulation import check
from kafka_coop.simulation.check import run
from kafka_coop.simulation.schedule import random_scenario
from kafka_coop.simulation.trace import Trace

BLOCK = 50


@pytest.mark.parametrize("first", range(0, 1000, BLOCK))
def test_random_schedules_keep_every_invariant(first: int) -> None:
    for seed in range(first, first + BLOCK):
        verdict = run(random_scenario(seed))
        assert not verdict.violated, f"seed {seed}: {verdict.text}"


@pytest.mark.parametrize("seed", [3, 68, 233])
def test_a_run_is_a_function_of_its_scenario(seed: int) -> None:
    first, second = Trace(), Trace()
    verdict = run(random_scenario(seed), trace=first)
    assert run(random_scenario(seed), trace=second) == verdict
    assert second.lines == first.lines
    assert run(random_scenario(seed)) == verdict, "watching changes nothing"


def test_schedules_do_something() -> None:
    verdicts = [run(random_scenario(seed)) for seed in range(20)]
    assert sum(v.deliveries > 0 for v in verdicts) > len(verdicts) / 2
    assert len({v.deliveries for v in verdicts}) > 5


def test_the_command_counts_schedules_and_violations(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--seeds", "3", "--first", "5", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 schedules, 0 violations"


def test_the_command_fails_where_something_is_violated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = check.Verdict(violated="1", text="two owners", at=1.5)
    monkeypatch.setattr(check, "run", lambda _scenario: broken)
    assert check.main(["--seeds", "2", "--jobs", "1"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "seed 0: at 1.500 s: two owners"
    assert out[-1] == "2 schedules, 2 violations"
