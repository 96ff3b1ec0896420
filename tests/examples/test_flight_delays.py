"""The pipeline of flights and weather: run as a user runs it, and its checks one by one."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.unavailable import LocalKafkaUnavailableError

ROOT = Path(__file__).parents[2]
PATIENCE = 500


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def module(name: str) -> Any:
    return importlib.import_module(f"examples.flight_delays.{name}")


@pytest.mark.verdict
@pytest.mark.xdist_group("spark")  # as all tests that start one: it takes all cores to start
@pytest.mark.timeout(PATIENCE + 60)
def test_three_days_come_to_what_pandas_says(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "spark"))
    picture = tmp_path / "delays.svg"
    size = ["--days", "3", "--picture", str(picture), "--servers", kafka.bootstrap_servers]
    bare = {k: v for k, v in os.environ.items() if k != "KAFKA"}
    with importlib.import_module("spark_priority").first_in_line():
        done = subprocess.run(
            [sys.executable, "-m", "examples.flight_delays", *size],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**bare, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    printed = done.stdout
    assert "rows: 2660 by the streams, 2660 by pandas; 0 missing, 0 not expected" in printed
    assert "windows: 9 by the streams, 9 by pandas; 0 missing, 0 not expected" in printed
    counts = re.findall(r"rows by query: one (\d+), two (\d+), three (\d+);", printed)[0]
    assert sum(map(int, counts)) == 2660
    assert all(map(int, counts))
    assert len(picture.with_suffix(".csv").read_text().splitlines()) == 1 + 9
    assert "<svg" in picture.read_text()


def test_without_a_broker_it_says_what_that_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> None:
        raise LocalKafkaUnavailableError("install a JRE")

    program = module("__main__")
    monkeypatch.setattr(program, "LocalKafka", none)
    monkeypatch.setattr(sys, "argv", ["flight_delays"])
    assert program.main() == 1
    assert capsys.readouterr().out == "FAILED: install a JRE\n"


def row(offset: int, delay: float | None, day: str = "2013-01-01") -> tuple[Any, ...]:
    return (0, offset, day, "JFK", f"{day}T12:00:00Z", "AA", 1, "LAX", delay, 1.0, 0.5, 10.0)


def test_a_row_written_again_changes_neither_table_nor_windows(tmp_path: Path) -> None:
    results = module("results").Results(tmp_path / "r.sqlite")
    results.write("one", [row(0, 20.0), row(1, None)])
    results.write("two", [row(0, 20.0), row(2, -5.0), row(3, 1.0, "2013-01-02")])
    assert results.count() == 4
    assert results.by_query() == {"one": 2, "two": 2}
    assert results.again() == 1
    assert results.windows() == [
        ("2013-01-01", "JFK", 3, 2, 7.5, 1, 0.5),
        ("2013-01-02", "JFK", 1, 1, 1.0, 0, 0.5),
    ]


def test_windows_are_read_back_as_they_are(tmp_path: Path) -> None:
    results = module("results").Results(tmp_path / "r.sqlite")
    results.write("one", [row(0, 1.1), row(1, 1.0), row(2, None, "2013-01-02")])
    results.save_windows(tmp_path / "w.csv")
    assert module("oracle").windows_of(tmp_path / "w.csv") == Counter(results.windows())


def test_the_oracle_takes_days_from_the_data_and_the_sink_from_the_clock_of_new_york() -> None:
    oracle = module("oracle")
    merged = oracle.joined(2)
    assert len(merged) == 1746
    assert {window[0] for window in oracle.windows(merged)} == {"2013-01-01", "2013-01-02"}
    in_utc = {found[2][:10] for found in oracle.rows(merged)}
    assert "2013-01-03" in in_utc  # the evening of the second


def test_a_missing_a_different_and_a_doubled_row_are_told() -> None:
    difference = module("oracle").difference
    words, differ = difference("rows", Counter("aabx"), Counter("abc"))
    assert differ
    assert words.startswith("rows: 4 by the streams, 3 by pandas; 1 missing, 2 not expected")
    assert difference("rows", Counter("aab"), Counter("ab"))[1]
    assert difference("rows", Counter("ab"), Counter("aab"))[1]
    assert not difference("rows", Counter("ab"), Counter("ba"))[1]


def test_all_own_something_and_both_topics_alike() -> None:
    group = module("group")

    def owning(*numbers: int) -> frozenset[tuple[str, int]]:
        return frozenset((t, n) for t in ("flights", "weather") for n in numbers)

    shared = {"one": owning(0, 1), "two": owning(2, 3), "three": owning(4, 5)}
    names = ["one", "two", "three"]
    assert group.are_shared(shared, names)
    assert not group.are_shared(shared, ["one"])
    assert not group.are_shared({**shared, "three": frozenset()}, names)
    assert not group.are_shared({**shared, "three": owning(3, 4, 5)}, names)
    crossed = {
        "one": owning(0, 1) - {("flights", 0)} | {("flights", 2)},
        "two": owning(2, 3) - {("flights", 2)} | {("flights", 0)},
    }
    assert not group.are_shared({**shared, **crossed}, names)
    assert group.moved({"one": owning(*range(6))}, shared) == owning(2, 3, 4, 5)
    assert group.moved(shared, shared) == frozenset()


@pytest.mark.parametrize("name", ["delays.csv", "delays", "delays.txt", "no/such/delays.svg"])
def test_a_picture_that_can_not_be_drawn_is_refused_before_the_run(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parsed = module("__main__").parsed
    assert parsed(["--picture", str(tmp_path / "delays.png")]).picture == tmp_path / "delays.png"
    with pytest.raises(SystemExit):
        parsed(["--picture", str(tmp_path / name)])
    assert f"argument --picture: {tmp_path / name}: " in capsys.readouterr().err


def test_a_query_that_wrote_nothing_fails_the_run() -> None:
    scenario = module("scenario")
    with pytest.raises(scenario.FailedError, match="two"):
        scenario.in_order({"one": 5}, ["one", "two"])


@pytest.mark.parametrize(("days", "sound"), [(5, True), (9, True), (10, False), (11, False)])
def test_horizon_and_watermark_have_to_be_later_than_what_is_apart(days: int, sound: bool) -> None:
    group = module("group")
    early = datetime(2013, 1, 1, tzinfo=UTC)
    times = {
        ("flights", 0): [early, early + timedelta(days=days)],
        ("weather", 0): [early, early + timedelta(days=days)],
    }
    distances = group.Distances()
    distances.add({("flights", 0): 1, ("weather", 0): 1}, times)
    assert distances.is_sound
    distances.add({("flights", 0): 2, ("weather", 0): 1}, times)
    assert distances.of_a_number == distances.of_all == timedelta(days=days)
    assert distances.is_sound is sound
