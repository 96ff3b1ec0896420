"""One query, then three, then one again, under load; then every row is compared with pandas'.

    python -m examples.flight_delays [--months 1 | --days N] [--picture delays.svg]

Starts a Kafka of its own (Java is needed, as for Spark) unless ``--servers`` names one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

import kafka_coop.spark
from kafka_coop.testing.local import LocalKafka
from kafka_coop.testing.unavailable import KafkaUnavailableError

from . import oracle
from .data import PARTITIONS, Publisher, topics
from .picture import draw
from .results import Results
from .scenario import FailedError, Scenario, in_order

FORMATS = (".svg", ".png", ".pdf")
HOURS_PER_SECOND = 20
"""Of the data, at most."""
MOST_AHEAD = 3000
"""Flights that the publisher is ahead of the queries: some three days. What is far ahead makes the
partitions differ in time, and horizon and watermark are for some days."""


def main() -> int:
    """Runs it all; 0 if the streams came to what pandas did, and all moved as it has to."""
    arguments = parsed()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        try:
            servers = arguments.servers or stack.enter_context(LocalKafka()).bootstrap_servers
            stack.enter_context(topics(servers))
            _run(servers, Path(folder), arguments)
        except (FailedError, KafkaUnavailableError) as error:
            print(f"FAILED: {error}", flush=True)
            return 1
    return 0


def _run(servers: str, folder: Path, arguments: argparse.Namespace) -> None:
    days = (
        arguments.days
        or (
            date(2013 + arguments.months // 12, arguments.months % 12 + 1, 1) - date(2013, 1, 1)
        ).days
    )
    expected = oracle.joined(days)
    lead = max(200, min(len(expected) // 20, MOST_AHEAD))
    publisher = Publisher(servers, days=days, pace=1 / HOURS_PER_SECOND, lead=lead)
    print(
        f"{days} days: {publisher.total} flights, {len(expected)} of them with weather", flush=True
    )
    spark = _spark()
    try:
        with publisher:
            scenario = Scenario(spark, servers, folder, publisher, total=len(expected))
            scenario.run()
    finally:
        spark.stop()
    results = Results(folder / "results.sqlite")
    table = arguments.picture.with_suffix(".csv")
    results.save_windows(table)
    draw(results, scenario.starts, arguments.picture)
    print(f"windows: {table}, picture: {arguments.picture}")
    _judge(results, table, scenario, expected)


def _judge(results: Results, table: Path, scenario: Scenario, expected: object) -> None:
    """Says what came out.

    Raises:
        FailedError: Not what pandas came to; or a query did nothing, or the settings are wrong.
    """
    print(
        f"rows by query: {in_order(results.by_query(), list(scenario.starts))}; "
        f"{results.again()} were joined again by a new owner"
    )
    print(scenario.distances)
    compared = [
        oracle.difference("rows", results.rows(), oracle.rows(expected)),
        oracle.difference("windows", oracle.windows_of(table), oracle.windows(expected)),
    ]
    for words, _ in compared:
        print(words)
    if any(differ for _, differ in compared):
        raise FailedError("the streams did not come to what pandas did")
    if not scenario.distances.is_sound:
        raise FailedError("the horizon or the watermark was too short for these distances")


def _spark() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("flight delays")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS // 3))
        # Else each step of the watermark would be a batch without a record.
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    kafka_coop.spark.register(spark)
    return spark


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. What can't be written is refused here, before a run of minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--months", type=int, choices=range(1, 13), default=1)
    size.add_argument("--days", type=int, choices=range(1, 366), metavar="1-365")
    parser.add_argument("--picture", type=_picture, default=Path("delays.svg"))
    parser.add_argument("--servers", help="a Kafka without the topics flights and weather")
    return parser.parse_args(given)


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix not in FORMATS:
        raise argparse.ArgumentTypeError(f"{text}: end it in {' or '.join(FORMATS)}")
    if not os.access(path.parent, os.W_OK | os.X_OK) or path.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: can't be written there: name another")
    return path


if __name__ == "__main__":
    sys.exit(main())
