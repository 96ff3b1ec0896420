"""A driver of its own on a cluster: reads a topic as a stream and as a batch, and copies both.

python spark_cluster_job.py MASTER SERVERS TOPIC COPY
"""

from __future__ import annotations

import json
import sys
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame
from spark_cluster_session import session

ITSELF = "CAST(concat('[', partition, ',', offset, ']') AS BINARY) AS value"
"""What a record's copy says: whose it is."""


def main() -> None:
    master, servers, topic, copy = sys.argv[1:]
    spark = session(master, cores=2)

    def read(reader: Any, name: str, **more: str) -> DataFrame:
        reader = reader.format("kafka_coop").option("kafka.bootstrap.servers", servers)
        frame: DataFrame = reader.options(subscribe=name, **more).load()
        return frame

    def copied(how: str) -> list[Any]:
        rows = read(spark.read, copy).where(f"CAST(key AS STRING) = '{how}'")
        return sorted(json.loads(row.value) for row in rows.select("value").collect())

    def rows(frame: DataFrame) -> list[Any]:
        return sorted(map(list, frame.select("partition", "offset").collect()))

    grouped = {"kafka.group.id": topic, "startingOffsets": "earliest"}
    query = read(spark.readStream, topic, **grouped).writeStream.format("memory")
    query.queryName("records").trigger(availableNow=True).start().awaitTermination()
    batch = read(spark.read, topic)
    to = {"kafka.bootstrap.servers": servers, "topic": copy}
    batch.selectExpr("'copied' AS key", ITSELF).write.format("kafka_coop").options(**to).mode(
        "append"
    ).save()
    grouped["kafka.group.id"] += "-again"
    stream = read(spark.readStream, topic, **grouped).selectExpr("'streamed' AS key", ITSELF)
    with TemporaryDirectory() as here:
        sink = stream.writeStream.format("kafka_coop").options(**to, checkpointLocation=here)
        sink.trigger(availableNow=True).start().awaitTermination()
    # The driver is among them.
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print(
        json.dumps(
            {
                "streamed": rows(spark.table("records")),
                "batched": rows(batch),
                "copied by stream": copied("streamed"),
                "copied": copied("copied"),
                "executors": executors,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
