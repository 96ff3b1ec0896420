"""A standalone cluster: a master, two workers and a driver, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import KafkaError, Message, Producer
from integration_processes import children, whole_lines
from spark_drivers import command, environment, run
from spark_priority import first_in_line

from kafka_coop.testing.cluster import KafkaCluster, wait_until

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

_START = timedelta(seconds=180)
Record = tuple[int, int]


@contextlib.contextmanager
def daemon(log: Path, ready: str, kind: str, *arguments: str) -> Iterator[tuple[int, str]]:
    """One of Spark's daemons, from when its log matches until the end of the block.

    Its process, and what the log says there.
    """
    home = Path(pyspark.__file__).parent
    with log.open("wb") as out, first_in_line():
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments],
            stdout=out,
            stderr=out,
            env=environment(SPARK_HOME=str(home)),
        )
    try:
        wait_until(
            lambda: process.poll() is not None or bool(re.search(ready, log.read_text())),
            f"{kind} does not start: see {log}",
            _START,
        )
        found = re.search(ready, log.read_text())
        assert found is not None, log.read_text()[-2000:]
        yield process.pid, found[found.re.groups]
    finally:
        process.terminate()
        process.wait(60)


@dataclass(frozen=True)
class Cluster:
    """Of one core for each worker."""

    master: str
    workers: frozenset[int]

    def executors(self) -> set[int]:
        """The workers' children, but for those that are about to become one, or are dead."""
        return children(self.workers, b"--executor-id")

    def has_others_than(self, executors: set[int]) -> bool:
        return bool(self.executors() - executors)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        there = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        ready = r"Starting Spark master at (spark://\S+)"
        _, master = stack.enter_context(daemon(tmp_path / "m.log", ready, "master.Master", *there))
        workers = set()
        for n in (1, 2):
            here = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g")
            work = ("--work-dir", str(tmp_path / f"w{n}"), master)
            ready = "Successfully registered with master"
            log = tmp_path / f"w{n}.log"
            worker, _ = stack.enter_context(daemon(log, ready, "worker.Worker", *here, *work))
            workers.add(worker)
        yield Cluster(master, frozenset(workers))


class Topic:
    """With four partitions, and what was written to it."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.name = f"cluster-{time.time_ns()}"
        self.servers = kafka.bootstrap_servers
        self.records: set[Record] = set()
        kafka.create_topic(self.name, partitions=4)
        self._producer = Producer({"bootstrap.servers": self.servers})

    def produce(self, count: int) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.records.add((partition, offset))

        for n in range(count):
            self._producer.produce(self.name, b"v", partition=n % 4, on_delivery=delivered)
        assert self._producer.flush(60) == 0


class Driver:
    """A query in a driver of its own, with one of the cluster's two cores."""

    def __init__(self, master: str, topic: Topic, folder: Path) -> None:
        self._out, self._log = folder / "records", folder / "log"
        folder.mkdir()
        self._out.touch()
        words = [master, topic.servers, topic.name, str(folder / "checkpoint"), str(self._out)]
        with self._log.open("wb") as log, first_in_line():
            self._process = subprocess.Popen(
                **command("spark_cluster_query.py", *words),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def written(self) -> Counter[Record]:
        """Every record that its batches have given out.

        Raises:
            AssertionError: The driver has failed.
        """
        assert not self._process.poll(), self._log.read_text()[-3000:]
        lines = map(json.loads, whole_lines(self._out))
        return Counter((p, offset) for line in lines for p, offset in line)

    def has_written_more_than(self, records: int) -> bool:
        return self.written().total() > records

    def drain(self) -> None:
        """Hands all over and ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(120) == 0, self._log.read_text()[-3000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


@pytest.fixture
def topic(kafka: KafkaCluster) -> Topic:
    """With some records."""
    made = Topic(kafka)
    made.produce(400)
    return made


@pytest.fixture
def driver(cluster: Cluster, topic: Topic, tmp_path: Path) -> Iterator[Callable[[str], Driver]]:
    """Starts one of that name, which does not outlive the test."""
    with contextlib.ExitStack() as stack:

        def started(name: str) -> Driver:
            made = Driver(cluster.master, topic, tmp_path / name)
            stack.callback(made.kill)
            return made

        yield started


@pytest.mark.verdict
def test_executors_of_a_cluster_read_and_write_all_there_is(
    cluster: Cluster, kafka: KafkaCluster, topic: Topic
) -> None:
    copied = Topic(kafka)
    job = ("spark_cluster_job.py", cluster.master, topic.servers, topic.name, copied.name)
    produced = sorted(map(list, topic.records))
    every = dict.fromkeys(("streamed", "batched", "copied by stream", "copied"), produced)
    found, _ = run(*job)
    assert found == {**every, "executors": 2}


@pytest.mark.verdict
def test_tasks_that_are_tried_again_read_the_same(topic: Topic) -> None:
    """What a task reads is decided where it first runs; the rows of the others are kept."""
    (asked, attempts, read), _ = run("spark_retries.py", topic.servers, topic.name)
    assert read == sorted(map(list, topic.records))
    assert (asked, attempts) == (True, [0, 1])


@pytest.mark.verdict
def test_drivers_on_a_cluster_share_a_group_and_hand_over(
    topic: Topic, driver: Callable[[str], Driver]
) -> None:
    first = driver("first")
    wait_until(lambda: first.written().keys() == topic.records, "not all is read", _START)
    second = driver("second")

    def shared() -> bool:
        # A slow machine's second driver takes minutes to start, and a batch has twenty records.
        if (first.written() + second.written()).keys() == topic.records:
            topic.produce(4)
        return bool(second.written())

    wait_until(shared, "the second gets nothing", _START)
    first.drain()
    topic.produce(400)

    def whole() -> bool:
        return (first.written() + second.written()).keys() == topic.records

    wait_until(whole, "records are missing", _START)
    second.drain()
    assert first.written() + second.written() == Counter(topic.records)


@pytest.mark.verdict
def test_an_executor_that_is_killed_costs_nothing(
    cluster: Cluster, topic: Topic, driver: Callable[[str], Driver]
) -> None:
    """Spark starts another one, and the task again, which reads what it was to read."""
    only = driver("only")
    for _ in range(2):
        more = partial(only.has_written_more_than, only.written().total())
        topic.produce(400)
        wait_until(more, "it does not go on", _START)
        killed = cluster.executors()
        assert killed
        for executor in killed:
            os.kill(executor, signal.SIGKILL)
        wait_until(partial(cluster.has_others_than, killed), "no other is started", _START)
    wait_until(lambda: only.written().keys() == topic.records, "not all is read", _START)
    only.drain()
    assert only.written() == Counter(topic.records)
