"""A topic that is deleted and made anew has the name and, soon, the offsets of the one before."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from spark_sessions import (
    Box,
    Offset,
    batch,
    end_of_who_died,
    five_committed,
    of_the_group,
    ranges,
    tasks,
)

from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.spark import extents, identities
from kafka_coop.spark.batch import BatchReader
from kafka_coop.spark.errors import DataLossError
from kafka_coop.spark.holdings import Committed, Holdings
from kafka_coop.spark.identities import Identities
from kafka_coop.spark.offsets import Known, Range, SourceOffset, parse_offset, without
from kafka_coop.spark.options import batch_options
from kafka_coop.spark.reading import read_task
from kafka_coop.spark.session import Session
from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.types import TopicPartition

TOLD = r"deleted and made anew since the query read it: session-.* \(id \S{22} before\).*failOnData"
ALL = {0: Range(0, 9), 1: Range(0, 9)}
"""More than the topic had before: by its offsets alone it passes for the same."""


@pytest.fixture
def box(kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """Of a real broker: the embedded one deletes no topics. Ids are asked for each time."""
    monkeypatch.setattr(identities, "_HOLD", 0.0)
    made = Box(kafka)
    yield made
    made.close()


def make_anew(box: Box, records: int = 9) -> None:
    assert isinstance(box.kafka, KafkaCluster)
    box.kafka.delete_topic(box.topic)
    box.kafka.create_topic(box.topic, partitions=2)
    box.produce(records)


@pytest.mark.parametrize("times", [1, 2])
def test_a_checkpoint_of_the_one_before_is_refused(box: Box, times: int) -> None:
    end = five_committed(box)
    make_anew(box)
    for _ in range(times):
        with pytest.raises(DataLossError, match=TOLD):
            box.session().latest(end, limited=True)


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_it_is_begun_from_its_beginning_where_that_may_be(
    box: Box, starting: str, caplog: pytest.LogCaptureFixture
) -> None:
    end = five_committed(box)
    make_anew(box)
    session = box.session(failOnDataLoss="false", startingOffsets=starting)
    with caplog.at_level(logging.WARNING, "kafka_coop.spark"):
        last = batch(session, end)
    assert ranges(last) == ALL
    assert "failOnDataLoss=false: deleted and made anew" in caplog.text
    session.latest(last, limited=True)
    session.close()
    assert of_the_group(box) == [9, 9]
    box.produce(1)
    assert ranges(batch(box.session(), last)) == {0: Range(9, 10), 1: Range(9, 10)}


def test_under_a_query_that_runs_it_is_told(box: Box) -> None:
    session = box.session()
    box.produce(5)
    end = batch(session, {})
    make_anew(box)
    with pytest.raises(DataLossError, match=TOLD):
        batch(session, end)


def test_under_a_query_that_runs_it_is_begun_from_its_beginning(box: Box) -> None:
    session = box.session(failOnDataLoss="false")
    box.produce(5)
    end = batch(session, {})
    make_anew(box)
    last = batch(session, end)
    assert ranges(last) == ALL
    assert last["ids"] != end["ids"]
    assert box.topic in end["topics"]
    assert last["topics"] == {}, "partitions that come later are read from their beginnings, too"
    session.latest(last, limited=True)
    wait_until(lambda: of_the_group(box) == [9, 9], "the group knows other offsets")


@pytest.mark.parametrize(("before", "fails"), [(5, "true"), (50, "true"), (50, "false")])
def test_what_is_committed_of_the_one_before_while_a_run_ends_does_not_count(
    box: Box, before: int, fails: str
) -> None:
    """While its last batch ran it was made anew: it is durable, and committed, before it is told.

    The brokers take it for the new one's, of which it may even be a position.
    """
    box.produce(before)
    session = box.session(failOnDataLoss=fails)
    end = batch(session, {})
    make_anew(box)
    if fails == "true":
        with pytest.raises(DataLossError, match=TOLD):
            session.latest(end, limited=True)
    else:
        assert session._planner is not None
        session._settle(session._planner.member, end)  # and it dies
    session.close()
    wait_until(lambda: of_the_group(box) == [before, before], "the group knows other offsets")
    assert ranges(batch(box.session(failOnDataLoss="false"), end)) == ALL
    assert of_the_group(box) == [0, 0], "who takes it over now would begin in its midst"


@pytest.mark.usefixtures("own_worker")
def test_a_worker_that_has_read_the_one_before_reads_the_new_one(box: Box) -> None:
    session = box.session(failOnDataLoss="false")
    box.produce(5)
    end = batch(session, {})
    assert len(box.read(session, {}, end)) == 10
    make_anew(box)
    last = batch(session, end)
    assert box.read(session, end, last) == [(p, n) for p in (0, 1) for n in range(9)]


@pytest.mark.usefixtures("own_worker")
def test_what_a_worker_has_fetched_ahead_of_the_one_before_is_not_of_the_new_one(box: Box) -> None:
    """Another worker has read the new one up to where this one stands in the old."""
    old, new = [b"old"] * 8, [b"new"] * 8
    produce_values(box, old)
    session = box.session(failOnDataLoss="false", maxOffsetsPerTrigger="10")
    end = batch(session, {})
    assert read_values(session, {}, end) == old[:5] * 2
    make_anew(box, 0)
    produce_values(box, new)
    middle = batch(session, end)
    assert ranges(middle) == {0: Range(0, 5), 1: Range(0, 5)}
    last = batch(session, middle)
    assert ranges(last) == {0: Range(5, 8), 1: Range(5, 8)}
    assert read_values(session, middle, last) == new[5:] * 2


@pytest.mark.usefixtures("own_worker")
def test_nor_is_it_for_a_batch(box: Box) -> None:
    def values(start: int, stop: int) -> list[bytes]:
        reader = BatchReader(
            batch_options(
                {
                    "kafka.bootstrap.servers": box.kafka.bootstrap_servers,
                    "assign": json.dumps({box.topic: [0]}),
                    "startingOffsets": json.dumps({box.topic: {"0": start}}),
                    "endingOffsets": json.dumps({box.topic: {"0": stop}}),
                }
            )
        )
        batches = [one for task in reader.partitions() for one in reader.read(task)]
        return [value for one in batches for value in one.column("value").to_pylist()]

    produce_values(box, [b"old"] * 8)
    assert values(0, 5) == [b"old"] * 5
    make_anew(box, 0)
    produce_values(box, [b"new"] * 8)
    assert values(5, 8) == [b"new"] * 3


def produce_values(box: Box, values: list[bytes]) -> None:
    """To each of the two partitions."""
    producer = Producer({"bootstrap.servers": box.kafka.bootstrap_servers})
    for value in values:
        for partition in (0, 1):
            producer.produce(box.topic, value, partition=partition)
    assert producer.flush(30) == 0


def read_values(session: Session, start: Offset, end: Offset) -> list[bytes]:
    """As this process's tasks do."""
    return [
        value
        for task in session.tasks(start, end)
        for records in read_task(session._options, task)
        for value in records.column("value").to_pylist()
    ]


def test_the_ends_of_the_log_before_do_not_count(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "_HOLD", 1000.0)
    session = box.session(failOnDataLoss="false", maxOffsetsPerTrigger="8")
    box.produce(20)
    end = batch(session, {})
    make_anew(box, 3)
    assert ranges(batch(session, end)) == {0: Range(0, 3), 1: Range(0, 3)}


def test_what_a_batch_was_to_read_again_is_gone(box: Box) -> None:
    end = end_of_who_died(box)
    make_anew(box)
    with pytest.raises(DataLossError, match=TOLD):
        box.session().tasks({}, end)
    session = box.session(failOnDataLoss="false")
    assert tasks(session, {}, end) == {}
    assert ranges(batch(session, end)) == ALL


def test_a_run_that_ends_reads_what_it_found(box: Box) -> None:
    end = five_committed(box)
    make_anew(box)
    session = box.session(failOnDataLoss="false")
    session.aim_at_what_is_there()
    last = batch(session, end)
    assert ranges(last) == ALL
    box.produce(1)
    assert session.latest(last, limited=True) == last


def test_a_run_that_ends_leaves_what_came_since_it_began(box: Box) -> None:
    session = box.session(failOnDataLoss="false")
    box.produce(5)
    session.aim_at_what_is_there()
    end = batch(session, {})
    make_anew(box)
    assert session.latest(end, limited=True) == end
    session.close()
    assert ranges(batch(box.session(failOnDataLoss="false"), end)) == ALL


# --- whom to ask, and when -----------------------------------------------------------------


class Logs(LogOffsets):
    """Tells what a test says."""

    def __init__(self, **ids: str) -> None:
        self.ids: Mapping[str, str] = ids
        self.asked: list[list[str]] = []

    def topic_ids(self, topics: object, *, timeout: float) -> dict[str, str]:  # its signature
        assert isinstance(topics, list)
        self.asked.append(topics)
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(identities, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_it_is_asked_once_a_second_and_at_once_where_something_came(clock: list[float]) -> None:
    logs = Logs(a="1", b="2")
    known = Identities(logs, {})
    assert known.made_anew(["a"]) == known.made_anew(["a"]) == {}
    assert logs.asked == [["a"]]
    known.made_anew(["a", "b"])
    known.made_anew(["b"], at_once=True)
    assert logs.asked == [["a"], ["a", "b"], ["b"]]
    clock[0] += 1.1
    logs.ids = {"a": "1", "b": "3"}
    assert known.made_anew(["a", "b"]) == {"b": "2"}
    assert known.known == logs.ids
    clock[0] += 1.1
    assert known.made_anew(["a", "b"]) == {}, "told once"


def test_brokers_that_do_not_tell_are_asked_seldom(clock: list[float]) -> None:
    logs = Logs()
    known = Identities(logs, {"a": "1"})
    for _ in range(5):
        assert known.made_anew(["a"]) == {}
        clock[0] += 1.1
    assert logs.asked == [["a"]]
    clock[0] += 10
    logs.ids = {"a": "2"}
    assert known.made_anew(["a"]) == {"a": "1"}


def test_who_is_gone_is_remembered(clock: list[float]) -> None:
    logs = Logs(a="1")
    known = Identities(logs, {})
    known.made_anew(["a"])
    clock[0] += 100
    logs.ids = {}
    assert known.made_anew(["a"]) == {}
    clock[0] += 100
    logs.ids = {"a": "2"}
    assert known.made_anew(["a"]) == {"a": "1"}


# --- what it means for what is held --------------------------------------------------------

ONE, OTHER = TopicPartition("a", 0), TopicPartition("b", 0)


@pytest.mark.parametrize("plans", [True, False], ids=["planning", "at rest"])
def test_nothing_that_was_known_of_it_counts_any_more(plans: bool) -> None:
    holdings = Holdings("run", "before")
    logged = SourceOffset(
        group="g", id="i", run="before", ranges={ONE: Range(0, 5), OTHER: Range(0, 7)}
    )
    holdings.remember(logged, durable=True)
    known = {ONE: Committed(offset=5, run="before"), OTHER: Committed(offset=7, run="before")}
    for of, its in known.items():
        position = holdings.position_from(of, its)
        assert position is not None
        holdings.hold(of, position, its)
    if plans:
        holdings.renew()
    holdings.start_over({"a"})
    assert {of: hold.position for of, hold in holdings.held.items()} == {ONE: 0, OTHER: 7}
    assert holdings.position_from(ONE, known[ONE]) is None
    assert holdings.news() == {ONE: 0, OTHER: 7}, "the group is to know, under a claim of its own"
    assert holdings.ready() == {}, "nothing is read before that"
    assert holdings.claim(ONE).unread


def test_an_offset_without_them_has_the_others() -> None:
    offset = SourceOffset(
        group="g",
        id="i",
        run="r",
        topics={"a": 1, "b": 1},
        ids={"a": "1", "b": "2"},
        ranges={ONE: Range(0, 5), OTHER: Range(0, 7)},
        known={of: Known(4, frozenset({"r"})) for of in (ONE, OTHER)},
    )
    left = without(offset, {"a"})
    assert (left.topics, left.ranges) == ({"b": 1}, {OTHER: Range(0, 7)})
    assert left.known.keys() == {OTHER}
    assert without(offset, ()) == offset


def test_offsets_from_before_say_nothing_of_ids() -> None:
    logged: Offset = {"v": 1, "group": "g", "id": "i", "run": "r", "topics": {}, "tps": {}}
    found = parse_offset(logged, group="g")
    assert found is not None
    assert found.ids == {}
