"""Commits stand in one line: who leaves it, and who comes next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kafka_coop.assignors import CooperativeSticky
from kafka_coop.backend.errands import (
    Ask,
    Changed,
    Errand,
    Errands,
    OutOfTime,
    Rest,
    Surroundings,
    Wanted,
    patience,
)
from kafka_coop.backend.mailbox import StartsFound
from kafka_coop.config import OffsetReset
from kafka_coop.errors import ConnectionFailedError, GroupRefusedError, RequestTimedOutError
from kafka_coop.membership.events import CoordinatorLost, Event
from kafka_coop.membership.failures import failure_of_exception
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    FetchedOffset,
    Node,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
)
from kafka_coop.types import (
    NO_GENERATION,
    Generation,
    GroupMetadata,
    MemberId,
    Partitions,
    TopicPartition,
)

THERE = TopicPartition("t", 0)


class Stable:
    """A member with a coordinator and a generation."""

    coordinator: Node | None = Node(node_id=1, host="broker", port=9092)
    identity = GroupMetadata(group_id="g", generation=Generation(1), member_id=MemberId("m"))
    commits_open = True


ONE = MemberSettings(group_id="g", assignors=(CooperativeSticky(),))


def errands(
    settings: MemberSettings,
    *,
    standing: Stable | None = None,
    tell: Callable[[Event], None] = lambda _: None,
    owns: Callable[[TopicPartition], bool] = lambda _: True,
    going: Callable[[], bool] = lambda: False,
    giving_up: Callable[[], bool] = lambda: False,
    found: Callable[[StartsFound], None] = lambda _: None,
) -> Errands:
    return Errands(
        Surroundings(
            standing=standing or Stable(),
            settings=settings,
            reset=OffsetReset.EARLIEST,
            read_committed=True,
            tell=tell,
            owns=owns,
            giving_up=giving_up,
            going=going,
            found=found,
            wake=lambda: None,
        )
    )


def finish(errand: Errand[Any], answer: object = None) -> dict[TopicPartition, ErrorCode]:
    """The coordinator takes what it was asked to. Returns what the errand does."""
    try:
        errand.send(answer or [OffsetsCommitted(errors={THERE: ErrorCode.none})])
    except StopIteration as ended:
        results: dict[TopicPartition, ErrorCode] = ended.value
        return results
    raise AssertionError("it goes on")


def asked(wanted: Wanted) -> dict[TopicPartition, int]:
    """The offsets that a commit wants to send."""
    assert isinstance(wanted, Ask)
    ((_, request),) = wanted.requests
    assert isinstance(request, OffsetCommit)
    return {of: at.offset for of, at in request.offsets.items()}


def test_of_two_equal_commits_the_one_given_up_leaves_the_line() -> None:
    line = errands(ONE)
    first, waiting, given_up, last = (
        line.commit({THERE: OffsetAndMetadata(offset=offset)}) for offset in (1, 2, 2, 3)
    )
    assert asked(next(first)) == {THERE: 1}
    for errand in (waiting, given_up, last):
        assert isinstance(next(errand), Changed), "one at a time"
    given_up.close()
    finish(first)
    assert asked(waiting.send(None)) == {THERE: 3}
    finish(waiting)
    with pytest.raises(StopIteration):
        last.send(None)


def test_all_that_stand_in_line_are_committed_by_the_next_request() -> None:
    """One by one, a commit after each record would wait longer than it has time for."""
    line = errands(ONE)
    other = TopicPartition("t", 1)
    first, *waiting = (line.commit({THERE: OffsetAndMetadata(offset=n)}) for n in range(1, 1001))
    elsewhere = line.commit({other: OffsetAndMetadata(offset=7)})
    assert asked(next(first)) == {THERE: 1}
    for errand in (*waiting, elsewhere):
        assert isinstance(next(errand), Changed)
    finish(first)
    head, *others = waiting
    assert asked(head.send(None)) == {THERE: 1000, other: 7}
    refused = ErrorCode.topic_authorization_failed
    finish(head, [OffsetsCommitted(errors={THERE: ErrorCode.none, other: refused})])
    for errand in others:
        with pytest.raises(StopIteration) as ended:
            errand.send(None)
        assert ended.value.value == {THERE: ErrorCode.none}
    with pytest.raises(StopIteration) as ended:
        elsewhere.send(None)
    assert ended.value.value == {other: refused}


def test_a_commit_is_not_refused_for_what_a_later_one_said_in_its_place() -> None:
    line = errands(ONE)
    first, good, bad = (
        line.commit({THERE: OffsetAndMetadata(offset=n, metadata=text)})
        for n, text in ((1, ""), (2, "good"), (3, "of 4097 bytes, say"))
    )
    next(first)
    for errand in (good, bad):
        next(errand)
    finish(first)
    assert asked(good.send(None)) == {THERE: 3}
    refused = ErrorCode.offset_metadata_too_large
    assert asked(good.send([OffsetsCommitted(errors={THERE: refused})])) == {THERE: 2}, "at once"
    with pytest.raises(StopIteration) as ended:
        bad.send(None)
    assert ended.value.value == {THERE: refused}
    assert finish(good) == {THERE: ErrorCode.none}


def test_what_a_partition_is_refused_for_is_said_of_all_that_stand_in_line() -> None:
    """One by one, those that wait would run out of time, and say no more than that."""
    line = errands(ONE)
    first, *waiting = (line.commit({THERE: OffsetAndMetadata(offset=n)}) for n in range(1, 1001))
    for errand in (first, *waiting):
        next(errand)
    finish(first)
    refused = ErrorCode.topic_authorization_failed
    head, *others = waiting
    assert asked(head.send(None)) == {THERE: 1000}
    assert finish(head, [OffsetsCommitted(errors={THERE: refused})]) == {THERE: refused}
    for errand in others:
        with pytest.raises(StopIteration) as ended:
            errand.send(None)
        assert ended.value.value == {THERE: refused}


@pytest.mark.parametrize(("giving_up", "asks"), [(True, 2), (False, 5)])
def test_a_commit_does_not_wait_for_a_round_that_waits_for_it(giving_up: bool, asks: int) -> None:
    """Trap 13: refused while members join, it would be sent until this one is put out."""
    line = errands(ONE, giving_up=lambda: giving_up)
    errand = line.commit({THERE: OffsetAndMetadata(offset=1)})
    refused = [OffsetsCommitted(errors={THERE: ErrorCode.rebalance_in_progress})]
    wanted, sent, results = next(errand), 0, None
    try:
        while sent < 5:
            sent += isinstance(wanted, Ask)
            wanted = errand.send(refused if isinstance(wanted, Ask) else None)
    except StopIteration as ended:
        results = ended.value
    assert sent == asks
    assert results == ({THERE: ErrorCode.rebalance_in_progress} if giving_up else None)


def test_while_the_group_is_being_left_a_commit_takes_none_along() -> None:
    """What was assigned by hand since is judged when it is over."""
    leaving = False
    line = errands(ONE, going=lambda: leaving)
    first, last = (line.commit({THERE: OffsetAndMetadata(offset=n)}) for n in (1, 9))
    assert asked(next(first)) == {THERE: 1}
    leaving = True
    next(last)
    assert isinstance(first.send([ConnectionFailedError("cut")]), Changed)
    assert asked(first.send(None)) == {THERE: 1}
    leaving = False
    finish(first)
    assert asked(last.send(None)) == {THERE: 9}
    finish(last)


@pytest.mark.parametrize("moved", [False, True])
def test_a_commit_that_fails_late_does_not_have_the_coordinator_s_heir_forgotten(
    moved: bool,
) -> None:
    """Whoever forgets it asks it anew for all that it has parked."""
    told: list[Event] = []
    standing = Stable()
    errand = errands(ONE, standing=standing, tell=told.append).commit(
        {THERE: OffsetAndMetadata(offset=1)}
    )
    assert isinstance(next(errand), Ask)
    if moved:
        standing.coordinator = Node(node_id=2, host="heir", port=9092)
    assert isinstance(errand.send([ConnectionFailedError("cut")]), Changed)
    assert told == ([] if moved else [CoordinatorLost()])
    again = errand.send(None)
    assert isinstance(again, Ask)
    assert again.requests[0][0] == standing.coordinator
    finish(errand)


def test_a_start_that_was_refused_is_asked_for_again() -> None:
    """Whatever changes meanwhile: who commits after each record changes something each time."""
    found: list[StartsFound] = []
    wanted = Partitions.of([THERE])
    errand = errands(ONE, found=found.append).find_starts(
        wanted, Generation(1), still_wanted=lambda some: some & wanted
    )
    refused = ErrorCode.topic_authorization_failed
    offset = FetchedOffset(offset=-1, error=refused)
    next(errand)
    waits = []
    for _ in range(6):
        rest = errand.send([OffsetsFetched(error=ErrorCode.none, offsets={THERE: offset})])
        assert isinstance(rest, Rest)
        waits.append(rest.seconds)
        asked_for = next(errand)
        assert isinstance(asked_for, Ask)
        ((_, request),) = asked_for.requests
        assert request == OffsetFetch(group_id="g", partitions=wanted)
    assert [each.failed for each in found] == [{THERE: refused}]
    assert waits[0] < 2 < waits[-1] < 20
    with pytest.raises(StopIteration):
        errand.send(
            [OffsetsFetched(error=ErrorCode.none, offsets={THERE: FetchedOffset(offset=5)})]
        )
    assert found[-1].committed == {THERE: OffsetAndMetadata(offset=5)}


def test_it_does_not_wait_for_what_is_in_doubt_elsewhere() -> None:
    """A transaction that hangs keeps one partition back for hours, and not the other."""
    found: list[StartsFound] = []
    other = TopicPartition("t", 1)
    errand = errands(ONE, found=found.append).find_starts(
        Partitions.of([THERE, other]), Generation(1), still_wanted=lambda some: some
    )
    in_doubt = FetchedOffset(offset=-1, error=ErrorCode.unstable_offset_commit)
    refused = FetchedOffset(offset=-1, error=ErrorCode.topic_authorization_failed)
    next(errand)
    errand.send([OffsetsFetched(error=ErrorCode.none, offsets={THERE: refused, other: in_doubt})])
    for _ in range(20):
        next(errand)
        answered = FetchedOffset(offset=5)
        errand.send(
            [OffsetsFetched(error=ErrorCode.none, offsets={THERE: answered, other: in_doubt})]
        )
    errand.close()
    assert found[-1].committed == {THERE: OffsetAndMetadata(offset=5)}


@pytest.mark.parametrize("anew", [False, True], ids=["left", "subscribed anew"])
def test_a_commit_made_while_the_group_is_being_left_waits_for_the_end_of_it(anew: bool) -> None:
    """Until then topics count as the group's: what was assigned by hand failed at once."""
    left = False
    standing = Stable()
    errand = errands(
        ONE, standing=standing, owns=lambda _: left and not anew, going=lambda: not left
    ).commit({THERE: OffsetAndMetadata(offset=1)})
    assert isinstance(next(errand), Changed)
    left, standing.identity = True, GroupMetadata(group_id="g")
    if anew:
        with pytest.raises(StopIteration) as ended:
            errand.send(None)
        assert ended.value.value == {THERE: ErrorCode.illegal_generation}
        return
    wanted = errand.send(None)
    assert isinstance(wanted, Ask)
    ((_, request),) = wanted.requests
    assert isinstance(request, OffsetCommit)
    assert (request.generation, request.member_id) == (NO_GENERATION, "")
    finish(errand)


@pytest.mark.parametrize(
    ("request_timeout", "session", "waits"), [(30, 45, 22.5), (30, 6, 10), (5, 6, 5), (30, 300, 30)]
)
def test_a_request_that_hangs_holds_up_those_behind_it_no_longer_than_half_a_session(
    request_timeout: float, session: float, waits: float
) -> None:
    """Nor is a coordinator that is slow, and well, taken for one that hangs."""
    settings = dataclasses.replace(
        ONE,
        request_timeout=timedelta(seconds=request_timeout),
        session_timeout=timedelta(seconds=session),
    )
    assert patience(settings).total_seconds() == waits


def test_what_the_coordinator_says_of_the_group_is_raised_and_is_no_partitions_own() -> None:
    """Who looks for no error would find that nothing is committed, and read all anew."""
    errand = errands(ONE).committed(Partitions.of([THERE]))
    next(errand)
    answer = OffsetsFetched(error=ErrorCode.group_authorization_failed, offsets={})
    with pytest.raises(GroupRefusedError, match="'g': GROUP_AUTHORIZATION_FAILED") as refused:
        errand.send([answer])
    assert failure_of_exception(refused.value).code == ErrorCode.group_authorization_failed


def test_why_committed_offsets_could_not_be_had_in_time_is_what_the_coordinator_said_last() -> None:
    errand = errands(ONE).committed(Partitions.of([THERE]))
    next(errand)
    unstable = FetchedOffset(offset=-1, error=ErrorCode.unstable_offset_commit)
    errand.send([OffsetsFetched(error=ErrorCode.none, offsets={THERE: unstable})])
    with pytest.raises(RequestTimedOutError, match="says UNSTABLE_OFFSET_COMMIT, for a transact"):
        errand.throw(OutOfTime())
