"""Where librdkafka's member begins: looked up before the partitions are fetched.

librdkafka finds its starts by itself when it is not told any, and keeps them to itself until a
partition's first record. Then nobody could commit a position before that record, and a partition
that moved on would start at its log's end again; nor could what a Ctrl-C swallows be found again.
What is learned here is an absolute offset. What can't be learned in time is left to librdkafka.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from kafka_coop.config import OffsetReset
from kafka_coop.fetching.native import known_positions, native_partitions, plain_partitions
from kafka_coop.protocol.messages import OFFSET_EARLIEST, OFFSET_LATEST, OffsetAndMetadata
from kafka_coop.types import Partitions, TopicPartition

_RESETS: Mapping[OffsetReset, int] = {
    OffsetReset.EARLIEST: OFFSET_EARLIEST,
    OffsetReset.LATEST: OFFSET_LATEST,
}

UNHEARD: frozenset[int] = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001  # the names of confluent's public constants
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
    }
)
"""librdkafka's words for a broker that has said nothing."""

_SOON = 0.02
"""Seconds until it is asked again."""


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

    Two round trips where all goes well, as librdkafka's own search. May be called inside its
    callbacks.

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
    sound = _committed(consumer, partitions, deadline)
    committed = known_positions(sound)
    without = plain_partitions(sound) - Partitions.of(committed)
    if not without or reset not in _RESETS:
        return GroupStarts(committed)
    return GroupStarts(committed, _listed(consumer, without, _RESETS[reset], deadline))


def _committed(
    consumer: confluent_kafka.Consumer, partitions: Partitions, deadline: float
) -> list[confluent_kafka.TopicPartition]:
    """What the coordinator says of them, less what it refuses to.

    One on which a transaction has still to decide keeps it from any answer. So where there is none
    in half the time, each is asked for alone; and what is left of them again, should a broker that
    stood still have come back meanwhile.
    """

    def asked(some: Partitions, until: float) -> list[confluent_kafka.TopicPartition] | None:
        return _asked(partial(consumer.committed, native_partitions(some)), until) if some else []

    together = asked(partitions, _half_way_to(deadline))
    if together is not None:
        return together
    told = []
    until = _half_way_to(deadline)
    for at, of in enumerate(partitions):
        now = time.monotonic()
        share = (until - now) / (len(partitions) - at)
        told += asked(Partitions.of([of]), now + share) or []
    rest = partitions - plain_partitions(told)
    return told + (asked(rest, _half_way_to(deadline)) or [])


def _half_way_to(deadline: float) -> float:
    return (time.monotonic() + deadline) / 2


def _listed(
    consumer: confluent_kafka.Consumer, partitions: Partitions, at: int, deadline: float
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The log's beginnings or ends; what fails keeps the number that was asked for."""

    def asking(left: float) -> list[confluent_kafka.TopicPartition]:
        asked = [confluent_kafka.TopicPartition(of.topic, of.partition, at) for of in partitions]
        return consumer.offsets_for_times(asked, left)

    return known_positions(_asked(asking, deadline) or ())


def _asked(
    question: Callable[[float], list[confluent_kafka.TopicPartition]], deadline: float
) -> list[confluent_kafka.TopicPartition] | None:
    """The answer, less what is an error; None: there was none in time.

    librdkafka gives up before, where it drops a connection on which something else took too long.
    """
    while (left := deadline - time.monotonic()) > 0:
        try:
            return [at for at in question(left) if at.error is None]
        except KafkaException as failure:
            if failure.args[0].code() not in UNHEARD:
                return []
        time.sleep(min(_SOON, max(0.0, deadline - time.monotonic())))
    return None
