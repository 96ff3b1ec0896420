"""Has a broker lead a group again and again, until it does so at the speed that it will keep.

A JVM compiles what has run some hundred times, and for good what has run some thousand. One that
has seen two or three groups takes twice as long over a round as one that is up for an hour, and its
compilers want the cores meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import TopicPartition

from kafka_coop.consumer import CoopConsumer
from kafka_coop.testing.cluster import KafkaCluster

_LIVES: Final = 150
_ROUNDS: Final = 8
"""Of each life: it joins, is in some more rounds, commits in each, and leaves."""
_PATIENCE: Final = 60.0
_TOPIC: Final = "warm-up"


def warm_up(kafka: KafkaCluster) -> None:
    """Takes half a minute.

    Raises:
        TimeoutError: A round took a whole one.
    """
    kafka.create_topic(_TOPIC, partitions=48)
    consumer = CoopConsumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": _TOPIC})
    with consumer:
        for _ in range(_LIVES):
            consumer.subscribe([_TOPIC])
            _poll_until(consumer, lambda: bool(consumer.assignment()))
            for _ in range(_ROUNDS):
                _go_through_a_round(consumer)
            consumer.unsubscribe()
            _poll_until(consumer, lambda: not consumer.assignment())


def _go_through_a_round(consumer: CoopConsumer) -> None:
    before = consumer.health().generation
    consumer.enforce_rebalance("warm-up")
    _poll_until(
        consumer, lambda: consumer.health().generation > before and consumer.health().stable
    )
    consumer.commit(offsets=[TopicPartition(_TOPIC, 0, 0)], asynchronous=False)


def _poll_until(consumer: CoopConsumer, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no round within {_PATIENCE:.0f} s: {consumer.health()}")
        consumer.poll(0.01)
