"""Whether memory is bounded: the same query over N records and over five times as many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from benchmarks.spark.contestants import Contestant
from benchmarks.spark.filling import last
from benchmarks.spark.measure import LIMIT
from benchmarks.spark.processes import DRIVER, EXECUTORS, READER, WORKERS

MASTER = "local-cluster[1,2,1024]"
"""An executor of two cores that is a process of its own, so that the driver's memory is its own."""

_COLUMNS = {
    DRIVER: "driver's JVM",
    "driver_heap": "its heap, collected",
    READER: "reader and planner",
    EXECUTORS: "executor's JVM",
    WORKERS: "workers",
}
_BOUNDED = ("driver_heap", READER, WORKERS)
_MOST = 1.5
GOAL = f"With five times the records ours may take {_MOST:g} times as much: heap, reader, workers."
"""What JVMs reserve says what they were allowed, not what they need."""

_TRIGGERS = {"availableNow": None, f"maxOffsetsPerTrigger={LIMIT}": str(LIMIT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one run over so many records took, in MB."""

    source: str
    trigger: str
    records: int
    figures: dict[str, Any]


def run(
    contestants: Sequence[Contestant], servers: str, topic: str, records: int, partitions: int
) -> Iterator[Taken]:
    """Over a fifth of the topic's records (the last ones), and over all."""
    for contestant in contestants:
        for trigger, limit in _TRIGGERS.items():
            for count in (records // 5, records):
                starting = last(count, records, topic, partitions)
                found = contestant.measure(
                    "memory", servers, topic, master=MASTER, starting=starting, limit=limit
                )
                if found["rows"] != count:
                    raise SystemExit(f"{contestant.name} read {found['rows']} rows, not {count}")
                yield Taken(source=contestant.name, trigger=trigger, records=count, figures=found)


def table(taken: Sequence[Taken]) -> Iterator[str]:
    """Markdown: peaks in MB, and how many times as much the larger run took."""
    yield f"| source | trigger | records | {' | '.join(_COLUMNS.values())} | rows/s |"
    yield f"|---|---|---|{'---|' * len(_COLUMNS)}---|"
    for (source, trigger), its in groupby(taken, key=lambda one: (one.source, one.trigger)):
        runs = list(its)
        for one in runs:
            sizes = [f"{one.figures[kind]:,.0f}" for kind in _COLUMNS]
            rate = f"{one.figures['rows_per_second']:,}"
            yield _cells([source, trigger, f"{one.records:,}", *sizes, rate])
        first, second = runs[0].figures, runs[-1].figures
        times = f"× {runs[-1].records / runs[0].records:g}"  # noqa: RUF001  # times
        ratios = [f"{second[kind] / first[kind]:.2f}" if first[kind] else "" for kind in _COLUMNS]
        yield _cells([source, trigger, times, *ratios, ""])


def is_bounded(taken: Sequence[Taken]) -> bool:
    """Whether ours met the goal, with each trigger."""
    for (source, _), its in groupby(taken, key=lambda one: (one.source, one.trigger)):
        runs = list(its)
        first, second = runs[0].figures, runs[-1].figures
        if source == "ours" and any(second[kind] > _MOST * first[kind] for kind in _BOUNDED):
            return False
    return True


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
