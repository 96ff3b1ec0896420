"""group.protocol=consumer where no broker knows it, and where it can't be found out."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, TopicPartition
from integration_support import Cluster, Member, members, unique, until

from kafka_coop import CoopConsumer
from kafka_coop.backend.inquiry import Inquiry
from kafka_coop.errors import (
    AuthenticationFailedError,
    ConnectionFailedError,
    VersionNotSupportedError,
)
from kafka_coop.fetching.group_fetcher import GroupFetcher
from kafka_coop.testing.embedded import EmbeddedKafka
from kafka_coop.testing.local import DEFAULT_VERSION


def test_who_would_look_on_for_ever_is_told_why(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """Brokers before 4.0 do not speak it. The embedded one does."""
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
        assert any(server in said for server in cluster.bootstrap_servers.split(","))
        for word in ("group.protocol=consumer", "KIP-848", "4.0", "group.protocol=classic"):
            assert word in said


CONFIG = {"group.id": "g", "group.protocol": "consumer", "log_level": 0}


@pytest.fixture
def _nobody_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """As among brokers of which none speaks it."""
    monkeypatch.setattr(GroupFetcher, "subscribe", lambda *_, **__: None)


@pytest.mark.usefixtures("_nobody_joins")
def test_who_polls_for_ever_is_told_too(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_coop.backend.inquiry._CONSUMER_GROUP_HEARTBEAT", 9999)
    with CoopConsumer({"bootstrap.servers": embedded.bootstrap_servers, **CONFIG}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(Exception, match="does not speak KIP-848"):
            consumer.poll(-1)


def test_who_reads_by_hand_is_no_member(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inquiry, "start", lambda _: pytest.fail("nobody wants to know"))
    embedded.create_topic("t")
    with CoopConsumer({"bootstrap.servers": embedded.bootstrap_servers, **CONFIG}) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        assert consumer.poll(0.1) is None


def test_who_is_a_member_asks_no_more(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka, with another TLS, may get in where Python does not."""
    asked = threading.Event()

    async def refused(*_: object) -> None:
        asked.set()
        raise ConnectionFailedError("no")

    def started(self: Inquiry) -> None:
        start(self)
        assert asked.wait(30), "it has not asked before it is a member"

    start = Inquiry.start
    monkeypatch.setattr("kafka_coop.backend.inquiry._asked", refused)
    monkeypatch.setattr(Inquiry, "start", started)
    embedded.create_topic("t")
    one = Member(embedded, unique("g"), "t", group_protocol="consumer")
    with members(one):
        until(lambda: bool(one.owned), one)
        until(lambda: not one.consumer._backend.mailbox.expecting, one)
    assert not one.raised


@pytest.mark.usefixtures("_nobody_joins")
@pytest.mark.parametrize(
    "error", [AuthenticationFailedError("no"), RuntimeError("can't start new thread")]
)
def test_what_can_not_be_learned_keeps_nobody_up(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("kafka_coop.backend.inquiry._asked", fails)
    with CoopConsumer({"bootstrap.servers": embedded.bootstrap_servers, **CONFIG}) as consumer:
        consumer.subscribe(["t"])
        until(lambda: not consumer._backend.mailbox.expecting)
        assert consumer.poll(0) is None


@pytest.mark.usefixtures("_nobody_joins")
def test_it_is_asked_until_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """By each of the servers in turn, and again."""
    asked: list[int] = []

    async def late(_: str, port: int, *__: object) -> VersionNotSupportedError:
        asked.append(port)
        if len(asked) < 4:
            raise ConnectionFailedError("no")
        return VersionNotSupportedError("an old one")

    monkeypatch.setattr("kafka_coop.backend.inquiry._asked", late)
    monkeypatch.setattr("kafka_coop.backend.inquiry._AGAIN", timedelta(0))
    servers = {"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2", "reconnect.backoff.max.ms": 1}
    with CoopConsumer({**servers, "reconnect.backoff.ms": 1, **CONFIG}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(Exception, match="an old one"):
            consumer.poll(-1)
    assert asked == [1, 2, 1, 2]


def test_who_closes_waits_for_no_answer() -> None:
    """The port takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        consumer = CoopConsumer({"bootstrap.servers": servers, **CONFIG})
        consumer.subscribe(["t"])
        near, _ = silent.accept()
        assert consumer.poll(0) is None
        consumer.close()
        near.close()
    assert "kafka-coop-inquiry" not in {thread.name for thread in threading.enumerate()}
