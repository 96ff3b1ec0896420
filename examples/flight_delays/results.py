"""The sink: a table keyed by the flight's partition and offset, and windows that follow it.

Both change in one transaction a batch. Writing a row again changes neither: what a new owner joins
a second time does not show. So it is with the windows only because they are computed from the
rows, not counted up.
"""

from __future__ import annotations

import csv
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

KEY = ("flight_partition", "flight_offset")
"""Which record of the flights it is."""
ROW = (
    *("day", "origin", "time_hour", "carrier", "flight", "dest"),
    *("dep_delay", "wind_speed", "precip", "visib"),
)
WINDOW = ("day", "origin", "flights", "departed", "mean_delay", "late", "most_rain")
"""A day of New York's clocks (23 or 25 hours twice a year) at an airport: flights, those that
departed, their mean delay in minutes, how many were more than 15 minutes late, the most rain or
snow at a departure in inches an hour."""

_TABLES = f"""
create table if not exists delays (
  {", ".join((*KEY, *ROW))}, query, at, times, primary key ({", ".join(KEY)}));
create index if not exists of_window on delays (day, origin);
create table if not exists windows ({", ".join(WINDOW)}, primary key (day, origin));
"""
_WRITE = f"""
insert into delays values ({", ".join("?" * (len(KEY) + len(ROW)))}, ?, ?, 1)
on conflict do update set {", ".join(f"{c} = excluded.{c}" for c in ROW)}, times = times + 1
"""
_WINDOW = """
insert or replace into windows
select day, origin, count(*), count(dep_delay), avg(dep_delay),
  count(*) filter (where dep_delay > 15), max(precip)
from delays where day = ? and origin = ? group by day, origin
"""


class Results:
    """The database of a run. Queries share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connect()) as database:
            database.executescript(_TABLES)

    def write(self, query: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """One batch of a query: its rows, and the windows that they are in."""
        now = time.time()
        written = [(*row, query, now) for row in rows]
        day, origin = (len(KEY) + ROW.index(name) for name in ("day", "origin"))
        touched = sorted({(row[day], row[origin]) for row in written})
        with closing(self._connect()) as database, database:
            database.executemany(_WRITE, written)
            database.executemany(_WINDOW, touched)

    def rows(self) -> Counter[tuple[Any, ...]]:
        """All of them, without their keys."""
        return Counter(self._all(f"select {', '.join(ROW)} from delays"))

    def count(self) -> int:
        """How many there are."""
        return int(self._all("select count(*) from delays")[0][0])

    def by_query(self) -> dict[str, int]:
        """How many each query was the first to write."""
        return dict(self._all("select query, count(*) from delays group by query"))

    def again(self) -> int:
        """How often a row was written that was there already."""
        return int(self._all("select coalesce(sum(times - 1), 0) from delays")[0][0])

    def written(self) -> list[tuple[float, str, int]]:
        """When which query wrote how many new rows."""
        return self._all("select at, query, count(*) from delays group by at, query order by at")

    def windows(self) -> list[tuple[Any, ...]]:
        """All of them, by day and airport."""
        return self._all("select * from windows order by day, origin")

    def save_windows(self, file: Path) -> None:
        """As CSV; the file is there as a whole, or as it was before."""
        part = file.with_name(f"{file.name}.part")
        with part.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(WINDOW)
            writer.writerows(self.windows())
        part.replace(file)

    def _all(self, question: str) -> list[Any]:
        with closing(self._connect()) as database:
            return database.execute(question).fetchall()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60)
