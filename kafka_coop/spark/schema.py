"""The columns of the source: the built-in Kafka source's, in its order."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_coop.spark.errors import OptionError

_HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


def spark_schema(*, headers: bool) -> StructType:
    """The columns of a record; its headers only where they are asked for."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    return StructType([*fields, _HEADERS] if headers else fields)


def arrow_schema(*, headers: bool) -> pa.Schema:
    """The same for Arrow, exactly as Spark compares it with what a reader yields."""
    return to_arrow_schema(spark_schema(headers=headers), timezone="UTC")


def require_own_schema(given: StructType, *, headers: bool) -> None:
    """Refuses a schema that the user made up.

    Raises:
        OptionError: It is not the source's.
    """
    own = spark_schema(headers=headers)
    if [(f.name, f.dataType) for f in given] != [(f.name, f.dataType) for f in own]:
        raise OptionError(
            "schema",
            f"the source's columns are fixed: {own.simpleString()}. Leave .schema(…) out, and "
            "cast or parse the columns key and value",
        )
