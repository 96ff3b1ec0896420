"""The batch reader without Spark: which ranges its options come to, and what its tasks read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, Producer
from spark_raw_headers import produce_with_header

from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.spark.batch import BatchReader
from kafka_coop.spark.errors import DataLossError, MembershipError, OptionError, RecordError
from kafka_coop.spark.options import batch_options, stream_options
from kafka_coop.spark.reading import RangeTask
from kafka_coop.spark.session import Session
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.types import TopicPartition

pytestmark = pytest.mark.usefixtures("own_worker")

Spans = dict[tuple[str, int], list[tuple[int, int]]]
"""By partition, the first offset of each task and the one after its last."""


def reader(kafka: EmbeddedKafka | KafkaCluster, **options: str) -> BatchReader:
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}
    return BatchReader(batch_options(given))


def planned(kafka: EmbeddedKafka | KafkaCluster, **options: str) -> Spans:
    """What each partition's tasks read."""
    spans: Spans = {}
    for task in reader(kafka, **options).partitions():
        assert isinstance(task, RangeTask)
        for of, span in task.parts():
            spans.setdefault(of, []).append((span.start, span.stop))
    return spans


def read_all(kafka: EmbeddedKafka, **options: str) -> int:
    """How many records its tasks read."""
    made = reader(kafka, **options)
    return sum(batch.num_rows for task in made.partitions() for batch in made.read(task))


def by_partition(topic: str, numbers: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): number for partition, number in numbers.items()}})


def produce(kafka: EmbeddedKafka, topic: str, *counts: int, alone: bool = False) -> None:
    """So many records to each partition; alone: each in a batch of its own, as retention sees."""
    kafka.create_topic(topic, partitions=len(counts))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, count in enumerate(counts):
        for _ in range(count):
            producer.produce(topic, b"v", partition=partition)
            if alone:
                assert producer.flush(30) == 0
    assert producer.flush(30) == 0


# --- what is read ---------------------------------------------------------------------------------


def test_assigned_partitions_are_read_and_no_others(embedded: EmbeddedKafka) -> None:
    produce(embedded, "a", 2, 3, 4)
    produce(embedded, "b", 5)
    made = reader(embedded, assign='{"a":[2,0]}')
    found = [
        row
        for task in made.partitions()
        for batch in made.read(task)
        for row in zip(*(batch.column(c).to_pylist() for c in ("partition", "offset")), strict=True)
    ]
    assert found == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_a_header_whose_name_is_no_utf8_is_told_with_its_place(embedded: EmbeddedKafka) -> None:
    """Any bytes go to a broker as a name; who does not read headers, reads the record."""
    embedded.create_topic("a", partitions=1)
    for name in ("é".encode(), b"\xff"):
        produce_with_header(embedded, "a", name)
    assert read_all(embedded, subscribe="a") == 2
    told = r"a:0 has at offset 1 a header whose name .* to 2 while"
    with pytest.raises(RecordError, match=told):
        read_all(embedded, subscribe="a", includeHeaders="true")


def test_it_is_told_by_code_that_has_run_often_too(embedded: EmbeddedKafka) -> None:
    """Then the interpreter calls what is written in C without a look at the error it has set."""
    embedded.create_topic("a", partitions=1)
    often = 100
    for _ in range(often):
        produce_with_header(embedded, "a", b"h")
    assert read_all(embedded, subscribe="a", includeHeaders="true") == often
    produce_with_header(embedded, "a", b"\xff")
    with pytest.raises(RecordError, match=f"a:0 has at offset {often} a header"):
        read_all(embedded, subscribe="a", includeHeaders="true")


def test_a_pattern_matches_whole_names(embedded: EmbeddedKafka) -> None:
    for topic in ("orders-1", "orders-2", "orders", "my-orders-1"):
        produce(embedded, topic, 1)
    found = planned(embedded, subscribePattern="orders-.*")
    assert found.keys() == {("orders-1", 0), ("orders-2", 0)}


def test_offsets_may_be_the_logs_ends(embedded: EmbeddedKafka) -> None:
    produce(embedded, "a", 5, 7)
    starting, ending = by_partition("a", {0: -2, 1: 3}), by_partition("a", {0: 2, 1: -1})
    found = planned(embedded, subscribe="a", startingOffsets=starting, endingOffsets=ending)
    assert found == {("a", 0): [(0, 2)], ("a", 1): [(3, 7)]}


def test_what_is_not_read_cant_be_bounded(embedded: EmbeddedKafka) -> None:
    produce(embedded, "a", 5)
    with pytest.raises(OptionError, match="names a:1, which does not exist") as raised:
        planned(embedded, subscribe="a", startingOffsets=by_partition("a", {0: 0, 1: 0}))
    assert raised.value.option == "startingOffsets"


@pytest.mark.parametrize("end", [2, -1])
def test_an_end_before_the_beginning_is_refused(embedded: EmbeddedKafka, end: int) -> None:
    """Also where it is the log's."""
    produce(embedded, "a", 3)
    boundaries = {
        "startingOffsets": by_partition("a", {0: 4}),
        "endingOffsets": by_partition("a", {0: end}),
    }
    with pytest.raises(OptionError, match=r"a:0 ends at [23], before it begins") as raised:
        planned(embedded, subscribe="a", **boundaries)
    assert raised.value.option == "endingOffsets"


# --- data loss ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "stop", "there"),
    [(1, 5, (3, 5)), (4, 9, (4, 6)), (0, 9, (3, 6)), (0, 2, None), (7, 9, None)],
)
def test_what_is_gone_is_told_or_skipped(
    embedded: EmbeddedKafka, start: int, stop: int, there: tuple[int, int] | None
) -> None:
    produce(embedded, "a", 6, alone=True)
    embedded.delete_records("a", 0, before=3)
    boundaries = {
        "subscribe": "a",
        "startingOffsets": by_partition("a", {0: start}),
        "endingOffsets": by_partition("a", {0: stop}),
    }
    asked = f"has the offsets 3 to 6, and {start} to {stop} are asked for"
    with pytest.raises(DataLossError, match=f"{asked}.* failOnDataLoss=false"):
        planned(embedded, **boundaries)
    found = planned(embedded, **boundaries, failOnDataLoss="false")
    assert found == ({} if there is None else {("a", 0): [there]})


def test_what_is_there_is_no_loss(embedded: EmbeddedKafka) -> None:
    produce(embedded, "a", 6, alone=True)
    embedded.delete_records("a", 0, before=3)
    assert planned(embedded, subscribe="a") == {("a", 0): [(3, 6)]}


def test_what_retention_takes_while_it_is_planned_is_no_loss(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(embedded, "a", 6, alone=True)
    found = LogOffsets.all_ends

    def late(logs: LogOffsets, of: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        embedded.delete_records("a", 0, before=3)
        return found(logs, of)

    monkeypatch.setattr(LogOffsets, "all_ends", late)
    assert planned(embedded, subscribe="a") == {("a", 0): [(3, 6)]}


@pytest.mark.parametrize("fails", ["true", "false"])
def test_what_an_open_transaction_keeps_back_is_no_loss(kafka: KafkaCluster, fails: str) -> None:
    """Whoever went on behind it, as with what is lost, would never read it."""
    topic = f"open-{time.time_ns()}"
    kafka.create_topic(topic)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce(topic, b"v", partition=0)
    assert producer.flush(60) == 0
    ends = {"subscribe": topic, "endingOffsets": by_partition(topic, {0: 5})}
    with pytest.raises(MembershipError, match=f"{topic}:0 from 0 on, and 5 is asked for"):
        planned(kafka, **ends, failOnDataLoss=fails)
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}
    assert planned(kafka, **ends, **uncommitted) == {(topic, 0): [(0, 5)]}
    producer.commit_transaction(60)
    assert planned(kafka, **ends, failOnDataLoss=fails) == {(topic, 0): [(0, 5)]}


# --- how it is read -------------------------------------------------------------------------------


def test_ranges_are_divided_among_tasks(embedded: EmbeddedKafka) -> None:
    produce(embedded, "a", 10, 2)
    found = planned(embedded, subscribe="a", maxRecordsPerPartition="4")
    assert found == {("a", 0): [(0, 3), (3, 6), (6, 10)], ("a", 1): [(0, 2)]}
    found = planned(embedded, subscribe="a", minPartitions="6")
    assert found == {("a", 0): [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)], ("a", 1): [(0, 2)]}


def test_a_streams_batches_are_divided_likewise(embedded: EmbeddedKafka) -> None:
    produce(embedded, "a", 10, 2)
    given = {
        "kafka.bootstrap.servers": embedded.bootstrap_servers,
        "kafka.group.id": "g",
        "assign": '{"a":[0,1]}',
        "startingOffsets": "earliest",
        "maxRecordsPerPartition": "4",
        "minPartitions": "5",
    }
    session = Session(stream_options(given))
    try:
        tasks = session.tasks({}, session.latest({}, limited=True))
        found = [(of.partition, *span) for task in tasks for of, span in task.parts()]
    finally:
        session.close()
    assert found == [(0, 0, 3), (0, 3, 6), (0, 6, 8), (0, 8, 10), (1, 0, 2)]


def test_a_task_reads_several_partitions_where_there_are_to_be_no_more_tasks(
    embedded: EmbeddedKafka,
) -> None:
    produce(embedded, "a", 3, 2, 4)
    made = reader(embedded, subscribe="a", maxPartitions="2")
    tasks = made.partitions()
    read = [
        [(batch.column("partition")[0].as_py(), batch.num_rows) for batch in made.read(task)]
        for task in tasks
    ]
    assert read == [[(0, 3), (1, 2)], [(2, 4)]]


def test_of_nothing_there_is_one_task_that_reads_nothing(embedded: EmbeddedKafka) -> None:
    """Spark would make one of its own of none."""
    produce(embedded, "a", 0)
    made = reader(embedded, subscribe="a")
    (task,) = made.partitions()
    assert list(made.read(task)) == []


def test_questions_for_offsets_are_repeated_as_often_and_as_late_as_told(
    embedded: EmbeddedKafka,
) -> None:
    produce(embedded, "a", 3)
    refused = [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2
    once = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "0"}
    embedded.fail("ListOffsets", *refused)
    with pytest.raises(MembershipError, match=r"subscribe: .*authorization failed.*describe"):
        planned(embedded, subscribe="a", **once)
    twice = {"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "1300"}
    embedded.fail("ListOffsets", *refused)
    embedded.track_requests()
    assert planned(embedded, subscribe="a", **twice) == {("a", 0): [(0, 3)]}
    first, second, third, *_ = (r.at for r in embedded.requests() if r.api == "ListOffsets")
    assert min(second - first, third - second) >= timedelta(milliseconds=1300), "not a second"


def test_a_batch_needs_no_right_to_any_group(embedded: EmbeddedKafka) -> None:
    """librdkafka looks for the coordinator of the group that it must be given."""
    embedded.fail("FindCoordinator", *[KafkaError.GROUP_AUTHORIZATION_FAILED] * 1000)
    embedded.track_requests()
    produce(embedded, "a", 3)

    def asked() -> int:
        return sum(r.api == "FindCoordinator" for r in embedded.requests())

    for _ in range(4):
        before = asked()
        assert read_all(embedded, subscribe="a") == 3
        wait_until(lambda: asked() > before, "no coordinator was looked for")  # noqa: B023  # at once


def test_a_task_gives_up_after_the_poll_timeout(embedded: EmbeddedKafka) -> None:
    produce(embedded, "a", 3)
    options = {"kafkaConsumer.pollTimeoutMs": "300", "kafka.log_level": "0"}
    made = reader(embedded, subscribe="a", **options)
    (task,) = made.partitions()
    embedded.broker_down(1)
    began = time.monotonic()
    with pytest.raises(MembershipError, match=r"in 0\.3 s.*kafkaConsumer\.pollTimeoutMs says"):
        list(made.read(task))
    assert time.monotonic() - began < 60, "not the default, two minutes"


# --- times ----------------------------------------------------------------------------------------

BEGAN = 1_700_000_000_000


@pytest.fixture(scope="module")
def timed(kafka: KafkaCluster) -> str:
    """A topic whose records are ten and five ms apart; the embedded broker knows no times."""
    topic = f"timed-{time.time_ns()}"
    kafka.create_topic(topic, partitions=2, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, step in ((0, 10), (1, 5)):
        for n in range(10):
            producer.produce(topic, b"v", partition=partition, timestamp=BEGAN + n * step)
    assert producer.flush(60) == 0
    return topic


def test_a_batch_begins_and_ends_at_times(kafka: KafkaCluster, timed: str) -> None:
    at = {"startingTimestamp": str(BEGAN + 20), "endingTimestamp": str(BEGAN + 41)}
    found = planned(kafka, subscribe=timed, **at)
    assert found == {(timed, 0): [(2, 5)], (timed, 1): [(4, 9)]}


def test_partitions_begin_and_end_at_their_own_times(kafka: KafkaCluster, timed: str) -> None:
    at = {
        "startingOffsetsByTimestamp": by_partition(timed, {0: BEGAN + 1, 1: BEGAN + 40}),
        "endingOffsetsByTimestamp": by_partition(timed, {0: BEGAN + 30, 1: BEGAN + 1000}),
    }
    found = planned(kafka, subscribe=timed, **at)
    assert found == {(timed, 0): [(1, 3)], (timed, 1): [(8, 10)]}, "an end may be still to come"


def test_a_beginning_still_to_come_is_an_error_or_the_logs_end(
    kafka: KafkaCluster, timed: str
) -> None:
    later = {"subscribe": timed, "startingTimestamp": str(BEGAN + 46)}
    with pytest.raises(OptionError, match=f"{timed}:1 has no record at or after") as raised:
        planned(kafka, **later)
    assert raised.value.option == "startingTimestamp"
    found = planned(kafka, **later, startingOffsetsByTimestampStrategy="latest")
    assert found == {(timed, 0): [(5, 10)]}
