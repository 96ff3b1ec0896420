"""A cluster for the examples: $KAFKA if that is set, else one inside this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from kafka_coop.testing import EmbeddedKafka

Config = dict[str, Any]


@contextmanager
def playground(**topics: int) -> Iterator[Config]:
    """Yields the beginning of a client's configuration; the topics have so many partitions.

    Raises:
        SystemExit: A topic of yours has another number of them.
    """
    servers = os.environ.get("KAFKA")
    if servers:
        admin = AdminClient({"bootstrap.servers": servers})
        there = admin.list_topics(timeout=30).topics
        for topic in topics.keys() & there.keys():
            if (count := len(there[topic].partitions)) != topics[topic]:
                sys.exit(
                    f"{servers} has a topic {topic!r} of {count} partitions, and this example"
                    f" needs one of {topics[topic]}: delete it, or name another broker"
                )
        wanted = [NewTopic(t, n) for t, n in topics.items() if t not in there]
        for made in (admin.create_topics(wanted) if wanted else {}).values():
            made.result()
        yield {"bootstrap.servers": servers}
        return
    with EmbeddedKafka() as kafka:
        for topic, partitions in topics.items():
            kafka.create_topic(topic, partitions=partitions)
        # This broker collects a group's members for a second less than their session.
        yield {"bootstrap.servers": kafka.bootstrap_servers, "session.timeout.ms": 6000}


def fill(
    config: Config, topic: str, partitions: Iterable[int], records: int, size: int = 10
) -> None:
    """Produces so many records of that size to each of these partitions."""
    producer = Producer({"bootstrap.servers": config["bootstrap.servers"]})
    for partition in partitions:
        for number in range(records):
            producer.produce(topic, value=f"{number}".ljust(size), partition=partition)
        producer.poll(0)
    producer.flush()
