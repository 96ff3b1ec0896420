from __future__ import annotations

import os
import time

import pytest
from spark_schedules import PARTITIONS, run_schedule

from kafka_coop.testing.cluster import KafkaCluster

SEEDS = range(int(os.environ.get("SPARK_SCHEDULES", "3")))
"""More of them: SPARK_SCHEDULES=100, or spark_schedules.py as a program."""


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_missing_whoever_dies_where(kafka: KafkaCluster, seed: int) -> None:
    topic = f"schedule-{seed}-{time.time_ns()}"
    kafka.create_topic(topic, partitions=PARTITIONS)
    outcome = run_schedule(kafka.bootstrap_servers, topic, seed)
    assert outcome.produced
    assert not outcome.missing
    assert not outcome.wrong
    assert not outcome.failures
