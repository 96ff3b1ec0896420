"""One measurement in a Spark of its own; prints one line of JSON.

    python measure.py {kafka_coop,kafka} SERVERS TOPIC {all,limited,latency,idle} [JARS]

all       availableNow, one batch, to the noop sink: rows a second
limited   the same with maxOffsetsPerTrigger=250000
latency   the time from a record's production to its batch's end, the least of many
idle      CPU seconds a second of all processes, without records
"""

from __future__ import annotations

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

_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    source, servers, topic, what, *jars = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, Path(jars[0]).glob("*.jar"))))
    spark = builder.getOrCreate()
    if source == "kafka_coop":
        import kafka_coop.spark  # noqa: PLC0415  # the other Spark does without

        kafka_coop.spark.register(spark)
    measured = _MEASURES[what](spark, source, servers, topic)
    print(json.dumps({"source": source, "spark": spark.version, "what": what, **measured}))
    spark.stop()


def _start(
    spark: SparkSession, source: str, servers: str, topic: str, *, at: str, **more: Any
) -> Any:
    trigger = more.pop("trigger", {})
    frame = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", at)
        .options(**more)
    )
    if source == "kafka_coop":
        frame = frame.option("kafka.group.id", f"bench-{time.time_ns()}")
    writer = frame.load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", tempfile.mkdtemp())
    return (writer.trigger(**trigger) if trigger else writer).start()


def _throughput(spark: SparkSession, source: str, servers: str, topic: str, **more: Any) -> Any:
    """The best of two runs, the first of which warms everything up."""
    rates = []
    for _ in range(2):
        query = _start(
            spark, source, servers, topic, at="earliest", trigger={"availableNow": True}, **more
        )
        query.awaitTermination()
        batches = [p for p in query.recentProgress if p["numInputRows"]]
        rows = sum(p["numInputRows"] for p in batches)
        seconds = sum(p["durationMs"]["triggerExecution"] for p in batches) / 1000
        rates.append({"rows": rows, "rows_per_second": round(rows / seconds)})
    return max(rates, key=lambda rate: rate["rows_per_second"])


def _latency(spark: SparkSession, source: str, servers: str, topic: str) -> Any:
    """A record is produced when the query is idle; the time until a batch with it is committed."""
    query = _start(spark, source, servers, topic, at="latest")
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    times = []
    for n in range(30):
        before = _rows(query)
        began = time.monotonic()
        producer.produce(topic, b"value")
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


def _idle(spark: SparkSession, source: str, servers: str, topic: str) -> Any:
    query = _start(spark, source, servers, topic, at="latest")
    time.sleep(20)
    before, began = _cpu(os.getpid()), time.monotonic()
    time.sleep(30)
    used, took = _cpu(os.getpid()) - before, time.monotonic() - began
    query.stop()
    return {"cores": round(used / took, 4)}


def _cpu(pid: int) -> float:
    """CPU seconds of a process and all that descend from it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [c for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return 0.0
    own = (int(fields[11]) + int(fields[12])) / _TICKS
    return own + sum(_cpu(int(child)) for child in children)


_MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "all": _throughput,
    "limited": lambda *args: _throughput(*args, maxOffsetsPerTrigger="250000"),
    "latency": _latency,
    "idle": _idle,
}

if __name__ == "__main__":
    main()
