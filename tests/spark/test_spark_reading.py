"""The consumers that a worker keeps from task to task. They are stand-ins here."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_coop.fetching.ranges import NoProgressError, OffsetsGoneError, UnreadableError
from kafka_coop.spark import reading
from kafka_coop.spark.errors import MembershipError, SparkSourceError
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.options import ReadOptions, batch_options
from kafka_coop.spark.reading import RangeTask, read_task
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import TopicPartition

pytestmark = pytest.mark.usefixtures("own_worker")

OPTIONS = batch_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"})


class Fetcher:
    """Reads nothing, and knows what became of it."""

    made: list[Fetcher]

    def __init__(self, config: Mapping[str, Any], *, doubt: timedelta) -> None:
        self.config = config
        self.doubt = doubt
        self.went_to: list[dict[TopicPartition, int]] = []
        self.read_from: list[dict[TopicPartition, range]] = []
        self.closed = False
        self.made.append(self)

    def go_to(self, starts: Mapping[TopicPartition, int]) -> None:
        self.went_to.append(dict(starts))

    def read(
        self, ranges: Mapping[TopicPartition, range], *, patience: timedelta
    ) -> Iterator[tuple[TopicPartition, list[Message]]]:
        assert not self.closed
        assert patience
        self.read_from.append(dict(ranges))
        return iter(())

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fetchers(monkeypatch: pytest.MonkeyPatch) -> list[Fetcher]:
    """Those that were made, in order."""
    Fetcher.made = []
    monkeypatch.setattr(reading, "RangeFetcher", Fetcher)
    return Fetcher.made


def run(partition: int, options: ReadOptions = OPTIONS) -> None:
    task = RangeTask((TopicPartition("a", partition), Range(0, 1)))
    assert list(read_task(options, task)) == []


def test_a_partitions_next_task_has_its_last_ones_consumer(fetchers: list[Fetcher]) -> None:
    for partition in (0, 1, 0, 1):
        run(partition)
    assert [[of.partition for of in read] for made in fetchers for read in made.read_from] == [
        [0],
        [0],
        [1],
        [1],
    ]
    assert len(fetchers) == 2


def test_the_next_part_is_fetched_while_one_is_read(fetchers: list[Fetcher]) -> None:
    a, b = (TopicPartition("a", n) for n in range(2))
    parts = [(a, Range(0, 5)), (a, Range(5, 9)), (b, Range(3, 4))]
    assert list(read_task(OPTIONS, RangeTask(*parts))) == []
    first, second = fetchers
    assert first.read_from == [{a: range(5)}, {a: range(5, 9)}]
    assert first.went_to == [], "it may not leave what it reads"
    assert (second.went_to, second.read_from) == ([{b: 3}], [{b: range(3, 4)}])


def test_many_partitions_of_a_task_are_read_by_one_consumer(fetchers: list[Fetcher]) -> None:
    """Whichever they are; a range that was divided is one again. Long ones have one each."""
    many = [TopicPartition("a", n) for n in range(reading._APART + 1)]
    parts = [(of, Range(n, n + 5)) for n, of in enumerate(many)]
    task = RangeTask(*parts, (many[-1], Range(len(many) + 4, 100)))
    for _ in range(2):
        assert list(read_task(OPTIONS, task)) == []
    (one,) = fetchers
    wanted = {of: range(n, n + 5) for n, of in enumerate(many)}
    assert one.read_from == [wanted | {many[-1]: range(len(many) - 1, 100)}] * 2
    others = [(TopicPartition("b", n), Range(0, 1)) for n in range(len(many))]
    assert list(read_task(OPTIONS, RangeTask(*others))) == []
    assert len(fetchers) == 1
    long = [(of, Range(100, 100 + reading._AHEAD + 1)) for of in many]
    assert list(read_task(OPTIONS, RangeTask(*long))) == []
    assert len(fetchers) == 1 + len(many)


def test_a_log_that_ends_too_early_is_asked_as_often_as_the_options_say(
    fetchers: list[Fetcher],
) -> None:
    told = {"fetchOffset.numRetries": "4", "fetchOffset.retryIntervalMs": "500"}
    run(0, batch_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"} | told))
    assert fetchers[0].doubt == timedelta(seconds=2)


def test_other_options_have_another_consumer(fetchers: list[Fetcher]) -> None:
    changed = batch_options(
        {
            "kafka.bootstrap.servers": "localhost:9092",
            "kafka.isolation.level": "read_uncommitted",
            "subscribe": "a",
        }
    )
    run(0)
    run(0, changed)
    assert [made.config.get("isolation.level") for made in fetchers] == [None, "read_uncommitted"]


TOLERANT = dataclasses.replace(OPTIONS, fail_on_data_loss=False)
"""With failOnDataLoss=false."""

AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))
DELETED = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


def reads(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, extent: tuple[int, int] | Exception
) -> None:
    """What comes of reading, the first time, and of the question what there is."""

    def read(*_: Any, **__: Any) -> Iterator[list[Message]]:
        monkeypatch.setattr(Fetcher, "read", lambda *_, **__: iter(()))
        raise raised

    def answer(*_: Any) -> tuple[int, int]:
        if isinstance(extent, Exception):
            raise extent
        return extent

    monkeypatch.setattr(Fetcher, "read", read)
    monkeypatch.setattr(Fetcher, "extent", answer, raising=False)


GONE = OffsetsGoneError(TopicPartition("a", 0), 0)
NOTHING_CAME = NoProgressError({TopicPartition("a", 0): 0}, timedelta(seconds=1))


@pytest.mark.parametrize(
    ("raised", "extent"),
    [(GONE, (0, 0)), (GONE, DELETED), (NOTHING_CAME, (0, 0)), (NOTHING_CAME, DELETED)],
)
@pytest.mark.usefixtures("fetchers")
def test_what_is_gone_may_be_skipped(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    raised: Exception,
    extent: tuple[int, int] | Exception,
) -> None:
    reads(monkeypatch, raised, extent)
    run(0, TOLERANT)
    assert "gone and skipped" in caplog.text


def test_where_one_is_gone_the_others_are_read_on_from_where_they_are(
    monkeypatch: pytest.MonkeyPatch, fetchers: list[Fetcher]
) -> None:
    """Of the log that lost records, from where it begins now; of one that ended, no more."""
    a, b, c = (TopicPartition("a", n) for n in range(3))
    begin = Fetcher.read
    answers: list[Exception] = [OffsetsGoneError(a, 0), NoProgressError({c: 0}, timedelta(0))]

    def read(self: Fetcher, ranges: Any, *, patience: timedelta) -> Iterator[Any]:
        yield from begin(self, ranges, patience=patience)
        if answers:
            yield b, [Message(topic="a", partition=1, offset=5 - len(answers), timestamp=(1, 0))]
            raise answers.pop(0)

    monkeypatch.setattr(Fetcher, "read", read)
    extents = {a: (2, 9), c: (0, 0)}
    monkeypatch.setattr(Fetcher, "extent", lambda _, of, __: extents[of], raising=False)
    monkeypatch.setattr(reading, "_APART", 2)
    parts = [(of, Range(0, 6)) for of in (a, b, c)]
    batches = list(read_task(TOLERANT, RangeTask(*parts)))
    assert [
        (r.column("partition")[0].as_py(), r.column("offset").to_pylist()) for r in batches
    ] == [(1, [3, 4])]
    (one,) = fetchers
    assert one.read_from == [
        {a: range(6), b: range(6), c: range(6)},
        {a: range(2, 6), b: range(4, 6), c: range(6)},
        {a: range(2, 6), b: range(5, 6), c: range(0)},
    ]


@pytest.mark.parametrize(
    ("raised", "extent", "told"),
    [
        (GONE, AWAY, KafkaException),
        (NOTHING_CAME, AWAY, MembershipError),
        (NOTHING_CAME, (0, 1), MembershipError),
    ],
)
@pytest.mark.usefixtures("fetchers")
def test_what_may_be_there_is_not_skipped(
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    extent: tuple[int, int] | Exception,
    told: type[Exception],
) -> None:
    reads(monkeypatch, raised, extent)
    with pytest.raises(told):
        run(0, TOLERANT)


@pytest.mark.parametrize(
    ("of", "code", "said"),
    [
        (
            TopicPartition("a", 0),
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            "no right to read a:0: grant READ and DESCRIBE on the topics of option subscribe,",
        ),
        (TopicPartition("a", 0), KafkaError._BAD_MSG, "a:0 can't be read: Local: Bad message"),
        (None, KafkaError._FATAL, "what option subscribe names can't be read: Local: Fatal"),
    ],
)
@pytest.mark.usefixtures("fetchers")
def test_what_the_brokers_refuse_names_the_partition_and_the_option(
    monkeypatch: pytest.MonkeyPatch, of: TopicPartition | None, code: int, said: str
) -> None:
    reads(monkeypatch, UnreadableError(of, KafkaError(code)), (0, 1))
    with pytest.raises(SparkSourceError, match=said):
        run(0)


def test_of_seventeen_consumers_the_one_idle_longest_is_closed(fetchers: list[Fetcher]) -> None:
    for partition in range(16):
        run(partition)
    assert not any(made.closed for made in fetchers)
    run(0)  # in use again
    run(16)
    assert [n for n, made in enumerate(fetchers) if made.closed] == [1]
    run(1)
    assert len(fetchers) == 18, "the closed one is not used again"
    assert [n for n, made in enumerate(fetchers) if made.closed] == [1, 2]


def test_the_consumer_of_a_task_that_failed_is_closed_and_not_kept(
    fetchers: list[Fetcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Iterator[list[Message]]:
        raise ZeroDivisionError

    monkeypatch.setattr(Fetcher, "read", fails)
    with pytest.raises(ZeroDivisionError):
        run(0)
    assert fetchers[0].closed
    assert not reading._idle


def test_the_consumer_of_a_task_that_was_ended_early_is_closed(embedded: EmbeddedKafka) -> None:
    """Spark closes the generator: ``limit``, a query that was stopped."""
    embedded.create_topic("a", partitions=1)
    producer = Producer({"bootstrap.servers": embedded.bootstrap_servers})
    for _ in range(10):
        producer.produce("a", b"v", partition=0)
    assert producer.flush(30) == 0
    options = batch_options(
        {"kafka.bootstrap.servers": embedded.bootstrap_servers, "subscribe": "a"}
    )
    of = TopicPartition("a", 0)
    with closing(cast(Generator[Any], read_task(options, RangeTask((of, Range(0, 5)))))) as early:
        next(early)
    assert not reading._idle
    batches = read_task(options, RangeTask((of, Range(0, 5))))
    assert [b.column("offset").to_pylist() for b in batches] == [[0, 1, 2, 3, 4]]
    (kept,) = reading._idle.values()
    assert kept.stands_at(of, 5), "the next range begins there"
    batches = read_task(options, RangeTask((of, Range(5, 10))))
    assert [b.column("offset").to_pylist() for b in batches] == [[5, 6, 7, 8, 9]]
    assert list(reading._idle.values()) == [kept]


def test_tasks_of_many_partitions_read_what_is_theirs(embedded: EmbeddedKafka) -> None:
    embedded.create_topic("many", partitions=12)
    producer = Producer({"bootstrap.servers": embedded.bootstrap_servers})
    for n in range(12 * 10):
        producer.produce("many", b"v", partition=n % 12)
    assert producer.flush(30) == 0
    options = batch_options(
        {"kafka.bootstrap.servers": embedded.bootstrap_servers, "subscribe": "many"}
    )
    for span in (Range(0, 4), Range(4, 9)):
        found: list[tuple[int, int]] = []
        task = RangeTask(*((TopicPartition("many", p), span) for p in range(12)))
        for rows in read_task(options, task):
            found += zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
        assert sorted(found) == [(p, offset) for p in range(12) for offset in range(*span)]
    assert len(reading._idle) == 1


def test_a_task_without_a_right_to_the_topic_says_which_and_what_to_grant(
    embedded: EmbeddedKafka,
) -> None:
    embedded.create_topic("a", partitions=1)
    written = Producer({"bootstrap.servers": embedded.bootstrap_servers})
    written.produce("a", b"1")
    written.flush()
    embedded.fail("Fetch", *[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 100)
    options = batch_options(
        {"kafka.bootstrap.servers": embedded.bootstrap_servers, "subscribe": "a"}
    )
    with pytest.raises(SparkSourceError, match="no right to read a:0: grant READ and DESCRIBE"):
        list(read_task(options, RangeTask((TopicPartition("a", 0), Range(0, 1)))))
