"""Real queries on a real Kafka. What can be shown without Spark's engine is shown elsewhere."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kafka_coop.spark
from kafka_coop import CoopConsumer
from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.testing.jars import maven_jars
from kafka_coop.testing.java import CLIENT_VERSION, find_java

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # PySpark's
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning"),
]

PATIENCE = timedelta(seconds=240)
_TOOLS = "org.apache.kafka:kafka-tools"
_DESCRIBING = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_KEEP = {"retention.ms": "-1"}  # the records' timestamps are old
_NUMBERS = itertools.count()
_RUN = time.time_ns() % 1_000_000_000
Record = tuple[int, int]


class Box:
    """A topic, its records, and the queries that read it as one group."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, folder: Path) -> None:
        self.spark = spark
        self.servers = kafka.bootstrap_servers
        self.topic = f"spark-{_RUN}-{next(_NUMBERS)}"
        self.folder = folder
        self.records: set[Record] = set()
        self.queries: list[Any] = []
        kafka.create_topic(self.topic, partitions=4, config=_KEEP)
        self._producer = Producer({"bootstrap.servers": self.servers})

    def produce(self, count: int) -> None:
        for n in range(count):
            self._producer.produce(
                self.topic,
                key=f"k{n}",
                value=f"v{n}",
                partition=n % 4,
                headers=[("n", str(n).encode())],
                timestamp=1_700_000_000_000 + n,
                on_delivery=lambda _, m: self.records.add((m.partition() or 0, m.offset() or 0)),
            )
        assert self._producer.flush(60) == 0

    def read(self, **options: Any) -> DataFrame:
        frame: DataFrame = self._options(self.spark.readStream, **options).load()
        return frame

    def batch(self, **options: Any) -> DataFrame:
        frame: DataFrame = self._options(self.spark.read, **options).load()
        return frame

    def start(self, name: str, frame: DataFrame | None = None, **trigger: Any) -> Any:
        """A query with a checkpoint and an output of that name; an earlier one's is taken up."""
        frame = self.read() if frame is None else frame
        writer = (
            frame.writeStream.format("parquet")
            .option("path", str(self.folder / name / "out"))
            .option("checkpointLocation", str(self.folder / name / "checkpoint"))
            .queryName(f"{name}-{self.topic}")
        )
        query = (writer.trigger(**trigger) if trigger else writer).start()
        self.queries.append(query)
        return query

    def written(self, *names: str) -> Counter[Record]:
        found: Counter[Record] = Counter()
        for name in names:
            out = self.folder / name / "out"
            if (out / "_spark_metadata").exists():
                reader = self.spark.read.schema("partition int, offset long")
                rows = reader.parquet(str(out)).collect()
                found.update((row.partition, row.offset) for row in rows)
        return found

    def wait_for_all(self, *names: str, also: Iterable[Record] = ()) -> None:
        """Args: also: What others have read."""
        wait_until(
            lambda: self._failed() or self.records <= self.written(*names).keys() | {*also},
            "records are missing",
            PATIENCE,
        )
        for query in self.queries:
            assert query.exception() is None

    def stop(self) -> None:
        for query in self.queries:
            query.stop()

    def _failed(self) -> bool:
        return any(query.exception() is not None for query in self.queries)

    def _options(self, reader: Any, **options: Any) -> Any:
        given = {
            "kafka.bootstrap.servers": self.servers,
            "kafka.group.id": self.topic,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }
        return reader.format("kafka_coop").options(
            **{key: str(value) for key, value in (given | options).items() if value is not None}
        )


@pytest.fixture
def box(spark: SparkSession, kafka: KafkaCluster, tmp_path: Path) -> Iterator[Box]:
    made = Box(spark, kafka, tmp_path)
    yield made
    made.stop()


@pytest.mark.verdict
def test_available_now_reads_what_is_there_batch_by_batch(box: Box) -> None:
    box.produce(100)
    query = box.start("a", box.read(maxOffsetsPerTrigger=30), availableNow=True)
    assert query.awaitTermination(int(PATIENCE.total_seconds()))
    assert box.written("a") == Counter(box.records)
    rows = [progress.numInputRows for progress in query.recentProgress]
    assert [n for n in rows if n] == [30, 30, 30, 10]
    box.produce(8)
    assert box.start("a", availableNow=True).awaitTermination(int(PATIENCE.total_seconds()))
    assert box.written("a") == Counter(box.records)


def test_once_reads_all_in_one_batch(box: Box) -> None:
    """The limit is for triggers that come again."""
    box.produce(100)
    query = box.start("a", box.read(maxOffsetsPerTrigger=30), once=True)
    assert query.awaitTermination(int(PATIENCE.total_seconds()))
    assert [progress.numInputRows for progress in query.recentProgress] == [100]


def test_a_batch_waits_until_it_is_large_enough(box: Box) -> None:
    box.produce(4)
    query = box.start("a", box.read(minOffsetsPerTrigger=50, maxTriggerDelay="1h"))
    box.wait_for_all("a")  # the first one never waits
    box.produce(10)
    wait_until(lambda: _known(query) == 14, "they are not seen", PATIENCE)
    box.produce(40)
    box.wait_for_all("a")
    # A batch is done before Spark tells of it.
    wait_until(lambda: len(_sizes(query)) > 1, "no progress of the second", PATIENCE)
    assert _sizes(query) == [4, 50]


def _sizes(query: Any) -> list[int]:
    """How many rows each batch had that had any."""
    return [told.numInputRows for told in query.recentProgress if told.numInputRows]


def _known(query: Any) -> int:
    """How many offsets the last progress says that there are."""
    return 0 if query.lastProgress is None else _known_to(query.lastProgress)


def _known_to(progress: Any) -> int:
    latest = json.loads(progress.sources[0].latestOffset or "{}")
    return sum(int(end or 0) for end in latest.get("tps", {}).values())


def _read_to(progress: Any) -> int:
    """How many offsets have been read with the batch that it tells of, or the last one."""
    end = json.loads(progress.sources[0].endOffset or "{}") or {}
    return sum(int(stop) for _, stop in end.get("tps", {}).values())


@pytest.fixture
def idle_queries_speak(spark: SparkSession) -> Iterator[None]:
    """Once a second: without a batch, Spark would tell of a query's progress every ten."""
    interval = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(interval, "1000")
    yield
    spark.conf.unset(interval)


@pytest.mark.usefixtures("idle_queries_speak")
def test_a_small_batch_comes_when_its_time_has_come(box: Box) -> None:
    """And not before: the query tells that it knows of the records, and has not read them.

    Where the time had come before the query was heard of, that can't be seen: then once more.
    """
    box.produce(4)
    query = box.start("a", box.read(minOffsetsPerTrigger=50, maxTriggerDelay="5s"))

    def told() -> list[Any]:
        """From the end of the first batch on, which never waits, but perhaps for its claims."""
        return [progress for progress in query.recentProgress if _read_to(progress) >= 4]

    def has_read_all() -> bool:
        return any(_read_to(progress) == len(box.records) for progress in told())

    wait_until(has_read_all, "no progress of the first", PATIENCE)
    for _ in range(8):
        box.produce(10)
        wait_until(has_read_all, "it does not come", PATIENCE)
        if any(_known_to(progress) > _read_to(progress) for progress in told()):
            return
    pytest.fail("it was never held back")


def test_columns_are_the_records(box: Box) -> None:
    box.produce(12)
    rows = box.batch(includeHeaders="true", minPartitions=6, **{"kafka.group.id": None}).collect()
    assert {(row.partition, row.offset) for row in rows} == box.records
    for row in rows:
        n = int(bytes(row.value)[1:])
        assert (bytes(row.key), row.topic, row.timestampType) == (b"k%d" % n, box.topic, 0)
        assert row.timestamp.timestamp() * 1000 == pytest.approx(1_700_000_000_000 + n)
        assert [(h.key, bytes(h.value)) for h in row.headers] == [("n", b"%d" % n)]


def test_few_tasks_read_many_partitions(box: Box) -> None:
    box.produce(12)
    frame = box.batch(maxPartitions=3)
    assert frame.rdd.getNumPartitions() == 3
    assert {(row.partition, row.offset) for row in frame.collect()} == box.records


def test_batches_take_offsets_and_times(box: Box) -> None:
    box.produce(40)
    starts = {str(p): 2 + p for p in range(4)}
    offsets = box.batch(
        startingOffsets=json.dumps({box.topic: starts}),
        endingOffsets=json.dumps({box.topic: starts | {"3": 10}}),
    )
    assert {(r.partition, r.offset) for r in offsets.collect()} == {(3, n) for n in range(5, 10)}
    times = box.batch(startingTimestamp=1_700_000_000_010, endingTimestamp=1_700_000_000_020)
    assert times.count() == 10


@pytest.mark.verdict
def test_two_queries_share_a_group_and_one_leaves(box: Box, metrics: CollectorRegistry) -> None:
    box.produce(40)
    first = box.start("a")
    box.wait_for_all("a")
    second = box.start("b")
    wait_until(lambda: _reads(box, "b"), "the second query gets nothing", PATIENCE)
    box.wait_for_all("a", "b")
    wait_until(
        lambda: _told(metrics, box, "a", "handover_seconds") > 0, "no hand-over told", PATIENCE
    )
    assert _told(metrics, box, "a", "rebalances") >= 1
    assert _told(metrics, box, "a", "rebalance_latency_seconds") > 0
    wait_until(lambda: _lags(metrics, box) == [0] * 4, "not each partition has a lag", PATIENCE)
    third = _a_third_reads_and_hands_over(box)
    assert third
    box.wait_for_all("a", "b", also=third)
    kafka_coop.spark.drain(second, PATIENCE)
    before = box.written("b")
    box.produce(40)
    box.wait_for_all("a", "b", also=third)
    kafka_coop.spark.drain(first, PATIENCE)
    assert box.written("b") == before
    assert box.written("a", "b") + third == Counter(box.records)


def _told(metrics: CollectorRegistry, box: Box, name: str, what: str) -> float:
    labels = {"query": f"{name}-{box.topic}", "group": box.topic}
    return metrics.get_sample_value(f"kafka_coop_spark_{what}", labels) or 0.0


def _lags(metrics: CollectorRegistry, box: Box) -> list[float]:
    """Of all partitions, by whichever query holds them."""
    return [
        sample.value
        for metric in metrics.collect()
        for sample in metric.samples
        if sample.name == "kafka_coop_spark_lag" and sample.labels["group"] == box.topic
    ]


def _a_third_reads_and_hands_over(box: Box) -> Counter[Record]:
    """A plain member of the queries' group. Returns: What it has read, and committed."""
    read: Counter[Record] = Counter()
    config = {
        "bootstrap.servers": box.servers,
        "group.id": box.topic,
        "auto.offset.reset": "earliest",
    }
    with CoopConsumer(config) as plain:
        plain.subscribe([box.topic])

        def has_read() -> bool:
            if plain.assignment() and not read:
                box.produce(4)
            for message in plain.consume(100, 0.2):
                assert message.error() is None, message.error()
                read[message.partition() or 0, message.offset() or 0] += 1
            return bool(read)

        wait_until(has_read, "a third member gets nothing", PATIENCE)
        plain.drain(PATIENCE)  # what was delivered is committed as it goes
        wait_until(lambda: _steps(plain, read), "nobody relieves it", PATIENCE)
    return read


def _steps(plain: CoopConsumer, read: Counter[Record]) -> bool:
    """Reads on. Returns: Whether it has handed over everything."""
    message = plain.poll(0.2)
    if message is not None and message.error() is None:
        read[message.partition() or 0, message.offset() or 0] += 1
    return plain.drained


def _reads(box: Box, name: str) -> bool:
    box.produce(4)
    return bool(box.written(name))


def test_kafkas_own_tool_shows_a_querys_member_and_its_lag(box: Box) -> None:
    tools = maven_jars(f"kafka-tools-{CLIENT_VERSION}", f"{_TOOLS}:{CLIENT_VERSION}")
    command = [str(find_java()), "-cp", f"{tools}/*", _DESCRIBING, "--describe"]
    command += ["--bootstrap-server", box.servers, "--group", box.topic]

    def lines() -> list[dict[str, str]]:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        shown = [line.split() for line in done.stdout.splitlines() if line.strip()]
        head = shown[0] if shown else []
        return [dict(zip(head, cells, strict=True)) for cells in shown[1:]]

    def lags() -> list[tuple[str, ...]]:
        wanted = ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
        return sorted((line["PARTITION"], *(line[one] for one in wanted)) for line in lines())

    box.produce(40)
    query = box.start("a")
    box.wait_for_all("a")
    wait_until(lambda: lags() == [(p, "10", "10", "0") for p in "0123"], "another lag", PATIENCE)
    (member,) = {line["CONSUMER-ID"] for line in lines()}
    assert member == json.loads(query.lastProgress.sources[0].latestOffset)["member"]


@pytest.mark.verdict
def test_a_stopped_query_leaves_and_goes_on_from_its_checkpoint(
    box: Box, kafka: KafkaCluster
) -> None:
    box.produce(40)
    box.start("a", box.read(**{"kafka.session.timeout.ms": 300_000}))
    box.wait_for_all("a")
    box.queries[0].stop()
    admin = kafka.admin()  # kept: without it nothing is answered

    def is_empty() -> bool:
        described = admin.describe_consumer_groups([box.topic])[box.topic].result(60)
        return not described.members

    wait_until(is_empty, "it has not left, and its session goes on", PATIENCE)
    box.produce(40)
    box.start("a")
    box.wait_for_all("a")
    assert box.written("a") == Counter(box.records)


@pytest.mark.verdict
def test_a_batch_that_failed_is_read_again_the_same(box: Box) -> None:
    """The sink fails once, after the batch was logged; the restart replays it."""
    box.produce(40)
    marker = box.folder / "failed"

    def fail_once(frame: DataFrame, _batch: int) -> None:
        if not marker.exists():
            marker.touch()
            raise RuntimeError("the sink is out of order")
        frame.select("partition", "offset").write.mode("append").parquet(str(box.folder / "each"))

    def start() -> Any:
        writer = box.read().writeStream.foreachBatch(fail_once)
        return writer.option("checkpointLocation", str(box.folder / "c")).start()

    failing = start()
    with pytest.raises(PySparkException, match="out of order"):
        failing.awaitTermination(int(PATIENCE.total_seconds()))
    query = start()
    try:
        wait_until(
            lambda: query.exception() is not None or query.lastProgress is not None,
            "no batch",
            PATIENCE,
        )
        assert query.exception() is None
        rows = box.spark.read.parquet(str(box.folder / "each")).collect()
        assert Counter((r.partition, r.offset) for r in rows) == Counter(box.records)
    finally:
        query.stop()


def test_state_that_would_be_left_behind_fails_the_query(box: Box) -> None:
    box.produce(40)
    counts = box.read().groupBy("key").count()
    writer = counts.writeStream.format("memory").queryName(f"m{next(_NUMBERS)}")
    stateful = writer.outputMode("complete").option("checkpointLocation", str(box.folder / "s"))
    query = stateful.start()
    try:
        wait_until(lambda: query.lastProgress is not None, "no batch", PATIENCE)
        box.start("other")
        with pytest.raises(PySparkException, match="replayHorizon"):
            query.awaitTermination(int(PATIENCE.total_seconds()))
    finally:
        query.stop()


def halves(records: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Of 80 records, each with the key of one of the other half; no column is in both."""
    earlier = records.where("offset < 10").select("key", "partition", "offset")
    later = records.where("offset >= 10")
    return earlier.selectExpr("key as k", "partition", "offset"), later.selectExpr("key as other")


@pytest.mark.verdict
def test_a_join_goes_on_where_a_partition_came_from_another_with_a_horizon(box: Box) -> None:
    """The pairs' first halves are in the state of the query that had the partitions before."""
    box.produce(40)
    first = box.start("a")
    box.wait_for_all("a")
    kafka_coop.spark.drain(first, PATIENCE)
    box.produce(40)  # the same keys

    def join(name: str, **options: Any) -> Any:
        earlier, later = halves(box.read(**options))
        return box.start(name, earlier.join(later, f.col("k") == f.col("other")))

    for told in ("replayHorizon", "checkpointLocation"):  # its first batch is in the checkpoint
        with pytest.raises(PySparkException, match=told):
            join("without").awaitTermination(int(PATIENCE.total_seconds()))
        box.queries.pop()
    with pytest.raises(PySparkException, match="set checkpointLocation to a new folder"):
        join("without", replayHorizon="1 d").awaitTermination(int(PATIENCE.total_seconds()))
    box.queries.pop()
    join("with", replayHorizon="1 d")
    pairs = Counter((n % 4, n // 4) for n in range(40))
    wait_until(lambda: box.written("with") == pairs, "the join is not whole", PATIENCE)


def test_a_frame_that_spark_reads_twice_for_a_join_with_itself_is_refused(box: Box) -> None:
    box.produce(80)
    records = box.read(replayHorizon="1 d")
    earlier, later = records.where("offset < 10"), records.where("offset >= 10").select("key")
    query = box.start("a", earlier.join(later, "key"))
    box.queries.pop()
    with pytest.raises(PySparkException, match="renames its columns"):
        query.awaitTermination(int(PATIENCE.total_seconds()))


def test_the_sink_writes_what_was_read(box: Box, kafka: KafkaCluster) -> None:
    box.produce(20)
    copy = f"{box.topic}-copy"
    kafka.create_topic(copy, partitions=2, config=_KEEP)
    frame = box.read(includeHeaders="true").selectExpr("key", "value", "headers", "timestamp")
    writer = frame.writeStream.format("kafka_coop").option("checkpointLocation", str(box.folder))
    options = {"kafka.bootstrap.servers": box.servers, "topic": copy, "includeHeaders": "true"}
    transactional = {"transactional": "true", "kafka.transactional.id": copy}
    query = writer.options(**options, **transactional).trigger(availableNow=True).start()
    assert query.awaitTermination(int(PATIENCE.total_seconds()))
    columns = ("key", "value", "headers", "timestamp")
    read = [box.batch(subscribe=topic, includeHeaders="true") for topic in (box.topic, copy)]
    original, copied = (sorted(map(str, frame.select(*columns).collect())) for frame in read)
    assert copied == original


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"subscribe": "no-such-topic"}, "option subscribe: unknown topic no-such-topic"),
        ({"assign": '{"%s":[7]}', "subscribe": None}, "option assign: .* has no partition 7"),
        ({"endingOffset": "latest"}, "did you mean endingOffsets"),
        ({"startingOffsets": '{"%s":{"0":0}}'}, "startingOffsets: says nothing of"),
        ({"startingOffsets": '{"%s":{"0":0,"1":9,"2":0,"3":0}}'}, "failOnDataLoss=false"),
    ],
)
def test_bad_options_are_told(box: Box, change: dict[str, str | None], told: str) -> None:
    named = {k: v and v.replace("%s", box.topic) for k, v in change.items()}
    box.produce(4)
    with pytest.raises(PySparkException, match=told):
        box.batch(**({"endingOffsets": None} | named)).count()


def test_a_checkpoint_of_another_group_is_refused(box: Box) -> None:
    box.produce(4)
    box.start("a", availableNow=True).awaitTermination(int(PATIENCE.total_seconds()))
    query = box.start("a", box.read(**{"kafka.group.id": "another"}))
    with pytest.raises(PySparkException, match=r"kafka\.group\.id is 'another'"):
        query.awaitTermination(int(PATIENCE.total_seconds()))
    box.queries.remove(query)


def test_a_checkpoint_of_another_source_is_refused(box: Box) -> None:
    box.produce(4)
    rate = box.spark.readStream.format("rate").load()
    query = box.start("a", rate, availableNow=True)
    query.awaitTermination(int(PATIENCE.total_seconds()))
    box.queries.remove(query)
    query = box.start("a", box.read())
    with pytest.raises(PySparkException, match="checkpoint") as raised:
        query.awaitTermination(int(PATIENCE.total_seconds()))
    assert "another source" in str(raised.value)
    box.queries.remove(query)


def test_a_schema_of_the_users_is_refused(box: Box) -> None:
    reader: Callable[[], Any] = lambda: (  # noqa: E731  # one call, made inside raises
        box._options(box.spark.read).schema("value string").load().count()
    )
    with pytest.raises(PySparkException, match="columns are fixed"):
        reader()
