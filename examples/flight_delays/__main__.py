"""One query, then three, then one again, under load; then every row is compared with a batch.

    python -m examples.flight_delays [--months 1] [--picture delays.png] [--servers HOST:PORT]

Starts a Kafka of its own (Java is needed, as for Spark) unless one is named.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import matplotlib as mpl
from pyspark.sql import SparkSession

import kafka_coop.spark
from kafka_coop.testing.local import LocalKafka

from .data import PARTITIONS, publish
from .pipeline import Results, batch, start

mpl.use("Agg")
from matplotlib import pyplot as plt  # after its backend is chosen

PATIENCE = timedelta(minutes=20)


def main() -> int:
    """Runs it all; 0 if the streams came to what the batch did."""
    arguments = _arguments()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = arguments.servers or stack.enter_context(LocalKafka()).bootstrap_servers
        return _compare(servers, Path(folder), arguments)


def _compare(servers: str, folder: Path, arguments: argparse.Namespace) -> int:
    published = publish(servers, months=arguments.months)
    print(f"{published.flights} flights, {published.weather} hours of weather", flush=True)
    spark = _spark()
    expected = {tuple(row) for row in batch(spark, servers).collect()}
    _scale(spark, servers, folder, expected=len(expected))
    results = Results(folder / "results.sqlite")
    rows = results.rows()
    _picture(results, arguments.picture)
    _table(results, arguments.picture.with_suffix(".csv"))
    print(
        f"{len(rows)} rows joined by the streams, {len(expected)} by one batch: "
        f"{len(expected - rows)} missing, {len(rows - expected)} different"
    )
    spark.stop()
    return 0 if rows == expected else 1


def _scale(spark: SparkSession, servers: str, folder: Path, *, expected: int) -> None:
    """One query, three, one; each step when a further quarter of the flights is joined."""
    results = Results(folder / "results.sqlite")
    per_batch = max(200, expected // 40)

    def begin(name: str) -> Any:
        query = start(spark, servers, folder, name, per_batch=per_batch)
        print(f"{results.count():>7} rows: {name} starts", flush=True)
        return query

    def end(query: Any) -> None:
        kafka_coop.spark.drain(query, PATIENCE)
        print(f"{results.count():>7} rows: {query.name} has handed over and stopped", flush=True)

    first = begin("one")
    _until(lambda: results.count() > expected // 5, [first])
    others = [begin("two"), begin("three")]
    _until(lambda: results.count() > expected * 3 // 5, [first, *others])
    for query in others:
        end(query)
    _until(lambda: results.count() >= expected, [first])
    end(first)


def _until(true: Callable[[], bool], queries: list[Any]) -> None:
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while not true():
        for query in queries:
            if (error := query.exception()) is not None:
                raise error
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing more came in {PATIENCE}")
        time.sleep(0.2)


def _spark() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("flight delays")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS // 3))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    kafka_coop.spark.register(spark)
    return spark


def _table(results: Results, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("day", "flights", "mean_delay_minutes", "mean_precipitation_inches"))
        writer.writerows(results.by_day())


def _picture(results: Results, path: Path) -> None:
    days = results.by_day()
    figure, delays = plt.subplots(figsize=(9, 4), layout="constrained")
    delays.bar(range(len(days)), [day[2] for day in days], color="#4c72b0")
    delays.set_ylabel("mean delay, minutes")
    delays.set_xticks(range(0, len(days), 7), [days[n][0] for n in range(0, len(days), 7)])
    rain = delays.twinx()
    rain.plot(range(len(days)), [day[3] for day in days], color="#c44e52", marker=".")
    rain.set_ylabel("precipitation at departure, inches an hour")
    delays.set_title("Departures from New York: delay (bars) and rain or snow (line), day by day")
    figure.savefig(path)
    print(f"a picture: {path}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, choices=range(1, 13), default=1)
    parser.add_argument("--picture", type=Path, default=Path("delays.png"))
    parser.add_argument("--servers", help="a Kafka without the topics flights and weather")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
