"""The topic beside the one that is judged goes and comes back."""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

from kafka_coop.testing.trial import faults, run
from kafka_coop.testing.trial.faults import ASIDE, FAULTS, Arena, Started
from kafka_coop.testing.trial.outcome import DELETED

NOW = timedelta(0)


class Crew:
    """Notes what it is told."""

    group = topic = "t"

    def __init__(self) -> None:
        self.running: tuple[str, ...] = ("m1", "m2", "m3", "m4")
        self.leaving: set[str] = set()

    def has_started(self, _: str) -> bool:
        return True

    def ask_to_leave(self, name: str, *, drain: bool) -> None:
        assert not drain
        self.leaving.add(name)

    def start(self, name: str, *_: Any, aside: str, **__: Any) -> None:
        assert aside == "beside"
        self.running = (*self.running, name)


class Admin:
    """Deletes and makes one topic, unless it refuses."""

    def __init__(self) -> None:
        self.there = True
        self.refuses = False
        self.asked = self.deleted = 0

    def delete_topics(self, topics: list[str], **_: Any) -> Mapping[str, Future[None]]:
        answer = self._answer(topics[0], there=False)
        self.deleted += answer[topics[0]].exception() is None
        return answer

    def create_topics(self, topics: list[Any], **_: Any) -> Mapping[str, Future[None]]:
        self.asked += 1
        return self._answer(topics[0].topic, there=True)

    def _answer(self, name: str, *, there: bool) -> Mapping[str, Future[None]]:
        assert name == "beside"
        answer: Future[None] = Future()
        if self.refuses or self.there == there:
            answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
        else:
            self.there = there
            answer.set_result(None)
        return {name: answer}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    admin = Admin()
    monkeypatch.setattr(faults, "peek", lambda of: of)
    monkeypatch.setattr(faults, "leaders", lambda *_: ASIDE * admin.there)
    return admin


@pytest.fixture
def arena(admin: Admin) -> Arena:
    kafka: Any = SimpleNamespace(admin=lambda: admin)
    unused: Any = None
    crew: Any = Crew()
    return Arena(
        kafka=kafka,
        crew=crew,
        load=unused,
        chance=random.Random(1),
        session=timedelta(seconds=6),
        partitions=4,
        most_partitions=8,
        aside="beside",
    )


def drawn(name: str, arena: Arena) -> Started:
    started = FAULTS[name][0](arena)
    assert started is not None
    return started


def refused(name: str, arena: Arena) -> bool:
    return FAULTS[name][0](arena) is None


def next_part(part: Started) -> Started:
    """What comes when one is over that is not the last."""
    following = part.end()
    assert following is not None
    assert following.ends > NOW
    return following


def test_the_topic_goes_as_a_round_begins_and_comes_back(arena: Arena, admin: Admin) -> None:
    started = drawn(DELETED, arena)
    assert admin.deleted == 1
    (left,) = arena.crew.leaving
    assert f"{left} left, m0 started" in started.what
    assert refused(DELETED, arena), "one at a time"
    assert started.ends > NOW
    assert started.end() is None
    assert admin.asked == 1
    drawn(DELETED, arena)
    assert admin.deleted == 2


def test_it_is_asked_for_again_until_it_is_back_and_not_while_a_broker_is_down(
    arena: Arena, admin: Admin
) -> None:
    part = drawn(DELETED, arena)
    arena.down.add(1)
    for _ in range(1000):
        part = next_part(part)
    before = admin.asked
    arena.down.clear()
    admin.refuses = True
    for _ in range(3):
        part = next_part(part)
    admin.refuses = False
    assert part.end() is None
    assert (before, admin.asked) == (0, 4)


def test_one_that_never_comes_back_ends_the_run(arena: Arena, admin: Admin) -> None:
    def ask_for_ever(part: Started) -> None:
        while True:
            part = next_part(part)

    part = drawn(DELETED, arena)
    admin.refuses = True
    with pytest.raises(TimeoutError, match="does not come back"):
        ask_for_ever(part)
    assert admin.asked < 100


def test_no_topic_goes_where_none_can(arena: Arena, admin: Admin) -> None:
    arena.down.add(1)
    assert refused(DELETED, arena)
    arena.down.clear()
    arena.stopped.update(("m1", "m2"))
    assert refused(DELETED, arena), "nobody may leave"
    arena.stopped.clear()
    admin.refuses = True
    assert refused(DELETED, arena)
    admin.there, admin.refuses = False, False  # gone after all, later
    assert refused(DELETED, arena)
    assert not arena.crew.leaving
    drawn(DELETED, arena)  # for it had been made again


@pytest.mark.parametrize(
    ("idle", "newcomer", "whole"),
    [(ASIDE, "", True), (ASIDE + 1, "", False), (1, "m0", False)],
    ids=["partitions beside for each", "not for each", "one is not in the group yet"],
)
def test_a_group_is_whole_where_some_have_nothing_of_the_topic_that_is_judged(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, idle: int, newcomer: str, whole: bool
) -> None:
    owned = {f"m{n}": set[int]() for n in range(idle)} | {"a": {0, 1}, "b": {2, 3}}
    crew: Any = SimpleNamespace(
        running=tuple(owned),
        owned=lambda name: owned[name],
        has_joined=lambda name: name != newcomer,
        ask_what_it_does=lambda _: None,
        last_words=lambda _: "",
    )
    arena.crew = crew
    monkeypatch.setattr(run, "_SETTLING", timedelta(seconds=0.1))
    monkeypatch.setattr(run, "_LOOK", 0)
    monkeypatch.setattr(run, "_is_the_group", lambda _: True)
    with nullcontext() if whole else pytest.raises(TimeoutError, match="does not settle"):
        run._until_whole(arena)


@pytest.mark.parametrize(
    ("state", "members", "whole"),
    [
        (ConsumerGroupState.STABLE, ["b", "a"], True),
        (ConsumerGroupState.STABLE, ["a"], False),
        (ConsumerGroupState.STABLE, ["a", "b", "a"], False),
        (ConsumerGroupState.STABLE, ["a", "b", "leaving"], False),
        (ConsumerGroupState.PREPARING_REBALANCING, ["a", "b"], False),
        (None, [], False),
    ],
)
def test_the_group_is_who_runs_as_its_coordinator_says(
    arena: Arena, state: ConsumerGroupState | None, members: list[str], *, whole: bool
) -> None:
    """Who has left by itself, and runs on, owns nothing, as one that is idle."""
    answer = Future[Any]()
    if state is None:
        answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    else:
        clients = [SimpleNamespace(client_id=name) for name in members]
        answer.set_result(SimpleNamespace(state=state, members=clients))
    admin = SimpleNamespace(describe_consumer_groups=lambda groups, **_: {groups[0]: answer})
    kafka: Any = SimpleNamespace(admin=lambda: admin)
    crew: Any = SimpleNamespace(group="g", running=("a", "b", "leaving"), leaving={"leaving"})
    arena.kafka, arena.crew = kafka, crew
    assert run._is_the_group(arena) == whole
