"""One query of the flights in a driver of its own, killed within its sink: `python flight_query.py`
and, as JSON, what `Job` has.

Ends by itself when all that is to be joined is in the sink.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from flight_writer import die, die_at_step

PATIENCE = 200.0
NOTE = "death.json"
"""What it leaves behind: the rows of the batch in which it dies, and those in the sink before."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a driver is to do.

    Attributes:
        servers, group, folder: The query's.
        total: How many flights are to be joined.
        dies_in: The first of its batches in which it is killed, if it has rows; zero: in none.
        step: At that of SQLite's steps of the batch; zero: when it is written, before Spark has
            heard of it.
    """

    servers: str
    group: str
    folder: str
    total: int
    dies_in: int = 0
    step: int = 0

    def arguments(self) -> list[str]:
        """A command."""
        return [sys.executable, __file__, json.dumps(asdict(self))]


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    pipeline: Any = importlib.import_module("examples.flight_delays.pipeline")
    pipeline.GROUP = job.group
    pipeline.Results = _mortal(pipeline.Results, job)
    spark = importlib.import_module("examples.flight_delays.__main__")._spark()
    folder = Path(job.folder)
    query = pipeline.start(spark, job.servers, folder, "one", per_batch=job.total // 5)
    results = pipeline.Results(folder / "results.sqlite")
    deadline = time.monotonic() + PATIENCE
    while results.count() < job.total:
        if (error := query.exception()) is not None:
            raise error
        assert time.monotonic() < deadline, f"{results.count()} of {job.total} are joined"
        query.awaitTermination(1)
    kafka_coop_spark = importlib.import_module("kafka_coop.spark")
    kafka_coop_spark.drain(query, timedelta(seconds=PATIENCE))
    spark.stop()


def _mortal(base: Any, job: Job) -> Any:
    class Mortal(base):  # type: ignore[misc]  # a class that is imported here
        """A sink that ends its process, as nobody would ask it to."""

        batches = 0

        def write(self, query: str, rows: Iterable[tuple[Any, ...]]) -> None:
            written = list(rows)
            self.batches += 1
            dies = bool(job.dies_in) and self.batches >= job.dies_in and bool(written)
            if dies:
                note = {"before": self.count(), "rows": len(written)}
                (Path(job.folder) / NOTE).write_text(json.dumps(note))
            if dies and job.step:
                die_at_step(self, job.step)
            super().write(query, written)
            if dies:
                die()

    return Mortal


if __name__ == "__main__":
    main()
