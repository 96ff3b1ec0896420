"""Queries share a group by any strategy: a second comes, and goes again."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from datetime import timedelta

import pytest
from confluent_kafka import Producer
from spark_rereads import Record
from spark_stand_in import Checkpoint, Query

from kafka_coop.assignors import known_names
from kafka_coop.testing.cluster import KafkaCluster, wait_until

PATIENCE = timedelta(seconds=120)
PARTITIONS = 4
FAIREST = "fairest-sticky"


def test_there_are_eight() -> None:
    assert len(known_names()) == 8


@pytest.mark.verdict
@pytest.mark.parametrize("strategy", known_names())
def test_all_records_are_read_once_while_a_second_query_comes_and_goes(
    kafka: KafkaCluster, strategy: str
) -> None:
    """Eager ones give everything up in between, at a safe moment.

    With the fairest nobody gives up anything: there the first goes, and the second has it all.
    """
    topic = f"strategy-{strategy}-{time.time_ns()}"
    kafka.create_topic(topic, partitions=PARTITIONS)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.group.id": f"group-{topic}",
        "kafka.partition.assignment.strategy": strategy,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    first, second = Checkpoint(1), Checkpoint(2)
    produced: set[Record] = set()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def produce() -> None:
        for partition in range(PARTITIONS):
            producer.produce(topic, b"v", partition=partition, on_delivery=delivered)
        assert producer.flush(30) == 0

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        produced.add((message.topic(), message.partition(), message.offset()))  # type: ignore[attr-defined]  # a Message

    def both_read() -> bool:
        """Each after the second has come."""
        produce()
        return bool(second.written()) and len(first.written()) > before

    with contextlib.ExitStack() as running:

        def start(checkpoint: Checkpoint) -> Query:
            query = Query(options, checkpoint)
            running.callback(query.stop)
            return query

        queries = [start(first)]
        produce()
        wait_until(lambda: first.written() == produced, "not all is read", PATIENCE)
        before = len(first.written())
        queries.append(start(second))
        if strategy == FAIREST:
            leaving = queries[0]
        else:
            wait_until(both_read, "one of the two gets nothing", PATIENCE)
            leaving = queries[1]
        assert leaving.drain(), leaving.failure
        produce()
        wait_until(
            lambda: first.written() | second.written() >= produced, "records are missing", PATIENCE
        )
    assert [query.failure for query in queries] == [None, None]
    assert second.written(), "the second has read nothing"
    sinks = [batch for one in (first, second) for batch in one.sink.values()]
    assert Counter(record for batch in sinks for record in batch.records) == Counter(produced)
