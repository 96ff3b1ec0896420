from __future__ import annotations

import gc
import pickle
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark import TaskContext
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType
from spark_logs import read_log

from kafka_coop.spark import sink
from kafka_coop.spark.errors import OptionError
from kafka_coop.spark.options import SinkOptions, sink_options
from kafka_coop.spark.schema import arrow_schema, require_own_schema, spark_schema
from kafka_coop.spark.sink import BatchSink, SinkError, require_columns, write_task
from kafka_coop.spark.source import KafkaCoopSource
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import KafkaCluster, wait_until

pytestmark = pytest.mark.usefixtures("own_worker")

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
VALUE = StructType().add("value", BinaryType())
VALUE_AND_TOPIC = StructType().add("value", BinaryType()).add("topic", StringType())


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
    [
        ("kafka.acks", "maybe"),
        ("kafka.acks", "1"),  # the producers are idempotent
        ("kafka.linger.ms", "long"),
    ],
)
def test_what_the_producer_refuses_is_told_before_a_task_starts(option: str, value: str) -> None:
    options = sink_options(SERVERS | {"topic": "a", option: value})
    with pytest.raises(OptionError, match="Correct it, or remove it") as raised:
        BatchSink(options, VALUE)
    assert raised.value.option == option


def test_a_log_is_only_added_to() -> None:
    """Before anything is connected, or even read: Spark has asked to truncate."""
    source = KafkaCoopSource({})
    with pytest.raises(OptionError, match=r'set \.mode\("append"\)') as raised:
        source.writer(VALUE, overwrite=True)
    assert raised.value.option == "mode"
    with pytest.raises(
        OptionError, match=r'\.outputMode\("append"\), or .* foreachBatch'
    ) as raised:
        source.streamWriter(VALUE, overwrite=True)
    assert raised.value.option == "outputMode"


@pytest.mark.parametrize(
    ("topic", "schema"),
    [({"topic": "a"}, VALUE), ({}, VALUE_AND_TOPIC)],
    ids=["option", "column"],
)
def test_brokers_that_are_away_are_told_before_a_task_starts(
    monkeypatch: pytest.MonkeyPatch, topic: dict[str, str], schema: StructType
) -> None:
    monkeypatch.setattr(sink, "_METADATA_TIMEOUT", 0.5)
    away = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.log_level": "0"}
    told = r"option kafka\.bootstrap\.servers=127\.0\.0\.1:1 .*check hosts and ports"
    with pytest.raises(SinkError, match=told):
        BatchSink(sink_options(away | topic), schema)


def test_who_asks_whether_brokers_are_there_makes_no_topic(kafka: KafkaCluster) -> None:
    options = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers})
    BatchSink(options, VALUE_AND_TOPIC)
    assert sink._NO_TOPIC not in kafka.admin().list_topics(timeout=60).topics


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


# --- transactions ----------------------------------------------------------------------------


@pytest.fixture
def attempt(kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> SinkOptions:
    """What each attempt at one task of a query has in common: its options, and its name."""
    monkeypatch.setattr(sink, "_task_name", lambda _topic: "query-0")
    topic = f"atomic-{time.time_ns()}"
    kafka.create_topic(topic, partitions=1)
    return sink_options(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": topic,
            "transactional": "true",
            "kafka.transactional.id": topic,
        }
    )


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])


def committed(options: SinkOptions) -> list[bytes | None]:
    """What readers of committed records see, up to the last record that is decided."""
    return [message.value() for message in messages(options)]


def messages(options: SinkOptions, partition: int = 0) -> list[Message]:
    config = {**options.kafka, "isolation.level": "read_committed"}
    config.pop("transactional.id", None)
    return list(read_log(config, options.topic or "", [partition]))


@pytest.mark.verdict
def test_of_a_failed_attempt_nothing_is_seen_and_of_the_next_all_of_it(
    attempt: SinkOptions,
) -> None:
    def breaks() -> Iterator[pa.RecordBatch]:
        yield rows(b"1", b"2")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_task(attempt, ("value",), breaks())
    assert committed(attempt) == []
    write_task(attempt, ("value",), iter([rows(b"1", b"2"), rows(b"3")]))
    assert committed(attempt) == [b"1", b"2", b"3"]


@pytest.mark.verdict
def test_an_attempt_that_spark_has_given_up_is_fenced_by_the_next_one(
    attempt: SinkOptions,
) -> None:
    """Its executor was cut off, and goes on: a zombie."""

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield rows(b"1")
        write_task(attempt, ("value",), iter([rows(b"1"), rows(b"2")]))
        yield rows(b"2")

    with pytest.raises(SinkError, match="fenced"):
        write_task(attempt, ("value",), overtaken())
    assert committed(attempt) == [b"1", b"2"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Producer]:
    """The sink's producers, in their order."""
    producers: list[Producer] = []

    def make(config: dict[str, Any]) -> Producer:
        producers.append(Producer(config))
        return producers[-1]

    monkeypatch.setattr(sink, "Producer", make)
    return producers


def test_what_is_fenced_between_two_rows_says_so_as_well(
    attempt: SinkOptions, made: list[Producer]
) -> None:
    """librdkafka refuses the next record, and only its callback tells why."""

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield rows(b"1")
        write_task(attempt, ("value",), iter([rows(b"1")]))
        wait_until(is_refused, "the overtaken producer is not fenced")
        yield rows(b"2")

    def is_refused() -> bool:
        try:
            made[0].produce(attempt.topic or "", b"probe")
        except KafkaException:
            return True
        return False

    with pytest.raises(SinkError, match="fenced"):
        write_task(attempt, ("value",), overtaken())
    assert committed(attempt) == [b"1"]


def test_a_fatal_error_is_not_taken_for_the_delivery_callbacks_own(
    attempt: SinkOptions, made: list[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that runs while it is Python's fails at what can't fail, or ends the process."""
    victims: list[SystemError] = []

    def look(outbox: sink._Outbox, error: KafkaError | None, message: Message) -> None:
        try:
            float("1")
        except SystemError as victim:
            victims.append(victim)
        deliver(outbox, error, message)

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield rows(b"1")
        write_task(attempt, ("value",), iter([rows(b"1")]))
        yield rows(*[b"2"] * 500)

    deliver = sink._Outbox._delivered
    monkeypatch.setattr(sink._Outbox, "_delivered", look)
    with pytest.raises(SinkError, match="fenced"):
        write_task(attempt, ("value",), overtaken())
    assert not victims
    assert [len(producer) for producer in made] == [0, 0], "who waits for its callback keeps it"


def test_without_transactions_an_attempt_that_failed_is_seen(attempt: SinkOptions) -> None:
    """What the option is for."""
    kafka = {k: v for k, v in attempt.kafka.items() if k != "transactional.id"}
    plain = sink_options(
        {f"kafka.{key}": value for key, value in kafka.items()} | {"topic": attempt.topic or ""}
    )

    def breaks() -> Iterator[pa.RecordBatch]:
        yield rows(b"1")
        sink_has_sent(attempt, 1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_task(plain, ("value",), breaks())
    write_task(plain, ("value",), iter([rows(b"1")]))
    assert committed(attempt) == [b"1", b"1"]


def sink_has_sent(options: SinkOptions, count: int) -> None:
    """The producer sends in the background: waits until it has, so that the test is one."""
    deadline = time.monotonic() + 30
    while len(committed(options)) < count:
        assert time.monotonic() < deadline, "the sink sends nothing"


def test_a_name_is_the_same_when_a_batch_is_replayed_and_another_for_another_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writes of one foreachBatch to several topics do not fence one another."""

    def name(topic: str | None, *, query: str | None = "q", stage: int = 1) -> str:
        context = SimpleNamespace(
            getLocalProperty={"sql.streaming.queryId": query}.get,
            stageId=lambda: stage,
            partitionId=lambda: 7,
        )
        monkeypatch.setattr(TaskContext, "get", lambda: context)
        return sink._task_name(topic)

    assert name("a") == name("a", stage=2)
    assert name(None) == name(None, stage=2)
    names = {name("a"), name("b"), name(None), name("a", query="r"), name("a", query=None)}
    names.add(name("a", query=None, stage=2))
    assert len(names) == 6
    assert all(one.endswith("-7") for one in names)


# --- records that can't be written --------------------------------------------------------------


def embedded_sink(kafka: EmbeddedKafka, **more: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, **more})


def columns(**given: pa.Array) -> tuple[tuple[str, ...], Iterator[pa.RecordBatch]]:
    arrays = [pa.array([b"1", b"2"], pa.binary()), *given.values()]
    names = ("value", *given)
    return names, iter([pa.RecordBatch.from_arrays(arrays, list(names))])


def test_what_the_brokers_refuse_fails_the_task_with_count_and_reason(
    embedded: EmbeddedKafka,
) -> None:
    embedded.create_topic("a", partitions=1)
    embedded.fail("Produce", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    said = r"2 records were not written, .* topic a, .* authorization failed: grant WRITE on that"
    with pytest.raises(SinkError, match=said):
        write_task(embedded_sink(embedded, topic="a"), *columns())


IN_A_TRANSACTION = {"transactional": "true", "kafka.transactional.id": "t"}


@pytest.mark.parametrize("transactional", [False, True])
def test_a_producer_that_is_refused_as_a_whole_says_what_helps(
    embedded: EmbeddedKafka, transactional: bool
) -> None:
    """A fatal error, which no record's callback tells."""
    embedded.create_topic("a", partitions=1)
    embedded.fail("InitProducerId", KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    options = embedded_sink(embedded, topic="a", **(IN_A_TRANSACTION if transactional else {}))
    with pytest.raises(SinkError, match=r"uthorization failed: grant IDEMPOTENT_WRITE on the"):
        write_task(options, *columns())


def test_a_topic_that_is_refused_in_a_transaction_says_what_helps(embedded: EmbeddedKafka) -> None:
    """Its records only say that they were purged."""
    embedded.create_topic("a", partitions=1)
    embedded.fail("AddPartitionsToTxn", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    options = embedded_sink(embedded, topic="a", **IN_A_TRANSACTION)
    with pytest.raises(SinkError, match="grant WRITE on that topic"):
        write_task(options, *columns())


def test_a_record_that_is_larger_than_the_producer_may_send_says_what_helps(
    embedded: EmbeddedKafka,
) -> None:
    embedded.create_topic("a", partitions=1)
    options = embedded_sink(embedded, topic="a", **{"kafka.message.max.bytes": "1000"})
    large = pa.RecordBatch.from_arrays([pa.array([b"x" * 2000], pa.binary())], ["value"])
    with pytest.raises(SinkError, match=r"record for a .*raise option kafka\.message\.max\."):
        write_task(options, ("value",), iter([large]))


def test_a_partition_that_is_not_there_fails_the_task(embedded: EmbeddedKafka) -> None:
    embedded.create_topic("a", partitions=2)
    bad = columns(partition=pa.array([1, 2], pa.int32()))
    with pytest.raises(SinkError, match=r"1 records were not written, .* Unknown partition"):
        write_task(embedded_sink(embedded, topic="a"), *bad)


HEADERS = arrow_schema(headers=True).field("headers").type
STAMP = pa.timestamp("ms", tz="UTC")


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("partition", pa.array([None, -1], pa.int32()), "has partition -1: make it null"),
        ("timestamp", pa.array([None, 0], STAMP), r"row for a has timestamp 0 \(ms.* make it null"),
        ("timestamp", pa.array([1, 999], pa.timestamp("us", "UTC")), "timestamp 0 "),
        ("timestamp", pa.array([-1, None], STAMP), "timestamp -1 "),
        ("headers", pa.array([None, [{"key": None, "value": b"x"}]], HEADERS), "without a key"),
        ("headers", pa.array([None, [None]], HEADERS), "without a key"),
    ],
)
def test_a_row_that_makes_no_record_fails_the_task(
    embedded: EmbeddedKafka, name: str, given: pa.Array, told: str
) -> None:
    embedded.create_topic("a", partitions=1)
    with pytest.raises(SinkError, match=told):
        write_task(embedded_sink(embedded, topic="a"), *columns(**{name: given}))


def test_a_row_without_a_topic_fails_the_task(embedded: EmbeddedKafka) -> None:
    embedded.create_topic("a", partitions=1)
    given = columns(topic=pa.array(["a", None]))
    with pytest.raises(SinkError, match="a row has no topic: set option topic, or fill"):
        write_task(embedded_sink(embedded), *given)


def test_the_option_topic_goes_before_the_column(embedded: EmbeddedKafka) -> None:
    for topic in ("a", "b"):
        embedded.create_topic(topic, partitions=1)
    options = embedded_sink(embedded, topic="a")
    write_task(options, *columns(topic=pa.array(["b", None])))
    assert committed(options) == [b"1", b"2"]


MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""What Java's own test of it expects (org.apache.kafka.common.utils.UtilsTest)."""


def test_a_key_goes_where_javas_producer_would_send_it(embedded: EmbeddedKafka) -> None:
    """And the built-in sink."""
    embedded.create_topic("a", partitions=5)
    options = embedded_sink(embedded, topic="a")
    keys = pa.array(MURMUR2, pa.binary())
    table = pa.RecordBatch.from_arrays([keys, keys], ["key", "value"])
    write_task(options, ("key", "value"), iter([table]))
    for partition in range(5):
        expected = [key for key, h in MURMUR2.items() if (h & 0x7FFFFFFF) % 5 == partition]
        assert [m.value() for m in messages(options, partition)] == expected


def test_a_transaction_is_not_waited_for_longer_than_a_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No broker answers there: with Spark's retries it would hang for good."""
    monkeypatch.setattr(sink, "_PATIENCE", 0.1)
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "topic": "a",
        "transactional": "true",
        "kafka.transactional.id": "t",
        "kafka.delivery.timeout.ms": "300",
        "kafka.transaction.timeout.ms": "1000",
        "kafka.log_level": "0",
    }
    with pytest.raises(SinkError, match=r"in 0\.3 s \(kafka\.delivery\.timeout\.ms\)"):
        write_task(sink_options(given), ("value",), iter([rows(b"1")]))


def test_nothing_of_a_failed_task_is_left_in_its_worker(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer has threads and connections. Workers live on, and Spark tries tasks again."""
    embedded.create_topic("a", partitions=1)
    options = embedded_sink(embedded, topic="a", **{"kafka.linger.ms": "60000"})
    made = []

    class Outbox(sink._Outbox):
        def __init__(self, options: SinkOptions) -> None:
            super().__init__(options)
            made.append(weakref.ref(self))

    def breaks() -> Iterator[pa.RecordBatch]:
        yield rows(b"1", b"2")
        raise ZeroDivisionError

    monkeypatch.setattr(sink, "_Outbox", Outbox)
    with pytest.raises(ZeroDivisionError) as raised:
        write_task(options, ("value",), breaks())
    raised.value.with_traceback(None)
    del raised
    gc.collect()
    assert [left() for left in made] == [None]


def test_times_are_written_to_the_millisecond(embedded: EmbeddedKafka) -> None:
    """By way of seconds in binary, some would be one less."""
    embedded.create_topic("a", partitions=1)
    times = [2_198_902_002_332, 1_700_000_000_001]
    stamps = pa.array([at * 1000 for at in times], pa.timestamp("us", tz="UTC"))
    options = embedded_sink(embedded, topic="a")
    write_task(options, *columns(timestamp=stamps))
    assert [message.timestamp()[1] for message in messages(options)] == times
