"""The pipeline: both topics through one source, split, joined, and written idempotently.

One query is one member over both topics, so that it joins exactly what it owns. The join's state
stays in a query's checkpoint when a partition moves: its new owner reads the horizon before its
position again (option ``replayHorizon``) and so rebuilds the state. What it then joins a second
time, the sink writes a second time, under the same key.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from .data import FLIGHTS, WEATHER
from .results import KEY, ROW, Results

GROUP = "flight-delays"
HORIZON = timedelta(days=10)
"""How far apart in time the positions in two partitions of one number may be: a new owner does
not join again what is further behind."""
WATERMARK = timedelta(days=20)
"""How long a record waits in the state for what it is joined with. Later than the horizon and the
differences in time among all partitions together: else a replayed record would be late, and
dropped."""

_FLIGHT = (
    "origin string, time_hour string, carrier string, flight int, tailnum string, dest string, "
    "dep_delay double"
)
_WEATHER = (
    "origin string, time_hour string, temp double, wind_speed double, precip double, visib double"
)
_ZULU = "yyyy-MM-dd'T'HH:mm:ss'Z'"


def joined(records: DataFrame) -> DataFrame:
    """Each flight with the weather of its hour and airport."""
    flights = _parsed(records, FLIGHTS, _FLIGHT, *KEY)
    weather = _parsed(records, WEATHER, _WEATHER).drop("time_hour")
    local = f.convert_timezone(
        f.lit("UTC"), f.lit("America/New_York"), f.to_timestamp_ntz("time_hour", f.lit(_ZULU))
    )
    day = f.date_format(local, "yyyy-MM-dd").alias("day")
    return flights.join(weather, ["origin", "hour"]).select(*KEY, day, *ROW[1:])


def _parsed(records: DataFrame, topic: str, schema: str, *place: str) -> DataFrame:
    """The values of a topic; ``hour`` is the records' timestamp, and ``place`` where they are."""
    found = records.where(f.col("topic") == topic).select(
        *[f.col(c).alias(name) for c, name in zip(("partition", "offset"), place, strict=False)],
        f.col("timestamp").alias("hour"),
        f.from_json(f.col("value").cast("string"), schema).alias("v"),
    )
    watermark = f"{WATERMARK.days} days"
    return found.select(*place, "hour", "v.*").withWatermark("hour", watermark)


def start(spark: SparkSession, servers: str, folder: Path, name: str, *, per_batch: int) -> Any:
    """Starts one query of the group; its checkpoint is its own, the results are shared."""
    records = (
        spark.readStream.format("kafka_coop")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", GROUP)
        .option("kafka.client.id", name)
        .option("kafka.partition.assignment.strategy", "stream-join-sticky")
        .option("subscribe", f"{FLIGHTS},{WEATHER}")
        .option("startingOffsets", "earliest")
        .option("replayHorizon", f"{HORIZON.days} d")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )
    results = Results(folder / "results.sqlite")
    return (
        joined(records)
        .writeStream.queryName(name)
        .option("checkpointLocation", str(folder / name))
        .foreachBatch(lambda batch, _id: results.write(name, map(tuple, batch.collect())))
        .start()
    )
