from __future__ import annotations

import os
import time

import pytest
from spark_schedules import PARTITIONS, restart, run_schedule

from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.local import LocalKafka

SEEDS = range(int(os.environ.get("SPARK_SCHEDULES", "3")))
"""More of them: SPARK_SCHEDULES=100, or spark_schedules.py as a program."""


@pytest.mark.verdict
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_missing_whoever_dies_where(kafka: KafkaCluster, seed: int) -> None:
    topic = f"schedule-{seed}-{time.time_ns()}"
    kafka.create_topic(topic, partitions=PARTITIONS)
    restarts = (lambda: restart(kafka)) if isinstance(kafka, LocalKafka) else None
    outcome = run_schedule(kafka.bootstrap_servers, topic, seed, restart=restarts)
    assert outcome.produced
    assert outcome.sound, outcome


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(900)
def test_a_source_that_commits_before_the_sink_has_it_is_caught(kafka: KafkaCluster) -> None:
    def loses_something(seed: int) -> bool:
        topic = f"hasty-{seed}-{time.time_ns()}"
        kafka.create_topic(topic, partitions=PARTITIONS)
        outcome = run_schedule(kafka.bootstrap_servers, topic, seed, hasty=True)
        return bool(outcome.missing)

    assert any(map(loses_something, range(8)))
