"""All that is in a log, read by librdkafka: the same whoever has written it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

PATIENCE = 60.0


def read_log(
    config: Mapping[str, str], topic: str, partitions: Iterable[int] | None = None
) -> Iterator[Message]:
    """To the partitions' ends; None: of all partitions."""
    settings = {"group.id": "reader", "enable.auto.commit": "false", "enable.partition.eof": "true"}
    with Consumer({**settings, **config}) as reader:
        if partitions is None:
            partitions = reader.list_topics(topic, PATIENCE).topics[topic].partitions
        left = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
        reader.assign(left)
        ends = 0
        while ends < len(left):
            message = reader.poll(PATIENCE)
            assert message is not None, "the end of the log was not reached"
            if (error := message.error()) is None:
                yield message
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
