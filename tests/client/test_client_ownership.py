"""What is owned is fetched, or the user is told why not, in whatever order things come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from kafka_coop.backend import clock
from kafka_coop.backend.mailbox import StartsFound
from kafka_coop.backend.promises import Promise
from kafka_coop.client.ownership import Ownership
from kafka_coop.membership.failures import LOCAL_AUTO_OFFSET_RESET
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.turns import TurnLock
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, TopicPartition

Y0, Y1 = TopicPartition("y", 0), TopicPartition("y", 1)
ONE = Partitions.of([Y0])
AT_5, AT_7, AT_9 = (OffsetAndMetadata(offset=offset) for offset in (5, 7, 9))
EARLIER, NOW = Generation(4), Generation(5)
DENIED = ErrorCode.topic_authorization_failed


class Fetched:
    """A fetcher that remembers what it was told."""

    def __init__(self) -> None:
        self.starts: dict[TopicPartition, OffsetAndMetadata] = {}

    def assignment(self) -> Partitions:
        return Partitions.of(self.starts)

    def add(self, starts: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.starts |= starts

    def remove(self, partitions: Partitions) -> None:
        for of in partitions:
            del self.starts[of]


@pytest.fixture
def fetched() -> Fetched:
    return Fetched()


@pytest.fixture
def ownership(fetched: Fetched) -> Ownership:
    metrics = cast(MemberMetrics, SimpleNamespace(assignment=lambda *_: None))
    return Ownership(cast(Any, fetched), metrics, TurnLock())


def taken(
    *partitions: TopicPartition, error: ErrorCode = ErrorCode.none
) -> Promise[dict[TopicPartition, ErrorCode]]:
    """The coordinator's answer to a commit, which is there."""
    answer: Promise[dict[TopicPartition, ErrorCode]] = Promise()
    answer.set_result(dict.fromkeys(partitions, error))
    return answer


def refused(how: str, generation: Generation) -> StartsFound:
    if how == "without":
        return StartsFound(generation=generation, without=(Y0,))
    return StartsFound(generation=generation, failed={Y0: DENIED})


def codes(ownership: Ownership) -> list[int]:
    errors = [message.error() for message in ownership.errors]
    return [error.code() for error in errors if isinstance(error, KafkaError)]


def gain(ownership: Ownership, starts: dict[TopicPartition, OffsetAndMetadata]) -> None:
    """Own and on_assign, which may say where to start."""
    ownership.own(ONE, NOW)
    ownership.starts_may_change = True
    ownership.override_starts(starts)
    ownership.starts_may_change = False
    ownership.begin_fetching()


def test_when_it_changed_is_told_on_the_clock_that_metrics_read(
    fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one counts suspension. By another, a change would seem as much older as all of it."""
    monkeypatch.setattr(clock, "now", lambda: 50_000.0)
    told: list[float] = []
    metrics = cast(MemberMetrics, SimpleNamespace(assignment=lambda _, now: told.append(now)))
    owner = Ownership(cast(Any, fetched), metrics, TurnLock())
    owner.own(ONE, NOW)
    owner.release(ONE)
    assert told == [50_000.0, 50_000.0]


class TestRefusedStarts:
    """In a round that also takes, they are known before on_revoke has returned and Own comes."""

    @pytest.mark.parametrize(
        ("how", "code"), [("without", LOCAL_AUTO_OFFSET_RESET), ("failed", int(DENIED))]
    )
    @pytest.mark.parametrize("own_first", [True, False])
    def test_are_told_once_whether_they_come_before_ownership_or_after(
        self, ownership: Ownership, how: str, code: int, own_first: bool
    ) -> None:
        if own_first:
            gain(ownership, {})
        ownership.take_starts(refused(how, NOW))
        if not own_first:
            assert not ownership.errors, "not the user's yet"
            gain(ownership, {})
        ownership.begin_fetching()
        assert codes(ownership) == [code]
        assert ownership.settled, "nothing is to come for which polls would have to be short"

    @pytest.mark.parametrize("how", ["without", "failed"])
    def test_of_an_earlier_generation_are_not_told(self, ownership: Ownership, how: str) -> None:
        ownership.take_starts(refused(how, EARLIER))
        gain(ownership, {})
        assert not ownership.errors
        assert not ownership.settled
        ownership.take_starts(refused(how, EARLIER))
        assert not ownership.errors

    def test_of_an_earlier_ownership_keep_nothing_from_being_waited_for(
        self, ownership: Ownership, fetched: Fetched
    ) -> None:
        ownership.own(ONE, EARLIER)
        ownership.take_starts(refused("without", EARLIER))
        ownership.release(ONE)
        assert not ownership.errors
        gain(ownership, {})
        assert not ownership.settled
        ownership.take_starts(StartsFound(generation=NOW, committed={Y0: AT_5}))
        assert fetched.starts == {Y0: AT_5}

    def test_are_not_told_where_on_assign_says_where_to_start(
        self, ownership: Ownership, fetched: Fetched
    ) -> None:
        ownership.take_starts(refused("without", NOW))
        gain(ownership, {Y0: AT_5})
        assert not ownership.errors
        assert fetched.starts == {Y0: AT_5}

    def test_give_way_to_a_start_found_later(self, ownership: Ownership, fetched: Fetched) -> None:
        ownership.take_starts(refused("failed", NOW))
        ownership.take_starts(StartsFound(generation=NOW, committed={Y0: AT_5}))
        gain(ownership, {})
        assert not ownership.errors
        assert fetched.starts == {Y0: AT_5}

    def test_can_be_made_good_by_a_commit(self, ownership: Ownership, fetched: Fetched) -> None:
        """As the text of the error says."""
        gain(ownership, {})
        ownership.take_starts(refused("without", NOW))
        ownership.begin_as_committed({Y0: AT_5}, taken(Y0))
        assert not ownership.settled, "the next poll is to begin"
        ownership.begin_fetching()
        assert fetched.starts == {Y0: AT_5}
        assert ownership.settled

    def test_can_be_made_good_by_a_seek(self, ownership: Ownership, fetched: Fetched) -> None:
        ownership.take_starts(refused("without", NOW))
        gain(ownership, {})
        assert fetched.assignment() == NO_PARTITIONS
        ownership.seek(Y0, AT_5)
        assert fetched.starts == {Y0: AT_5}
        assert ownership.settled


class TestCommitsInOnAssign:
    """Of offsets kept elsewhere, say. Java and librdkafka look up afterwards what is committed."""

    @pytest.fixture
    def assigned(self, ownership: Ownership) -> Ownership:
        ownership.take_starts(StartsFound(generation=NOW, committed={Y0: AT_5}))
        ownership.own(ONE, NOW)
        ownership.starts_may_change = True
        return ownership

    def returned(self, ownership: Ownership) -> None:
        ownership.starts_may_change = False
        ownership.begin_fetching()

    def test_say_where_to_start(self, assigned: Ownership, fetched: Fetched) -> None:
        assigned.begin_as_committed({Y0: AT_7, Y1: AT_7}, taken(Y0, Y1))
        assert not fetched.starts, "on_assign may change it yet"
        self.returned(assigned)
        assert fetched.starts == {Y0: AT_7}

    def test_say_nothing_where_the_coordinator_refuses(
        self, assigned: Ownership, fetched: Fetched
    ) -> None:
        """What lies before would be read by nobody: the next commit is of what comes behind it."""
        refusal = taken(Y0, error=ErrorCode.offset_metadata_too_large)
        assigned.begin_as_committed({Y0: AT_7}, refusal)
        self.returned(assigned)
        assert fetched.starts == {Y0: AT_5}

    @pytest.mark.parametrize("failed", [True, False])
    def test_are_waited_for(self, assigned: Ownership, fetched: Fetched, failed: bool) -> None:
        answer: Promise[dict[TopicPartition, ErrorCode]] = Promise()
        assigned.begin_as_committed({Y0: AT_7}, answer)
        self.returned(assigned)
        assert not fetched.starts
        assert not assigned.settled
        if failed:
            answer.set_exception(TimeoutError())
        else:
            answer.set_result({Y0: ErrorCode.none})
        assigned.begin_fetching()
        assert fetched.starts == {Y0: AT_5 if failed else AT_7}
        assert assigned.settled

    def test_that_are_under_way_keep_nobody_waiting_who_says_it_in_other_words(
        self, assigned: Ownership, fetched: Fetched
    ) -> None:
        assigned.begin_as_committed({Y0: AT_7}, Promise())
        assigned.override_starts({Y0: AT_9})
        self.returned(assigned)
        assert fetched.starts == {Y0: AT_9}

    def test_of_what_has_gone_meanwhile_are_forgotten(
        self, assigned: Ownership, fetched: Fetched
    ) -> None:
        assigned.begin_as_committed({Y0: AT_7}, Promise())
        self.returned(assigned)
        assigned.release(ONE)
        assigned.own(ONE, Generation(6))
        assigned.take_starts(StartsFound(generation=Generation(6), committed={Y0: AT_9}))
        assert fetched.starts == {Y0: AT_9}

    @pytest.mark.parametrize("first", [True, False])
    def test_go_behind_what_the_user_says_in_other_words(
        self, assigned: Ownership, fetched: Fetched, first: bool
    ) -> None:
        if first:
            assigned.begin_as_committed({Y0: AT_7}, taken(Y0))
        assigned.override_starts({Y0: AT_9})
        assigned.begin_as_committed({Y0: AT_7}, taken(Y0))
        self.returned(assigned)
        assert fetched.starts == {Y0: AT_9}

    def test_say_nothing_once_it_has_returned(self, assigned: Ownership, fetched: Fetched) -> None:
        """Whoever commits then has read something before: of an earlier ownership, perhaps."""
        self.returned(assigned)
        assigned.release(ONE)
        assigned.own(ONE, Generation(6))
        assigned.begin_as_committed({Y0: AT_7}, taken(Y0))
        assert not fetched.starts
