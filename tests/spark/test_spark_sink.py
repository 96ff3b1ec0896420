from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType

from kafka_coop.spark.errors import OptionError
from kafka_coop.spark.options import sink_options
from kafka_coop.spark.schema import require_own_schema, spark_schema
from kafka_coop.spark.sink import BatchSink, require_columns

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


def test_what_the_producer_refuses_is_told_before_a_task_starts() -> None:
    options = sink_options(SERVERS | {"topic": "a", "kafka.acks": "maybe"})
    with pytest.raises(OptionError, match="acks"):
        BatchSink(options, StructType().add("value", StringType()))


def test_an_error_survives_the_way_from_a_worker() -> None:
    error = OptionError("topic", "is missing")
    again = pickle.loads(pickle.dumps(error))
    assert (again.option, str(again)) == ("topic", str(error))


def test_the_sources_own_schema_is_the_only_one() -> None:
    require_own_schema(spark_schema(headers=True), headers=True)
    with pytest.raises(OptionError, match="columns are fixed"):
        require_own_schema(spark_schema(headers=True), headers=False)
