"""A follow-up round that the leader has announced: who begins it, and who waits for it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from member_box import MemberBox, partitions, seconds

from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.joining import BUSY_AFTER
from kafka_coop.membership.pulse import FOLLOW_UP_AFTER, FOLLOW_UP_INTERVAL
from kafka_coop.membership.states import State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, split_marks
from kafka_coop.types import Generation, Partitions

T0, T01 = partitions("t", 0), partitions("t", 0, 1)
AHEAD = AssignmentMarks(follow_up=True, ahead=True)
ANNOUNCED = AssignmentMarks(follow_up=True)


def told(marks: AssignmentMarks, assigned: Partitions = T01) -> MemberBox:
    """Owns t-0 and t-1; somebody has begun a second round, which has ended."""
    box = MemberBox.fresh(heartbeat_interval=timedelta(seconds=3)).join(T01)
    box.effects.clear()
    take_round(box, marks, assigned)
    return box


def take_round(box: MemberBox, marks: AssignmentMarks, assigned: Partitions = T01) -> None:
    """One that somebody else begins, unless this member has."""
    if box.stands(State.STABLE):
        box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=box.member.generation + 1)
    box.answer_sync(assigned, marks=marks)


def joins(box: MemberBox) -> int:
    return len(box.sent(ef.SendJoin))


def test_who_gives_nothing_up_goes_ahead() -> None:
    box = told(AHEAD)
    before, beats = joins(box), len(box.sent(ef.SendHeartbeat))
    assert box.until_deadline() == pytest.approx(FOLLOW_UP_AFTER)
    assert box.member.expecting, "what it gives is looked for at once"
    box.tick(FOLLOW_UP_AFTER - 0.001)
    assert joins(box) == before
    box.tick(0.001)
    assert joins(box) == before + 1
    assert len(box.sent(ef.SendHeartbeat)) == beats, "no beat asks for it"
    first, second = (join.request.protocols for join in box.sent(ef.SendJoin)[-2:])
    assert first != second, "else the coordinator would begin no round"
    assert box.subscription().owned == T01
    assert box.subscription().generation == Generation(2)
    assert box.last(ef.SendJoin).request.reason == "a follow-up round is announced"


def test_who_gives_something_up_joins_when_it_has() -> None:
    box = told(AHEAD, T0)
    before = joins(box)
    box.tick(2 * FOLLOW_UP_AFTER)
    assert joins(box) == before
    box.do_steps()
    assert joins(box) == before + 1
    assert box.subscription().owned == T0


def test_who_has_joined_by_then_joins_once() -> None:
    box = told(AHEAD)
    before = joins(box)
    box.tick(FOLLOW_UP_AFTER / 2)
    box.handle(ev.EnforceRebalance(reason="another one"))
    assert joins(box) == before + 1
    take_round(box, AssignmentMarks())
    box.tick(FOLLOW_UP_AFTER)
    assert joins(box) == before + 1


def test_nobody_goes_ahead_unless_the_leader_says_so() -> None:
    box = told(ANNOUNCED)
    before = joins(box)
    box.tick(FOLLOW_UP_AFTER)
    assert joins(box) == before
    box.answer_beat(ErrorCode.rebalance_in_progress)
    assert joins(box) == before + 1


@pytest.mark.parametrize("marks", [AHEAD, ANNOUNCED])
@pytest.mark.parametrize("assigned", [T01, T0])
def test_who_has_left_the_group_expects_nothing_of_it(
    marks: AssignmentMarks, assigned: Partitions
) -> None:
    box = told(marks, assigned)
    before = joins(box)
    box.handle(ev.Unsubscribe())
    box.tick(FOLLOW_UP_AFTER)
    box.do_steps()
    box.do_steps()  # what the round took, and then the rest
    box.answer_leave()
    assert box.stands(State.UNSUBSCRIBED)
    assert joins(box) == before
    assert not box.member.expecting


def test_one_that_is_waited_for_is_listened_for_in_a_hurry() -> None:
    box = told(ANNOUNCED)
    start = box.now
    for _ in range(10):
        box.beat()
    assert box.now - start == pytest.approx(FOLLOW_UP_AFTER + 9 * FOLLOW_UP_INTERVAL)
    box.beat(ErrorCode.rebalance_in_progress)
    take_round(box, AssignmentMarks())
    start = box.now
    box.beat()
    assert box.now - start > 1


def test_one_that_nobody_begins_is_begun_by_who_waited_for_it() -> None:
    """Whoever was to begin it died, and its static successor has nothing to give up."""
    box = told(ANNOUNCED)
    session = seconds(box.member.settings.session_timeout)
    announced, before = box.now, joins(box)
    while joins(box) == before:
        box.beat()
        assert box.now < announced + 2 * session
    assert box.now == pytest.approx(announced + session, abs=session / 5)
    assert box.last(ef.SendJoin).request.reason == "the follow-up round did not begin"


def test_a_revoker_that_takes_its_time_costs_fewer_and_fewer_beats() -> None:
    box = told(ANNOUNCED)
    start, beats = box.now, len(box.sent(ef.SendHeartbeat))
    while box.now < start + 30:
        box.beat()
    assert len(box.sent(ef.SendHeartbeat)) - beats < 100


# --- who says that it will take long ---------------------------------------------------------


@pytest.mark.parametrize("busy", [False, True])
def test_whoever_does_not_poll_says_so_with_the_join(busy: bool) -> None:
    box = told(AssignmentMarks())
    box.handle(ev.Polled(at=box.now))
    box.tick(2 * BUSY_AFTER if busy else BUSY_AFTER / 2)
    box.handle(ev.EnforceRebalance(reason="a test"))
    assert says_busy(box) is busy


def test_it_says_the_same_when_it_is_asked_again() -> None:
    """Other bytes would begin a round where the answer was lost."""
    box = told(AssignmentMarks())
    box.handle(ev.Polled(at=box.now))
    box.handle(ev.EnforceRebalance(reason="a test"))
    box.answer_join(ErrorCode.coordinator_load_in_progress)
    box.tick(2 * BUSY_AFTER)
    first, second = box.sent(ef.SendJoin)[-2:]
    assert first.request.protocols == second.request.protocols
    assert not says_busy(box)


def says_busy(box: MemberBox) -> bool:
    _, marks = split_marks(box.subscription().user_data)
    assert isinstance(marks, SubscriptionMarks)
    return marks.busy
