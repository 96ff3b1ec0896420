"""A machine without room for another thread, for a moment, is no reason to wait for ever."""

from __future__ import annotations

import threading

import pytest
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.assignors import CooperativeSticky
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import wait_until


class Own(CooperativeSticky):
    """A user's strategy: it is run in a thread."""


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
    embedded.create_topic("t", partitions=2)
    consumer = CoopConsumer(
        {
            "bootstrap.servers": embedded.bootstrap_servers,
            "group.id": "g",
            "session.timeout.ms": 6000,
        },
        assignors=[Own()],
        registry=CollectorRegistry(),
    )
    consumer.subscribe(["t"])

    def assigned() -> bool:
        consumer.poll(0.05)
        return len(consumer.assignment()) == 2

    try:
        wait_until(assigned, "it waits for an answer that nobody is to give")
    finally:
        consumer.close()
    assert refused
