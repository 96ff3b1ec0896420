"""docker-compose.yml and docker-compose.observe.yml, brought up for real.

`make containers` runs this: the images have to be there. Grafana is in no package registry, so
that what can't be had of it is checked by test_observe_compose and test_observe_dashboards.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from docker_compose import compose_tool
from prometheus_client import CollectorRegistry
from prometheus_server import PrometheusServer

from kafka_coop import CoopConsumer
from kafka_coop.cli.app import run as cli
from kafka_coop.cli.exits import Exit
from kafka_coop.testing.cluster import wait_until

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
FILES = ("-f", "docker-compose.yml", "-f", "docker-compose.observe.yml")
PATIENCE = timedelta(seconds=150)
PARTITIONS = 12
PROJECT = {"COMPOSE_PROJECT_NAME": "kafka-coop-test", "COMPOSE_HTTP_TIMEOUT": "200"}

CA = str(ROOT / "containers/secrets/ca.pem")
ALICE = {"sasl.username": "alice", "sasl.password": "alice-secret", "ssl.ca.location": CA}
LISTENERS: dict[str, dict[str, Any]] = {
    "PLAINTEXT": {"bootstrap.servers": "localhost:19092"},
    "TLS": {
        "bootstrap.servers": "localhost:29093",
        "security.protocol": "SSL",
        "ssl.ca.location": CA,
    },
    "PLAIN": {
        "bootstrap.servers": "localhost:32094",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        **ALICE,
    },
    "SCRAM": {
        "bootstrap.servers": "localhost:19094",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        **ALICE,
    },
}


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **PROJECT, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def compose(*arguments: str) -> str:
    tool = compose_tool()
    assert tool is not None, "install docker-compose"
    return run(*tool, *FILES, *arguments)


def brokers(servers: str) -> int:
    try:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        return len(admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return 0


@pytest.fixture(scope="module")
def scene(has_docker: None, request: pytest.FixtureRequest) -> Iterator[None]:
    run("containers/secrets.sh")
    compose("down", "-v", "-t", "1")
    failed = request.session.testsfailed
    try:
        compose("up", "-d", "--no-build", "broker-1", "broker-2", "broker-3")
        wait_until(lambda: brokers("localhost:19092") == 3, "three brokers", PATIENCE)
        run(sys.executable, "containers/users.py")
        compose("up", "-d", "--no-build", "service", "orders", "prometheus")
        yield
        whole = request.session.testsfailed == failed
    except BaseException:
        whole = False
        raise
    finally:
        if not whole:  # a test that fails raises nothing in here
            print(compose("logs", "--no-color", "--tail=20"))
        compose("down", "-v", "-t", "1")


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_member_of_every_listener(listener: str, scene: None) -> None:
    settings = {**LISTENERS[listener], "log_level": 0}
    topic = f"by-{listener}-{uuid.uuid4().hex}"
    producer = Producer(settings)
    producer.produce(topic, b"one")
    assert producer.flush(60) == 0
    config = {**settings, "group.id": topic, "auto.offset.reset": "earliest"}
    with contextlib.closing(CoopConsumer(config, registry=CollectorRegistry())) as consumer:
        consumer.subscribe([topic])
        # A broker that has yet to hear of the new topic says so first.
        messages = iter(lambda: consumer.poll(60), None)
        message = next(m for m in messages if m.error() is None)
        assert message.value() == b"one"


def test_members_come_and_go_and_nothing_stays_unowned(
    scene: None, capsys: pytest.CaptureFixture[str]
) -> None:
    prometheus = PrometheusServer("http://127.0.0.1:9090")

    def value(query: str) -> float:
        with contextlib.suppress(OSError, IndexError):
            return float(prometheus.now(query)[0]["value"][1])
        return -1

    wanted: dict[str, Callable[[float], bool]] = {
        "count(kafka_coop_generation)": lambda members: members == 3,
        "sum(kafka_coop_assigned_partitions)": lambda owned: owned == PARTITIONS,
        "min(kafka_coop_generation)": lambda generation: generation > 0,
        "sum(rate(kafka_coop_librdkafka_records_total[30s]))": lambda rate: rate > 0,
    }

    def whole() -> bool:
        """Of the members that are up, as the scrape sees them."""
        return all(right(value(query)) for query, right in wanted.items())

    def wait_until_whole(when: str) -> None:
        try:
            wait_until(whole, f"the group is not whole {when}", PATIENCE)
        except TimeoutError as error:
            seen = {query: value(query) for query in wanted}
            raise AssertionError(f"{error}: {seen}") from None

    wait_until_whole("to begin with")
    before = value("max(kafka_coop_generation)")
    run("examples/chaos.sh", EVENTS="4", PAUSE="8")
    compose("up", "-d", "--no-build", "--no-recreate", "--scale", "service=3", "service")
    wait_until_whole("after members came and went")
    assert value("max(kafka_coop_generation)") > before
    assert cli(["describe", "orders-service", "-b", "localhost:19092", "--json"]) == Exit.OK
    described = json.loads(capsys.readouterr().out)
    assert described["state"].lower() == "stable"
    assert len(described["members"]) == 3
