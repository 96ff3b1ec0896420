"""Where librdkafka's member begins: looked up before the partitions are fetched.

librdkafka finds its starts by itself when it is not told any, and keeps them to itself until a
partition's first record. Then nobody could commit a position before that record, and a partition
that moved on would start at its log's end again; nor could what a Ctrl-C swallows be found again.
What is learned here is an absolute offset. What can't be learned in time is left to librdkafka.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import confluent_kafka
from confluent_kafka import KafkaException

from kafka_coop.config import OffsetReset
from kafka_coop.fetching.native import known_positions, native_partitions
from kafka_coop.protocol.messages import OFFSET_EARLIEST, OFFSET_LATEST, OffsetAndMetadata
from kafka_coop.types import Partitions, TopicPartition

_RESETS: Mapping[OffsetReset, int] = {
    OffsetReset.EARLIEST: OFFSET_EARLIEST,
    OffsetReset.LATEST: OFFSET_LATEST,
}


@dataclass(frozen=True, slots=True)
class GroupStarts:
    """What was learned.

    Attributes:
        committed: The group's committed offsets.
        reset: There is none; where ``auto.offset.reset`` says to start instead.
    """

    committed: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    reset: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


def look_up(
    consumer: confluent_kafka.Consumer,
    partitions: Partitions,
    reset: OffsetReset,
    within: timedelta,
) -> GroupStarts:
    """Asks the coordinator, and the leaders of what it has no offset of.

    Two round trips at most, as librdkafka's own search. May be called inside its callbacks.

    Args:
        consumer: Whose group it is.
        partitions: Of these.
        reset: What ``auto.offset.reset`` says.
        within: For both questions. An offset that a transaction has still to decide on is told
            when that has ended.

    Returns:
        Without what was not told in time, or with an error.
    """
    deadline = time.monotonic() + within.total_seconds()
    try:
        told = consumer.committed(native_partitions(partitions), within.total_seconds())
    except KafkaException:
        return GroupStarts()
    sound = [at for at in told if at.error is None]
    committed = known_positions(sound)
    without = Partitions.of(TopicPartition(at.topic, at.partition) for at in sound)
    without -= Partitions.of(committed)
    left = deadline - time.monotonic()
    if not without or left <= 0 or reset not in _RESETS:
        return GroupStarts(committed)
    return GroupStarts(committed, _listed(consumer, without, _RESETS[reset], left))


def _listed(
    consumer: confluent_kafka.Consumer, partitions: Partitions, at: int, within: float
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The log's beginnings or ends; what fails keeps the number that was asked for."""
    asked = [confluent_kafka.TopicPartition(of.topic, of.partition, at) for of in partitions]
    try:
        told = consumer.offsets_for_times(asked, within)
    except KafkaException:
        return {}
    return known_positions(of for of in told if of.error is None)
