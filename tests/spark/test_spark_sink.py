from __future__ import annotations

import pickle
import time

import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType

from kafka_coop.spark import sink
from kafka_coop.spark.errors import OptionError
from kafka_coop.spark.options import sink_options
from kafka_coop.spark.schema import require_own_schema, spark_schema
from kafka_coop.spark.sink import BatchSink, SinkError, require_columns
from kafka_coop.testing.cluster import KafkaCluster

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
VALUE = StructType().add("value", BinaryType())


@pytest.mark.parametrize(
    ("schema", "options", "option", "told"),
    [
        (StructType().add("key", StringType()), {"topic": "a"}, "schema", "no column value"),
        (VALUE, {}, "topic", "no column topic"),
        (
            StructType().add("value", LongType()),
            {"topic": "a"},
            "schema",
            "cast it to string or binary",
        ),
        (
            StructType().add("value", BinaryType()).add("valeu", StringType()),
            {"topic": "a"},
            "schema",
            "did you mean value",
        ),
        (
            StructType().add("value", StringType()).add("headers", ArrayType(StringType())),
            {"topic": "a"},
            "includeHeaders",
            "is false",
        ),
        (
            StructType().add("value", StringType()).add("headers", ArrayType(StringType())),
            {"topic": "a", "includeHeaders": "true"},
            "schema",
            "array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_what_cant_be_written_is_told_before_a_task_starts(
    schema: StructType, options: dict[str, str], option: str, told: str
) -> None:
    with pytest.raises(OptionError) as raised:
        require_columns(sink_options(SERVERS | options), schema)
    assert raised.value.option == option
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [("kafka.acks", "maybe"), ("kafka.linger.sm", "5"), ("kafka.linger.ms", "long")],
)
def test_what_the_producer_refuses_is_told_before_a_task_starts(option: str, value: str) -> None:
    options = sink_options(SERVERS | {"topic": "a", option: value})
    with pytest.raises(OptionError, match="Correct it, or remove it") as raised:
        BatchSink(options, VALUE)
    assert raised.value.option == option


def test_brokers_that_are_away_are_told_before_a_task_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink, "_METADATA_TIMEOUT", 0.5)
    away = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.log_level": "0", "topic": "a"}
    with pytest.raises(SinkError, match=r"option kafka\.bootstrap\.servers=127\.0\.0\.1:1 "):
        BatchSink(sink_options(away), VALUE)


def test_a_topic_that_is_not_there_is_told_before_a_task_starts(
    kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_CREATION_TIME", 0.0)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    there = f"sink-{time.time_ns()}"
    kafka.create_topic(there, partitions=1)
    BatchSink(sink_options(servers | {"topic": there}), VALUE)
    with pytest.raises(OptionError, match="create it") as raised:
        BatchSink(sink_options(servers | {"topic": f"{there}-not"}), VALUE)
    assert raised.value.option == "topic"


def test_an_error_survives_the_way_from_a_worker() -> None:
    error = OptionError("topic", "is missing")
    again = pickle.loads(pickle.dumps(error))
    assert (again.option, str(again)) == ("topic", str(error))


def test_the_sources_own_schema_is_the_only_one() -> None:
    require_own_schema(spark_schema(headers=True), headers=True)
    with pytest.raises(OptionError, match="columns are fixed"):
        require_own_schema(spark_schema(headers=True), headers=False)
