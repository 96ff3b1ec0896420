"""One Spark session for all the tests that need one: it takes seconds to start."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from spark_priority import first_in_line
from spark_sessions import Box

import kafka_coop.spark
from kafka_coop.spark import reading, sink
from kafka_coop.testing import EmbeddedKafka


@pytest.fixture(autouse=True)
def no_sockets_are_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collects PySpark's sockets, which a driver's ``collect()`` leaves open, where they belong.

    Otherwise the collector finds them later, and some other test is blamed for the warning.
    """
    yield
    if "spark" in request.fixturenames:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def box(embedded: EmbeddedKafka) -> Iterator[Box]:
    """A topic of the embedded broker."""
    made = Box(embedded)
    yield made
    made.close()


@pytest.fixture
def own_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests that run tasks in their own process, which is no worker.

    Its garbage is not frozen, and no consumer is kept for longer than the test's brokers live.
    """
    for tasks in (reading, sink):
        monkeypatch.setattr(tasks, "spare_collections", lambda: None)
    reading._idle.clear()
    reading._ids.clear()
    yield
    while reading._idle:
        reading._idle.popitem()[1].close()


@pytest.fixture(scope="session")
def metrics() -> CollectorRegistry:
    """Where the session's listener keeps its metrics."""
    return CollectorRegistry()


@pytest.fixture(scope="session")
def spark(metrics: CollectorRegistry) -> Iterator[SparkSession]:
    """A local Spark with two cores, and ``kafka_coop`` registered."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings(), first_in_line():
        warnings.simplefilter("ignore")  # PySpark's own, of the versions of its dependencies
        session = (
            SparkSession.builder.master("local[2]")
            .appName("kafka_coop's tests")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
    kafka_coop.spark.register(session, registry=metrics)
    yield session
    session.stop()
