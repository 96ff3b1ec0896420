"""One measurement in a Spark of its own; prints one line of JSON.

    python measure.py WHAT --source {kafka_coop,kafka} --servers … --topic …

all       availableNow, one batch, to the noop sink: rows a second
limited   the same with maxOffsetsPerTrigger=250000
latency   the time from a record's production to its batch's end, the least of many
idle      CPU seconds a second of all processes, without records
memory    what the driver, the reader, the executors and their workers take at most, in MB

Ours is set as docs/SPARK.md advises ("Fast"): the JVM and its Python workers speak over Unix
sockets, and there are no more tasks than cores. The built-in source has no Python workers.

The built-in source's Spark has neither this package's dependencies nor matplotlib: nothing of
them is imported here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks.spark.processes import KINDS, MemoryWatch, cpu_seconds

LIMIT = 250_000


def main() -> None:
    options = _arguments()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(options.master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    if options.jars:
        builder = builder.config("spark.jars", ",".join(map(str, options.jars.glob("*.jar"))))
    spark = builder.getOrCreate()
    if options.source == "kafka_coop":
        import kafka_coop.spark  # noqa: PLC0415  # the other Spark does without

        kafka_coop.spark.register(spark)
    measured = _MEASURES[options.what](spark, options)
    print(json.dumps({"source": options.source, "spark": spark.version, **measured}))
    spark.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=_MEASURES)
    parser.add_argument("--source", choices=("kafka_coop", "kafka"), required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--jars", type=Path, help="a folder; for the built-in source")
    parser.add_argument("--starting", default="earliest", help="as startingOffsets has it")
    parser.add_argument("--limit", help="maxOffsetsPerTrigger of memory; none")
    return parser.parse_args()


def _start(
    spark: SparkSession, options: argparse.Namespace, *, at: str, now: bool = False, **more: str
) -> Any:
    frame = (
        spark.readStream.format(options.source)
        .option("kafka.bootstrap.servers", options.servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", at)
        .options(**more)
    )
    if options.source == "kafka_coop":
        frame = frame.option("kafka.group.id", f"bench-{time.time_ns()}")
        frame = frame.option("maxPartitions", spark.sparkContext.defaultParallelism)
    writer = frame.load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", tempfile.mkdtemp())
    return (writer.trigger(availableNow=True) if now else writer).start()


def _read_all(spark: SparkSession, options: argparse.Namespace, **more: str) -> dict[str, Any]:
    query = _start(spark, options, at=options.starting, now=True, **more)
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    rows = sum(p["numInputRows"] for p in batches)
    seconds = sum(p["durationMs"]["triggerExecution"] for p in batches) / 1000
    return {"rows": rows, "rows_per_second": round(rows / seconds)}


def _throughput(spark: SparkSession, options: argparse.Namespace, **more: str) -> dict[str, Any]:
    """The best of four runs: a JVM compiles for as long before it is as fast as a query's is."""
    runs = [_read_all(spark, options, **more) for _ in range(4)]
    return max(runs, key=lambda run: run["rows_per_second"])


def _latency(spark: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    """A record is produced when the query is idle; the time until a batch with it is committed."""
    query = _start(spark, options, at="latest")
    producer = Producer({"bootstrap.servers": options.servers, "linger.ms": 0})
    times = []
    for n in range(30):
        before = _rows(query)
        began = time.monotonic()
        producer.produce(options.topic, b"value")
        producer.flush()
        while _rows(query) == before and time.monotonic() - began < 60:
            time.sleep(0.002)
        if n >= 5:
            times.append(time.monotonic() - began)
    query.stop()
    times.sort()
    return {"least_ms": round(times[0] * 1000), "median_ms": round(times[len(times) // 2] * 1000)}


def _rows(query: Any) -> int:
    """Grows with each batch that had records."""
    progress = query.lastProgress
    return -1 if progress is None else progress["batchId"] + (progress["numInputRows"] > 0)


def _idle(spark: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    query = _start(spark, options, at="latest")
    time.sleep(20)
    before, began = cpu_seconds(os.getpid()), time.monotonic()
    time.sleep(30)
    used, took = cpu_seconds(os.getpid()) - before, time.monotonic() - began
    query.stop()
    return {"cores": round(used / took, 4)}


def _memory(spark: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    """Peaks of resident memory, and the driver's heap that is left when garbage is collected.

    A JVM takes what it is allowed before it collects: the heap says what it needs.
    """
    more = {"maxOffsetsPerTrigger": options.limit} if options.limit else {}
    with MemoryWatch() as watch:
        read = _read_all(spark, options, **more)
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]  # noqa: SLF001  # py4j's way
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    heap = runtime.totalMemory() - runtime.freeMemory()
    peaks = {kind: round(watch.peaks[kind] / 1e6, 1) for kind in KINDS}
    return {**read, **peaks, "driver_heap": round(heap / 1e6, 1)}


_MEASURES: dict[str, Callable[[SparkSession, argparse.Namespace], dict[str, Any]]] = {
    "all": _throughput,
    "limited": lambda *args: _throughput(*args, maxOffsetsPerTrigger=str(LIMIT)),
    "latency": _latency,
    "idle": _idle,
    "memory": _memory,
}

if __name__ == "__main__":
    main()
