"""A driver of its own, whose odd tasks fail once when they have read, and are tried again.

python spark_retries.py SERVERS TOPIC
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from spark_cluster_session import session


def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The others' rows are in the sink by then, or will be."""
    task = TaskContext.get()
    assert task is not None
    attempt = task.attemptNumber()
    for batch in batches:
        yield batch.append_column("attempt", pa.array([attempt] * len(batch), pa.int32()))
    if attempt == 0 and task.partitionId() % 2:
        raise RuntimeError("a task's first attempt")


def _sockets(progress: Any) -> Iterator[Path]:
    """Where the query's tasks ask what to read."""
    if progress is not None:
        its = json.loads(progress["sources"][0]["endOffset"])["id"]
        yield from Path(tempfile.gettempdir()).glob(f"kafka_coop-spark-*/{its}-*.tickets")


def main() -> None:
    servers, topic = sys.argv[1:]
    spark = session("local[3,2]", cores=3)
    stream = spark.readStream.format("kafka_coop").option("kafka.bootstrap.servers", servers)
    records = stream.options(
        **{"kafka.group.id": topic, "subscribe": topic},
        startingOffsets="earliest",
        maxOffsetsPerTrigger=100,
    ).load()
    columns = "partition int, offset long, attempt int"
    read = records.select("partition", "offset").mapInArrow(fail_once, columns)
    writer = read.writeStream.format("memory").queryName("records").trigger(availableNow=True)
    query, asked = writer.start(), False
    while query.isActive:
        asked = asked or any(_sockets(query.lastProgress))
        time.sleep(0.02)
    query.awaitTermination()  # raises what it failed of
    rows = spark.table("records").collect()
    read_by = sorted({row.attempt for row in rows})
    print(json.dumps([asked, read_by, sorted([row.partition, row.offset] for row in rows)]))
    spark.stop()


if __name__ == "__main__":
    main()
