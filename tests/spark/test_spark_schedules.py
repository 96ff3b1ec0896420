from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from spark_flights import Flights
from spark_schedules import PARTITIONS, restart, run_death, run_schedule
from spark_stand_in import CALLS, POINTS, STEPS, Death

from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.local import LocalKafka

SEEDS = range(int(os.environ.get("SPARK_SCHEDULES", "3")))
"""More of them: SPARK_SCHEDULES=100, or spark_schedules.py as a program."""


@pytest.mark.verdict
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_missing_whoever_dies_where(
    kafka: KafkaCluster, tmp_path: Path, seed: int
) -> None:
    topic = f"schedule-{seed}-{time.time_ns()}"
    kafka.create_topic(topic, partitions=PARTITIONS)
    restarts = (lambda: restart(kafka)) if isinstance(kafka, LocalKafka) else None
    flights = Flights(tmp_path / "flights.sqlite")
    outcome = run_schedule(kafka, topic, seed, restart=restarts, flights=flights)
    assert outcome.produced
    assert outcome.sound, str(outcome)  # whole: pytest shortens what is no text


@pytest.mark.verdict
@pytest.mark.parametrize("at", [*POINTS, *CALLS, *STEPS])
def test_who_dies_just_there_leaves_nothing_out(
    kafka: KafkaCluster, tmp_path: Path, at: str
) -> None:
    """In its first batch, or as its first partitions come, or as the first of them go."""
    topic = f"death-{time.time_ns()}"
    kafka.create_topic(topic, partitions=PARTITIONS)
    death = Death(at=at, time=1)
    flights = Flights(tmp_path / "flights.sqlite")
    outcome = run_death(kafka, topic, death, flights)
    assert outcome.died, "not there"
    assert outcome.sound, str(outcome)


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(900)
def test_a_source_that_commits_before_the_sink_has_it_is_caught(kafka: KafkaCluster) -> None:
    def loses_something(seed: int) -> bool:
        topic = f"hasty-{seed}-{time.time_ns()}"
        kafka.create_topic(topic, partitions=PARTITIONS)
        outcome = run_schedule(kafka, topic, seed, hasty=True)
        return bool(outcome.missing)

    assert any(map(loses_something, range(8)))
