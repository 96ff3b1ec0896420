"""What confluent-kafka answers of a partition, made up.

Its own has an error that nobody can set.
"""

from __future__ import annotations

from types import SimpleNamespace

import confluent_kafka
from confluent_kafka import KafkaError


def answered(
    of: confluent_kafka.TopicPartition,
    offset: int,
    *,
    error: int | None = None,
    epoch: int | None = None,
) -> SimpleNamespace:
    """In the form of a ``TopicPartition``; the error is a code."""
    return SimpleNamespace(
        topic=of.topic,
        partition=of.partition,
        metadata=None,
        offset=offset,
        leader_epoch=epoch,
        error=None if error is None else KafkaError(error),
    )
