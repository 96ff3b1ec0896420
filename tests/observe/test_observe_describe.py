"""`describe` and `watch` on living groups of every client and kind."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from java_member import JavaMember
from prometheus_client import CollectorRegistry
from raw_groups import connect_group, share_group

from kafka_coop import CoopConsumer
from kafka_coop.assignors import CooperativeSticky
from kafka_coop.cli.app import run
from kafka_coop.cli.exits import Exit
from kafka_coop.testing.cluster import KafkaCluster, wait_until

Describe = Callable[..., dict[str, Any]]


@pytest.fixture
def topic(kafka: KafkaCluster, request: pytest.FixtureRequest) -> str:
    name = f"describe-{re.sub('[^a-z_]+', '-', request.node.name)}"
    kafka.create_topic(name, partitions=4)
    return name


@pytest.fixture
def describe(kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> Describe:
    def described(group: str) -> dict[str, Any]:
        assert run(["describe", group, "-b", kafka.bootstrap_servers, "--json"]) == Exit.OK
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return described


@contextmanager
def polled(*consumers: Any) -> Iterator[None]:
    """Polls consumers in threads of their own, and closes them."""
    stop = threading.Event()

    def poll(consumer: Any) -> None:
        while not stop.is_set():
            consumer.poll(0.1)

    threads = [threading.Thread(target=poll, args=(c,)) for c in consumers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread, consumer in zip(threads, consumers, strict=True):
            thread.join()
            consumer.close()


def settings(kafka: KafkaCluster, group: str, client: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": group,
        "client.id": client,
        "auto.offset.reset": "earliest",
        **more,
    }


def coop(kafka: KafkaCluster, group: str, client: str, topic: str) -> CoopConsumer:
    consumer = CoopConsumer(settings(kafka, group, client), registry=CollectorRegistry())
    consumer.subscribe([topic])
    return consumer


@contextmanager
def theirs(config: dict[str, Any], topic: str) -> Iterator[None]:
    """confluent-kafka's own consumer, once it has all partitions.

    Polled in one thread: beside a poll, its other methods wait without end.
    """
    consumer = Consumer(config)
    consumer.subscribe([topic])

    def assigned() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 4

    try:
        wait_until(assigned, "not assigned")
        yield
    finally:
        consumer.close()


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {m["client_id"]: sum(map(len, m["assigned"].values())) for m in found["members"]}


def test_a_group_of_ours(kafka: KafkaCluster, topic: str, describe: Describe) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in range(4):
        producer.produce(topic, b"x", partition=partition)
    producer.flush()
    one, two = (coop(kafka, topic, name, topic) for name in ("one", "two"))
    with polled(one, two):
        wait_until(lambda: len(one.assignment()) == len(two.assignment()) == 2, "not balanced")
        wait_until(lambda: describe(topic)["state"] == "Stable", "not stable")
        done = [TopicPartition(topic, p.partition, 1) for p in one.assignment()]
        one.commit(offsets=done, asynchronous=False)
        found = describe(topic)
        assert (found["state"], found["type"]) == ("Stable", "classic")
        assert found["assignor"] == "cooperative-sticky"
        assert counts(found) == {"one": 2, "two": 2}
        assert found["leader"] in {one.memberid(), two.memberid()}
        assert found["generation"] >= 1
        assert found["next_rebalance"]["moved"] == 0
        mine = {p.partition for p in one.assignment()}
        lags = {p["partition"]: p["lag"] for p in found["partitions"] if p["owner"] is not None}
        assert {p: lags[p] for p in mine} == dict.fromkeys(mine, 0)
        (member,) = (m for m in found["members"] if m["client_id"] == "one")
        assert member["user_data"]["leader_marks"]["heartbeat_interval_seconds"] == 0.01


class Mine(CooperativeSticky):
    """A strategy that is not built in."""

    name = "mine"


def test_what_if_of_a_group_whose_strategy_is_not_built_in(
    kafka: KafkaCluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = CoopConsumer(
        settings(kafka, topic, "one"), assignors=[Mine()], registry=CollectorRegistry()
    )
    one.subscribe([topic])
    asked = ["plan", topic, "-b", kafka.bootstrap_servers, "--join", "two", "--json"]
    with polled(one):
        wait_until(lambda: len(one.assignment()) == 4, "not assigned")
        assert run(asked) == Exit.WRONG_KIND
        assert "--assignor package.module:Class" in capsys.readouterr().err
        assert run([*asked, "--assignor", f"{__name__}:Mine"]) == Exit.OK
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert (step["assignor"], step["moved"]) == ("mine", 2)


def test_a_group_of_librdkafkas(kafka: KafkaCluster, topic: str, describe: Describe) -> None:
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    with theirs(settings(kafka, topic, "theirs", **strategy), topic):
        found = describe(topic)
        assert counts(found) == {"theirs": 4}
        assert found["next_rebalance"]["moved"] == 0
        assert found["members"][0]["user_data"]["marks"] is None


def test_a_group_of_javas(kafka: KafkaCluster, topic: str, describe: Describe) -> None:
    with JavaMember(kafka.bootstrap_servers, topic, "java", topic) as member:
        member.poll_until_assigned()
        found = describe(topic)
        assert counts(found) == {"java": 4}
        assert (found["assignor"], found["next_rebalance"]["moved"]) == ("cooperative-sticky", 0)


def test_a_group_of_type_consumer(kafka: KafkaCluster, topic: str, describe: Describe) -> None:
    with theirs(settings(kafka, topic, "new", **{"group.protocol": "consumer"}), topic):
        found = describe(topic)
    assert (found["type"], counts(found)) == ("consumer", {"new": 4})
    assert "the broker assigns" in found["next_rebalance_unknown_because"]


def test_an_empty_group(kafka: KafkaCluster, topic: str, describe: Describe) -> None:
    with polled(consumer := coop(kafka, topic, "gone", topic)):
        wait_until(lambda: len(consumer.assignment()) == 4, "not assigned")
    found = describe(topic)
    assert (found["state"], found["members"]) == ("Empty", [])


@pytest.mark.parametrize("kind", ["none", "connect", "connect, empty", "share"])
def test_what_is_no_group_of_consumers(
    kind: str, kafka: KafkaCluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = kafka.bootstrap_servers

    def status(name: str) -> int:
        return run(["describe", name, "-b", servers])

    if kind == "none":
        assert status(topic) == Exit.NO_SUCH_GROUP
    elif kind == "connect":
        with connect_group(servers, topic):
            assert status(topic) == Exit.WRONG_KIND
    elif kind == "connect, empty":
        with connect_group(servers, topic):
            pass
        assert status(topic) == Exit.WRONG_KIND
    else:
        with share_group(servers, topic, topic):
            assert status(topic) == Exit.WRONG_KIND
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


@pytest.mark.timeout(300)  # forty looks, and a busy broker takes seconds for each
def test_watching_tells_of_a_member_that_joins(
    kafka: KafkaCluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with polled(one := coop(kafka, topic, "one", topic)):
        wait_until(lambda: len(one.assignment()) == 4, "not assigned")
        two = coop(kafka, topic, "two", topic)
        looks = ["--interval", "0.2", "--count", "40", "--json"]
        with polled(two):
            assert run(["watch", topic, "-b", kafka.bootstrap_servers, *looks]) == Exit.OK
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    first, last = told[0], told[-1]
    assert (first["event"], last["members"]) == ("look", {"one": 2, "two": 2})
    if first["members"] != last["members"]:
        assert {"rebalance"} <= {t["event"] for t in told}
