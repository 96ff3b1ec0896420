"""Spark Connect: a client and its server on one host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from spark_priority import first_in_line

from kafka_coop.testing.cluster import KafkaCluster

_HERE = Path(__file__).parent


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_a_batch_a_stream_the_listener_and_drain(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = f"connect-{time.time_ns()}"
    kafka.create_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(20):
        producer.produce(topic, b"v", partition=n % 2)
    assert producer.flush(60) == 0
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    script = [sys.executable, str(_HERE / "spark_connect.py")]
    with first_in_line():
        done = subprocess.run(
            [*script, kafka.bootstrap_servers, topic, str(tmp_path)],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **own, "PYTHONPATH": str(_HERE.parents[1])},
            timeout=500,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "drain() works" in done.stderr, "only where this code runs: a warning"
    found = json.loads(done.stdout.splitlines()[-1])
    every = [[partition, offset] for partition in (0, 1) for offset in range(10)]
    assert found == {"batched": 20, "streamed": every, "drained": True}
