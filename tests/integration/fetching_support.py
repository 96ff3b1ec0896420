"""A topic with known records, and a reader that checks what comes out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Message, Producer

from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.fetching.native import partition_of
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import Partitions, TopicPartition

PATIENCE = 60.0
"""Seconds after which a test gives up waiting for what must come."""

SLICE = 0.1

_NAMES = (f"topic-{n}" for n in itertools.count())


class Topic:
    """A topic of its own, with `records` records in each partition."""

    def __init__(self, kafka: EmbeddedKafka, partitions: int = 1, records: int = 0) -> None:
        self.kafka = kafka
        self.name = next(_NAMES)
        self.count = partitions
        kafka.create_topic(self.name, partitions=partitions)
        if records:
            self.produce(records)

    def __getitem__(self, partition: int) -> TopicPartition:
        return TopicPartition(self.name, partition)

    @property
    def all(self) -> Partitions:
        return Partitions({self.name: range(self.count)})

    def only(self, *partitions: int) -> Partitions:
        return Partitions({self.name: partitions})

    def at(self, offset: int, *partitions: int) -> dict[TopicPartition, OffsetAndMetadata]:
        return {self[p]: OffsetAndMetadata(offset=offset) for p in partitions or range(self.count)}

    def produce(self, records: int, *partitions: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 5})
        for _ in range(records):
            for partition in partitions or range(self.count):
                producer.produce(self.name, b"value", partition=partition)
        assert producer.flush(PATIENCE) == 0


@contextmanager
def fetcher_of(
    kafka: EmbeddedKafka, *, prefetch: int = 500, logger: Any | None = None, **config: Any
) -> Iterator[Fetcher]:
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "fetching",
        "fetch.wait.max.ms": 50,
        "log_level": 0 if logger is None else 7,
        **{key.replace("_", "."): value for key, value in config.items() if not callable(value)},
        **{key: value for key, value in config.items() if callable(value)},
    }
    fetcher = Fetcher(settings, prefetch=prefetch, logger=logger)
    try:
        yield fetcher
    finally:
        fetcher.close()


def until(ready: Callable[[], bool], step: Callable[[], object]) -> None:
    """Takes steps until it is ready, and fails when patience ends."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < deadline, "what was waited for did not come"
        step()


def read(fetcher: Fetcher, count: int) -> list[Message]:
    """The next `count` messages, through `next`."""
    messages: list[Message] = []

    def step() -> None:
        if (message := fetcher.next(SLICE)) is not None:
            messages.append(message)

    until(lambda: len(messages) >= count, step)
    return messages


def take(fetcher: Fetcher, count: int) -> list[Message]:
    """The next `count` messages, through `take`."""
    messages: list[Message] = []
    until(
        lambda: len(messages) >= count,
        lambda: messages.extend(fetcher.take(count - len(messages), SLICE)),
    )
    return messages


def offsets(messages: list[Message]) -> dict[TopicPartition, list[int]]:
    """The offsets in the order of delivery, by partition."""
    found: dict[TopicPartition, list[int]] = {}
    for message in messages:
        assert message.error() is None, message.error()
        offset = message.offset()
        assert offset is not None
        found.setdefault(partition_of(message), []).append(offset)
    return found


def record(
    partition: int, offset: int, *, topic: str = "t", epoch: int = -1, value: bytes = b""
) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, value=value, leader_epoch=epoch)


def in_turn(messages: list[Message], starts: dict[TopicPartition, int]) -> None:
    """No record was lost, and none repeated."""
    for of, found in offsets(messages).items():
        assert found == list(range(starts[of], starts[of] + len(found))), of
