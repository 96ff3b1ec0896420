"""The picture of a run: what came out, and which query wrote it when."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib as mpl

from .results import Results

mpl.use("Agg")
from matplotlib import pyplot as plt  # after its backend is chosen

_COLOURS = {"EWR": "#4c72b0", "JFK": "#dd8452", "LGA": "#55a868"}


def draw(results: Results, starts: dict[str, float], path: Path) -> None:
    """Delays by day and airport above; below, the rows that each query wrote, by time."""
    figure, (delays, rows) = plt.subplots(
        2, figsize=(9, 6.5), height_ratios=(3, 2), layout="constrained"
    )
    _delays(delays, results.windows())
    _rows(rows, results.written(), starts)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _delays(axes: Any, windows: list[tuple[Any, ...]]) -> None:
    days = sorted({window[0] for window in windows})
    rain = axes.twinx()
    wettest = [max(w[6] or 0.0 for w in windows if w[0] == day) for day in days]
    rain.bar(range(len(days)), wettest, color="#bbbbbb", width=0.6)
    rain.set_ylabel("most rain or snow, inches an hour")
    axes.set_zorder(rain.get_zorder() + 1)
    axes.patch.set_visible(False)
    for origin, colour in _COLOURS.items():
        found = {w[0]: w[4] for w in windows if w[1] == origin and w[4] is not None}
        places = [days.index(day) for day in found]
        axes.plot(places, list(found.values()), color=colour, marker=".", label=origin)
    step = max(1, len(days) // 6)
    axes.set_xticks(range(0, len(days), step), days[::step])
    axes.set_ylabel("mean delay, minutes")
    axes.set_title("Departures from New York: mean delay (lines) and rain or snow (bars), by day")
    axes.legend(loc="upper left")


def _rows(axes: Any, written: list[tuple[float, str, int]], starts: dict[str, float]) -> None:
    began = min(starts.values())
    for query, start in starts.items():
        of_query = [(at - began, count) for at, name, count in written if name == query]
        times = [start - began, *(at for at, _ in of_query)]
        totals = list(accumulate((count for _, count in of_query), initial=0))
        axes.step(times, totals, where="post", label=f"query {query}")
    axes.set_xlabel("seconds since the first query's start")
    axes.set_ylabel("flights joined")
    axes.legend(loc="upper left")
