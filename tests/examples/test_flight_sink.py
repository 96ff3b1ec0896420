"""The sink of the flights: who writes is killed before, within or after it, and another goes on."""

from __future__ import annotations

import importlib
import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flight_writer import Death, Rows, at_each_step, noted, save_windows, write

ROOT = Path(__file__).parents[2]
_PROCESSES = multiprocessing.get_context("spawn")
Contents = tuple[Any, Any]
"""Rows and windows."""


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def results(database: Path) -> Any:
    return importlib.import_module("examples.flight_delays.results").Results(database)


def flight(offset: int) -> tuple[Any, ...]:
    """Of one of two days, at one of three airports; some have not departed."""
    day = f"2013-01-0{1 + offset % 2}"
    delay = None if offset % 7 == 0 else float(offset % 40)
    place = (offset % 4, offset, day, ("JFK", "LGA", "EWR")[offset % 3])
    return (*place, f"{day}T12:00:00Z", "AA", offset, "LAX", delay, 1.0, offset / 100, 10.0)


BATCHES: list[Rows] = [
    [flight(n) for n in range(1000)],
    [flight(n) for n in range(900, 2500)],  # a hundred are joined again
    [flight(n) for n in range(2500, 3000)],
]
SECOND = 1
"""The batch in which they die."""


def undisturbed(folder: Path, batches: int) -> Any:
    """The sink after so many."""
    database = folder / f"undisturbed-{batches}.sqlite"
    database.unlink(missing_ok=True)
    written = results(database)
    for rows in BATCHES[:batches]:
        written.write("one", rows)
    return written


def contents(written: Any) -> Contents:
    return written.rows(), written.windows()


def signal_of(does: Callable[..., None], *args: Any) -> int:
    """What ended the process that does it."""
    process = _PROCESSES.Process(target=does, args=args)
    process.start()
    process.join(120)
    assert process.exitcode is not None, "it hangs"
    assert process.exitcode < 0, "it has not died"
    return -process.exitcode


def goes_on(database: Path, folder: Path) -> None:
    """Whoever is next comes to what would have come out without a death."""
    write(database, BATCHES)
    assert noted(database) == len(BATCHES)
    assert contents(results(database)) == contents(undisturbed(folder, len(BATCHES)))
    assert results(database).by_query() == {"one": 3000}


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.9, 0.99, 0.999])
def test_who_is_killed_before_or_within_a_batch_has_written_none_of_it(
    tmp_path: Path, share: float
) -> None:
    measured, steps = undisturbed(tmp_path, SECOND), Counter[str]()
    before = contents(measured)
    at_each_step(measured, lambda: steps.update(["taken"]))
    measured.write("one", BATCHES[SECOND])
    assert steps["taken"] > 10_000

    database = tmp_path / "killed.sqlite"
    death = Death(batch=SECOND, step=max(1, int(steps["taken"] * share)))
    assert signal_of(write, database, BATCHES, death) == signal.SIGKILL
    assert noted(database) == SECOND
    assert contents(results(database)) == before
    goes_on(database, tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_who_dies_in_the_midst_of_its_commit_has_written_nothing(
    tmp_path: Path, share: float
) -> None:
    """Pages are in the file already, and a part of one."""
    before = contents(undisturbed(tmp_path, SECOND))
    undisturbed(tmp_path, SECOND + 1)
    small, large = (
        (tmp_path / f"undisturbed-{batches}.sqlite").stat().st_size
        for batches in (SECOND, SECOND + 1)
    )
    assert large > 2 * small

    database = tmp_path / "killed.sqlite"
    death = Death(batch=SECOND, size=small + 1000 + int((large - small) * share))
    assert signal_of(write, database, BATCHES, death) == signal.SIGXFSZ
    assert database.stat().st_size == death.size, "it did not die in its commit"
    assert noted(database) == SECOND
    assert contents(results(database)) == before
    goes_on(database, tmp_path)


def test_who_is_killed_after_a_batch_leaves_what_can_be_written_again(tmp_path: Path) -> None:
    database = tmp_path / "killed.sqlite"
    assert signal_of(write, database, BATCHES, Death(batch=SECOND, noted=True)) == signal.SIGKILL
    assert noted(database) == SECOND
    assert contents(results(database)) == contents(undisturbed(tmp_path, SECOND + 1))
    goes_on(database, tmp_path)
    again = undisturbed(tmp_path, len(BATCHES)).again()
    assert results(database).again() == again + len(BATCHES[SECOND])


def test_the_table_of_windows_is_whole_or_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "delays.csv"
    undisturbed(tmp_path, 1).save_windows(file)
    before = file.read_text()
    undisturbed(tmp_path, 3)
    database = tmp_path / "undisturbed-3.sqlite"
    assert signal_of(save_windows, database, file, 100) == signal.SIGXFSZ
    assert file.read_text() == before
    results(database).save_windows(file)
    assert importlib.import_module("examples.flight_delays.oracle").windows_of(file) == Counter(
        results(database).windows()
    )
