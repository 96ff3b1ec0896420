"""KIP-848: where to start is an absolute offset that brokers tell; what they don't stays to ask."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import TypeAlias, cast

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from native_answers import answered
from virtual_time import VirtualTime

from kafka_coop.config import OffsetReset
from kafka_coop.fetching import group_starts
from kafka_coop.fetching.group_starts import look_up
from kafka_coop.offsets.starts import Starts
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OFFSET_EARLIEST, OFFSET_LATEST, OffsetAndMetadata
from kafka_coop.types import NO_PARTITIONS, Partitions, TopicPartition

NATIVE: TypeAlias = list[confluent_kafka.TopicPartition]

COMMITTED, NEW = TopicPartition("t", 0), TopicPartition("t", 1)
FORBIDDEN, LEADERLESS, BROKEN = (TopicPartition("t", p) for p in range(2, 5))
ALL = Partitions.of([COMMITTED, NEW, FORBIDDEN, LEADERLESS, BROKEN])
AT = {COMMITTED: OffsetAndMetadata(offset=7, leader_epoch=3)}


TIME = VirtualTime()


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_starts, "time", TIME)


class Consumer:
    """A group that has committed one partition; of one nobody tells, two have leaders that fail.

    Attributes:
        takes: Seconds for the coordinator's answer.
        forgets: What it leaves out of its answer.
        silent: What is not answered at all.
        early: How often librdkafka gives up at once, before its time.
        away: How many questions are not answered.
        undecided: Partitions of which a transaction has still to decide.
        refuses: The coordinator does.
        asked: The time limits of the questions.
        led: By whom partitions are led, where not by the first broker.
        hung: A broker that answers nothing.
        refused: Its leader refuses this one, which librdkafka tells as an error of all.
    """

    def __init__(self) -> None:
        self.takes = 0.0
        self.forgets = NO_PARTITIONS
        self.silent: str | None = None
        self.early = 0
        self.away = 0
        self.undecided: set[TopicPartition] = set()
        self.refuses = False
        self.asked: list[float] = []
        self.led: dict[TopicPartition, int] = {}
        self.hung: int | None = None
        self.refused: TopicPartition | None = None

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        there = {
            of.partition: SimpleNamespace(leader=self.led.get(of, 1))
            for of in ALL
            if of != LEADERLESS
        }
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=there)})

    def committed(self, partitions: NATIVE, timeout: float) -> list[SimpleNamespace]:
        self._ask("committed", timeout)
        TIME.sleep(self.takes)
        if self.refuses:
            raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
        if self.undecided & {_of(at) for at in partitions}:
            TIME.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [
            answered(
                at,
                7 if _of(at) == COMMITTED else OFFSET_INVALID,
                error=KafkaError.TOPIC_AUTHORIZATION_FAILED if _of(at) == FORBIDDEN else None,
                epoch=3,
            )
            for at in partitions
            if _of(at) not in self.forgets
        ]

    def offsets_for_times(self, partitions: NATIVE, timeout: float) -> list[SimpleNamespace]:
        """What breaks hands the question back, without an error."""
        self._ask("offsets_for_times", timeout)
        if self.hung in [self.led.get(_of(at), 1) for at in partitions]:
            TIME.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if self.refused in [_of(at) for at in partitions]:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        logs = {OFFSET_EARLIEST: 2, OFFSET_LATEST: 40}
        return [
            answered(
                at,
                logs[at.offset] if _of(at) == NEW else at.offset,
                error=KafkaError.LEADER_NOT_AVAILABLE if _of(at) == LEADERLESS else None,
            )
            for at in partitions
        ]

    def _ask(self, what: str, timeout: float) -> None:
        self.asked.append(timeout)
        if self.early:
            self.early -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT_QUEUE))
        if self.silent == what or self.away:
            self.away = max(0, self.away - 1)
            TIME.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _of(at: confluent_kafka.TopicPartition) -> TopicPartition:
    return TopicPartition(at.topic, at.partition)


def asked(
    consumer: Consumer, reset: OffsetReset, within: float = 30, of: Partitions = ALL
) -> Starts:
    search = Starts(reset=reset, unfetched=of)
    look_up(cast(confluent_kafka.Consumer, consumer), search, timedelta(seconds=within))
    return search


DENIED = {FORBIDDEN: ErrorCode.topic_authorization_failed}


@pytest.mark.parametrize(("reset", "at"), [(OffsetReset.EARLIEST, 2), (OffsetReset.LATEST, 40)])
def test_what_is_not_told_well_is_still_to_be_asked_for(reset: OffsetReset, at: int) -> None:
    search = asked(Consumer(), reset)
    assert search.committed == AT
    assert search.listed_at == {NEW: OffsetAndMetadata(offset=at)}
    assert search.failed == DENIED
    assert search.unlisted.keys() == {LEADERLESS, BROKEN}
    assert not search.unfetched


def test_where_the_reset_is_an_error_no_leader_is_asked() -> None:
    consumer = Consumer()
    search = asked(consumer, OffsetReset.ERROR)
    assert search.committed == AT
    assert set(search.without) == {NEW, LEADERLESS, BROKEN}
    assert search.complete
    assert len(consumer.asked) == 1


def test_who_is_not_told_what_is_committed_does_not_reset() -> None:
    consumer = Consumer()
    consumer.silent = "committed"
    assert asked(consumer, OffsetReset.LATEST, within=0.2) == Starts(OffsetReset.LATEST, ALL)
    consumer.silent, consumer.forgets = None, Partitions.of([NEW, COMMITTED])
    assert asked(consumer, OffsetReset.LATEST, within=0.2).unfetched == consumer.forgets


def test_what_the_coordinator_refuses_is_not_asked_again() -> None:
    consumer = Consumer()
    consumer.refuses = True
    search = asked(consumer, OffsetReset.LATEST)
    assert search.failed == dict.fromkeys(ALL, ErrorCode.group_authorization_failed)
    assert search.complete
    assert len(consumer.asked) == 1


def test_what_is_committed_counts_although_the_leaders_are_silent() -> None:
    consumer = Consumer()
    consumer.silent = "offsets_for_times"
    search = asked(consumer, OffsetReset.LATEST, within=0.2)
    assert search.committed == AT
    assert search.unlisted.keys() == {NEW, LEADERLESS, BROKEN}


def test_a_transaction_on_one_partition_keeps_no_other_from_its_start() -> None:
    consumer = Consumer()
    consumer.undecided = {LEADERLESS}
    search = asked(consumer, OffsetReset.LATEST, within=2)
    assert search.committed == AT
    assert search.listed_at == {NEW: OffsetAndMetadata(offset=40)}
    assert search.unfetched == Partitions.of([LEADERLESS])


def test_a_leader_that_is_away_keeps_no_other_partition_from_its_start() -> None:
    """librdkafka tells nothing of a question of which one leader does not answer its part."""
    consumer = Consumer()
    consumer.led, consumer.hung = {BROKEN: 3}, 3
    search = Starts(reset=OffsetReset.LATEST, unfetched=NO_PARTITIONS)
    search.unlisted = {NEW: OFFSET_LATEST, BROKEN: OFFSET_LATEST, LEADERLESS: OFFSET_LATEST}
    native = cast(confluent_kafka.Consumer, consumer)
    look_up(native, search, timedelta(seconds=0.5), leaders_apart=True)
    assert search.listed_at == {NEW: OffsetAndMetadata(offset=40)}
    assert search.unlisted.keys() == {BROKEN, LEADERLESS}


def test_nor_does_one_that_is_refused() -> None:
    consumer = Consumer()
    many = [TopicPartition("t", p) for p in range(10, 40)]
    consumer.refused = many[7]
    search = Starts(reset=OffsetReset.LATEST, unfetched=NO_PARTITIONS)
    search.unlisted = dict.fromkeys([NEW, *many], OFFSET_LATEST)
    look_up(cast(confluent_kafka.Consumer, consumer), search, timedelta(seconds=30))
    assert search.listed_at == {NEW: OffsetAndMetadata(offset=40)}
    assert search.failed == {many[7]: ErrorCode.topic_authorization_failed}


def test_what_is_undecided_leaves_time_for_the_leaders() -> None:
    consumer = Consumer()
    consumer.undecided = {TopicPartition("t", p) for p in range(10, 40)}
    search = Starts(reset=OffsetReset.LATEST, unfetched=Partitions.of(consumer.undecided))
    search.unlisted = {NEW: OFFSET_LATEST}
    look_up(cast(confluent_kafka.Consumer, consumer), search, timedelta(seconds=0.5))
    assert search.listed_at == {NEW: OffsetAndMetadata(offset=40)}


def test_a_search_goes_on_where_it_stopped() -> None:
    consumer = Consumer()
    consumer.undecided = {COMMITTED}
    search = asked(consumer, OffsetReset.LATEST, within=0.5)
    assert search.unfetched == Partitions.of([COMMITTED])
    consumer.undecided.clear()
    consumer.asked.clear()
    search.unlisted.clear()
    look_up(cast(confluent_kafka.Consumer, consumer), search, timedelta(seconds=30))
    assert search.committed == AT
    assert search.complete
    assert len(consumer.asked) == 1


def test_of_many_one_that_is_undecided_keeps_few_waiting() -> None:
    """Each question that is not answered costs a tenth of the time."""
    consumer = Consumer()
    many = Partitions.of(TopicPartition("t", p) for p in range(1000))
    consumer.undecided = {TopicPartition("t", 617)}
    search = asked(consumer, OffsetReset.ERROR, within=1, of=many)
    assert consumer.undecided <= set(search.unfetched)
    assert len(search.unfetched) < 100
    assert search.committed.keys() <= {COMMITTED}
    for _ in range(3):
        look_up(cast(confluent_kafka.Consumer, consumer), search, timedelta(seconds=0.5))
    assert set(search.unfetched) == consumer.undecided


def test_a_coordinator_that_was_away_is_asked_once_more() -> None:
    consumer = Consumer()
    consumer.away = 3
    assert asked(consumer, OffsetReset.ERROR, within=2).committed == AT


def test_of_nothing_nobody_is_asked() -> None:
    consumer = Consumer()
    assert asked(consumer, OffsetReset.LATEST, of=NO_PARTITIONS).complete
    assert not consumer.asked


def test_librdkafka_that_gives_up_early_is_asked_again() -> None:
    consumer = Consumer()
    consumer.early = 20
    assert asked(consumer, OffsetReset.LATEST).committed == AT


def test_both_questions_share_the_time() -> None:
    consumer = Consumer()
    asked(consumer, OffsetReset.LATEST)
    assert max(consumer.asked) < 30
    consumer.takes = 0.02
    consumer.asked.clear()
    asked(consumer, OffsetReset.LATEST, within=0.01)
    assert len(consumer.asked) == 1
