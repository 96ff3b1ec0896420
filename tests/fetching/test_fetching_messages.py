from __future__ import annotations

from confluent_kafka import KafkaError

from kafka_coop.fetching.messages import error_message
from kafka_coop.fetching.native import partition_of
from kafka_coop.types import TopicPartition


def test_an_error_reads_as_librdkafkas_do() -> None:
    of = TopicPartition("orders", 3)
    message = error_message(of, KafkaError._AUTO_OFFSET_RESET, "no committed offset")
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert error.str() == "no committed offset"
    assert partition_of(message) == of
    assert message.offset() is None
    assert message.value() == b"no committed offset"


def test_it_may_say_where() -> None:
    message = error_message(TopicPartition("t", 0), KafkaError._PARTITION_EOF, "end", offset=9)
    assert message.offset() == 9
