"""Errors of a partition, as the messages in which librdkafka would deliver them."""

from __future__ import annotations

from confluent_kafka import OFFSET_INVALID, KafkaError, Message

from kafka_coop.types import TopicPartition


def error_message(
    of: TopicPartition, code: int, reason: str, *, offset: int = OFFSET_INVALID, fatal: bool = False
) -> Message:
    """Builds a message whose `error()` is set, for a failure found outside librdkafka.

    For instance ``_AUTO_OFFSET_RESET`` where the group has committed nothing and
    ``auto.offset.reset`` is ``error``.

    Args:
        of: The partition that failed.
        code: Kafka's error code where positive, librdkafka's own where negative.
        reason: What failed; also the message's value, where librdkafka puts it.
        offset: Where the partition stands.
        fatal: Whether nothing can be had of this consumer any more.
    """
    return Message(
        topic=of.topic,
        partition=of.partition,
        offset=offset,
        value=reason.encode(),
        error=KafkaError(code, reason, fatal=fatal),
    )
