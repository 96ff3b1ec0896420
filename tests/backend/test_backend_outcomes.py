"""Whatever becomes of a request, the machine is told: else a member would wait for ever."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.assignors import CooperativeSticky
from kafka_coop.backend import classic
from kafka_coop.broker.pool import Brokers
from kafka_coop.membership.core import Effects
from kafka_coop.membership.events import Event, JoinAnswered
from kafka_coop.membership.member import Member
from kafka_coop.protocol.messages import Node, Request, Response
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import wait_until

PATIENCE = 60.0


class Own(CooperativeSticky):
    """A user's strategy: it is run in a thread."""


def subscribed(kafka: EmbeddedKafka) -> CoopConsumer:
    kafka.create_topic("t", partitions=2)
    consumer = CoopConsumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "session.timeout.ms": 6000,
        },
        assignors=[Own()],
        registry=CollectorRegistry(),
    )
    consumer.subscribe(["t"])
    return consumer


def joins(kafka: EmbeddedKafka) -> None:
    """A member that joins, and leaves."""
    consumer = subscribed(kafka)

    def assigned() -> bool:
        consumer.poll(0.05)
        return len(consumer.assignment()) == 2

    try:
        wait_until(assigned, "it waits for an answer that nobody is to give")
    finally:
        consumer.close()


@pytest.mark.parametrize("name", ["kafka_coop-resolve", "kafka_coop-assign"])
def test_a_member_that_got_no_thread_once_joins_all_the_same(
    name: str, embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    refused: list[str] = []

    def full(thread: threading.Thread) -> None:
        if thread.name == name and not refused:
            refused.append(name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", full)
    joins(embedded)
    assert refused


def poll_on(consumer: CoopConsumer) -> None:
    for _ in range(int(PATIENCE / 0.05)):
        consumer.poll(0.05)


def test_what_nobody_foresaw_fails_a_request_and_not_the_member(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    request = Brokers.request_node
    failed: list[str] = []

    async def broken(brokers: Brokers, node: Node, what: Request, **options: Any) -> Response:
        kind = type(what).__name__
        if kind not in failed:
            failed.append(kind)
            raise ZeroDivisionError
        return await request(brokers, node, what, **options)

    monkeypatch.setattr(Brokers, "request_node", broken)
    joins(embedded)
    assert {"JoinGroup", "SyncGroup"} <= set(failed)
    assert caplog.text.count("a bug in the membership of g") == len(failed)


def test_a_machine_that_raises_is_heard_of_in_poll(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Member.handle

    def broken(member: Member, event: Event, now: float) -> Effects:
        if isinstance(event, JoinAnswered):
            raise ZeroDivisionError
        return handle(member, event, now)

    monkeypatch.setattr(Member, "handle", broken)
    consumer = subscribed(embedded)

    try:
        with pytest.raises(KafkaException, match=r"a bug in the membership.*ZeroDivisionError"):
            poll_on(consumer)
    finally:
        monkeypatch.setattr(Member, "handle", handle)
        consumer.close()


def test_a_leader_that_raises_is_heard_of_in_poll(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole group waits for its SyncGroup: who runs it has to hear of it, and can close it."""

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(classic, "lead", broken)
    with (
        contextlib.closing(subscribed(embedded)) as consumer,
        pytest.raises(KafkaException, match=r"a bug in the membership.*ZeroDivisionError"),
    ):
        poll_on(consumer)
