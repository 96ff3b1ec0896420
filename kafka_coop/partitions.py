"""Between confluent's `TopicPartition` and the plain values of the pure layers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import MAX_STRING_BYTES, Partitions, TopicPartition


def _comparing(how: Callable[[Any, Any], bool]) -> Callable[[PartitionResult, object], bool]:
    def compared(self: PartitionResult, other: object) -> bool:
        if not isinstance(other, ConfluentTopicPartition):
            return NotImplemented  # type: ignore[no-any-return]  # for Python to see
        return how((self.topic, self.partition), (other.topic, other.partition))

    return compared


class PartitionResult(ConfluentTopicPartition):
    """A partition with the error of an operation on it.

    It is a `confluent_kafka.TopicPartition`, of which only librdkafka can set the ``error``; that
    compares with none but its own kind, so that this one, which Python asks first, compares both.
    Every method of `CoopConsumer` that takes partitions takes these too.
    """

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
        super().__init__(topic, partition, offset, **_given(metadata, leader_epoch))
        self._error = error

    @property
    def error(self) -> KafkaError | None:  # type: ignore[override]  # of a type made in C
        """Why the operation failed for this partition; None: it did not."""
        return self._error

    def __repr__(self) -> str:
        return (
            f"PartitionResult({self.topic!r}, {self.partition}, offset={self.offset}, "
            f"error={self.error!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        more = {name: getattr(self, name) for name in ("metadata", "leader_epoch", "error")}
        return partial(type(self), **more), (self.topic, self.partition, self.offset)

    def __hash__(self) -> int:
        return super().__hash__()

    __eq__ = _comparing(operator.eq)
    __ne__ = _comparing(operator.ne)
    __lt__ = _comparing(operator.lt)
    __le__ = _comparing(operator.le)
    __gt__ = _comparing(operator.gt)
    __ge__ = _comparing(operator.ge)


def _given(metadata: str | None, leader_epoch: int | None) -> dict[str, Any]:
    """What was given: confluent's constructor takes no None."""
    given = {"metadata": metadata or None, "leader_epoch": leader_epoch}
    return {name: value for name, value in given.items() if value is not None}


def plain(given: Collection[Any], *, argument: str = "partitions") -> list[TopicPartition]:
    """Reads partitions that a user gave.

    Raises:
        TypeError: Something that is no TopicPartition, or no list: a generator would be used up
            before their offsets are read.
        ValueError: A partition without an index.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Collection):
        raise TypeError(f"{argument} expects a list of TopicPartition, got {given!r}")
    return [_plain_one(one, argument, "a list of TopicPartition, got {!r} in it") for one in given]


def plain_one(given: Any) -> TopicPartition:
    """Reads the one partition that a method takes. Raises TypeError, ValueError as `plain`."""
    return _plain_one(given, "partition", "one TopicPartition, got {!r}")


def _plain_one(given: Any, argument: str, expected: str) -> TopicPartition:
    topic, index = getattr(given, "topic", None), getattr(given, "partition", None)
    if not isinstance(topic, str) or not isinstance(index, int):
        raise TypeError(f"{argument} expects {expected.format(given)}")
    if index < 0:
        raise ValueError(f"{argument}: {topic!r} has no partition index (got {index})")
    return TopicPartition(topic, index)


def confluent(partitions: Partitions) -> list[ConfluentTopicPartition]:
    """A fresh list for the user, who may write offsets into it."""
    return [ConfluentTopicPartition(p.topic, p.partition) for p in partitions]


def offsets_of(given: Collection[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Reads partitions with their offsets, as a commit takes them.

    Raises:
        TypeError, ValueError: As `plain`, or metadata that no request can hold: brokers cut the
            connection that brings it, which is the group's, and with it all that goes along.
    """
    return {
        partition: OffsetAndMetadata(
            offset=one.offset,
            leader_epoch=-1 if one.leader_epoch is None else one.leader_epoch,
            metadata=_sendable(partition, one.metadata or ""),
        )
        for partition, one in zip(plain(given, argument="offsets"), given, strict=True)
    }


def _sendable(of: TopicPartition, metadata: str) -> str:
    length = len(metadata.encode())
    if length > MAX_STRING_BYTES:
        raise ValueError(
            f"the metadata of {of.topic}[{of.partition}] has {length} bytes, and no request can "
            f"hold more than {MAX_STRING_BYTES}: shorten it (brokers take 4096, unless told "
            "otherwise by offset.metadata.max.bytes)"
        )
    return metadata


def with_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[ConfluentTopicPartition]:
    """Partitions with offsets, for the user."""
    return [with_offset(p, o) for p, o in offsets.items()]


def with_offset(of: TopicPartition, at: OffsetAndMetadata) -> ConfluentTopicPartition:
    """One partition with its offset, for the user."""
    return ConfluentTopicPartition(
        of.topic,
        of.partition,
        at.offset,
        **_given(at.metadata, at.leader_epoch),  # an epoch of -1 reads as None
    )
