"""A Spark Connect session and its server, on this host: all that docs/SPARK.md says of them.

python spark_connect.py SERVERS TOPIC FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

import kafka_coop.spark

_PATIENCE = 240.0


def main() -> None:
    servers, topic, folder = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    registry = CollectorRegistry()
    kafka_coop.spark.register(spark, registry=registry)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    batch = spark.read.format("kafka_coop").options(**options).load()
    out = Path(folder, "out")
    grouped = {**options, "kafka.group.id": topic, "startingOffsets": "earliest"}
    query = (
        spark.readStream.format("kafka_coop")
        .options(**grouped)
        .load()
        .select("partition", "offset")
        .writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(Path(folder, "checkpoint")))
        .start()
    )
    whole = batch.count()

    def read() -> list[tuple[int, int]]:
        if not (out / "_spark_metadata").exists():
            return []
        rows = spark.read.schema("partition int, offset long").parquet(str(out))
        return [tuple(row) for row in rows.collect()]

    lag = {"query": str(query.id), "group": topic, "topic": topic, "partition": "0"}
    deadline = time.monotonic() + _PATIENCE
    while len(read()) < whole or registry.get_sample_value("kafka_coop_spark_lag", lag) != 0:
        assert time.monotonic() < deadline, query.exception()
        time.sleep(0.1)
    kafka_coop.spark.drain(query)
    found = {"batched": whole, "streamed": sorted(read()), "drained": not query.isActive}
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
