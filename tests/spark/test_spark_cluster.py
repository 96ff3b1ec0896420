"""A standalone cluster: a master, two workers and a driver, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer
from spark_priority import first_in_line

from kafka_coop.testing.cluster import KafkaCluster, wait_until

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

_HERE = Path(__file__).parent
_START = timedelta(seconds=180)


@contextlib.contextmanager
def daemon(log: Path, ready: str, kind: str, *arguments: str) -> Iterator[re.Match[str]]:
    """One of Spark's daemons, from when its log matches until the end of the block."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with log.open("wb") as out, first_in_line():
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments],
            stdout=out,
            stderr=out,
            env=environment,
        )
    try:
        wait_until(
            lambda: process.poll() is not None or bool(re.search(ready, log.read_text())),
            f"{kind} does not start: see {log}",
            _START,
        )
        found = re.search(ready, log.read_text())
        assert found is not None, log.read_text()[-2000:]
        yield found
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        there = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        ready = r"Starting Spark master at (spark://\S+)"
        found = stack.enter_context(daemon(tmp_path / "m.log", ready, "master.Master", *there))
        for n in (1, 2):
            here = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g")
            work = ("--work-dir", str(tmp_path / f"w{n}"), found[1])
            ready = "Successfully registered with master"
            log = tmp_path / f"w{n}.log"
            stack.enter_context(daemon(log, ready, "worker.Worker", *here, *work))
        yield found[1]


def test_executors_of_a_cluster_read_all_there_is(master: str, kafka: KafkaCluster) -> None:
    topic = f"cluster-{time.time_ns()}"
    kafka.create_topic(topic, partitions=4)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(400):
        producer.produce(topic, b"v", partition=n % 4)
    assert producer.flush(60) == 0
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(_HERE.parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    script = str(_HERE / "spark_cluster_job.py")
    job = [sys.executable, script, master, kafka.bootstrap_servers, topic]
    with first_in_line():
        done = subprocess.run(
            job, check=False, capture_output=True, text=True, env=environment, timeout=400
        )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    produced = [[p, offset] for p in range(4) for offset in range(100)]
    assert result == {"streamed": produced, "batched": produced, "executors": 2}
