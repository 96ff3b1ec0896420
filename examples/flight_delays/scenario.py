"""One query, then three, then one again, while records keep coming; and what has to be so."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kafka_coop.spark import drain

from .data import Publisher
from .group import EVERYTHING, Distances, Group, Owners, are_shared, in_words, moved
from .pipeline import GROUP, start
from .results import Results

PATIENCE = timedelta(minutes=10)
"""For each step."""

_PAUSE = 0.3
"""Seconds between two looks."""


class FailedError(Exception):
    """Something was not as it has to be."""


class Scenario:
    """The run. Whatever is not so within `PATIENCE` fails it.

    Args:
        total: How many flights have weather: what is to be joined.
    """

    def __init__(
        self, spark: SparkSession, servers: str, folder: Path, publisher: Publisher, *, total: int
    ) -> None:
        self._results = Results(folder / "results.sqlite")
        self._group = Group(servers, GROUP)
        self._publisher = publisher
        self._total = total
        self._began = time.monotonic()
        self._running: dict[str, Any] = {}
        self._spark, self._servers, self._folder = spark, servers, folder
        self.distances = Distances()
        self.starts: dict[str, float] = {}
        """When each query was started."""

    def run(self) -> None:
        """All of it."""
        with closing(self._group):
            self._run()

    def _run(self) -> None:
        self._publisher.allow(0.6)
        self._begin("one")
        alone = self._settled("one")
        self._until(lambda: self._results.count() > self._total // 5, "a fifth of the flights")

        sent = self._publisher.sent
        for name in ("two", "three"):
            self._begin(name)
        shared = self._settled("one", "two", "three")
        self._check_move("scaled out", alone, shared, sent)
        self._publisher.allow(0.9)
        self._until_all_write()
        self._until(lambda: self._results.count() > self._total * 3 // 5, "three fifths")

        self._publisher.hurry()  # two queries hand over in a second; it may be waiting for them
        sent = self._publisher.sent
        for name in ("two", "three"):
            self._end(name)
        again = self._settled("one")
        self._check_move("scaled in", shared, again, sent)
        self._publisher.allow(1)
        self._until(self._is_all_read, "the end of both topics")
        self._end("one")

    # --- steps -----------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        self.starts[name] = time.time()
        self._running[name] = start(
            self._spark, self._servers, self._folder, name, per_batch=max(200, self._total // 40)
        )
        self._tell(f"{name} starts")

    def _end(self, name: str) -> None:
        drain(self._running.pop(name), PATIENCE)
        self._tell(f"{name} has handed over and stopped")

    def _settled(self, *names: str) -> Owners:
        """The owners, as soon as these queries and no others own everything."""
        seen: Owners = {}

        def are_settled() -> bool:
            nonlocal seen
            seen = self._group.owners()
            return are_shared(seen, names)

        self._until(are_settled, lambda: f"all of {names} to own; owners: {in_words(seen)}")
        self._tell(f"owners: {in_words(seen)}")
        return seen

    def _check_move(self, step: str, before: Owners, after: Owners, sent: int) -> None:
        """Something moved, and meanwhile records came."""
        came = self._publisher.sent - sent
        gone = moved(before, after)
        self._tell(
            f"{step}: {len(gone)} of {len(EVERYTHING)} partitions moved, {came} records came"
        )
        if not gone or came <= 0:
            raise FailedError(f"{step}, but nothing moved, or not under load")

    def _until_all_write(self) -> None:
        """From now on each query writes rows that nobody has written."""
        before = self._results.by_query()

        def have_written() -> bool:
            now = self._results.by_query()
            return all(now.get(name, 0) > before.get(name, 0) for name in self._running)

        self._until(have_written, lambda: f"all to write: {before} → {self._results.by_query()}")

    def _is_all_read(self) -> bool:
        """Whether the only query has read all of both topics, what it replays included.

        What is committed does not tell: that is ahead while a horizon is replayed.
        """
        if not self._publisher.is_done:
            return False
        (query,) = self._running.values()
        progress = query.lastProgress
        ranges = json.loads(progress.sources[0].endOffset)["tps"] if progress else {}
        if "watermark" not in (progress.eventTime if progress else {"watermark": ""}):
            raise FailedError("the query has no watermark: its state would grow for ever")
        ends = {f"{t}:{n}": len(times) for (t, n), times in self._publisher.times.items()}
        return all(of in ranges and ranges[of][1] >= end for of, end in ends.items())

    # --- waiting ---------------------------------------------------------------------------

    def _until(self, true: Callable[[], bool], what: str | Callable[[], str]) -> None:
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while True:
            self._look()
            if true():
                return
            if time.monotonic() > deadline:
                text = what if isinstance(what, str) else what()
                raise FailedError(f"in {PATIENCE} there was not: {text}")
            time.sleep(_PAUSE)

    def _look(self) -> None:
        """Whether all goes well; lets the publisher go on."""
        for query in self._running.values():
            if (error := query.exception()) is not None:
                raise error
        _ = self._publisher.is_done  # raises what stopped it
        self._publisher.follow(self._results.count())
        self.distances.add(self._group.positions(), self._publisher.times)

    def _tell(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        done, came = self._results.count(), self._publisher.published
        print(f"{seconds:5.0f} s {came:>7} published {done:>7} joined  {text}", flush=True)


def in_order(counts: dict[str, int], names: Sequence[str]) -> str:
    """The rows that each query was the first to write.

    Raises:
        FailedError: One wrote none.
    """
    if idle := [name for name in names if not counts.get(name)]:
        raise FailedError(f"no row is by {', '.join(idle)}")
    return ", ".join(f"{name} {counts[name]}" for name in names)
