"""What is said of two versions, by what their rebalances cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import versions
from benchmarks.group import OUR_CODE
from benchmarks.rebalance_cost import Cost


def costs(before: list[float], after: list[float]) -> dict[tuple[str, str], list[Cost]]:
    """Joins with these gaps, and leaves that are alike."""

    def events(gaps: list[float]) -> list[Cost]:
        return [Cost(moved=1, gaps=[gap], silences=[24.0]) for gap in gaps]

    return {
        ("join", "before"): events(before),
        ("join", "after"): events(after),
        ("leave", "before"): events([50.0, 60.0]),
        ("leave", "after"): events([50.0, 60.0]),
    }


def test_chance_is_what_a_deal_at_random_brings_about() -> None:
    alike = [40.0 + 7 * i % 31 for i in range(20)]
    assert versions.by_chance(alike, alike) > 0.4
    slower = [gap + 40.0 for gap in alike]
    assert versions.by_chance(alike, slower) < versions.UNLIKELY
    assert versions.by_chance(slower, alike) > 0.9, "who became faster is not slower"


def test_two_events_of_each_say_nothing() -> None:
    """Four figures can be dealt in six ways; one of them is what was found."""
    assert versions.by_chance([1.0, 2.0], [100.0, 101.0]) == pytest.approx(1 / 6, abs=0.02)


@pytest.mark.parametrize(("by", "status"), [(0.0, 0), (60.0, 1), (-30.0, 0)])
def test_the_status_says_whether_a_version_is_slower(
    by: float, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = [40.0 + 7 * i % 31 for i in range(20)]
    assert versions.report(costs(gaps, [gap + by for gap in gaps])) == status
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2 + 2 * len(versions.EVENTS)
    assert rows[2].startswith("| join | before | 20 |")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{empty}"], "is no checkout: it has no kafka_coop/"),
        ([".", "--rounds", "1", "--cycles", "3"], "has to be 4 or more"),
        ([".", "--rounds", "0", "--cycles", "9"], "has to be 4 or more"),
        ([".", "--variants", "drain,slow"], "'slow' is none of drain, watchdog"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(OUR_CODE)
    given = [argument.format(empty=tmp_path) for argument in arguments]
    monkeypatch.setattr("sys.argv", ["versions", *given])
    with pytest.raises(SystemExit):
        versions.main()
    assert told in capsys.readouterr().err
