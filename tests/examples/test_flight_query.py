"""The pipeline of flights in a real Spark, killed within its sink and started again."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flight_query import NOTE, PATIENCE, Job

from kafka_coop.testing.cluster import KafkaCluster, wait_until

ROOT = Path(__file__).parents[2]
DAYS = 2
_TO_ITS_END = 2 * PATIENCE + 100
"""Seconds: Spark starts, the query runs, and hands over, and gives either up sooner by itself."""


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "spark"))


def module(name: str) -> Any:
    return importlib.import_module(f"examples.flight_delays.{name}")


@contextmanager
def published(servers: str) -> Iterator[None]:
    """All records of some days, in both topics."""
    data = module("data")
    with data.topics(servers):
        with data.Publisher(servers, days=DAYS, pace=0, lead=10**6) as publisher:
            publisher.allow(1)
            wait_until(
                lambda: publisher.is_done, "the flights are not published", timedelta(minutes=3)
            )
        yield


def ended(job: Job) -> int:
    """Runs a driver to its end, whatever that is; with it end the JVM and all that it started."""
    log = Path(job.folder) / "driver.log"
    with log.open("w") as said, importlib.import_module("spark_priority").first_in_line():
        driver = subprocess.Popen(
            job.arguments(),
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code = driver.wait(_TO_ITS_END)
        except subprocess.TimeoutExpired as error:
            error.add_note(log.read_text()[-3000:])
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert code in (0, -signal.SIGKILL), log.read_text()[-3000:]
    return code


@pytest.mark.verdict
@pytest.mark.xdist_group("spark")  # as all tests that start one: it takes all cores to start
@pytest.mark.timeout(3 * _TO_ITS_END + 200)
def test_a_query_that_is_killed_in_its_sink_and_again_after_it_comes_to_what_pandas_says(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    oracle, results = module("oracle"), module("results").Results(tmp_path / "results.sqlite")
    merged = oracle.joined(DAYS)
    job = Job(
        servers=kafka.bootstrap_servers,
        group=f"flights-{uuid.uuid4().hex[:8]}",
        folder=str(tmp_path),
        total=len(merged),
    )

    def death() -> Any:
        return json.loads((tmp_path / NOTE).read_text())

    with published(kafka.bootstrap_servers):
        assert ended(replace(job, dies_in=2, step=2000)) == -signal.SIGKILL
        within = death()
        assert results.count() == within["before"], "a part of the batch is in the sink"
        assert 0 < within["before"] < len(merged)

        assert ended(replace(job, dies_in=1)) == -signal.SIGKILL
        written = death()
        assert written == within, "not the batch that was begun is done again"
        assert results.count() == written["before"] + written["rows"]
        assert results.again() == 0

        assert ended(job) == 0
    assert results.again() >= written["rows"], "Spark knew that it was written"
    assert results.rows() == oracle.rows(merged)
    results.save_windows(tmp_path / "delays.csv")
    assert oracle.windows_of(tmp_path / "delays.csv") == oracle.windows(merged)
