"""What schedules may leave unvisited of the member's table, and what they may not."""

from __future__ import annotations

import pytest

from kafka_coop.membership import events as ev
from kafka_coop.membership.states import CELLS, State
from kafka_coop.simulation import check
from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.unvisited import ENOUGH, UNVISITED

VISITED = set(CELLS) - set(UNVISITED)
A_CELL = (State.STABLE, ev.Tick)


def test_every_exception_is_a_cell_and_has_its_reason() -> None:
    assert UNVISITED.keys() <= CELLS.keys()
    assert all(len(reason.split()) > 5 for reason in UNVISITED.values())
    assert len(UNVISITED) < len(CELLS) / 3


def test_what_has_a_reason_is_not_missed() -> None:
    assert Coverage(set(VISITED)).unexplained() == []
    assert Coverage(VISITED - {A_CELL}).unexplained() == ["  not in STABLE: Tick"]


@pytest.mark.parametrize(
    ("schedules", "cells", "status"),
    [
        (ENOUGH, VISITED, 0),
        (ENOUGH, VISITED - {A_CELL}, 1),
        (ENOUGH - 1, VISITED - {A_CELL}, 0),
    ],
)
def test_a_long_run_fails_where_a_cell_is_missed(
    schedules: int,
    cells: set[tuple[State, type[ev.Event]]],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*_: object, total: check.Outcome, **__: object) -> None:
        total.schedules, total.coverage = schedules, Coverage(set(cells))

    monkeypatch.setattr(check, "check", run)
    assert check.main(["--seeds", str(schedules), "--jobs", "2", "--coverage"]) == status
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"{schedules} schedules, 0 violations"
    assert ("cells that schedules should visit" in said[-3]) is bool(status)


def test_a_hundred_schedules_visit_what_every_round_does() -> None:
    usual = {
        (State.UNSUBSCRIBED, ev.Subscribe),
        (State.JOINING, ev.JoinAnswered),
        (State.LEADING, ev.AssignmentComputed),
        (State.SYNCING, ev.SyncAnswered),
        (State.ADOPTING, ev.StepDone),
        (State.STABLE, ev.HeartbeatAnswered),
        (State.LEAVING, ev.LeaveAnswered),
    }
    assert usual <= check.check(100).coverage.cells
