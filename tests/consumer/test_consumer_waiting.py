"""How long a poll waits before it looks again for what the membership has for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Message
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.backend.mailbox import TopicErrors
from kafka_coop.client import polling
from kafka_coop.client.polling import slice_of_a_wait
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.shutdown import Shutdown


@pytest.fixture
def consumer() -> Iterator[CoopConsumer]:
    config = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0}
    with CoopConsumer(config, registry=CollectorRegistry()) as consumer:
        yield consumer


@pytest.mark.parametrize(
    ("busy", "news_every", "seconds"),
    [
        (False, 0.01, 0.005),  # two to four members: half a beat
        (False, 0.02, 0.01),
        (False, 0.05, 0.025),
        (False, 0.2, 0.05),  # idle for a while
        (False, 3.0, 0.05),
        (False, float("inf"), 0.05),  # the broker assigns, and librdkafka wakes by itself
        (False, 0.001, 0.002),  # heartbeat.interval.ms=1
        (True, 3.0, 0.002),
    ],
)
def test_a_wait_is_as_long_as_news_can_wait(busy: bool, news_every: float, seconds: float) -> None:
    assert slice_of_a_wait(busy=busy, news_every=news_every) == pytest.approx(seconds)


def test_librdkafka_hears_of_a_topic_while_a_coordinator_is_still_looked_for(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked as late as the member joins, its answer would come after the first partitions."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(Fetcher, "expect", lambda _, topics, __: asked.append((*topics,)))
    consumer.subscribe(["orders", "^pattern"])
    consumer.poll(0)
    assert not asked, "a poll that may not wait asks for nothing"
    consumer.poll(0.5)
    assert set(asked) == {("orders",)}


def test_what_comes_of_a_rebalance_ends_the_wait_of_a_poll(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the length of a slice, which would be added to the gap of what moves."""
    monkeypatch.setattr(polling, "_BUSY_SLICE", 5.0)
    mailbox = consumer._backend.mailbox
    waits = mailbox.wait
    put = threading.Thread(target=mailbox.put, args=[TopicErrors(errors={"orders": 3})])

    def wait(timeout: float) -> None:
        monkeypatch.undo()
        put.start()
        waits(timeout)

    monkeypatch.setattr(mailbox, "wait", wait)
    mailbox.expecting = True
    message = consumer.poll(20)
    assert message is not None
    assert message.topic() == "orders"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_signal_that_is_noted_ends_a_wait_once(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """SIGTERM would else wait for as long as no record comes, up to the poll's whole timeout."""
    slices = 0

    def signalled_in_the_third(*_: object) -> list[Message]:
        nonlocal slices
        slices += 1
        if slices == 3:
            signal.raise_signal(signal.SIGTERM)
        return []

    fetcher = consumer._fetcher
    monkeypatch.setattr(fetcher, "next", lambda _: next(iter(signalled_in_the_third()), None))
    monkeypatch.setattr(fetcher, "take", signalled_in_the_third)

    def wait(seconds: float) -> object:
        return consumer.poll(seconds) if call == "poll" else consumer.consume(5, seconds)

    with Shutdown((signal.SIGTERM,)) as shutdown:
        assert not wait(3600)
        assert shutdown
        assert slices == 3
        assert not wait(0.5)
        assert slices > 4, "whoever polls on, to drain, waits as before"


@pytest.mark.timeout(60)
def test_and_so_it_does_of_a_batch_that_is_not_full(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was gathered is delivered: the loop ends behind it."""
    asking = Asking(consumer, monkeypatch)
    signals = [signal.SIGTERM]

    def wait(_: float) -> None:
        if signals:
            signal.raise_signal(signals.pop())

    monkeypatch.setattr(asking.mailbox, "wait", wait)
    with Shutdown((signal.SIGTERM,)) as shutdown:
        assert consumer.consume(10, 3600) == [asking.record]
        assert shutdown
    monkeypatch.undo()


@pytest.mark.timeout(60)
def test_nor_is_a_batch_filled_where_the_draining_is_over(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that is told to end has no hour to wait for the rest."""
    asking = Asking(consumer, monkeypatch)
    monkeypatch.setattr(asking.mailbox, "wait", lambda _: consumer.drain(timedelta(0)))
    assert consumer.consume(10, 3600) == [asking.record]
    assert consumer.drained
    monkeypatch.undo()


class Asking:
    """A consumer whose rebalance never ends, and that has one record to deliver."""

    def __init__(self, consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.record = Message(topic="orders", partition=0, offset=5)
        self.mailbox = consumer._backend.mailbox
        self.mailbox.lease_until = float("inf")
        self.mailbox.expecting = True
        batches = iter([[self.record]])
        monkeypatch.setattr(consumer._fetcher, "take", lambda *_: next(batches, []))


def test_while_a_rebalance_is_under_way_consume_waits_for_more_than_it_has(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked again and again without a pause, for as long as it was given."""
    asking = Asking(consumer, monkeypatch)

    def wait(_: float) -> None:
        monkeypatch.undo()
        asking.mailbox.put(TopicErrors(errors={"orders": 3}))

    monkeypatch.setattr(asking.mailbox, "wait", wait)
    assert consumer.consume(10, timeout=0.5) == [asking.record]
    assert asking.mailbox.items, "what comes of the rebalance ends it"


def test_what_it_has_is_not_delivered_where_the_lease_ends_in_that_wait(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Asking(consumer, monkeypatch)

    def stopped(_: float) -> None:
        asking.mailbox.lease_until = float("-inf")

    monkeypatch.setattr(asking.mailbox, "wait", stopped)
    assert consumer.consume(10, timeout=0.05) == []
    monkeypatch.undo()


def test_what_the_fetcher_brings_early_and_in_part_does_not_end_the_wait(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a backlog it comes back at once: of a wait shorter than a slice all was left over."""
    monkeypatch.setattr(polling, "_CALM_SLICE", 60.0)
    consumer._backend.mailbox.lease_until = float("inf")
    parts = iter([[Message(topic="orders", partition=0, offset=n)] for n in range(3)])
    monkeypatch.setattr(consumer._fetcher, "take", lambda *_: next(parts))
    assert [message.offset() for message in consumer.consume(3, timeout=30)] == [0, 1, 2]
    monkeypatch.undo()


def test_where_the_membership_has_ended_amid_a_rebalance_polls_wait_for_records(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread has died of a bug, say: no wait for the mailbox takes any time then."""
    waits: list[float] = []
    monkeypatch.setattr(consumer._fetcher, "next", waits.append)
    mailbox = consumer._backend.mailbox
    mailbox.expecting = mailbox.left = True
    assert consumer.poll(0.05) is None
    assert min(waits) > 0
    monkeypatch.undo()
