"""Between confluent's `TopicPartition` and the plain values of the pure layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Partitions, TopicPartition


class PartitionResult:
    """A partition with the error of an operation on it.

    Reads like `confluent_kafka.TopicPartition`, whose ``error`` only librdkafka can set.
    Every method of `CoopConsumer` that takes partitions takes these too.
    """

    __slots__ = ("error", "leader_epoch", "metadata", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int = OFFSET_INVALID,
        *,
        metadata: str | None = None,
        leader_epoch: int | None = None,
        error: KafkaError | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error = error

    def __repr__(self) -> str:
        return (
            f"PartitionResult({self.topic!r}, {self.partition}, offset={self.offset}, "
            f"error={self.error!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionResult | ConfluentTopicPartition):
            return NotImplemented
        return (self.topic, self.partition) == (other.topic, other.partition)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))


def plain(given: Iterable[Any], *, argument: str = "partitions") -> list[TopicPartition]:
    """Reads partitions that a user gave.

    Raises:
        TypeError: Something that is no TopicPartition.
        ValueError: A partition without an index.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{argument} expects a list of TopicPartition, got {given!r}")
    return [_plain_one(one, argument) for one in given]


def _plain_one(given: Any, argument: str) -> TopicPartition:
    topic, index = getattr(given, "topic", None), getattr(given, "partition", None)
    if not isinstance(topic, str) or not isinstance(index, int):
        raise TypeError(f"{argument} expects a list of TopicPartition, got {given!r} in it")
    if index < 0:
        raise ValueError(f"{argument}: {topic!r} has no partition index (got {index})")
    return TopicPartition(topic, index)


def confluent(partitions: Partitions) -> list[ConfluentTopicPartition]:
    """A fresh list for the user, who may write offsets into it."""
    return [ConfluentTopicPartition(p.topic, p.partition) for p in partitions]


def offsets_of(
    given: Iterable[Any], *, argument: str = "offsets"
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Reads partitions with their offsets, as a commit takes them."""
    listed = list(given)
    return {
        partition: OffsetAndMetadata(
            offset=one.offset,
            leader_epoch=-1 if one.leader_epoch is None else one.leader_epoch,
            metadata=one.metadata or "",
        )
        for partition, one in zip(plain(listed, argument=argument), listed, strict=True)
    }


def with_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[ConfluentTopicPartition]:
    """Partitions with offsets, for the user."""
    return [with_offset(p, o) for p, o in offsets.items()]


def with_offset(of: TopicPartition, at: OffsetAndMetadata) -> ConfluentTopicPartition:
    """One partition with its offset, for the user."""
    metadata = {"metadata": at.metadata} if at.metadata else {}  # confluent's takes no None
    return ConfluentTopicPartition(
        of.topic,
        of.partition,
        at.offset,
        leader_epoch=at.leader_epoch,  # -1 reads as None
        **metadata,
    )
