from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_coop.fetching.acquaintance import Acquaintance


class Brokers:
    """Answers `list_topics` for the topics there are."""

    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)
        self.questions: list[str | None] = []
        self.now = 1000.0
        self.silent = False

    def __call__(self, topic: str | None, timeout: float) -> Any:
        assert timeout == 0.5
        self.questions.append(topic)
        if self.silent:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        asked = self.topics if topic is None else {topic}
        return SimpleNamespace(
            topics={t: SimpleNamespace(error=None if t in self.topics else unknown) for t in asked}
        )

    def acquaintance(self) -> Acquaintance:
        return Acquaintance(self, clock=lambda: self.now)


def test_a_topic_is_met_once_until_librdkafka_may_have_forgotten_it() -> None:
    brokers = Brokers("a", "b")
    acquaintance = brokers.acquaintance()
    assert acquaintance.strangers(["a", "b"]) == ("a", "b")
    acquaintance.meet(["a"], 0.5)
    acquaintance.meet(["a", "b"], 0.5)
    assert brokers.questions == ["a", "b"]
    assert acquaintance.strangers(["a", "b"]) == ()
    brokers.now += 301
    assert acquaintance.strangers(["a", "b"]) == ("a", "b")


def test_nothing_is_asked_of_a_topic_that_is_being_fetched() -> None:
    """Nor long after it was met, nor where nobody answered at first."""
    brokers = Brokers("a", "b")
    acquaintance = brokers.acquaintance()
    acquaintance.meet(["a"], 0.5)
    brokers.silent = True
    acquaintance.meet(["b"], 0.5)
    acquaintance.fetches(["a", "b"])
    brokers.now += 1
    assert acquaintance.strangers(["a", "b"]) == ("b",)  # librdkafka may not have heard of it yet
    brokers.now += 1000
    assert acquaintance.strangers(["a", "b"]) == ()
    acquaintance.fetches(["a"])
    assert acquaintance.strangers(["a", "b"]) == ()
    brokers.now += 301
    assert acquaintance.strangers(["a", "b"]) == ("b",)


def test_a_topic_that_was_given_and_taken_at_once_stays_a_stranger() -> None:
    brokers = Brokers("a")
    acquaintance = brokers.acquaintance()
    acquaintance.fetches(["a"])
    acquaintance.fetches([])
    brokers.now += 100
    assert acquaintance.strangers(["a"]) == ("a",)


def test_a_topic_that_does_not_exist_stays_a_stranger() -> None:
    brokers = Brokers()
    acquaintance = brokers.acquaintance()
    acquaintance.meet(["a"], 0.5)
    brokers.now += 6
    assert acquaintance.strangers(["a"]) == ("a",)
    brokers.topics.add("a")
    acquaintance.meet(["a"], 0.5)
    assert acquaintance.strangers(["a"]) == ()


@pytest.mark.parametrize("count", [1, 17])
def test_topics_that_do_not_exist_are_asked_for_every_few_seconds_alone(count: int) -> None:
    """A member of a group that has nothing yet asks with every slice of every poll."""
    brokers = Brokers()
    names = [f"t{n}" for n in range(count)]
    acquaintance = brokers.acquaintance()
    for _ in range(600):
        acquaintance.meet(names, 0.5)
        brokers.now += 0.05
    assert 6 <= len(brokers.questions) <= 7


def test_a_topic_that_did_not_exist_is_asked_for_at_once_when_it_is_to_be_fetched() -> None:
    brokers = Brokers()
    acquaintance = brokers.acquaintance()
    acquaintance.meet(["a"], 0.5)
    brokers.topics.add("a")
    acquaintance.meet(["a"], 0.5)
    assert acquaintance.strangers(["a"]) == ()
    assert acquaintance.strangers(["a"], exist=True) == ("a",)
    acquaintance.meet(["a"], 0.5, exist=True)
    brokers.now += 6
    assert acquaintance.strangers(["a"]) == ()


def test_silent_brokers_cost_one_question_and_are_asked_ever_more_rarely() -> None:
    brokers = Brokers("a", "b", "c")
    brokers.silent = True
    acquaintance = brokers.acquaintance()
    asked = []
    for _ in range(400):
        before = len(brokers.questions)
        acquaintance.meet(["a", "b", "c"], 0.5)
        if len(brokers.questions) > before:
            asked.append(brokers.now)
        brokers.now += 0.1
    assert set(brokers.questions) == {"a"}
    waits = [round(later - earlier, 1) for earlier, later in itertools.pairwise(asked)]
    assert waits == sorted(waits)
    assert waits[0] < 0.5
    assert 5 <= waits[-1] <= 5.2


def test_an_answer_ends_the_backoff() -> None:
    brokers = Brokers("a", "b")
    acquaintance = brokers.acquaintance()
    brokers.silent = True
    acquaintance.meet(["a"], 0.5)
    assert acquaintance.strangers(["a"]) == ()
    brokers.now += 0.3
    brokers.silent = False
    acquaintance.meet(["a"], 0.5)
    assert acquaintance.strangers(["a", "b"]) == ("b",)


def test_many_topics_are_one_question() -> None:
    names = [f"t{n}" for n in range(100)]
    brokers = Brokers(*names[:99], "another")
    acquaintance = brokers.acquaintance()
    acquaintance.meet(names, 0.5)
    assert brokers.questions == [None]
    assert acquaintance.strangers(names, exist=True) == ("t99",)
