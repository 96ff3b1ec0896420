"""A driver of its own, whose tasks all fail once when they have read, and are tried again.

python spark_retries.py SERVERS TOPIC
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from spark_cluster_session import session


def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Odd tasks of the first attempt as soon as they can, the others at their end."""
    task = TaskContext.get()
    assert task is not None
    for batch in batches:
        yield batch
        if task.attemptNumber() == 0 and task.partitionId() % 2:
            raise RuntimeError("a task's first attempt")
    if task.attemptNumber() == 0:
        raise RuntimeError("a task's first attempt")


def main() -> None:
    servers, topic = sys.argv[1:]
    spark = session("local[3,2]", cores=3)
    stream = spark.readStream.format("kafka_coop").option("kafka.bootstrap.servers", servers)
    records = stream.options(
        **{"kafka.group.id": topic, "subscribe": topic},
        startingOffsets="earliest",
        maxOffsetsPerTrigger=100,
    ).load()
    read = records.select("partition", "offset").mapInArrow(fail_once, "partition int, offset long")
    query = read.writeStream.format("memory").queryName("records").trigger(availableNow=True)
    query.start().awaitTermination()
    print(json.dumps(sorted(map(list, spark.table("records").collect()))))
    spark.stop()


if __name__ == "__main__":
    main()
