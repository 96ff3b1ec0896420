"""Spark Connect: a client and its server on one host."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from spark_drivers import run

from kafka_coop.testing.cluster import KafkaCluster


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_a_batch_a_stream_the_listener_and_drain(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = f"connect-{time.time_ns()}"
    kafka.create_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(20):
        producer.produce(topic, b"v", partition=n % 2)
    assert producer.flush(60) == 0
    servers = kafka.bootstrap_servers
    found, said = run("spark_connect.py", servers, topic, str(tmp_path))
    assert "drain() works" in said, "only where this code runs: a warning"
    every = [[partition, offset] for partition in (0, 1) for offset in range(10)]
    assert found == {"batched": 20, "streamed": every, "drained": True}
