from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_coop.fetching import ranges
from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.fetching.ranges import NoProgressError, OffsetsGoneError, RangeFetcher
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.types import TopicPartition

PATIENCE = timedelta(seconds=60)
_NAMES = (f"ranges-{time.time_ns()}-{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def real(local_kafka: KafkaCluster) -> KafkaCluster:
    return local_kafka


@pytest.fixture
def fetcher(real: KafkaCluster) -> Iterator[RangeFetcher]:
    made = RangeFetcher(_config(real), doubt=timedelta(0))
    yield made
    made.close()


@pytest.fixture(scope="module")
def hundred(real: KafkaCluster) -> TopicPartition:
    return _topic(real, 100)


def _config(kafka: KafkaCluster) -> dict[str, str]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "ranges",
        "fetch.queue.backoff.ms": "10",
        "fetch.wait.max.ms": "10",  # else a range waits for an answer on what was read before it
    }


def _topic(kafka: KafkaCluster, records: int, **producer: str) -> TopicPartition:
    of = TopicPartition(next(_NAMES), 0)
    kafka.create_topic(of.topic, partitions=1, config={"retention.ms": "-1"})  # old timestamps
    if records:
        _produce(kafka, of, records, **producer)
    return of


def _produce(kafka: KafkaCluster, of: TopicPartition, records: int, **config: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **config})
    if config:
        producer.init_transactions(60)
    for n in range(records):
        if config:
            producer.begin_transaction()
        producer.produce(of.topic, str(n), timestamp=1000 * (n + 1))
        if config:
            producer.flush(60)  # else an abort purges what was not sent yet
            producer.commit_transaction(60) if n % 3 else producer.abort_transaction(60)
    assert producer.flush(60) == 0


def _read(fetcher: RangeFetcher, of: TopicPartition, start: int, stop: int) -> list[int]:
    return _read_all(fetcher, {of: range(start, stop)})[of]


def _read_all(
    fetcher: RangeFetcher, ranges: Mapping[TopicPartition, range]
) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {of: [] for of in ranges}
    for of, messages in fetcher.read(ranges, patience=PATIENCE):
        assert messages
        assert {(m.topic(), m.partition()) for m in messages} == {of}
        found[of] += [m.offset() or 0 for m in messages]
    return found


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted), max_size=6))
def test_ranges_are_read_whole_in_any_order(
    fetcher: RangeFetcher, hundred: TopicPartition, spans: list[list[int]]
) -> None:
    for start, stop in spans:
        assert _read(fetcher, hundred, start, stop) == list(range(start, stop))


def test_the_next_range_needs_no_new_assignment(
    fetcher: RangeFetcher, hundred: TopicPartition
) -> None:
    _read(fetcher, hundred, 0, 10)
    assert fetcher.stands_at(hundred, 10)
    assert _read(fetcher, hundred, 10, 100) == list(range(10, 100))


@pytest.fixture(scope="module")
def several(real: KafkaCluster) -> list[TopicPartition]:
    """Of two topics, with more records than one fetch brings; those of one number after another."""
    made = []
    for _ in range(2):
        topic = next(_NAMES)
        real.create_topic(topic, partitions=3)
        made += [TopicPartition(topic, n) for n in range(3)]
    producer = Producer({"bootstrap.servers": real.bootstrap_servers})
    for of in made:
        for _ in range(LONG):
            producer.produce(of.topic, b"x", partition=of.partition)
    assert producer.flush(60) == 0
    return made


LONG = 3000

BOUNDS = st.tuples(st.integers(0, LONG), st.integers(0, LONG)).map(sorted)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.dictionaries(st.integers(0, 5), BOUNDS), max_size=4), st.integers(0, LONG))
def test_ranges_of_several_partitions_are_read_whole_at_once(
    fetcher: RangeFetcher,
    several: list[TopicPartition],
    reads: list[dict[int, list[int]]],
    ahead: int,
) -> None:
    """One after the other, whichever partitions are read, and whatever is kept beyond an end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_AHEAD", ahead)
        for read in reads:
            wanted = {several[n]: range(*span) for n, span in read.items()}
            found = _read_all(fetcher, wanted)
            assert found == {of: list(span) for of, span in wanted.items()}


CUTS = st.lists(st.integers(0, LONG), min_size=4, max_size=4).map(sorted)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(CUTS, min_size=2, max_size=6))
def test_batch_after_batch_goes_on_where_the_last_one_ended(
    fetcher: RangeFetcher, several: list[TopicPartition], cuts: list[list[int]]
) -> None:
    """What was fetched beyond an end, the log's end among it, is the next batch's."""
    for n in range(3):
        batch = {of: range(*its[n : n + 2]) for of, its in zip(several, cuts, strict=False)}
        assert _read_all(fetcher, batch) == {of: list(span) for of, span in batch.items()}


class Scripted:
    """A consumer that gives what it is told to, and knows what it is to fetch."""

    def __init__(self, *chunks: list[Message]) -> None:
        self.fetched: set[tuple[str, int]] = set()
        self._chunks = [*chunks]

    def incremental_assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.fetched |= {(of.topic, of.partition) for of in partitions}

    def incremental_unassign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.fetched -= {(of.topic, of.partition) for of in partitions}

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        return self._chunks.pop(0)


@pytest.mark.parametrize(
    ("messages", "size", "is_kept"), [(5, 1000, True), (4, 1000, False), (5, 9, False)]
)
def test_what_is_far_ahead_of_the_others_is_fetched_no_further(
    fetcher: RangeFetcher,
    monkeypatch: pytest.MonkeyPatch,
    messages: int,
    size: int,
    is_kept: bool,
) -> None:
    monkeypatch.setattr(ranges, "_AHEAD", messages)
    monkeypatch.setattr(ranges, "_AHEAD_BYTES", size)

    def records(of: TopicPartition, *offsets: int) -> list[Message]:
        return [Message(topic=of.topic, partition=0, offset=n, value=b"12") for n in offsets]

    first, second, long = (TopicPartition(name, 0) for name in "abc")
    ahead = [*records(first, 0, 1, 2, 3), *records(second, 0, 1, 2)]  # five too many
    scripted = Scripted(ahead, records(long, 0, 1), records(long, 2))
    monkeypatch.setattr(fetcher, "_consumer", scripted)
    found = _read_all(fetcher, {first: range(1), second: range(1), long: range(3)})
    assert found == {first: [0], second: [0], long: [0, 1, 2]}
    assert fetcher.stands_at(first, 1) == fetcher.stands_at(second, 1) == is_kept
    assert scripted.fetched == ({first, second, long} if is_kept else {long})


def test_where_offsets_are_gone_the_others_are_read_on(
    fetcher: RangeFetcher, several: list[TopicPartition]
) -> None:
    """None of theirs a second time, and none left out."""
    gone, *others = several
    found: dict[TopicPartition, list[int]] = {of: [] for of in others}
    left = {gone: range(LONG + 50, LONG + 60)} | {of: range(LONG) for of in others}

    def read_on() -> None:
        for of, messages in fetcher.read(left, patience=PATIENCE):
            found[of] += [m.offset() or 0 for m in messages]
            left[of] = range(found[of][-1] + 1, LONG)

    with pytest.raises(OffsetsGoneError) as raised:
        read_on()
    assert raised.value.of == gone
    for of, offsets in _read_all(fetcher, left | {gone: range(5)}).items():
        assert found.get(of, []) + offsets == list(range(5 if of == gone else LONG))


def test_a_range_may_end_where_no_record_is(real: KafkaCluster, fetcher: RangeFetcher) -> None:
    """Transactions leave markers, and aborted records: the log's last offset is a marker's."""
    of = _topic(real, 9, **{"transactional.id": next(_NAMES)})
    (end,) = LogOffsets(_config(real), read_committed=True).all_ends([of]).values()
    assert end == 18
    assert _read(fetcher, of, 0, end) == [n for n in range(0, 18, 2) if n % 6]
    assert _read(fetcher, of, 5, 9) == [8]
    assert _read(fetcher, of, 9, 10) == []
    assert _read(fetcher, of, 10, 18) == [10, 14, 16]


def test_offsets_that_are_gone_are_told(real: KafkaCluster, fetcher: RangeFetcher) -> None:
    of = _topic(real, 5)
    with pytest.raises(OffsetsGoneError) as raised:
        _read(fetcher, of, 50, 60)
    assert (raised.value.of, raised.value.offset) == (of, 50)
    assert fetcher.extent(of, PATIENCE) == (0, 5)
    assert _read(fetcher, of, 0, 5) == list(range(5))


class Told:
    """A consumer that is told something else first, by a broker whose logs seem to end at 40."""

    def __init__(self, consumer: Consumer, *told: Message) -> None:
        self._consumer = consumer
        self._told = [*told]
        self.wrong_ends = 2

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def consume(self, count: int, timeout: float) -> list[Message]:
        found = self._consumer.consume(count, timeout)
        if found:
            found[:0] = self._told
            self._told.clear()
        return found

    def get_watermark_offsets(self, of: confluent_kafka.TopicPartition, timeout: float) -> Any:
        if self.wrong_ends:
            self.wrong_ends -= 1
            return 0, 40
        return self._consumer.get_watermark_offsets(of, timeout)


def error(of: TopicPartition, code: int, at: int = -1001) -> Message:
    return Message(topic=of.topic, partition=of.partition, offset=at, error=KafkaError(code))


RESET = KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize(("doubt", "believed"), [(60, False), (0, True)])
def test_the_end_of_a_log_from_before_a_crash_is_not_believed_at_once(
    real: KafkaCluster, hundred: TopicPartition, doubt: int, *, believed: bool
) -> None:
    fetcher = RangeFetcher(_config(real), doubt=timedelta(seconds=doubt))
    crashed = Told(fetcher._consumer, error(hundred, RESET))
    fetcher._consumer = crashed  # type: ignore[assignment]
    with closing(fetcher):
        if believed:
            with pytest.raises(OffsetsGoneError):
                _read(fetcher, hundred, 50, 60)
        else:
            assert _read(fetcher, hundred, 50, 60) == list(range(50, 60))
            assert not crashed.wrong_ends


def test_others_go_on_where_one_begins_anew(
    fetcher: RangeFetcher, several: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = several[:2]
    crashed = Told(fetcher._consumer, error(one, RESET))
    crashed.wrong_ends = 0
    monkeypatch.setattr(fetcher, "_consumer", crashed)
    wanted = {one: range(50, 60), other: range(LONG)}
    assert _read_all(fetcher, wanted) == {of: list(span) for of, span in wanted.items()}


@pytest.mark.parametrize("count", [1, 2])
def test_what_was_under_way_when_a_partition_was_let_go_is_not_anothers(
    fetcher: RangeFetcher,
    several: list[TopicPartition],
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    gone, *others = several[: count + 1]
    _read_all(fetcher, {of: range(5) for of in (gone, *others)})
    late = Message(topic=gone.topic, partition=gone.partition, offset=5, value=b"late")
    end = error(gone, KafkaError._PARTITION_EOF, 5)
    monkeypatch.setattr(fetcher, "_consumer", Told(fetcher._consumer, late, end))
    wanted = {of: range(2000, LONG) for of in others}
    assert _read_all(fetcher, wanted) == {of: list(span) for of, span in wanted.items()}


def test_what_was_written_after_the_logs_end_was_told_is_read(
    fetcher: RangeFetcher, hundred: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(fetcher._consumer, error(hundred, KafkaError._PARTITION_EOF, 10))
    monkeypatch.setattr(fetcher, "_consumer", told)
    assert _read(fetcher, hundred, 10, 100) == list(range(10, 100))


def test_what_never_comes_is_not_waited_for_for_ever(
    real: KafkaCluster, fetcher: RangeFetcher
) -> None:
    of, other, whole = (_topic(real, 5) for _ in range(3))
    with pytest.raises(NoProgressError, match=f"{of.topic}:0 at offset 5 came") as raised:
        list(fetcher.read({of: range(6)}, patience=timedelta(seconds=1)))
    assert raised.value.waited_for == {of: 5}
    wanted = {of: range(7), other: range(8), whole: range(5)}
    with pytest.raises(NoProgressError, match="nor of 1 other") as raised:
        list(fetcher.read(wanted, patience=timedelta(seconds=5)))  # for what is there, too
    assert raised.value.waited_for == {of: 5, other: 5}


def test_logs_tell_their_ends_and_times(real: KafkaCluster) -> None:
    full, empty = _topic(real, 5), _topic(real, 0)
    logs = LogOffsets(_config(real), read_committed=True)
    assert logs.ends([full, empty]) == {full: 5, empty: 0}
    assert logs.beginnings([full, empty]) == {full: 0, empty: 0}
    assert logs.at_times({full: 2500, empty: 2500}) == {full: 2, empty: None}
    assert logs.at_times({full: 9000}) == {full: None}
    counts = logs.partition_counts([full.topic, "no-such-topic"], f"^{empty.topic}$")
    assert counts == {full.topic: 1, empty.topic: 1}


def test_a_topic_that_is_made_anew_has_another_id(real: KafkaCluster) -> None:
    here, unknown = _topic(real, 1).topic, "no-such-topic"
    logs = LogOffsets(_config(real), read_committed=True)
    assert logs.topic_ids([here], timeout=10) == {}, "before it is known who may be asked"
    logs.partition_counts()
    first = logs.topic_ids([here, unknown], timeout=10)
    assert first == logs.topic_ids([here], timeout=10) != {}
    assert unknown not in logs.partition_counts([unknown]), "to ask makes none"
    real.delete_topic(here)
    real.create_topic(here)
    assert logs.topic_ids([here], timeout=10).keys() == first.keys()
    assert logs.topic_ids([here], timeout=10) != first


def test_where_no_controller_is_nobody_is_waited_for(embedded: EmbeddedKafka) -> None:
    embedded.create_topic("a")
    logs = LogOffsets({"bootstrap.servers": embedded.bootstrap_servers}, read_committed=True)
    assert logs.partition_counts(["a"]) == {"a": 1}
    before = time.monotonic()
    assert logs.topic_ids(["a"], timeout=60) == {}
    assert time.monotonic() - before < 30


def test_a_pattern_means_no_internal_topics(real: KafkaCluster) -> None:
    full, internal = _topic(real, 1), "__consumer_offsets"
    group = Consumer(_config(real))
    with suppress(KafkaException):  # the first one makes the topic; nobody may lead it yet
        group.committed([confluent_kafka.TopicPartition(*full)], 30)
    group.close()
    logs = LogOffsets(_config(real), read_committed=True)
    wait_until(lambda: internal in logs.partition_counts([internal]), "no internal topic", PATIENCE)
    matched = logs.partition_counts(pattern="^.*$")
    assert full.topic in matched
    assert internal not in matched


def test_brokers_that_are_away_are_told() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
    logs = LogOffsets(nowhere, read_committed=True, timeout=timedelta(seconds=1), retries=0)
    with pytest.raises(Exception, match=r"_TIMED_OUT|_TRANSPORT|timed out|Timed out|Local"):
        logs.ends([TopicPartition("any", 0)])
