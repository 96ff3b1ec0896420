"""What the streams must come to, from the data's own files by pandas: no Kafka, no Spark."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

from .data import last_day, table
from .results import ROW, WINDOW

LATE = 15
"""Minutes: a flight that departs later counts as late."""


def joined(days: int) -> Any:
    """Each flight of the first days with its hour's weather: a merge of the two files."""
    flights, weather = table("flights"), table("weather")
    until = last_day(days)
    return flights[flights["day"] <= until].merge(
        weather[weather["day"] <= until][["origin", "time_hour", "wind_speed", "precip", "visib"]],
        on=["origin", "time_hour"],
    )


def rows(merged: Any) -> Counter[tuple[Any, ...]]:
    """Its rows as the sink has them, without their places in Kafka."""
    return _counted(merged[list(ROW)])


def windows(merged: Any) -> Counter[tuple[Any, ...]]:
    """Its windows. A day is the data's own: the columns year, month and day."""
    merged = merged.assign(late=merged["dep_delay"] > LATE)
    found = merged.groupby(["day", "origin"], as_index=False).agg(
        flights=("flight", "size"),
        departed=("dep_delay", "count"),
        mean_delay=("dep_delay", "mean"),
        late=("late", "sum"),
        most_rain=("precip", "max"),
    )
    return _counted(found[list(WINDOW)])


def windows_of(file: Path) -> Counter[tuple[Any, ...]]:
    """Those that the streams wrote, read back from their file."""
    kinds = (str, str, int, int, float, int, float)
    with file.open(newline="") as lines:
        header, *found = csv.reader(lines)
    assert tuple(header) == WINDOW
    return Counter(
        tuple(kind(text) if text else None for kind, text in zip(kinds, row, strict=True))
        for row in found
    )


def difference(
    what: str, found: Counter[tuple[Any, ...]], expected: Counter[tuple[Any, ...]]
) -> tuple[str, bool]:
    """In words, and whether there is any."""
    missing, wrong = expected - found, found - expected
    words = (
        f"{what}: {found.total()} by the streams, {expected.total()} by pandas; "
        f"{missing.total()} missing, {wrong.total()} not expected"
    )
    for row in [*missing, *wrong][:3]:
        words += f"\n    {row}"
    return words, bool(missing or wrong)


def _counted(frame: Any) -> Counter[tuple[Any, ...]]:
    values = frame.astype(object)
    return Counter(values.where(values.notna(), None).itertuples(index=False, name=None))
