"""Where a stream begins by time, and that what is committed goes before that. On a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import pytest
from confluent_kafka import Producer
from spark_sessions import Box, batch, of_the_group, ranges

from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.spark.errors import OptionError
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.option_values import Boundary
from kafka_coop.spark.starting import _given, resolve
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.types import TopicPartition

BEGAN = 1_700_000_000_000
RECORDS = 10


@pytest.fixture
def timed(kafka: KafkaCluster) -> Iterator[Box]:
    """Of ten records a partition, one every ten ms in the first and every five in the second."""
    box = Box(kafka, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, step in ((0, 10), (1, 5)):
        for n in range(RECORDS):
            at = BEGAN + n * step
            producer.produce(box.topic, b"v", partition=partition, timestamp=at)
    assert producer.flush(60) == 0
    yield box
    box.close()


def at(box: Box, option: str, *times: int) -> dict[str, str | None]:
    """An option that says it: one time for both partitions, or one for each."""
    by_partition = {str(p): BEGAN + t for p, t in enumerate(times)}
    text = str(BEGAN + times[0]) if len(times) == 1 else json.dumps({box.topic: by_partition})
    return {option: text, "startingOffsets": None}


ONE, EACH = ("startingTimestamp", (20,)), ("startingOffsetsByTimestamp", (71, 40))
ONE_TOO_LATE, EACH_TOO_LATE = (ONE[0], (46,)), (EACH[0], (0, 46))
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


@pytest.mark.parametrize(
    ("option", "times", "first"), [(*ONE, {0: 2, 1: 4}), (*EACH, {0: 8, 1: 8})]
)
def test_a_stream_begins_at_a_time(
    timed: Box, option: str, times: tuple[int, ...], first: dict[int, int]
) -> None:
    end = batch(timed.session(**at(timed, option, *times)))
    assert ranges(end) == {p: Range(offset, RECORDS) for p, offset in first.items()}


@pytest.mark.parametrize(("option", "times"), [ONE_TOO_LATE, EACH_TOO_LATE])
@pytest.mark.parametrize("strategy", [{}, {"startingOffsetsByTimestampStrategy": "error"}])
def test_a_time_later_than_all_records_is_told(
    timed: Box, option: str, times: tuple[int, ...], strategy: dict[str, str]
) -> None:
    session = timed.session(**at(timed, option, *times), **strategy)
    with pytest.raises(OptionError, match=f"{timed.topic}:1 has no record at or after") as raised:
        session.latest({}, limited=True)
    assert raised.value.option == option


@pytest.mark.verdict
@pytest.mark.parametrize(
    ("option", "times", "first"), [(*ONE_TOO_LATE, {0: 5}), (*EACH_TOO_LATE, {0: 0})]
)
def test_or_it_is_where_the_log_ends_and_then_stays_there(
    timed: Box, option: str, times: tuple[int, ...], first: dict[int, int]
) -> None:
    """Where it begins is committed: who dies before its first batch of it skips nothing."""
    early = timed.session(**at(timed, option, *times), **LATEST)
    assert ranges(batch(early)) == {p: Range(offset, RECORDS) for p, offset in first.items()}
    early.close()
    assert of_the_group(timed) == [first[0], RECORDS]
    timed.produce(2, 1)
    again = batch(timed.session(**at(timed, option, *times), **LATEST))
    assert ranges(again)[1] == Range(RECORDS, RECORDS + 2)


@pytest.mark.verdict
@pytest.mark.parametrize(("option", "times"), [ONE, EACH, ONE_TOO_LATE, EACH_TOO_LATE])
@pytest.mark.parametrize("strategy", [{}, LATEST], ids=["error", "latest"])
def test_what_is_committed_goes_before_a_time(
    timed: Box, option: str, times: tuple[int, ...], strategy: dict[str, str]
) -> None:
    """Also before a time that would else be an error."""
    first = timed.session(maxOffsetsPerTrigger="2")
    end = batch(first)
    first.latest(end, limited=True)
    first.close()
    done = of_the_group(timed)
    assert sum(offset or 0 for offset in done) == 2
    found = ranges(batch(timed.session(**at(timed, option, *times), **strategy)))
    assert found == {p: Range(offset or 0, RECORDS) for p, offset in enumerate(done)}


class Growing(LogOffsets):
    """A log without a record so late, until the question for it is answered."""

    def __init__(self) -> None:
        self.end = 5

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self.end += 1
        return dict.fromkeys(times)

    def all_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)


def test_a_record_that_comes_while_it_is_asked_for_a_time_is_not_skipped() -> None:
    boundary = Boundary(option="startingTimestamp", timestamp=BEGAN)
    of = TopicPartition("a", 0)
    assert resolve(boundary, [of], Growing(), latest_if_none=True) == {of: 5}


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("startingOffsets", r"name every partition \(-2: earliest, -1: latest\)$"),
        ("endingOffsets", r"name every partition \(-1: latest\)$"),
        ("startingOffsetsByTimestamp", "name every partition$"),
        ("endingOffsetsByTimestamp", "name every partition$"),
    ],
)
def test_what_may_be_said_of_a_partition_is_what_the_option_takes(option: str, remedy: str) -> None:
    with pytest.raises(OptionError, match=remedy):
        _given(option, {}, [TopicPartition("t", 0)])
