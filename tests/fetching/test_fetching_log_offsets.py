"""A broker that is back from a crash may tell an end from long before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from kafka_coop.fetching import log_offsets
from kafka_coop.fetching.log_offsets import LogOffsets, LogsNotToldError
from kafka_coop.testing.embedded import DISCONNECT, EmbeddedKafka
from kafka_coop.types import TopicPartition

ONE, OTHER = TopicPartition("a", 0), TopicPartition("a", 1)


class Brokers:
    """Stands in for the AdminClient: the first partition's ends, one answer after the other.

    Attributes:
        asked: Each question's partitions, those for what is not committed yet excepted.
        reached: Where the first partition ends with what is not.
        silent: Partitions that have no leader.
    """

    def __init__(self, ends: Iterator[int], reached: int) -> None:
        self.asked: list[list[int]] = []
        self.reached = reached
        self.silent: set[int] = set()
        self._ends = ends

    def list_offsets(
        self, asked: Mapping[Any, Any], *, isolation_level: IsolationLevel, **_: Any
    ) -> dict[Any, Future[Any]]:
        committed = isolation_level is IsolationLevel.READ_COMMITTED
        if committed:
            self.asked.append(sorted(native.partition for native in asked))
        answers: dict[Any, Future[Any]] = {native: Future() for native in asked}
        for native, answer in answers.items():
            if native.partition in self.silent:
                answer.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
                continue
            answer.set_result(
                SimpleNamespace(offset=7 if native.partition else self._end(committed))
            )
        return answers

    def list_topics(self, timeout: float) -> None:
        """Asked after every failure, for who leads by then."""

    def _end(self, committed: bool) -> int:
        return next(self._ends) if committed else self.reached


def logs(
    monkeypatch: pytest.MonkeyPatch, *ends: int, reached: int = 0
) -> tuple[LogOffsets, Brokers]:
    brokers = Brokers(iter(ends), reached)
    monkeypatch.setattr(log_offsets, "AdminClient", lambda _: brokers)
    return LogOffsets({}, read_committed=True, retries=2, retry_interval=timedelta(0)), brokers


def test_an_end_below_what_is_known_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, brokers = logs(monkeypatch, 0, 30)
    assert made.ends([ONE, OTHER], known={ONE: 30, OTHER: 7}) == {ONE: 30, OTHER: 7}
    assert brokers.asked == [[0, 1], [0]]


def test_a_log_that_stays_shorter_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    made, brokers = logs(monkeypatch, 0, 0, 5)
    assert made.ends([ONE, OTHER], known={ONE: 30}) == {ONE: 5, OTHER: 7}
    assert brokers.asked == [[0, 1], [0], [0]]


def test_what_waits_for_a_transaction_to_end_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, brokers = logs(monkeypatch, 5, reached=30)
    assert made.ends([ONE, OTHER], known={ONE: 30}) == {ONE: 5, OTHER: 7}
    assert brokers.asked == [[0, 1]]
    assert made.reaching({ONE: 30, OTHER: 8}) == {ONE}


def test_where_nothing_is_known_one_answer_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made, brokers = logs(monkeypatch, 0)
    assert made.ends([ONE]) == {ONE: 0}
    assert brokers.asked == [[0]]


def test_who_needs_all_is_told_of_whom_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    made, brokers = logs(monkeypatch, 4)
    brokers.silent = {1}
    with pytest.raises(LogsNotToldError) as raised:
        made.all_ends([ONE, OTHER])
    assert raised.value.partitions == {OTHER}
    assert raised.value.args[0].code() == KafkaError.LEADER_NOT_AVAILABLE
    assert brokers.asked == [[0, 1], [1], [1]], "it had its retries"


def test_a_leader_that_breaks_off_is_asked_again(embedded: EmbeddedKafka) -> None:
    """Librdkafka itself has no error then, and an offset that is none."""
    made = of_a_topic(embedded)
    for ask in (made.ends, made.beginnings):
        embedded.fail("ListOffsets", DISCONNECT)
        with pytest.raises(KafkaException, match="transport"):
            ask([ONE])
    for ask_all in (made.all_ends, made.all_beginnings):
        embedded.fail("ListOffsets", DISCONNECT)
        assert ask_all([ONE]) == {ONE: 0}
    embedded.fail("ListOffsets", DISCONNECT)
    assert made.at_times({ONE: 0}) == {ONE: None}


def test_one_that_goes_on_breaking_off_has_told_nothing(embedded: EmbeddedKafka) -> None:
    made = of_a_topic(embedded)
    embedded.fail("ListOffsets", *[DISCONNECT] * 2)
    with pytest.raises(LogsNotToldError) as raised:
        made.all_beginnings([ONE])
    assert raised.value.partitions == {ONE}


def of_a_topic(kafka: EmbeddedKafka) -> LogOffsets:
    """Who asks twice at most."""
    kafka.create_topic(ONE.topic, partitions=1)
    return LogOffsets(
        {"bootstrap.servers": kafka.bootstrap_servers},
        read_committed=True,
        retries=1,
        retry_interval=timedelta(0),
    )
