"""A topic full of records, as fast as librdkafka takes them."""

from __future__ import annotations

import json

from confluent_kafka import Producer

_BATCH = 10_000
_VALUE = b"v" * 100


def fill(servers: str, topic: str, records: int, partitions: int) -> None:
    """Records of 112 bytes: a key of 12 and a value of 100; one partition's differ by at most one.

    Raises:
        RuntimeError: Not all were taken.
    """
    failed: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    for partition in range(partitions):
        count = share(records, partition, partitions)
        for first in range(0, count, _BATCH):
            numbers = range(first, min(first + _BATCH, count))
            batch = [
                {"key": b"%012d" % (n * partitions + partition), "value": _VALUE} for n in numbers
            ]
            _produce(producer, topic, partition, batch)
    left = producer.flush()
    if left or failed:
        raise RuntimeError(f"{left} records are left, {len(failed)} failed: {failed[:1]}")


def _produce(producer: Producer, topic: str, partition: int, batch: list[dict[str, bytes]]) -> None:
    """All of them; the queue may have to be waited for."""
    while batch:
        while len(producer) > 400_000:
            producer.poll(0.05)
        taken = producer.produce_batch(topic, batch, partition)
        producer.poll(0)
        batch = batch[taken:]


def share(records: int, partition: int, partitions: int) -> int:
    """How many of the records a partition has."""
    return (records + partitions - 1 - partition) // partitions


def last(records: int, of: int, topic: str, partitions: int) -> str:
    """``startingOffsets`` of the last ``records`` of a topic that was filled with ``of``."""
    starts = {
        str(n): share(of, n, partitions) - share(records, n, partitions) for n in range(partitions)
    }
    return json.dumps({topic: starts})
