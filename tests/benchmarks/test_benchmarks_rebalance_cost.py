"""What an event cost, read from members' logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rebalance_cost import Convergence, Cost, History, report

EVENT = 1_700_000_000


def history(
    folder: Path, logs: Mapping[int, str], killed: Mapping[int, float] | None = None
) -> History:
    """Of logs whose times are seconds after the event; lines are separated by semicolons."""
    paths = {}
    for member, text in logs.items():
        lines = []
        for line in text.split(";"):
            after, rest = line.split(maxsplit=1)
            lines.append(f"{EVENT * 10**9 + round(float(after) * 1e9)} {rest.strip()}\n")
        paths[member] = folder / str(member)
        paths[member].write_text("".join(lines))
    return History.read(paths, {m: EVENT + after for m, after in (killed or {}).items()})


def cost(
    folder: Path,
    logs: Mapping[int, str],
    *,
    killed: Mapping[int, float] | None = None,
    end: float = 10,
) -> Cost:
    return history(folder, logs, killed).cost(EVENT, EVENT + end)


def about(seconds: float, rounds: int) -> Convergence:
    near: Any = pytest.approx(seconds, abs=1e-6)
    return Convergence(near, rounds)


STAYED = "-5 g 3; -5 + 0,1; -1 r 0 1; -1 r 1 1; 1 r 0 2; 2 r 0 3"


def test_a_join_in_two_rounds(tmp_path: Path) -> None:
    joined = "3.0 g 5; 3.1 + 1; 3.2 g 5; 3.5 r 1 3; 4 r 1 4"
    found = cost(tmp_path, {0: STAYED + "; 1 r 1 2; 1.5 g 4; 1.6 - 1; 5 g 5; 5 r 0 4", 1: joined})
    assert found.convergence is not None
    assert found.convergence.seconds == pytest.approx(3.5, abs=1e-6), "its owner delivers it"
    assert found.convergence.rounds == 2
    assert found.moved == 1
    assert found.gaps == [pytest.approx(2500, abs=1e-3)]
    assert found.silences == [pytest.approx(3000, abs=1e-3)]
    assert (found.repeated, found.missing) == (0, 0)


def test_a_round_that_changes_nothing_more_does_not_count(tmp_path: Path) -> None:
    logs = {0: STAYED + "; 1.5 g 4; 1.6 - 1", 1: "1.7 g 4; 1.7 + 1; 1.8 r 1 2; 6 g 5"}
    found = cost(tmp_path, logs).convergence
    assert found == about(1.8, 1)


def test_the_last_change_counts_though_all_was_delivered_before(tmp_path: Path) -> None:
    logs = {
        0: "-5 + 0,1; 1 - 1",
        1: "2 + 1; 2.1 r 1 1; 3 - 1",
        2: "4 + 1; 4.2 r 1 2; 5 - 1",
        3: "-5 + 2; 6 + 1; 6.3 r 1 3",
    }
    found = cost(tmp_path, logs).convergence
    assert found is not None
    assert found.seconds == pytest.approx(6.3, abs=1e-6)


def test_what_comes_back_to_its_owner_is_delivered_anew(tmp_path: Path) -> None:
    found = cost(tmp_path, {0: "-5 + 0; -1 r 0 1; 1 - 0; 2 + 0; 2.5 r 0 2"}).convergence
    assert found is not None
    assert found.seconds == pytest.approx(2.5, abs=1e-6)


def test_a_callback_of_a_kept_partition_s_owner_ends_it_where_it_comes_last(tmp_path: Path) -> None:
    found = cost(tmp_path, {0: "-5 + 0", 1: "-5 + 1; 2 - 1; 3 + 1; 3.1 r 1 1; 4 + 2; 4.5 - 2",
                            2: "4.6 + 2; 4.7 r 2 9"}).convergence  # fmt: skip
    assert found is not None
    assert found.seconds == pytest.approx(4.7, abs=1e-6)


def test_nothing_happens(tmp_path: Path) -> None:
    assert cost(tmp_path, {0: STAYED + "; 3 g 3; 3 g 4; 4 r 1 2"}).convergence is None


@pytest.mark.parametrize(
    "joined",
    ["2 + 1", "2 + 1; 2 r 0 9", "2 + 1; 10 r 1 9", "2 + 0,1; 2.5 r 0 9; 3 r 1 9", "1 g 4"],
    ids=["silent", "another's", "too late", "two owners", "no owner"],
)
def test_a_group_that_does_not_converge(tmp_path: Path, joined: str) -> None:
    found = cost(tmp_path, {0: STAYED + "; 1 - 1; 9 r 0 8", 1: joined}).convergence
    assert found is not None
    assert found.seconds is None


def test_the_killed_own_nothing_from_then_on(tmp_path: Path) -> None:
    survivor = "-5 g 3; -5 + 2; 6 g 4; 6.1 + 0,1; 6.2 r 0 3; 6.3 r 1 2"
    found = cost(tmp_path, {0: STAYED, 1: survivor}, killed={0: 0.1})
    assert found.convergence == about(6.3, 1)
    late = cost(tmp_path, {0: STAYED, 1: survivor}, killed={0: 0.1}, end=6.0)
    assert late.convergence == Convergence(None, 0), "nobody knows yet"


def test_events_of_one_life_are_told_apart(tmp_path: Path) -> None:
    life = history(tmp_path, {0: STAYED + "; 1 - 1; 1 g 4; 20 g 4; 21 g 5; 21 + 1; 21.5 r 1 3",
                              1: "1.1 + 1; 1.2 r 1 2; 20.5 - 1"})  # fmt: skip
    assert life.cost(EVENT, EVENT + 10).convergence == about(1.2, 1)
    assert life.cost(EVENT + 10, EVENT + 20).convergence is None
    assert life.cost(EVENT + 20, EVENT + 30).convergence == about(1.5, 1)


def test_records_again_and_records_never(tmp_path: Path) -> None:
    found = cost(tmp_path, {0: "1 r 0 1; 2 r 0 2", 1: "3 r 0 2; 4 r 0 4; 5 r 0 5"})
    assert (found.repeated, found.missing) == (1, 1)


def test_what_was_delivered_long_before_the_event_is_repeated_too(tmp_path: Path) -> None:
    """A killed member's last commit may be seconds old."""
    found = cost(
        tmp_path,
        {0: "-4 r 0 1; -3 r 0 2; -2 r 0 3", 1: "6 r 0 2; 7 r 0 3; 8 r 0 4"},
        killed={0: 0.1},
    )
    assert (found.repeated, found.missing) == (2, 0)


def test_a_partition_silent_for_long_before_the_event_moves_too(tmp_path: Path) -> None:
    found = cost(tmp_path, {0: "-7 r 0 1; -5 r 0 2", 1: "1 r 0 3; 9.8 r 0 5"})
    assert found.moved == 1
    assert found.gaps == [pytest.approx(6000, abs=1e-3)]
    assert found.missing == 0, "what comes at the very end may be another event's"


def test_latency_is_from_production_to_delivery(tmp_path: Path) -> None:
    at = EVENT * 1000
    log = f"-1 r 0 1 {at - 5000}; 1 r 0 2 {at + 990}; 2 r 0 3 {at + 1500}"
    found = cost(tmp_path, {0: log})
    assert found.latencies == [pytest.approx(10, abs=1e-3), pytest.approx(500, abs=1e-3)]


def test_a_line_cut_short_and_empty_callbacks_are_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "0"
    log.write_text(f"{EVENT}000000000 + \n{EVENT}000000000 r 0 7\n{EVENT}00000")
    read = History.read({0: log}, {0: EVENT + 1})
    assert read.changes == []
    assert [d.offset for d in read.deliveries[0]] == [7]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Cost(moved=0, silences=[30.0, 40.0])
    latencies = [*[1.0] * 98, 7.0, 9.0]
    quick = Cost(
        moved=9, gaps=[10.0, 20.0, 40.0], latencies=latencies, convergence=Convergence(0.5, 2)
    )
    slow = Cost(moved=9, gaps=[3000.0], repeated=2, convergence=Convergence(None, 3))
    report(
        {
            ("coop", "in phase", "nothing"): [quiet],
            ("coop", "in phase", "join"): [quick, quick],
            ("java", "spread", "join"): [slow, quick],
            ("java", "in phase", "kill"): [slow],
        }
    )
    table = capsys.readouterr().out.splitlines()
    assert "\n".join(table[2:]) == (
        "| coop | in phase | nothing | 0 | - | - | - | 40 (40) | - | 0 | 0 |\n"
        "| coop | in phase | join | 9 | 20 (40) | 0.50 (0.50) | 2 | - | 9 | 0 | 0 |\n"
        "| java | spread | join | 9 | 30 (3,000) "
        "| 0.50 (0.50); 1 of 2 not in time | 2-3 | - | 9 | 2 | 0 |\n"
        "| java | in phase | kill | 9 | 3,000 (3,000) | 1 of 1 not in time | 3 | - | - | 2 | 0 |"
    )
    assert len({line.count("|") for line in table}) == 1, "a table"
