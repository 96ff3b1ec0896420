"""Random schedules: nothing they bring about breaks an invariant, and each is repeatable.

KAFKA_COOP_SEEDS sets how many are run, KAFKA_COOP_FIRST_SEED where they begin. Beside them 4,000
others count what they visit.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kafka_coop.membership import events as ev
from kafka_coop.membership.states import CELLS, EDGES, State
from kafka_coop.simulation import check
from kafka_coop.simulation.check import run
from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.schedule import random_scenario
from kafka_coop.simulation.trace import Trace

SEEDS = int(os.environ.get("KAFKA_COOP_SEEDS", "2000"))
FIRST = int(os.environ.get("KAFKA_COOP_FIRST_SEED", "0"))
BLOCK = 500


@pytest.mark.timeout(600)
@pytest.mark.parametrize("at", range(FIRST, FIRST + SEEDS, BLOCK))
def test_random_schedules_keep_every_invariant(at: int) -> None:
    seeds = min(BLOCK, FIRST + SEEDS - at)
    outcome = check.check(seeds, at)
    assert outcome.summary() == f"{seeds} schedules, 0 violations", outcome.violations


@pytest.mark.parametrize("seed", [3, 68, 233])
def test_a_run_is_a_function_of_its_scenario(seed: int) -> None:
    first, second = Trace(), Trace()
    verdict = run(random_scenario(seed), trace=first)
    assert run(random_scenario(seed), trace=second) == verdict
    assert second.lines == first.lines
    assert run(random_scenario(seed)) == verdict, "watching changes nothing"


def test_a_run_depends_on_no_hash_of_strings() -> None:
    script = (
        "from kafka_coop.simulation.check import run\n"
        "from kafka_coop.simulation.schedule import random_scenario\n"
        "print([run(random_scenario(seed)) for seed in range(60)])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(said) == 1


def test_schedules_do_something() -> None:
    verdicts = [run(random_scenario(seed)) for seed in range(20)]
    assert sum(v.deliveries > 0 for v in verdicts) > len(verdicts) / 2
    assert len({v.deliveries for v in verdicts}) > 5


@pytest.mark.timeout(1200)  # two minutes of a core, of which Spark's tests leave little
def test_schedules_visit_every_edge_and_what_can_happen_in_a_stable_group() -> None:
    outcome = check.check(4000, 20_000)
    assert outcome.summary() == "4000 schedules, 0 violations", outcome.violations
    coverage = outcome.coverage
    assert {(before, after) for before in EDGES for after in EDGES[before]} <= coverage.edges
    # What belongs to a round that is over comes late, if ever.
    stale = {
        ev.JoinAnswered,
        ev.SyncAnswered,
        ev.LeaveAnswered,
        ev.StepWithdrawn,
        ev.AssignmentComputed,
    }
    usual = {cell for cell in CELLS if cell[0] is State.STABLE and cell[1] not in stale}
    assert usual <= coverage.cells


def test_a_report_names_what_was_not_visited() -> None:
    coverage = Coverage({(State.STABLE, ev.Tick)}, {(State.STABLE, State.UNJOINED)})
    report = coverage.report()
    assert report[0] == f"cells: 1 of {len(CELLS)} visited"
    assert f"edges: 1 of {sum(map(len, EDGES.values()))} visited" in report
    assert "  not in STABLE: LEAVING" in report


def test_the_command_counts_schedules_and_violations(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--seeds", "3", "--first", "5", "--jobs", "1", "--coverage"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "3 schedules, 0 violations"
    assert out[0].startswith("cells: ")


def test_the_command_fails_where_something_is_violated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = check.Verdict(violated="1", text="two owners", at=1.5)
    monkeypatch.setattr(check, "run", lambda _scenario, coverage: broken)
    assert check.main(["--seeds", "2", "--jobs", "1"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "seed 0: at 1.500 s: two owners"
    assert out[-1] == "2 schedules, 2 violations"


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("--seeds", 0, "at least one schedule must be run"),
        ("--seeds", -3, "at least one schedule must be run"),
        ("--first", -5, "seeds begin at 0"),
        ("--jobs", 0, "at least one process is needed"),
        ("--jobs", -2, "at least one process is needed"),
    ],
)
def test_the_command_refuses_numbers_that_mean_nothing(
    option: str, given: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [] if option == "--seeds" else ["--seeds", "1"]
    with pytest.raises(SystemExit) as ended:
        check.main([option, str(given), *others])
    assert ended.value.code == 2
    assert f"{option} {given}: {said}" in capsys.readouterr().err


def test_more_seeds_than_fit_in_memory_can_be_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = check.Verdict(violated="1", text="two owners", at=1.5)
    monkeypatch.setattr(check, "run", lambda _scenario, coverage: broken)
    assert check.check(10**15, fail_fast=True).schedules == 50


def test_where_nothing_is_violated_nothing_is_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check.main(["--seeds", "1", "--jobs", "1", "--explain"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "nothing to explain: no invariant is violated",
        "1 schedules, 0 violations",
    ]


def test_processes_share_the_work_and_change_nothing() -> None:
    alone, shared = check.check(120, 7), check.check(120, 7, jobs=2)
    assert shared == alone


def test_a_scenario_without_a_fault_can_not_be_explained() -> None:
    with pytest.raises(ValueError, match="violates no invariant"):
        check.explain(random_scenario(1))
