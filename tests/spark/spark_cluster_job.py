"""A driver of its own on a cluster: reads a topic twice, as a stream and as a batch.

python spark_cluster_job.py MASTER SERVERS TOPIC
"""

from __future__ import annotations

import json
import sys

from spark_cluster_session import session


def main() -> None:
    master, servers, topic = sys.argv[1:]
    spark = session(master, cores=2)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    stream = spark.readStream.format("kafka_coop").options(**options)
    records = stream.options(**{"kafka.group.id": topic}, startingOffsets="earliest").load()
    query = records.writeStream.format("memory").queryName("records").trigger(availableNow=True)
    query.start().awaitTermination()
    streamed = spark.table("records").select("partition", "offset").collect()
    batched = spark.read.format("kafka_coop").options(**options).load()
    # The driver is among them.
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print(
        json.dumps(
            {
                "streamed": sorted(map(list, streamed)),
                "batched": sorted(map(list, batched.select("partition", "offset").collect())),
                "executors": executors,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
