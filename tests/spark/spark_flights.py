"""The sink of the flights, `examples.flight_delays.results`, where records of schedules come into.

Each record is a flight there, known by its partition and offset.
"""

from __future__ import annotations

import importlib
import sqlite3
import sys
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path
from typing import Any

from spark_rereads import Record

_ROOT = str(Path(__file__).parents[2])


class Flights:
    """A database of flights of one topic. Queries share it."""

    def __init__(self, path: Path) -> None:
        if _ROOT not in sys.path:
            sys.path.append(_ROOT)
        self._path = path
        self._results: Any = importlib.import_module("examples.flight_delays.results").Results(path)

    def write(self, query: int, records: Iterable[Record]) -> None:
        """One batch of a query."""
        self._results.write(f"query {query}", map(_flight, records))

    def faults(self, produced: AbstractSet[Record]) -> list[str]:
        """In words: what is missing, there twice, or counted in a window otherwise than once."""
        with closing(sqlite3.connect(self._path)) as database:
            asked = "select carrier, flight_partition, flight_offset from delays"
            found: list[Record] = database.execute(asked).fetchall()
        counted = sum(flights for _, _, flights, *_ in self._results.windows())
        faults = [f"{record} is not in the sink" for record in sorted(produced - {*found})]
        faults += [f"{record} was never produced" for record in sorted({*found} - produced)]
        if len(found) != len({*found}):
            faults.append(f"{len(found)} rows of {len({*found})} records")
        if counted != len(found):
            faults.append(f"{counted} flights in windows, of {len(found)} rows")
        return faults

    @property
    def again(self) -> int:
        """How often a record was written that was there already."""
        return int(self._results.again())


def _flight(record: Record) -> tuple[Any, ...]:
    topic, partition, offset = record
    day, airport = f"2013-01-{1 + offset % 28:02}", f"airport {partition}"
    return (partition, offset, day, airport, f"{day}T12:00:00Z", topic, offset, "LAX", *[0.0] * 4)
