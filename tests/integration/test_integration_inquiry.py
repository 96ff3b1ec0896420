"""group.protocol=consumer where no broker knows it, and where it can't be found out."""

from __future__ import annotations

import socket
import threading

import pytest
from confluent_kafka import KafkaError
from integration_support import Cluster, Member, members, unique, until

from kafka_coop import CoopConsumer
from kafka_coop.testing.embedded import EmbeddedKafka
from kafka_coop.testing.local import DEFAULT_VERSION


def test_who_would_look_on_for_ever_is_told_why(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """By brokers before 4.0. The embedded one knows it, too."""
    version: str = request.config.getoption("--kafka-version") or DEFAULT_VERSION
    knows = isinstance(cluster, EmbeddedKafka) or int(version.partition(".")[0]) >= 4
    topic = unique("t")
    cluster.create_topic(topic)
    one = Member(cluster, unique("g"), topic, group_protocol="consumer")
    with members(one):
        if knows:
            until(lambda: bool(one.owned) and not one.consumer._backend.mailbox.expecting, one)
            assert not one.raised
            return
        until(lambda: bool(one.raised), one)
        (error,) = one.raised
        assert error.args[0].code() == KafkaError._UNSUPPORTED_FEATURE
        said = error.args[0].str()
        assert cluster.bootstrap_servers in said
        for word in ("group.protocol=consumer", "KIP-848", "4.0", "group.protocol=classic"):
            assert word in said


def test_who_polls_for_ever_is_told_too(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a broker that takes a member in, so that nothing else ends the poll."""
    monkeypatch.setattr("kafka_coop.backend.inquiry._CONSUMER_GROUP_HEARTBEAT", 9999)
    embedded.create_topic("t")
    with CoopConsumer(
        {
            "bootstrap.servers": embedded.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
        }
    ) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(Exception, match="does not know KIP-848"):
            consumer.poll(-1)


def test_who_gets_no_answer_asks_on_until_it_closes() -> None:
    """The port takes connections, and says nothing; a second one is refused."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:1"
        consumer = CoopConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "socket.connection.setup.timeout.ms": 1000,
                "log_level": 0,
            }
        )
        consumer.subscribe(["t"])
        for _ in range(3):
            silent.accept()[0].close()
        assert consumer.poll(0) is None
        consumer.close()
    assert "kafka-coop-inquiry" not in {thread.name for thread in threading.enumerate()}
