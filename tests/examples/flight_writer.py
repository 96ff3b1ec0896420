"""A process that writes batches into the sink of the flights, and is killed at a point of it.

It does with the sink what Spark does with it: a batch is done when it is noted after the write, and
whoever starts again goes on with the first one that is not.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class Death:
    """In which batch, and where in it.

    Attributes:
        step: At that of SQLite's steps; the first is before anything is written.
        size: With the first byte that would make one of its files longer: also in the midst of the
            commit, which writes one page after the other. Zero: at no such.
        noted: When it is written, and not yet noted.
    """

    batch: int
    step: int = 0
    size: int = 0
    noted: bool = False


def write(database: Path, batches: Sequence[Rows], death: Death | None = None) -> None:
    """What is not noted of the batches; runs in a process of its own."""
    results = importlib.import_module("examples.flight_delays.results").Results(database)
    for n in range(noted(database), len(batches)):
        dies = death if death is not None and death.batch == n else None
        if dies is not None and dies.step:
            die_at_step(results, dies.step)
        if dies is not None and dies.size:
            _limit_files(dies.size)
        results.write("one", batches[n])
        if dies is not None and dies.noted:
            die()
        _note_of(database).write_text(str(n + 1))


def noted(database: Path) -> int:
    """How many batches are."""
    note = _note_of(database)
    return int(note.read_text()) if note.exists() else 0


def _note_of(database: Path) -> Path:
    return database.with_suffix(".noted")


def save_windows(database: Path, file: Path, size: int) -> None:
    """Dies when that many bytes are in the file; runs in a process of its own."""
    results = importlib.import_module("examples.flight_delays.results").Results(database)
    _limit_files(size)
    results.save_windows(file)


def at_each_step(results: Any, happens: Callable[[], None]) -> None:
    """Of those that SQLite takes for the sink from now on."""
    connect = results._connect

    def connected() -> sqlite3.Connection:
        connection: sqlite3.Connection = connect()
        connection.set_progress_handler(happens, 1)
        return connection

    results._connect = connected


def die_at_step(results: Any, last: int) -> None:
    """At that of SQLite's steps from now on, counted over all of its statements."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == last:
            die()

    at_each_step(results, step)


def _limit_files(size: int) -> None:
    """The kernel ends the process where it would write beyond, after what is before."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def die() -> None:
    """As by another's hand: nothing is closed."""
    os.kill(os.getpid(), signal.SIGKILL)
