"""The pipeline: both topics through one source, split, joined, and written idempotently.

One query is one member over both topics, so that it joins exactly what it owns. The join's state
stays in a query's checkpoint when a partition moves: its new owner reads the horizon before its
position again (option ``replayHorizon``) and so rebuilds the state. What it then joins a second
time, the sink writes a second time, under the same key.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from .data import FLIGHTS, WEATHER

HORIZON = "10 d"
"""How far apart in time the positions in the two topics may be. Records further behind are not
joined again by a new owner; both topics are read in proportion, so that it is hours, mostly."""

_FLIGHT = (
    "origin string, time_hour string, carrier string, flight int, tailnum string, dest string, "
    "dep_delay double"
)
_WEATHER = (
    "origin string, time_hour string, temp double, wind_speed double, precip double, visib double"
)
COLUMNS = (
    *("flight_partition", "flight_offset", "origin", "time_hour", "carrier", "flight", "dest"),
    *("dep_delay", "wind_speed", "precip", "visib"),
)
"""The first two are the key: which record of the flights this is."""


def joined(records: DataFrame) -> DataFrame:
    """Each flight with the weather of its hour and airport. The same for a stream and a batch."""
    flights = (
        records.where(f.col("topic") == FLIGHTS)
        .select(
            f.col("partition").alias("flight_partition"),
            f.col("offset").alias("flight_offset"),
            f.from_json(f.col("value").cast("string"), _FLIGHT).alias("f"),
        )
        .select("flight_partition", "flight_offset", "f.*")
    )
    weather = (
        records.where(f.col("topic") == WEATHER)
        .select(f.from_json(f.col("value").cast("string"), _WEATHER).alias("w"))
        .select("w.*")
    )
    return flights.join(weather, ["origin", "time_hour"]).select(*COLUMNS)


def start(spark: SparkSession, servers: str, folder: Path, name: str, *, per_batch: int) -> Any:
    """Starts one query of the group; its checkpoint is its own, the results are shared."""
    records = (
        spark.readStream.format("kafka_coop")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", "flight-delays")
        .option("kafka.partition.assignment.strategy", "stream-join-sticky")
        .option("subscribe", f"{FLIGHTS},{WEATHER}")
        .option("startingOffsets", "earliest")
        .option("replayHorizon", HORIZON)
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )
    results = Results(folder / "results.sqlite")
    return (
        joined(records)
        .writeStream.queryName(name)
        .option("checkpointLocation", str(folder / name))
        .foreachBatch(lambda batch, _id: results.write(batch))
        .start()
    )


def batch(spark: SparkSession, servers: str) -> DataFrame:
    """The same over all that is in the topics, as one batch: what the streams must come to."""
    return joined(
        spark.read.format("kafka_coop")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", f"{FLIGHTS},{WEATHER}")
        .load()
    )


class Results:
    """A table keyed by the flight's partition and offset: writing a row again changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connect()) as database, database:
            database.execute(
                f"create table if not exists delays ({', '.join(COLUMNS)}, "
                "primary key (flight_partition, flight_offset))"
            )

    def write(self, frame: DataFrame) -> None:
        """One batch, in one transaction."""
        rows = [tuple(row) for row in frame.collect()]
        marks = ", ".join("?" * len(COLUMNS))
        with closing(self._connect()) as database, database:
            database.executemany(f"insert or replace into delays values ({marks})", rows)

    def rows(self) -> set[tuple[Any, ...]]:
        """All of them."""
        with closing(self._connect()) as database:
            return set(database.execute("select * from delays").fetchall())

    def count(self) -> int:
        """How many there are."""
        with closing(self._connect()) as database:
            (count,) = database.execute("select count(*) from delays").fetchone()
        return int(count)

    def by_day(self) -> list[tuple[str, int, float, float]]:
        """Windows of a day: day, flights, their mean delay in minutes, the mean precipitation."""
        with closing(self._connect()) as database:
            return database.execute(
                "select substr(time_hour, 1, 10), count(*), avg(dep_delay), avg(precip) "
                "from delays where dep_delay is not null group by 1 order by 1"
            ).fetchall()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60)
