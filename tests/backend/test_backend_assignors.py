"""A leader's strategy is a user's code, and may do what it likes but harm the membership."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer, TopicPartition
from kafka_coop.assignors import CooperativeSticky
from kafka_coop.kafka_errors import AssignorException, ConfigurationException
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import (
    Assignment,
    Cluster,
    GroupMetadata,
    GroupSubscription,
    RebalanceProtocol,
)

PATIENCE = 60.0


class Stuck(CooperativeSticky):
    """Computes until it is told to be done."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.go = threading.Event()

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Any:
        self.begun.set()
        self.go.wait()
        return super().assign(cluster, group)


class UnspeakableError(Exception):
    """Whose text was never tried."""

    def __str__(self) -> str:
        raise AttributeError

    __repr__ = __str__


class Telling(CooperativeSticky):
    """Tells a subclass which of its methods is called."""

    def called(self, name: str) -> None:
        raise NotImplementedError

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Any:
        self.called("assign")
        return super().assign(cluster, group)

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        self.called("subscription_user_data")
        return super().subscription_user_data(topics)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self.called("on_assignment")
        super().on_assignment(assignment, metadata)


class Quitting(Telling):
    """One method raises, the first time."""

    def __init__(self, quits: str, how: BaseException) -> None:
        super().__init__()
        self._quits = quits
        self._how = how

    def called(self, name: str) -> None:
        if name == self._quits:
            self._quits = ""
            raise self._how


def member(kafka: EmbeddedKafka, assignor: CooperativeSticky) -> CoopConsumer:
    kafka.create_topic("t", partitions=2)
    consumer = CoopConsumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "session.timeout.ms": 4000,  # what the embedded broker waits for joins
        },
        assignors=[assignor],
        registry=CollectorRegistry(),
    )
    consumer.subscribe(["t"])
    return consumer


def poll_until(reached: Callable[[], bool], consumer: CoopConsumer) -> None:
    limit = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < limit
        consumer.poll(0.05)


class Odd(CooperativeSticky):
    def __init__(self, name: Any = "odd", protocols: Any = (RebalanceProtocol.EAGER,)) -> None:
        super().__init__()
        self.name = name
        self.supported_protocols = protocols


@pytest.mark.parametrize(
    ("assignor", "text"),
    [
        (CooperativeSticky, "CooperativeSticky is a class; an instance is needed"),
        ("range", "str lacks name, supported_protocols"),
        (Odd(name=7), "Odd.name is 7, not a text"),
        (Odd(name=""), "Odd.name is '', not a text"),
        (Odd(name="x" * 32_768), "Odd.name is 'xxx.*no request can hold"),
        (Odd(name="\ud800"), "Odd.name is .*no request can hold"),
        (Odd(protocols=()), r"Odd.supported_protocols is \(\)"),
        (Odd(protocols=("COOPERATIVE",)), "Odd.supported_protocols is .*name RebalanceProtocols"),
        (Odd(protocols=RebalanceProtocol.EAGER), "Odd.supported_protocols is "),
        (
            Odd(name="range", protocols=(RebalanceProtocol.COOPERATIVE,)),
            "Odd.name is 'range', an eager strategy's .* Give it a name of its own",
        ),
    ],
)
def test_what_could_join_no_group_is_refused_when_the_consumer_is_made(
    assignor: Any, text: str
) -> None:
    config = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g"}
    with pytest.raises(ConfigurationException, match=text) as refused:
        CoopConsumer(config, assignors=[assignor], registry=CollectorRegistry())
    assert refused.value.key == "assignors"


def test_close_does_not_wait_for_a_strategy_that_is_at_work(embedded: EmbeddedKafka) -> None:
    stuck = Stuck()
    consumer = member(embedded, stuck)
    try:
        poll_until(stuck.begun.is_set, consumer)
        consumer.close()
        # Waited for, the strategy would have kept the thread, and close() its whole patience.
        assert not any(t.name == "kafka-coop-g" for t in threading.enumerate())
    finally:
        stuck.go.set()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (SystemExit("config missing"), r"SystemExit.*config missing"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (UnspeakableError(), "UnspeakableError"),
    ],
)
@pytest.mark.parametrize("method", ["assign", "subscription_user_data", "on_assignment"])
def test_what_a_strategy_raises_comes_from_poll_and_the_group_goes_on(
    embedded: EmbeddedKafka, method: str, how: BaseException, text: str
) -> None:
    with contextlib.closing(member(embedded, Quitting(method, how))) as consumer:
        with pytest.raises(AssignorException, match=text):
            poll_until(lambda: False, consumer)
        consumer.enforce_rebalance("the strategy is mended")
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)


class Asking(Telling):
    """Wants to tell the leader how far its member has come."""

    def __init__(self, asks: str) -> None:
        super().__init__()
        self.asks = asks
        self.consumer: CoopConsumer | None = None

    def called(self, name: str) -> None:
        if name == self.asks and self.consumer is not None:
            self.asks = ""
            self.consumer.committed([TopicPartition("t", 0)])


@pytest.mark.parametrize("method", ["subscription_user_data", "on_assignment"])
def test_a_strategy_that_asks_the_coordinator_in_the_membership_s_thread_is_told(
    embedded: EmbeddedKafka, method: str
) -> None:
    """It would wait for itself, and the member be out of its group meanwhile."""
    asking = Asking(method)
    with contextlib.closing(member(embedded, asking)) as consumer:
        asking.consumer = consumer
        consumer.enforce_rebalance("now it can ask")
        with pytest.raises(AssignorException, match="can't ask the group's coordinator"):
            poll_until(lambda: False, consumer)
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)


def test_assign_may_ask_the_coordinator(embedded: EmbeddedKafka) -> None:
    asking = Asking("assign")
    with contextlib.closing(member(embedded, asking)) as consumer:
        asking.consumer = consumer
        consumer.enforce_rebalance("now it can ask")
        poll_until(lambda: not asking.asks and len(consumer.assignment()) == 2, consumer)
