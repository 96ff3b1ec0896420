"""``load-aware-sticky`` by its name: the consumer itself measures what partitions cost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.assignors import LoadAwareSticky
from kafka_coop.loads import LoadMeter
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import Assignor, Partitions, TopicPartition

PATIENCE = 100.0
PARTITIONS = 6


def member(kafka: EmbeddedKafka, assignors: Sequence[Assignor] | None = None) -> CoopConsumer:
    consumer = CoopConsumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "session.timeout.ms": 4000,  # what the embedded broker waits for joins
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "load-aware-sticky",
        },
        assignors=assignors,
        registry=CollectorRegistry(),
    )
    consumer.subscribe(["t"])
    return consumer


def owned(consumer: CoopConsumer) -> set[int]:
    return {p.partition for p in consumer.assignment()}


def poll_until(reached: Callable[[], bool], *members: CoopConsumer) -> None:
    limit = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < limit, [owned(m) for m in members]
        for one in members:
            one.consume(500, 0.05)


def test_who_has_the_heavy_partition_gets_no_other(embedded: EmbeddedKafka) -> None:
    embedded.create_topic("t", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": embedded.bootstrap_servers})
    with contextlib.closing(member(embedded)) as one, contextlib.closing(member(embedded)) as two:
        poll_until(lambda: len(owned(one)) == len(owned(two)) == PARTITIONS // 2, one, two)
        heavy = min(owned(one))

        def balanced_by_load() -> bool:
            for partition in range(PARTITIONS):
                for _ in range(500 if partition == heavy else 5):
                    producer.produce("t", b"x", partition=partition)
            producer.flush()
            if one.health().stable:
                one.enforce_rebalance("loads were measured")
            return owned(one) == {heavy} and len(owned(two)) == PARTITIONS - 1

        poll_until(balanced_by_load, one, two)


def test_a_strategy_with_a_meter_of_its_own_keeps_it(embedded: EmbeddedKafka) -> None:
    meter = LoadMeter("bytes")
    strategy = LoadAwareSticky(meter)
    with contextlib.closing(member(embedded, [strategy])) as consumer:
        assert strategy._load is meter
        assert consumer._measuring.due == float("inf"), "nor does the consumer measure in vain"


def test_a_measure_that_fails_is_told_of_in_the_consumers_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load(_: Partitions) -> dict[TopicPartition, float]:
        raise TimeoutError("the store is 100% away")

    strategy = LoadAwareSticky(load)
    config = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0}
    with CoopConsumer(config, assignors=[strategy], registry=CollectorRegistry()):
        strategy.subscription_user_data(("t",))
    assert "TimeoutError: the store is 100% away" in caplog.text
