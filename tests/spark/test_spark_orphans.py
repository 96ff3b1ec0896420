"""Spark is killed while its reader waits for other members of the group."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from spark_sessions import Box, plain_settings

from kafka_coop import CoopConsumer
from kafka_coop.testing.cluster import KafkaCluster, wait_until

_READER = """
import json, sys
from kafka_coop.spark.options import stream_options
from kafka_coop.spark.session import Session

session = Session(stream_options(json.loads(sys.argv[1])))
session.aim_at_what_is_there()
start = session.latest({}, limited=True)
print("read", flush=True)
try:
    session.latest(start, limited=True)
except Exception as error:
    print(error, flush=True)
finally:
    session.close()
"""

_SPARK = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[2]])
"""


@pytest.fixture
def box(kafka: KafkaCluster) -> Iterator[Box]:
    """Of a real broker: the embedded one takes its time to tell the other that a member left."""
    made = Box(kafka)
    yield made
    made.close()


def test_a_reader_leaves_when_its_spark_is_killed(box: Box) -> None:
    """Another member holds a partition, and does not go on with it: it would wait for a minute.

    Others that do go on would have it wait for as long as they do, with partitions that nobody
    reads.
    """
    box.produce(5)
    with CoopConsumer(plain_settings(box) | {"enable.auto.commit": False}) as other:
        other.subscribe([box.topic])
        wait_until(lambda: _holds(other, 2), "no assignment")
        given = json.dumps(box.given | {"kafka.session.timeout.ms": "45000"})
        spark = subprocess.Popen(
            [sys.executable, "-c", _SPARK, _READER, given], stdout=subprocess.PIPE, text=True
        )
        assert spark.stdout is not None
        with spark, spark.stdout as says:
            wait_until(lambda: _holds(other, 1), "not shared")
            assert says.readline() == "read\n"
            spark.send_signal(signal.SIGKILL)
            spark.wait()
            wait_until(lambda: _holds(other, 2), "the reader holds on")
            assert "driver that started this reader has died" in says.read()


def _holds(other: CoopConsumer, partitions: int) -> bool:
    other.poll(0.05)
    return len(other.assignment()) == partitions
