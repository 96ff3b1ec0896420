"""A user who takes long to give partitions up: the next round does not wait for it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from member_box import MemberBox, partitions

from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.membership.states import State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.marks import AssignmentMarks, split_marks
from kafka_coop.protocol.user_data import decode_generation
from kafka_coop.types import Generation, Partitions

NOTHING = Partitions()
T0, T1, T2 = (partitions("t", i) for i in range(3))
T01, T02 = partitions("t", 0, 1), partitions("t", 0, 2)

BEAT = timedelta(milliseconds=20)
PATIENCE = 0.2
"""What the others wait for our user, seconds."""


def asked_to_give_up(assigned: Partitions = T0) -> MemberBox:
    """Owns t-0 and t-1; the second generation takes some of it, and its user is at it."""
    box = MemberBox.fresh(heartbeat_interval=BEAT).join(T01)
    box.effects.clear()
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.answer_sync(assigned)
    assert box.stands(State.ADOPTING)
    return box


def in_the_next_round(box: MemberBox) -> MemberBox:
    """The others are in the third one, and our user is still at it."""
    box.beat(ErrorCode.rebalance_in_progress)
    box.tick(PATIENCE)
    box.answer_beat(ErrorCode.rebalance_in_progress)
    assert box.stands(State.JOINING)
    return box


def answer(box: MemberBox, assigned: Partitions, *, generation: int = 3) -> None:
    box.answer_join(generation=generation)
    box.answer_sync(assigned)


def test_a_callback_of_ordinary_length_is_waited_for() -> None:
    box = asked_to_give_up()
    box.beat(ErrorCode.rebalance_in_progress)
    assert box.stands(State.ADOPTING)
    assert box.until_deadline() <= PATIENCE - BEAT.total_seconds()
    box.do_steps()
    assert box.subscription().owned == T0, "one round for all that moves"


def test_nobody_is_joined_who_does_not_wait() -> None:
    box = asked_to_give_up()
    box.tick(10 * PATIENCE)
    assert box.stands(State.ADOPTING)


def test_what_is_being_given_up_is_claimed_with_the_generation_that_withheld_it() -> None:
    box = in_the_next_round(asked_to_give_up(T02))
    assert box.subscription().owned == T01, "what came with it was never begun with"
    assert box.subscription().generation == 2
    assert box.member.owned == T01


def test_strategies_that_remember_their_generation_claim_with_it_too() -> None:
    """Leaders before KIP-792 read it there, and look at the newest claims alone."""
    box = in_the_next_round(asked_to_give_up())
    data, _ = split_marks(box.subscription().user_data)
    assert decode_generation(data) == 2


def records(box: MemberBox) -> list[RebalanceRecord]:
    return [told.record for told in box.sent(ef.Announce)]


def test_its_round_ends_with_its_last_callback_and_before_the_rounds_that_went_on() -> None:
    box = in_the_next_round(asked_to_give_up(T02))
    answer(box, T02)
    assert not records(box)
    step_id = box.last(ef.OfferStep).step.step_id
    box.tick(3.0)
    box.done.add(step_id)
    spent = timedelta(seconds=3)
    box.handle(ev.StepDone(step_id=step_id, revoke_callback=spent))
    box.do_steps()
    first, second = records(box)
    assert (first.generation, first.revoked, first.assigned, first.kept) == (2, T1, NOTHING, T0)
    assert first.total > first.revoke_callback == spent
    assert (second.generation, second.revoked, second.assigned, second.kept) == (3, NOTHING, T2, T0)
    assert second.revoke_callback == timedelta(0)


def test_a_round_whose_step_is_taken_back_revoked_nothing() -> None:
    box = in_the_next_round(asked_to_give_up())
    (step,) = box.sent(ef.OfferStep)
    box.handle(ev.StepWithdrawn(step_id=step.step.step_id))
    (told,) = records(box)
    assert (told.generation, told.revoked) == (2, NOTHING)


def test_records_come_in_the_order_of_their_rounds() -> None:
    """The on_assign of a round before has yet to be called: the user does not poll."""
    box = MemberBox.fresh(heartbeat_interval=BEAT).join(T01)
    box.effects.clear()
    for generation, assigned in ((2, T01), (3, T0)):
        box.beat(ErrorCode.rebalance_in_progress)
        box.answer_join(generation=generation)
        box.answer_sync(assigned)
    in_the_next_round(box)
    box.handle(ev.StepWithdrawn(step_id=box.last(ef.OfferStep).step.step_id))
    assert not records(box)
    box.do_steps()
    assert [told.generation for told in records(box)] == [2, 3]


def test_a_step_that_was_not_begun_is_taken_back_and_the_next_plan_decides() -> None:
    box = asked_to_give_up()
    (step,) = box.sent(ef.OfferStep)
    in_the_next_round(box)
    assert box.last(ef.WithdrawStep).step_id == step.step.step_id
    box.handle(ev.StepWithdrawn(step_id=step.step.step_id))
    answer(box, T01)
    assert box.stands(State.STABLE)
    assert box.last(ef.OfferStep).step.actions == (ef.CallAssigned(partitions=NOTHING),), (
        "it kept everything"
    )


@pytest.mark.parametrize("at", [State.JOINING, State.SYNCING, State.ADOPTING])
def test_it_joins_once_more_when_it_has_given_up(at: State) -> None:
    """What it had claimed was withheld from its next owner: nobody else begins that round."""
    box = in_the_next_round(asked_to_give_up())
    if at is State.JOINING:
        box.do_steps()
    box.answer_join(generation=3)
    if at is State.SYNCING:
        box.do_steps()
    box.answer_sync(T02)
    assert box.member.owned == (T01 if at is State.ADOPTING else T02)
    box.do_steps()
    assert box.stands(State.JOINING)
    assert box.subscription().owned == T02
    assert box.subscription().generation == 3
    assert box.last(ef.SendJoin).request.reason == "need to revoke partitions and re-join"
    assert [a for a in box.actions() if isinstance(a, ef.Own)] == [
        ef.Own(partitions=T2, generation=Generation(3))
    ]


def test_who_gave_up_before_joining_need_not_join_twice() -> None:
    box = asked_to_give_up()
    box.beat(ErrorCode.rebalance_in_progress)
    box.handle(ev.CoordinatorLost())
    box.tick(PATIENCE)
    assert box.stands(State.UNJOINED)
    box.do_steps()
    box.find()
    assert box.subscription().owned == T0
    answer(box, T0)
    assert box.stands(State.STABLE)


def test_more_is_given_up_after_what_is_given_up_already() -> None:
    box = in_the_next_round(asked_to_give_up())
    answer(box, T2)
    assert box.stands(State.ADOPTING)
    (first,) = box.sent(ef.OfferStep)  # one at a time
    box.done.add(first.step.step_id)
    box.handle(ev.StepDone(step_id=first.step.step_id))
    assert list(box.last(ef.OfferStep).step.actions) == [
        ef.CallRevoked(partitions=T0),
        ef.CommitPositions(partitions=T0),
        ef.Release(partitions=T0),
    ]
    box.do_steps()
    assert box.member.owned == T2


def test_what_comes_back_meanwhile_is_given_up_and_begun_anew() -> None:
    """Its on_revoke is under way: on_assign must follow, from what on_revoke has committed."""
    box = in_the_next_round(asked_to_give_up())
    answer(box, T01)
    assert box.stands(State.ADOPTING)
    assert not box.sent(ef.PrefetchOffsets), "it is not committed yet"
    box.do_steps()
    assert box.stands(State.STABLE)
    assert box.last(ef.PrefetchOffsets).partitions == T1
    assert not box.last(ef.PrefetchOffsets).ahead, "SyncGroup was sent before on_revoke committed"
    assert list(box.last(ef.OfferStep).step.actions) == [
        ef.Own(partitions=T1, generation=Generation(3)),
        ef.CallAssigned(partitions=T1),
    ]
    box.do_steps()
    assert [(r.generation, r.kept, r.assigned) for r in records(box)] == [
        (2, T0, NOTHING),
        (3, T0, T1),
    ]


def test_it_goes_through_as_many_rounds_as_the_others_need() -> None:
    box = in_the_next_round(asked_to_give_up())
    for generation in (3, 4):
        box.answer_join(generation=generation)
        box.answer_sync(T0)
        assert box.stands(State.ADOPTING)
        box.beat(ErrorCode.rebalance_in_progress)
        assert box.stands(State.JOINING), "its user has had its time"
        assert box.subscription().owned == T01
        assert box.subscription().generation == generation
    box.do_steps()
    answer(box, T0, generation=5)
    assert box.subscription().owned == T0
    assert box.stands(State.JOINING), "once more, without it"


def test_commits_of_what_is_being_given_up_are_its_own_to_make() -> None:
    box = in_the_next_round(asked_to_give_up())
    (moving,) = T1
    assert box.member.owns(moving)
    box.do_steps()
    assert not box.member.owns(moving)


def test_who_is_evicted_meanwhile_loses_it() -> None:
    box = in_the_next_round(asked_to_give_up())
    box.answer_join(ErrorCode.unknown_member_id)
    assert box.stands(State.UNJOINED)
    (step,) = box.sent(ef.OfferStep)
    box.handle(ev.StepWithdrawn(step_id=step.step.step_id))
    assert box.actions()[-2:] == [
        ef.CallLost(partitions=T01),
        ef.Release(partitions=T01),
    ]


def test_leaving_takes_it_back() -> None:
    box = in_the_next_round(asked_to_give_up())
    box.handle(ev.Close())
    answer(box, T0)
    assert box.stands(State.LEAVING)
    box.do_steps()
    box.do_steps()  # the final one
    assert box.member.owned == NOTHING
    assert box.sent(ef.SendLeave)


def test_what_the_user_no_longer_wants_goes_first() -> None:
    """Else the leader would hear of topics that are not subscribed to."""
    box = asked_to_give_up()
    box.handle(ev.Subscribe(topics=("u",), patterns=()))
    box.beat(ErrorCode.rebalance_in_progress)
    box.tick(10 * PATIENCE)
    assert box.stands(State.ADOPTING)


def test_what_was_claimed_late_may_not_have_been_withheld() -> None:
    """A round was missed in between: others' claims were newer, and Java's strategies look at
    no older ones. Whoever was given it owns it; we shall not claim it with the latest."""
    box = MemberBox.fresh(heartbeat_interval=BEAT).join(T01)
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=3)
    box.answer_sync(T0)
    box.beat(ErrorCode.rebalance_in_progress)
    box.tick(10 * PATIENCE)
    assert box.stands(State.ADOPTING)


def test_so_it_is_where_the_missed_round_comes_in_between() -> None:
    box = in_the_next_round(asked_to_give_up())
    box.answer_join(generation=3)
    box.answer_sync(error=ErrorCode.rebalance_in_progress)
    box.answer_join(generation=4)
    box.answer_sync(T0)
    box.beat(ErrorCode.rebalance_in_progress)
    box.tick(10 * PATIENCE)
    assert box.stands(State.ADOPTING)
    assert len(box.sent(ef.SendJoin)) == 3


def a_round_cut_short(*leaders: str, marks: AssignmentMarks | None) -> MemberBox:
    """Newcomers came between JoinGroup and SyncGroup of all rounds but the last."""
    box = MemberBox.fresh(heartbeat_interval=BEAT).join(T01)
    box.beat(ErrorCode.rebalance_in_progress)
    for generation, leader in enumerate(leaders, 2):
        box.answer_join(generation=generation, leader=leader)
        if generation <= len(leaders):
            box.answer_sync(error=ErrorCode.rebalance_in_progress)
    box.answer_sync(T0, marks=marks)
    assert box.stands(State.ADOPTING)
    box.beat(ErrorCode.rebalance_in_progress)
    box.tick(10 * PATIENCE)
    return box


@pytest.mark.parametrize("leaders", [("a", "b"), ("b", "b"), ("a", "b", "b")])
def test_a_leader_of_ours_has_withheld_what_nobody_contests(leaders: tuple[str, ...]) -> None:
    """Of the first round that was missed it had the newest claim, whoever led."""
    box = a_round_cut_short(*leaders, marks=AssignmentMarks())
    assert box.stands(State.JOINING)
    assert box.subscription().owned == T01
    assert box.subscription().generation == len(leaders) + 1


@pytest.mark.parametrize(
    ("leaders", "marks"),
    [
        (("a", "b"), None),
        (("a", "b", "c"), AssignmentMarks()),
        (("a", "b", "a"), AssignmentMarks()),
    ],
)
def test_another_leader_may_have_given_away_what_was_claimed_late(
    leaders: tuple[str, ...], marks: AssignmentMarks | None
) -> None:
    """In the second round that was missed, say: only who leads the last one is known to be ours."""
    assert a_round_cut_short(*leaders, marks=marks).stands(State.ADOPTING)


def test_a_round_that_is_joined_twice_is_none_that_was_missed() -> None:
    """The coordinator was lost before SyncGroup was answered: the generation is the same one."""
    box = MemberBox.fresh(heartbeat_interval=BEAT).join(T01)
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.answer_sync(error=ErrorCode.not_coordinator)
    box.tick(1.0)
    box.find()
    box.answer_join(generation=2)
    box.answer_sync(T0)
    box.beat(ErrorCode.rebalance_in_progress)
    box.tick(10 * PATIENCE)
    assert box.stands(State.JOINING)


def test_a_follow_up_that_does_not_come_is_asked_for_all_the_same() -> None:
    """Nothing of it is to be given up by us: what came back is, and is ours again."""
    box = in_the_next_round(asked_to_give_up())
    box.answer_join(generation=3)
    box.answer_sync(T01, marks=AssignmentMarks(follow_up=True))
    session = box.member.settings.session_timeout.total_seconds()
    ends = box.now + session
    while box.now <= ends:
        box.beat()
    joins = len(box.sent(ef.SendJoin))
    box.do_steps()
    assert len(box.sent(ef.SendJoin)) == joins + 1
