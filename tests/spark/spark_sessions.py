"""A query's source without Spark: a topic, and the sessions that read it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import Producer

from kafka_coop import CoopConsumer
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.options import stream_options
from kafka_coop.spark.reading import read_task
from kafka_coop.spark.session import Session
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import KafkaCluster

_NUMBERS = itertools.count()
Offset = Mapping[str, Any]
NOTHING: Offset = {}


class Box:
    """A topic with two partitions and the sessions that read it."""

    def __init__(
        self, kafka: EmbeddedKafka | KafkaCluster, *, config: Mapping[str, str] | None = None
    ) -> None:
        self.kafka = kafka
        self.topic = f"session-{time.time_ns()}-{next(_NUMBERS)}"
        self.sessions: list[Session] = []
        if config is None:
            kafka.create_topic(self.topic, partitions=2)
        else:
            assert isinstance(kafka, KafkaCluster), "the embedded one takes none"
            kafka.create_topic(self.topic, partitions=2, config=config)

    def produce(self, records: int, *partitions: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        for _ in range(records):
            for partition in partitions or (0, 1):
                producer.produce(self.topic, b"v", partition=partition)
        assert producer.flush(30) == 0

    def produce_to(self, topic: str, records: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        for _ in range(records):
            producer.produce(topic, b"v")
        assert producer.flush(30) == 0

    @property
    def embedded(self) -> EmbeddedKafka:
        """For what only that one can."""
        assert isinstance(self.kafka, EmbeddedKafka)
        return self.kafka

    def delete_before(self, offset: int) -> None:
        """As retention does. A real broker's alone."""
        assert isinstance(self.kafka, KafkaCluster)
        before = [confluent_kafka.TopicPartition(self.topic, p, offset) for p in (0, 1)]
        admin = self.kafka.admin()  # kept: without it nothing is answered
        for deleted in admin.delete_records(before).values():
            deleted.result(60)

    def members(self) -> dict[str | None, list[int]]:
        """Partitions by ``group.instance.id``, as Kafka's tools see them."""
        assert isinstance(self.kafka, KafkaCluster)
        group = f"group-{self.topic}"
        admin = self.kafka.admin()  # the same
        described = admin.describe_consumer_groups([group])[group].result(60)
        return {
            one.group_instance_id: sorted(of.partition for of in one.assignment.topic_partitions)
            for one in described.members
        }

    def read(self, session: Session, start: Offset, end: Offset) -> list[tuple[int, int]]:
        """As tasks do: partitions and offsets."""
        found: list[tuple[int, int]] = []
        for task in session.tasks(start, end):
            for records in read_task(session._options, task):
                columns = records.to_pydict()
                found += zip(columns["partition"], columns["offset"], strict=True)
        return sorted(found)

    @property
    def given(self) -> dict[str, str]:
        """A session's options."""
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "kafka.group.id": f"group-{self.topic}",
            "kafka.session.timeout.ms": "6000",
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "assignmentTimeout": "30s",
        }

    def session(self, **options: str | None) -> Session:
        given = self.given | options
        changed = {key: value for key, value in given.items() if value is not None}
        self.sessions.append(Session(stream_options(changed)))
        return self.sessions[-1]

    def close(self) -> None:
        for session in self.sessions:
            session.close()


def ranges(offset: Offset) -> dict[int, Range]:
    """What a batch that ends there reads, by partition."""
    spans = {int(key.rpartition(":")[2]): Range(*span) for key, span in offset["tps"].items()}
    return {partition: span for partition, span in spans.items() if span.size}


def tasks(session: Session, start: Offset, end: Offset) -> dict[int, Range]:
    return {of.partition: span for task in session.tasks(start, end) for of, span in task.parts()}


def plain_settings(box: Box) -> dict[str, Any]:
    """A `CoopConsumer`'s, of the sessions' group."""
    return {
        "bootstrap.servers": box.kafka.bootstrap_servers,
        "group.id": f"group-{box.topic}",
        "session.timeout.ms": 6000,
        "auto.offset.reset": "earliest",
    }


def of_the_group(box: Box) -> list[int | None]:
    """What is committed for the two partitions."""
    asked = [confluent_kafka.TopicPartition(box.topic, p) for p in (0, 1)]
    with CoopConsumer(plain_settings(box)) as reader:
        found = [of.offset for of in reader.committed(asked, 30)]
    return [None if offset < 0 else offset for offset in found]


def five_committed(box: Box) -> Offset:
    """The end of a first query's one batch, five records, which it has committed."""
    first = box.session()
    box.produce(5)
    end = batch(first, {})
    first.latest(end, limited=True)
    first.close()
    return end


def batch(session: Session, start: Offset = NOTHING) -> Offset:
    """The next batch that has something to read."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        end = session.latest(start, limited=True)
        if end != start and ranges(end):
            return end
        start = end
    raise AssertionError("nothing came")


def end_of_who_died(box: Box) -> Offset:
    """Of a query's first batch, five records a partition, of whose end the group was not told."""
    dying = box.session()
    box.produce(5)
    end = batch(dying, {})
    dying.close()
    return end
