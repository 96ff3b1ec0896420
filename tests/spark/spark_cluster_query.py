"""A driver of its own on a cluster: one query of a group, until its stdin ends; then it drains.

python spark_cluster_query.py MASTER SERVERS TOPIC CHECKPOINT OUT

Each batch is a line of OUT: [[partition, offset], …].
"""

from __future__ import annotations

import json
import sys
import threading
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame
from spark_cluster_session import session

import kafka_coop.spark


def main() -> None:
    master, servers, topic, checkpoint, out = sys.argv[1:]
    spark = session(master, cores=1)

    def write(frame: DataFrame, _batch: int) -> None:
        if rows := frame.select("partition", "offset").collect():
            with Path(out).open("a") as file:
                file.write(json.dumps(rows) + "\n")

    stream = spark.readStream.format("kafka_coop").option("kafka.bootstrap.servers", servers)
    records = stream.options(
        **{"kafka.group.id": topic}, startingOffsets="earliest", maxOffsetsPerTrigger="20"
    )
    writer = records.option("subscribe", topic).load().writeStream.foreachBatch(write)
    query = writer.option("checkpointLocation", checkpoint).start()
    told = threading.Thread(target=sys.stdin.read, daemon=True)
    told.start()
    while told.is_alive():
        if query.awaitTermination(1):  # raises what it failed of
            raise SystemExit("the query ended by itself")
    kafka_coop.spark.drain(query, timedelta(minutes=1))
    spark.stop()


if __name__ == "__main__":
    main()
