"""Our values to confluent-kafka's, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
)

from kafka_coop.membership.failures import LOCAL_FATAL, LOCAL_INVALID_ARG
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, OffsetAndMetadata
from kafka_coop.types import Partitions, TopicPartition

_TAIL = -2000
"""``OFFSET_TAIL(n)`` is n less, and the logical offsets are greater (librdkafka's)."""

_STALE_MEMBER_EPOCH = 113
"""What a generation is to the classic protocol, an epoch is to KIP-848's."""


def native_consumer(config: Mapping[str, Any], **options: Any) -> confluent_kafka.Consumer:
    """A consumer of librdkafka's.

    Where oauth_cb fails while one is made, confluent-kafka calls error_cb, too, with its own
    exception set: the interpreter takes that for a fault of error_cb's.

    Raises:
        KafkaException: librdkafka refuses the configuration, or has no token.
    """
    try:
        return confluent_kafka.Consumer(dict(config), **options)
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def local_error(code: int, text: str) -> KafkaException:
    """An error of ours, as librdkafka would raise it."""
    return KafkaException(KafkaError(code, text))


def error_code(error: Any) -> ErrorCode:
    """Kafka's code of a KafkaError; None: no error.

    Local errors are told as time-outs, but for the one of a member that is out for good.
    """
    if error is None:
        return ErrorCode.none
    code = error.code()
    if code == _STALE_MEMBER_EPOCH:
        return ErrorCode.illegal_generation
    if code == LOCAL_FATAL:
        return ErrorCode.unknown_member_id
    if code < 0:
        return ErrorCode.request_timed_out
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error


def require_start(of: TopicPartition, offset: int) -> None:
    """Raises KafkaException ``_INVALID_ARG`` unless fetching can begin there."""
    if offset < 0 and offset not in (OFFSET_BEGINNING, OFFSET_END) and offset > _TAIL:
        none = " (OFFSET_INVALID: nothing is committed, or known)"
        raise local_error(
            LOCAL_INVALID_ARG,
            f"{of.topic}[{of.partition}]: {offset} is no offset to start from"
            f"{none if offset == OFFSET_INVALID else ''}: give an absolute one,"
            " OFFSET_BEGINNING or OFFSET_END",
        )


def partition_of(message: Message) -> TopicPartition:
    """The partition a message came from; of a client-level error, one that nobody owns."""
    topic, partition = message.topic(), message.partition()
    return TopicPartition(topic or "", -1 if partition is None else partition)


def epoch_of(message: Message) -> int:
    """The record's leader epoch (KIP-320), -1 where the broker sent none."""
    epoch = message.leader_epoch()
    return -1 if epoch is None else epoch


def position_at(message: Message) -> int:
    """The offset of a message that is no error."""
    offset = message.offset()
    assert offset is not None, "a record has an offset"
    return offset


def position_after(message: Message) -> OffsetAndMetadata:
    """The position of a reader that has this record behind it."""
    return OffsetAndMetadata(offset=position_at(message) + 1, leader_epoch=epoch_of(message))


def told_offset(listed: Any) -> int:
    """The offset in the AdminClient's answer for a partition; -1: no record is so late as asked.

    Raises:
        KafkaException: It is no answer. Where a leader's connection breaks, or it takes too long,
            librdkafka hands back the question: without an error, its offset never filled in.
    """
    offset: int = listed.offset
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))  # noqa: SLF001  # confluent's public constant
    return offset


def native_partitions(
    partitions: Iterable[TopicPartition],
) -> list[confluent_kafka.TopicPartition]:
    """The partitions without offsets."""
    return [confluent_kafka.TopicPartition(p.topic, p.partition) for p in partitions]


def plain_partitions(natives: Iterable[confluent_kafka.TopicPartition]) -> Partitions:
    """The partitions, whatever offsets come with them."""
    return Partitions.of(TopicPartition(p.topic, p.partition) for p in natives)


def native_starts(
    starts: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[confluent_kafka.TopicPartition]:
    """The partitions with where to start, and the leader epoch of the record before it."""
    return [
        confluent_kafka.TopicPartition(
            of.topic,
            of.partition,
            start.offset,
            leader_epoch=start.leader_epoch,
        )
        for of, start in starts.items()
    ]


def native_commits(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[confluent_kafka.TopicPartition]:
    """The partitions with what is to be committed of them."""
    return [
        confluent_kafka.TopicPartition(
            of.topic,
            of.partition,
            at.offset,
            leader_epoch=at.leader_epoch,
            **({"metadata": at.metadata} if at.metadata else {}),
        )
        for of, at in offsets.items()
    ]


def known_positions(
    positions: Iterable[confluent_kafka.TopicPartition],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Translates librdkafka's positions, leaving out partitions it has none for yet."""
    return {
        TopicPartition(p.topic, p.partition): OffsetAndMetadata(
            offset=p.offset,
            leader_epoch=_epoch(p),
        )
        for p in positions
        if p.offset >= 0
    }


def fetched_offsets(
    answered: Iterable[confluent_kafka.TopicPartition],
) -> dict[TopicPartition, FetchedOffset]:
    """Translates a coordinator's answer, errors included."""
    return {
        TopicPartition(p.topic, p.partition): FetchedOffset(
            offset=max(p.offset, -1),
            leader_epoch=_epoch(p),
            metadata=p.metadata or "",
            error=error_code(p.error),
        )
        for p in answered
    }


def _epoch(of: confluent_kafka.TopicPartition) -> int:
    epoch = cast(int | None, of.leader_epoch)
    return -1 if epoch is None else epoch
