"""The sink through Spark, in each mode; the brokers are embedded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_logs import read_log

from kafka_coop.testing import EmbeddedKafka

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # PySpark's
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning"),
]

PATIENCE = 240


def sink(kafka: EmbeddedKafka, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, **more}


def written(kafka: EmbeddedKafka, topic: str, partition: int = 0) -> list[Message]:
    """All that is in a partition."""
    return list(read_log({"bootstrap.servers": kafka.bootstrap_servers}, topic, [partition]))


def values(kafka: EmbeddedKafka, topic: str) -> list[bytes]:
    return sorted(message.value() or b"" for message in written(kafka, topic))


def test_a_batch_is_written_as_its_columns_say(
    spark: SparkSession, embedded: EmbeddedKafka
) -> None:
    for topic in ("a", "b"):
        embedded.create_topic(topic, partitions=3)
    at = datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
    rows = [
        ("a", 2, "k", b"1", at, [("h", b"x"), ("h", None)]),
        ("b", 1, None, b"2", at, None),
        ("b", 1, "k", None, at, []),
    ]
    schema = (
        "topic string, partition int, key string, value binary, timestamp timestamp, "
        "headers array<struct<key:string,value:binary>>"
    )
    frame = spark.createDataFrame(rows, schema)
    frame.write.format("kafka_coop").options(**sink(embedded, includeHeaders="true")).mode(
        "append"
    ).save()
    (first,) = written(embedded, "a", 2)
    assert (first.key(), first.value()) == (b"k", b"1")
    assert first.timestamp()[1] == int(at.timestamp() * 1000)
    assert first.headers() == [("h", b"x"), ("h", None)]
    found = [(m.key(), m.value(), m.headers()) for m in written(embedded, "b", 1)]
    assert sorted(found, key=repr) == [(None, b"2", None), (b"k", None, None)]
    assert not written(embedded, "a", 0), "the column partition says where"


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("overwrite", r'option mode: overwrite can\'t be.* set \.mode\("append"\)'),
        ("errorifexists", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("ignore", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
    ],
)
def test_a_batch_can_only_be_appended(
    spark: SparkSession, embedded: EmbeddedKafka, mode: str, told: str
) -> None:
    embedded.create_topic("a", partitions=1)
    frame = spark.sql("select 'v' as value")
    writer = frame.write.format("kafka_coop").options(**sink(embedded, topic="a"))
    with pytest.raises(PySparkException, match=told):
        writer.mode(mode).save()
    assert not written(embedded, "a")


def test_a_path_is_refused_writing_and_reading(
    spark: SparkSession, embedded: EmbeddedKafka
) -> None:
    embedded.create_topic("a", partitions=1)
    writer = spark.sql("select 'v' as value").write.format("kafka_coop")
    with pytest.raises(PySparkException, match=r"option path: 'x' .*leave it out"):
        writer.options(**sink(embedded, topic="a")).mode("append").save("x")
    reader = spark.read.format("kafka_coop").options(**sink(embedded, subscribe="a"))
    with pytest.raises(PySparkException, match=r"option path: 'x' .*leave it out"):
        reader.load("x").count()


class Counted:
    """A stream of three rows, and their counts, which change."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        self.rows = rate.selectExpr("cast(value as string) as value")
        counts = rate.groupBy("value").count()
        self.counts = counts.selectExpr("cast(value as string) as key", "string(count) as value")
        self._folder = folder

    def run(self, writer: Any) -> None:
        located = writer.option("checkpointLocation", str(self._folder))
        query = located.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PATIENCE)
        finally:
            query.stop()


@pytest.fixture
def counted(spark: SparkSession, tmp_path: Path) -> Counted:
    return Counted(spark, tmp_path / "checkpoint")


def test_a_stream_is_appended(counted: Counted, embedded: EmbeddedKafka) -> None:
    embedded.create_topic("a", partitions=1)
    writer = counted.rows.writeStream.format("kafka_coop").options(**sink(embedded, topic="a"))
    counted.run(writer.outputMode("append"))
    assert values(embedded, "a") == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("update", "kafka_coop does not support Update mode"),
        ("complete", r"option outputMode: complete can't be.* in foreachBatch"),
    ],
)
def test_results_that_change_cant_be_a_stream(
    counted: Counted, embedded: EmbeddedKafka, mode: str, told: str
) -> None:
    embedded.create_topic("a", partitions=1)
    writer = counted.counts.writeStream.format("kafka_coop").options(**sink(embedded, topic="a"))
    with pytest.raises(PySparkException, match=told):
        counted.run(writer.outputMode(mode))
    assert not written(embedded, "a")


def test_results_that_change_are_written_batch_by_batch(
    counted: Counted, embedded: EmbeddedKafka
) -> None:
    """What docs/SPARK.md says instead."""
    embedded.create_topic("a", partitions=1)

    def write(batch: DataFrame, _id: int) -> None:
        to = sink(embedded, topic="a")
        batch.write.format("kafka_coop").options(**to).mode("append").save()

    counted.run(counted.counts.writeStream.outputMode("update").foreachBatch(write))
    assert sorted(m.key() or b"" for m in written(embedded, "a")) == [b"0", b"1", b"2"]
    assert values(embedded, "a") == [b"1", b"1", b"1"]
