"""A follow-up round that the leader has announced: who begins it, and who waits for it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from member_box import MemberBox, partitions, seconds

from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.follow_up import GO_AHEAD_AFTER
from kafka_coop.membership.pulse import FOLLOW_UP_AFTER, FOLLOW_UP_INTERVAL
from kafka_coop.membership.states import State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.marks import AssignmentMarks
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions

T0, T01 = partitions("t", 0), partitions("t", 0, 1)
ANNOUNCED = AssignmentMarks(follow_up=True)


def stable() -> MemberBox:
    box = MemberBox.fresh(heartbeat_interval=timedelta(seconds=3)).join(T01)
    box.effects.clear()
    return box


def take_round(box: MemberBox, assigned: Partitions = T01, *, announces: bool = True) -> None:
    """One that somebody else begins, unless this member has."""
    if box.stands(State.STABLE):
        box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=box.member.generation + 1)
    box.answer_sync(assigned, marks=AssignmentMarks(follow_up=announces))


def told_of_two() -> MemberBox:
    """Whoever is to give up in the first of them takes their time."""
    box = stable()
    take_round(box)
    box.tick(GO_AHEAD_AFTER)
    take_round(box)
    return box


def joins(box: MemberBox) -> int:
    return len(box.sent(ef.SendJoin))


def test_who_gives_nothing_up_joins_before_anybody_has_begun_it() -> None:
    box = stable()
    take_round(box)
    before, beats = joins(box), len(box.sent(ef.SendHeartbeat))
    assert box.until_deadline() == pytest.approx(GO_AHEAD_AFTER)
    assert box.member.expecting, "what it gives is looked for at once"
    box.tick(GO_AHEAD_AFTER - 0.001)
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
    box = stable()
    take_round(box, T0)
    before = joins(box)
    box.tick(2 * GO_AHEAD_AFTER)
    assert joins(box) == before
    box.do_steps()
    assert joins(box) == before + 1
    assert box.subscription().owned == T0


def test_who_hears_that_it_has_begun_joins_once() -> None:
    box = stable()
    take_round(box)
    before = joins(box)
    box.tick(GO_AHEAD_AFTER / 2)
    box.handle(ev.EnforceRebalance(reason="another one"))
    assert joins(box) == before + 1
    take_round(box, announces=False)
    box.tick(GO_AHEAD_AFTER)
    assert joins(box) == before + 1


def test_rounds_do_not_follow_one_another_while_somebody_takes_their_time() -> None:
    box = told_of_two()
    before = joins(box)
    box.tick(GO_AHEAD_AFTER)
    assert joins(box) == before
    box.answer_beat(ErrorCode.rebalance_in_progress)
    assert joins(box) == before + 1
    take_round(box)
    box.tick(GO_AHEAD_AFTER)
    assert joins(box) == before + 1, "nor after the third"


def test_the_next_rebalance_is_hurried_again() -> None:
    box = told_of_two()
    take_round(box, announces=False)
    take_round(box)
    before = joins(box)
    box.tick(GO_AHEAD_AFTER)
    assert joins(box) == before + 1


def test_who_was_out_of_the_group_knows_of_no_announcement() -> None:
    box = stable()
    take_round(box)
    box.handle(ev.EnforceRebalance(reason="a test"))
    box.answer_join(ErrorCode.unknown_member_id)
    box.do_steps()
    box.answer_join(generation=7)
    box.answer_sync(NO_PARTITIONS, marks=ANNOUNCED)
    before = joins(box)
    box.tick(GO_AHEAD_AFTER)
    assert joins(box) == before + 1


def test_who_closes_begins_no_round() -> None:
    box = stable()
    take_round(box)
    before = joins(box)
    box.handle(ev.Close())
    box.tick(GO_AHEAD_AFTER)
    box.do_steps()
    assert joins(box) == before
    assert box.sent(ef.SendLeave)


def test_one_that_takes_its_time_is_listened_for_in_a_hurry() -> None:
    box = told_of_two()
    start = box.now
    for _ in range(10):
        box.beat()
    assert box.now - start == pytest.approx(FOLLOW_UP_AFTER + 9 * FOLLOW_UP_INTERVAL)
    box.beat(ErrorCode.rebalance_in_progress)
    take_round(box, announces=False)
    start = box.now
    box.beat()
    assert box.now - start > 1


def test_one_that_nobody_begins_is_begun_by_who_waited_for_it() -> None:
    """Whoever was to begin it died, and its static successor has nothing to give up."""
    box = told_of_two()
    session = seconds(box.member.settings.session_timeout)
    announced, before = box.now, joins(box)
    while joins(box) == before:
        box.beat()
        assert box.now < announced + 2 * session
    assert box.now == pytest.approx(announced + session, abs=session / 5)
    assert box.last(ef.SendJoin).request.reason == "the follow-up round did not begin"


def test_a_revoker_that_takes_its_time_costs_fewer_and_fewer_beats() -> None:
    box = told_of_two()
    start, beats = box.now, len(box.sent(ef.SendHeartbeat))
    while box.now < start + 30:
        box.beat()
    assert len(box.sent(ef.SendHeartbeat)) - beats < 100
