"""The order of what the user's thread is told: KIP-429's contract, path by path, literally."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest
from member_box import NODE, MemberBox, partitions, seconds

from kafka_coop.assignors import CooperativeSticky
from kafka_coop.errors import AssignorFailedError, AuthenticationFailedError, ConnectionFailedError
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.failures import LOCAL_MAX_POLL_EXCEEDED
from kafka_coop.membership.member import Member
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.membership.states import State
from kafka_coop.protocol.assignment import encode_assignment
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, split_marks
from kafka_coop.protocol.messages import GroupSynced, Node
from kafka_coop.types import (
    NO_GENERATION,
    Assignment,
    Generation,
    GroupMetadata,
    MemberId,
    Partitions,
    TopicPartition,
)

NOTHING = Partitions()
T01 = partitions("t", 0, 1)
T0 = partitions("t", 0)
T1 = partitions("t", 1)
T2 = partitions("t", 2)


def owns(added: Partitions, generation: int) -> ef.Own:
    return ef.Own(partitions=added, generation=Generation(generation))


def revoked_and_released(gone: Partitions) -> list[ef.Action]:
    return [
        ef.CallRevoked(partitions=gone),
        ef.CommitPositions(partitions=gone),
        ef.Release(partitions=gone),
    ]


def lost_and_released(gone: Partitions) -> list[ef.Action]:
    return [ef.CallLost(partitions=gone), ef.Release(partitions=gone)]


def stable(strategy: str = "cooperative-sticky") -> MemberBox:
    box = MemberBox.fresh(strategy).join(T01)
    assert box.stands(State.STABLE)
    box.effects.clear()
    return box


def next_round(box: MemberBox, assigned: Partitions, generation: int = 2) -> MemberBox:
    box.beat(ErrorCode.rebalance_in_progress)
    box.do_steps()
    box.answer_join(generation=generation)
    box.answer_sync(assigned)
    return box


# --- cooperative ---------------------------------------------------------------------------


def test_the_first_assignment() -> None:
    box = MemberBox.fresh()
    box.join(T01)
    assert box.actions() == [owns(T01, 1), ef.CallAssigned(partitions=T01)]


def test_nothing_changes_and_on_assign_says_so() -> None:
    box = next_round(stable(), T01)
    assert box.actions() == [ef.CallAssigned(partitions=NOTHING)]
    assert box.stands(State.STABLE), "nobody waits for a callback about nothing"


def test_what_moves_is_revoked_before_anything_is_assigned_and_before_the_rejoin() -> None:
    box = next_round(stable(), partitions("t", 0, 2))
    assert box.stands(State.ADOPTING)
    assert box.actions() == revoked_and_released(T1)
    assert box.member.owned == T01, "until the user's thread is done it is still owned"
    joins = len(box.sent(ef.SendJoin))
    box.do_steps()
    assert box.actions() == [
        *revoked_and_released(T1),
        owns(T2, 2),
        ef.CallAssigned(partitions=T2),
    ]
    assert len(box.sent(ef.SendJoin)) == joins + 1, "and then it joins again at once"
    rejoin = box.last(ef.SendJoin).request
    assert rejoin.reason == "need to revoke partitions and re-join"
    assert box.subscription().owned == partitions("t", 0, 2)
    assert box.subscription().generation == 2


def test_the_rejoin_after_a_revocation_changes_its_bytes() -> None:
    """Even where the owned partitions come out the same: trap KAFKA-10455."""
    box = stable()
    box.handle(ev.EnforceRebalance(reason="first"))
    before = box.last(ef.SendJoin).request.protocols
    box.answer_join(generation=2)
    box.answer_sync(T01)
    box.do_steps()
    box.handle(ev.EnforceRebalance(reason="second"))
    assert box.last(ef.SendJoin).request.protocols != before


def test_a_mere_retry_does_not_change_its_bytes_beyond_the_generation() -> None:
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    before = box.last(ef.SendJoin).request.protocols
    box.answer_join(ErrorCode.rebalance_in_progress)
    assert box.last(ef.SendJoin).request.protocols == before


def test_a_join_does_not_wait_for_the_user() -> None:
    """The user is busy: on_assign of the last round has not run, nothing is to be given up."""
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.answer_sync(partitions("t", 0, 1, 2))
    box.beat(ErrorCode.rebalance_in_progress)
    assert box.stands(State.JOINING)
    assert box.subscription().owned == partitions("t", 0, 1, 2)
    assert box.subscription().generation == 2


def test_unsubscribed_topics_are_revoked_before_the_join() -> None:
    box = MemberBox.fresh()
    box.subscribe("t", "u")
    box.find()
    box.answer_join()
    box.answer_sync(Partitions({"t": [0], "u": [0]}))
    box.do_steps()
    box.effects.clear()
    box.subscribe("t")
    assert box.stands(State.PREPARING)
    assert box.actions() == revoked_and_released(partitions("u", 0))
    box.do_steps()
    assert box.stands(State.JOINING)
    assert box.subscription().owned == T0
    assert box.subscription().topics == ("t",)


def test_a_topic_dropped_in_mid_round_is_revoked_before_the_next_join() -> None:
    """The plan was made for the subscription before, and counts for nothing."""
    both = Partitions({"t": [0], "u": [0]})
    box = MemberBox.fresh().join(both)
    box.beat(ErrorCode.rebalance_in_progress)
    assert box.stands(State.JOINING)
    box.subscribe("t")
    box.answer_join(generation=2)
    box.answer_sync(both)
    box.effects.clear()
    box.tick(1.0)
    assert box.stands(State.PREPARING)
    assert box.actions() == revoked_and_released(partitions("u", 0))
    assert box.last(ef.IdentityChanged).commits_open, "the coordinator has answered SyncGroup"
    box.do_steps()
    assert box.subscription().owned == T0
    assert box.subscription().topics == ("t",)


def test_partitions_that_vanished_are_lost_before_the_join() -> None:
    box = MemberBox.fresh().join(T01)
    box.tick()
    box.answer_metadata({}, t=ErrorCode.unknown_topic_or_partition)
    box.effects.clear()
    box.beat(ErrorCode.rebalance_in_progress)
    assert box.actions() == lost_and_released(T01)
    box.do_steps()
    assert box.subscription().owned == NOTHING


def test_metadata_from_before_do_not_know_what_came_of_a_topic_that_grew() -> None:
    box = MemberBox.fresh().join(T0)
    box.tick()
    box.answer_metadata({"t": 1})
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.now += 0.01
    box.answer_sync(T01)
    box.do_steps()
    box.effects.clear()
    box.beat(ErrorCode.rebalance_in_progress)
    assert box.actions() == []
    assert box.subscription().owned == T01


# --- eager ---------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "range,cooperative-sticky"])
def test_eager_gives_everything_up_before_every_join(strategy: str) -> None:
    box = MemberBox.fresh(strategy).join(T01)
    box.effects.clear()
    box.beat(ErrorCode.rebalance_in_progress)
    assert box.stands(State.PREPARING)
    assert box.actions() == revoked_and_released(T01)
    assert not box.sent(ef.SendJoin)
    box.do_steps()
    assert box.subscription().owned == NOTHING
    box.answer_join(generation=2)
    box.answer_sync(T01)
    box.do_steps()
    assert box.actions() == [
        *revoked_and_released(T01),
        owns(T01, 2),
        ef.CallAssigned(partitions=T01),
    ]


def test_eager_says_that_a_rebalance_begins_even_where_nothing_is_owned() -> None:
    box = MemberBox.fresh("range").join(NOTHING)
    box.effects.clear()
    box.beat(ErrorCode.rebalance_in_progress)
    assert box.actions() == [ef.CallRevoked(partitions=NOTHING)]


def test_prepare_is_not_repeated_when_the_join_fails() -> None:
    box = MemberBox.fresh("range").join(T01)
    box.effects.clear()
    box.beat(ErrorCode.rebalance_in_progress)
    box.do_steps()
    box.answer_join(ErrorCode.coordinator_load_in_progress)
    box.tick(1.0)
    box.answer_join(ErrorCode.rebalance_in_progress)
    assert len(box.sent(ef.SendJoin)) == 3
    assert box.actions() == revoked_and_released(T01)


# --- lost ----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
@pytest.mark.parametrize(
    "error",
    [ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id],
)
def test_lost_once_and_then_a_join_that_owns_nothing(strategy: str, error: ErrorCode) -> None:
    box = stable(strategy)
    box.beat(error)
    losses = [a for a in box.actions() if not isinstance(a, ef.RaiseError)]
    assert losses == lost_and_released(T01)
    box.do_steps()
    box.tick(1.0)
    assert box.subscription().owned == NOTHING
    assert box.subscription().generation == -1


def test_nothing_owned_nothing_lost() -> None:
    box = MemberBox.fresh().join(NOTHING)
    box.effects.clear()
    box.beat(ErrorCode.unknown_member_id)
    assert box.actions() == []
    assert box.stands(State.JOINING)


def test_evicted_before_a_revocation_began_everything_is_lost_instead() -> None:
    box = next_round(stable(), T0)
    offered = box.last(ef.OfferStep).step.step_id
    box.effects.clear()
    box.beat(ErrorCode.unknown_member_id)
    assert box.sent(ef.WithdrawStep) == [ef.WithdrawStep(step_id=offered)]
    box.handle(ev.StepWithdrawn(step_id=offered))
    assert box.actions() == lost_and_released(T01)


def test_evicted_while_a_revocation_runs_the_rest_is_lost() -> None:
    box = next_round(stable(), T0)
    offered = box.last(ef.OfferStep).step.step_id
    box.effects.clear()
    box.beat(ErrorCode.unknown_member_id)
    box.handle(ev.StepDone(step_id=offered))
    assert box.actions() == lost_and_released(T0)


@pytest.mark.parametrize("begun", [False, True])
def test_what_an_eviction_cost_is_counted_as_it_came_about(begun: bool) -> None:
    """Else what was never given counted as come, and what was not revoked as gone twice."""
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.answer_sync(T0 | T2)
    box.beat(ErrorCode.unknown_member_id)
    step = box.last(ef.WithdrawStep).step_id
    box.done.add(step)
    box.handle(ev.StepDone(step_id=step) if begun else ev.StepWithdrawn(step_id=step))
    box.do_steps()
    box.answer_join(generation=3, member_id="another")
    box.answer_sync(T1)
    box.do_steps()
    failed, after = (announced.record for announced in box.sent(ef.Announce))
    assert (failed.revoked, failed.lost, failed.assigned) == (NOTHING, NOTHING, NOTHING)
    assert after.revoked == (T1 if begun else NOTHING)
    assert after.lost == (T0 if begun else T01)
    assert after.assigned == T1


def test_a_missed_sync_keeps_what_is_owned_under_its_old_generation() -> None:
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.answer_sync(error=ErrorCode.rebalance_in_progress)
    assert box.actions() == []
    assert box.subscription().owned == T01
    assert box.subscription().generation == 1


def test_who_is_no_member_any_more_when_it_syncs_has_lost_everything_once() -> None:
    """Trap 1: in the middle of a round, between JoinGroup's answer and SyncGroup's."""
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.answer_sync(error=ErrorCode.unknown_member_id)
    assert box.actions() == lost_and_released(T01)
    box.do_steps()
    box.tick(1.0)
    assert box.subscription().owned == NOTHING
    assert box.subscription().generation == -1
    assert box.actions() == lost_and_released(T01), "once"


# --- a coordinator that refuses us ----------------------------------------------------------


@pytest.mark.parametrize("hopeless", [True, False])
def test_who_is_refused_by_its_coordinator_tells_the_user_though_it_has_its_place(
    hopeless: bool,
) -> None:
    """Its certificate has expired, say: no heartbeat would ever be answered again."""
    box = stable()
    kind = AuthenticationFailedError if hopeless else ConnectionFailedError
    while not box.sent(ef.SendHeartbeat):
        box.tick(box.until_deadline())
    token = box.last(ef.SendHeartbeat).token
    box.effects.clear()
    box.handle(ev.HeartbeatAnswered(token=token, answer=kind("refused")))
    assert [type(one) for one in box.actions()] == [ef.RaiseError] * hopeless
    assert box.stands(State.STABLE)


# --- what producers send offsets with (KIP-447) -----------------------------------------------


def gone(box: MemberBox) -> list[ef.Action]:
    return [one for one in box.actions() if isinstance(one, ef.CallLost | ef.Release)]


@pytest.mark.parametrize(
    "error",
    [ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id],
)
def test_an_evicted_member_vouches_as_who_it_was_until_it_has_joined_anew(
    error: ErrorCode,
) -> None:
    """Without a generation the coordinator would take offsets of what others have by now."""
    box = stable()
    was = box.member.metadata
    box.beat(error)
    assert box.member.metadata.generation == NO_GENERATION
    assert box.member.vouched == was, "its user has not heard of it"
    box.do_steps()
    assert gone(box) == lost_and_released(T01)
    assert box.member.vouched == was, "records may be under way in another thread"
    if error is not ErrorCode.fenced_instance_id:
        box.answer_join(member_id="anew", generation=7)
        assert box.member.vouched == box.member.metadata
        assert box.member.vouched.generation == 7


def test_who_missed_a_round_vouches_as_who_it_was_until_it_has_given_up_what_it_had() -> None:
    """A static member keeps its place, and others may have had its partitions."""
    box = MemberBox.fresh(instance_id="static-1").join(T01)
    was = box.member.metadata
    box.beat(ErrorCode.rebalance_in_progress)
    box.now += 60.0
    box.answer_join(generation=3)
    box.answer_sync(T01)
    assert box.member.metadata.generation == 3
    assert box.member.vouched == was
    box.do_steps()
    assert gone(box) == lost_and_released(T01)
    assert box.member.vouched.generation == 3


def test_who_keeps_its_place_vouches_with_each_new_generation() -> None:
    box = next_round(stable(), T0)
    assert box.member.vouched.generation == 2, "what is revoked is nobody else's yet"


def test_who_has_left_vouches_as_who_it_was() -> None:
    """A transaction may be under way in another thread."""
    box = stable()
    was = box.member.metadata
    box.handle(ev.Unsubscribe())
    box.do_steps()
    box.answer_leave()
    box.subscribe("t")
    assert box.member.metadata.generation == NO_GENERATION
    assert box.member.vouched == was


# --- leaving -------------------------------------------------------------------------------


def test_close_revokes_commits_and_leaves() -> None:
    box = stable()
    box.handle(ev.Close())
    assert box.actions() == revoked_and_released(T01)
    assert not box.sent(ef.SendLeave)
    box.do_steps()
    leave = box.last(ef.SendLeave).request
    assert (leave.member_id, leave.reason) == ("me", "the consumer is being closed")
    box.answer_leave()
    assert box.effects[-1] == ef.Left()
    assert box.stands(State.CLOSED)


def test_close_without_auto_commit_commits_nothing() -> None:
    box = MemberBox.fresh(auto_commit=False).join(T01)
    box.effects.clear()
    box.handle(ev.Close())
    assert box.actions() == [ef.CallRevoked(partitions=T01), ef.Release(partitions=T01)]


def test_a_close_that_waits_for_a_round_is_not_undone_by_a_subscribe() -> None:
    """In on_assign, say: nobody would say LeaveGroup, and the partitions lie idle for a session."""
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.handle(ev.Close())
    assert box.stands(State.JOINING)
    box.subscribe("u")
    box.answer_join(generation=2)
    box.answer_sync(T01)
    box.do_steps()
    assert box.sent(ef.SendLeave)
    box.answer_leave()
    assert box.stands(State.CLOSED)


def test_who_closes_has_the_whole_poll_interval_for_on_revoke() -> None:
    """The last poll may be long ago: others would begin while it is still being processed."""
    box = stable()
    ends = box.now + 300
    while box.now < ends - 10:
        box.beat()
    box.handle(ev.Close())
    while box.now < ends + 10:
        box.beat()
    assert not box.sent(ef.SendLeave)
    assert box.actions()[0] == ef.CallRevoked(partitions=T01)


def test_who_is_refused_for_the_groups_size_has_been_removed() -> None:
    """And what it owned was given to others in that round."""
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(error=ErrorCode.group_max_size_reached)
    assert box.member.member_id == ""
    assert box.sent(ef.EndLease), "nothing is delivered any more"
    box.do_steps()
    box.tick(0.5)
    told, *lost = box.actions()
    assert isinstance(told, ef.RaiseError)
    assert lost == lost_and_released(T01)


def test_an_assignment_by_another_strategy_is_not_adopted() -> None:
    """KIP-559: the answer names it."""
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    data = encode_assignment(Assignment(partitions=NOTHING))
    answer = GroupSynced(error=ErrorCode.none, assignment=data, protocol_name="range")
    box.handle(ev.SyncAnswered(token=box.last(ef.SendSync).token, answer=answer))
    assert box.member.owned == T01
    assert not box.stands(State.STABLE)


def test_close_after_the_group_went_on_loses() -> None:
    box = stable()
    box.beat(ErrorCode.unknown_member_id)
    withdrawn = box.last(ef.OfferStep).step.step_id
    box.effects.clear()
    box.handle(ev.Close())
    box.handle(ev.StepWithdrawn(step_id=withdrawn))
    assert box.actions() == lost_and_released(T01)
    box.do_steps()
    assert not box.sent(ef.SendLeave), "the group knows no such member"
    assert box.stands(State.CLOSED)


def test_close_after_the_lease_ran_out_loses_what_another_may_own_by_now() -> None:
    """Cut off from the coordinator: nobody says that the group went on, yet it may have."""
    box = stable()
    box.now += box.member.settings.session_timeout.total_seconds() + 1
    box.handle(ev.Close())
    assert box.actions() == lost_and_released(T01)


def test_unsubscribe_revokes_without_a_commit_and_can_subscribe_again() -> None:
    """As Java's does; librdkafka's commits, too."""
    box = stable()
    box.handle(ev.Unsubscribe())
    assert box.actions() == [ef.CallRevoked(partitions=T01), ef.Release(partitions=T01)]
    box.subscribe("u")
    box.do_steps()
    box.answer_leave()
    box.tick()
    assert box.stands(State.JOINING)
    assert box.subscription().topics == ("u",)


def test_what_was_given_up_with_its_topic_is_not_ours_to_commit() -> None:
    """Others subscribe to it still: a commit of what is processed late would undo theirs."""
    box = stable()
    t0, never = TopicPartition("t", 0), TopicPartition("v", 0)
    assert [box.member.owns(of) for of in (t0, never)] == [True, True]
    box.subscribe("u")
    box.do_steps()
    box.answer_join(generation=2)
    box.answer_sync(NOTHING)
    assert box.stands(State.STABLE)
    assert [box.member.owns(of) for of in (t0, never)] == [False, True]


def test_who_unsubscribes_is_going_from_the_last_on_revoke_to_the_answer() -> None:
    """What is committed then is committed once it is out: by hand, if at all."""
    box = stable()
    told = [box.member.going]
    box.handle(ev.Unsubscribe())
    told.append(box.member.going)  # on_revoke may commit
    box.do_steps()
    told.append(box.member.going)
    box.answer_leave()
    assert [*told, box.member.going] == [False, False, True, False]
    assert box.member.owns(TopicPartition("t", 0))


def test_a_static_member_leaves_without_a_word() -> None:
    box = MemberBox.fresh(instance_id="static-1").join(T01)
    box.effects.clear()
    box.handle(ev.Close())
    box.do_steps()
    assert not box.sent(ef.SendLeave)
    assert box.stands(State.CLOSED)


@pytest.mark.parametrize("state", [s for s in State if s is not State.CLOSED])
def test_close_ends_in_every_state_within_its_patience(state: State) -> None:
    """Nobody answers any more: not the coordinator, not the broker."""
    box = MemberBox.fresh().at(state)
    box.handle(ev.Close())
    for withdrawn in box.sent(ef.WithdrawStep):
        box.handle(ev.StepWithdrawn(step_id=withdrawn.step_id))
    started = box.now
    for _ in range(50):
        if box.stands(State.CLOSED):
            break
        box.do_steps()
        deadline = box.member.next_deadline()
        if deadline is not None:
            box.now = max(box.now, deadline)
            box.tick()
    assert box.stands(State.CLOSED)
    assert box.now - started <= 5.0
    assert box.member.owned == NOTHING


def test_an_id_that_is_on_its_way_is_waited_for_and_left_with() -> None:
    """The coordinator gave it and would wait for it to join (KIP-394)."""
    box = MemberBox.fresh().at(State.JOINING)
    box.handle(ev.Close())
    assert not box.sent(ef.SendLeave)
    box.answer_join(ErrorCode.member_id_required, member_id="late")
    assert box.last(ef.SendLeave).request.member_id == "late"


def joining_for_the_first_time() -> MemberBox:
    box = MemberBox.fresh()
    box.subscribe("t")
    box.find()
    return box


def joining_once_more() -> MemberBox:
    """The group has dropped it."""
    box = stable()
    box.beat(ErrorCode.unknown_member_id)
    box.do_steps()
    return box


@pytest.mark.parametrize("box_of", [joining_for_the_first_time, joining_once_more])
def test_an_id_is_told_of_before_the_join_that_may_be_parked_with_it(
    box_of: Callable[[], MemberBox],
) -> None:
    """Were this process killed meanwhile, nobody could leave for a member that nobody knows."""
    box = box_of()
    assert box.stands(State.JOINING)
    vouched = box.member.vouched
    told, join = box.answer_join(ErrorCode.member_id_required, member_id="given")
    assert told == ef.IdentityChanged(
        metadata=GroupMetadata(group_id="group", member_id=MemberId("given")), commits_open=False
    )
    assert isinstance(join, ef.SendJoin)
    assert join.request.member_id == "given"
    assert box.member.vouched == vouched, "no generation, and nothing that a producer may send with"


# --- polls ---------------------------------------------------------------------------------


def test_a_late_poll_leaves_the_group_and_loses_everything() -> None:
    box = stable()
    box.now += 299
    box.handle(ev.Polled(at=box.now))
    box.now += 301
    box.tick()
    assert box.last(ef.SendLeave).request.reason == "consumer poll timeout has expired."
    assert lost_and_released(T01)[0] in box.actions()
    assert not box.sent(ef.SendJoin), "it joins again when the user polls, not before"
    box.do_steps()
    assert box.sent(ef.SendJoin)
    assert box.last(ef.SendJoin).request.member_id == ""


def test_a_late_poll_is_told_of_the_loss_first_and_then_of_its_reason() -> None:
    """As Java's: on_lost inside the poll that comes too late; the error ends that poll."""
    box = stable()
    box.now += 301
    box.tick()
    *lost, told = box.last(ef.OfferStep).step.actions
    assert lost == lost_and_released(T01)
    assert isinstance(told, ef.RaiseError)
    assert told.failure.code == LOCAL_MAX_POLL_EXCEEDED
    box.do_steps()
    assert sum(isinstance(action, ef.RaiseError) for action in box.actions()) == 1


def test_who_unsubscribes_and_never_polls_again_is_out_of_the_group_all_the_same() -> None:
    """The final on_revoke waits for a poll: others would wait for these partitions for ever."""
    box = stable()
    box.handle(ev.Unsubscribe())
    revoked = box.last(ef.OfferStep).step
    box.effects.clear()
    box.now += 301
    box.tick()
    assert box.last(ef.SendLeave).request.reason == "consumer poll timeout has expired."
    box.handle(ev.StepWithdrawn(step_id=revoked.step_id))
    *lost, told = box.last(ef.OfferStep).step.actions
    assert lost == lost_and_released(T01)
    assert isinstance(told, ef.RaiseError)
    box.done.add(revoked.step_id)
    box.do_steps()
    assert box.state is State.UNSUBSCRIBED
    assert box.member.next_deadline() is None


def all_is_being_given_up(strategy: str) -> MemberBox:
    """Its user is inside on_revoke: before the join, or because the round has taken everything."""
    box = stable(strategy)
    box.beat(ErrorCode.rebalance_in_progress)
    if strategy == "cooperative-sticky":
        box.answer_join(generation=2)
        box.answer_sync(NOTHING)
    assert box.actions() == revoked_and_released(T01)
    return box


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_whose_on_revoke_takes_too_long_is_told_once_it_returns_and_not_at_a_later_loss(
    strategy: str,
) -> None:
    box = all_is_being_given_up(strategy)
    box.tick(301)
    joins = len(box.sent(ef.SendJoin))
    box.do_steps()
    (told,) = box.last(ef.OfferStep).step.actions
    assert isinstance(told, ef.RaiseError), "nothing is left that could be lost"
    assert told.failure.code == LOCAL_MAX_POLL_EXCEEDED
    assert len(box.sent(ef.SendJoin)) == joins, "it joins once the user has heard"
    box.do_steps()
    assert len(box.sent(ef.SendJoin)) == joins + 1
    box.answer_join(generation=3)
    box.answer_sync(T01)
    box.do_steps()
    box.effects.clear()
    box.beat(ErrorCode.unknown_member_id)
    assert box.actions() == lost_and_released(T01)


def test_a_late_poll_of_a_static_member_keeps_its_id_and_says_nothing() -> None:
    """Its own next request would be fenced by itself otherwise: KAFKA-20985."""
    box = MemberBox.fresh(instance_id="static-1").join(T01)
    box.effects.clear()
    box.now += 301
    box.tick()
    assert not box.sent(ef.SendLeave)
    box.do_steps()
    assert box.last(ef.SendJoin).request.member_id == "me"


def test_a_static_member_that_unsubscribes_and_subscribes_keeps_its_id_too() -> None:
    box = MemberBox.fresh("range", instance_id="static-1").join(T01)
    before = box.subscription()
    box.effects.clear()
    box.handle(ev.Unsubscribe())
    box.do_steps()
    assert not box.sent(ef.SendLeave)
    assert box.stands(State.UNSUBSCRIBED)
    box.subscribe("t")
    box.tick()
    join = box.last(ef.SendJoin).request
    assert (join.member_id, join.instance_id) == ("me", "static-1")
    assert box.subscription() != before, "the coordinator is to begin a round"


@pytest.mark.parametrize("joining", [True, False])
def test_but_not_where_another_process_has_its_place(*, joining: bool) -> None:
    """By that id it would be refused for as long as that place stands: it takes it back."""
    box = MemberBox.fresh(instance_id="static-1").join(T01)
    if joining:
        box.beat(ErrorCode.rebalance_in_progress)
        box.answer_join(error=ErrorCode.fenced_instance_id)
    else:
        box.beat(ErrorCode.fenced_instance_id)
    box.do_steps()
    box.handle(ev.Unsubscribe())
    box.do_steps()
    assert box.stands(State.UNSUBSCRIBED)
    box.effects.clear()
    box.subscribe("t")
    box.tick()
    assert box.last(ef.SendJoin).request.member_id == "me"
    box.answer_join(error=ErrorCode.fenced_instance_id)
    box.do_steps()
    assert box.last(ef.SendJoin).request.member_id == ""
    assert not box.actions(), "its user hears of nothing"
    box.answer_join(error=ErrorCode.fenced_instance_id)
    assert isinstance(box.actions()[-1], ef.RaiseError), "now it is another's"


def test_but_not_where_it_leaves_for_good() -> None:
    box = MemberBox.fresh(instance_id="static-1").join(T01)
    box.handle(ev.Drain())
    box.handle(ev.Unsubscribe())
    box.tick(1.0)  # the round has had its time
    box.do_steps()
    box.answer_leave()
    box.subscribe("t")
    box.tick()
    assert box.last(ef.SendJoin).request.member_id == ""


def test_a_late_poll_owning_nothing_joins_only_once_polled() -> None:
    box = MemberBox.fresh().join(NOTHING)
    box.effects.clear()
    box.now += 301
    box.tick()
    assert not box.sent(ef.SendJoin)
    box.do_steps()
    assert box.sent(ef.SendJoin)


# --- draining ------------------------------------------------------------------------------


def asks_to_be_relieved(box: MemberBox) -> bool:
    _, marks = split_marks(box.subscription().user_data)
    return isinstance(marks, SubscriptionMarks) and marks.draining


def test_who_drains_joins_again_at_once_and_goes_on_owning() -> None:
    box = stable()
    box.handle(ev.Drain())
    assert box.stands(State.JOINING)
    assert box.last(ef.SendJoin).request.reason == "the consumer is draining"
    assert asks_to_be_relieved(box)
    assert box.member.owned == T01
    assert not box.actions()
    box.handle(ev.Drain())
    assert len(box.sent(ef.SendJoin)) == 1, "asking twice is asking once"


def test_who_was_relieved_has_given_up_in_order_and_still_asks_for_nothing() -> None:
    box = stable()
    box.handle(ev.Drain())
    box.answer_join(generation=2)
    box.answer_sync(NOTHING, marks=AssignmentMarks(follow_up=True))
    assert [type(action) for action in box.actions()] == [
        ef.CallRevoked,
        ef.CommitPositions,
        ef.Release,
    ]
    joins = len(box.sent(ef.SendJoin))
    box.do_steps()
    assert box.member.owned == NOTHING
    assert len(box.sent(ef.SendJoin)) == joins, "it is most likely about to be closed"
    box.tick(box.until_deadline())
    while len(box.sent(ef.SendJoin)) == joins:
        box.tick(box.until_deadline())
    assert asks_to_be_relieved(box), "the follow-up round must not give it back"


def test_who_closes_with_its_lease_over_commits_nothing_that_its_user_is_told_to_have_lost() -> (
    None
):
    box = stable()
    box.now += 60.0
    effects = box.handle(ev.Close())
    told = next(n for n, e in enumerate(effects) if isinstance(e, ef.OfferStep))
    closed = [e.commits_open for e in effects[:told] if isinstance(e, ef.IdentityChanged)]
    assert box.actions() == lost_and_released(T01)
    assert closed[-1:] == [False]


def relieved() -> MemberBox:
    box = MemberBox.fresh(heartbeat_interval=timedelta(milliseconds=50)).join(T01)
    box.handle(ev.Drain())
    box.answer_join(generation=2)
    box.answer_sync(NOTHING, marks=AssignmentMarks(follow_up=True))
    box.do_steps()
    return box


def test_who_closes_once_relieved_leaves_without_another_join() -> None:
    """A JoinGroup and a close behind it would have the follow-up round begin twice."""
    box = relieved()
    joins = len(box.sent(ef.SendJoin))
    box.beat(ErrorCode.rebalance_in_progress)
    assert box.stands(State.STABLE), "also where another has begun the round already"
    box.handle(ev.Close())
    assert box.sent(ef.SendLeave)
    assert len(box.sent(ef.SendJoin)) == joins


def test_a_relieved_member_that_is_evicted_meanwhile_asks_for_no_wake_up_in_the_past() -> None:
    box = relieved()
    box.beat(ErrorCode.unknown_member_id)
    box.tick(0.2)
    deadline = box.member.next_deadline()
    assert deadline is None or deadline > box.now


def test_a_relieved_member_that_subscribes_anew_joins_at_once() -> None:
    box = relieved()
    box.effects.clear()
    box.subscribe("t")
    assert not asks_to_be_relieved(box)


def test_a_new_subscription_ends_the_draining() -> None:
    box = stable()
    box.handle(ev.Drain())
    box.answer_join(generation=2)
    box.answer_sync(T01)
    box.do_steps()
    box.subscribe("t")
    assert box.stands(State.JOINING)
    assert not asks_to_be_relieved(box)


def test_under_an_eager_strategy_draining_asks_for_no_relief() -> None:
    """Who polls on all the same is to keep its share."""
    box = MemberBox.fresh("range").join(T01)
    box.handle(ev.Drain())
    box.subscribe("t")
    assert box.stands(State.STABLE), "a round for nothing"
    box.handle(ev.Drain())
    box.handle(ev.EnforceRebalance(reason="another round"))
    box.do_steps()
    assert not asks_to_be_relieved(box)


def test_under_an_eager_strategy_a_static_member_only_leaves_when_it_closes() -> None:
    box = MemberBox.fresh("range", instance_id="static-1").join(T01)
    box.handle(ev.Drain())
    assert box.stands(State.STABLE), "a round for nothing"
    box.handle(ev.Close())
    box.do_steps()
    assert [leave.request.instance_id for leave in box.sent(ef.SendLeave)] == ["static-1"]


@pytest.mark.parametrize("drains", [True, False])
def test_a_static_member_leaves_by_name_once_it_has_drained_and_else_stays(drains: bool) -> None:
    """Its successor would be given the last assignment back, which is nothing."""
    box = MemberBox.fresh(instance_id="static-1").join(T01)
    if drains:
        box.handle(ev.Drain())
        box.answer_join(generation=2)
        box.answer_sync(NOTHING)
        box.do_steps()
        box.answer_join(generation=3)
        box.answer_sync(NOTHING)
    box.handle(ev.Close())
    box.do_steps()
    assert [leave.request.instance_id for leave in box.sent(ef.SendLeave)] == ["static-1"] * drains


# --- marks ---------------------------------------------------------------------------------


def test_who_has_had_no_record_for_a_while_beats_more_rarely() -> None:
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.answer_sync(T01, marks=AssignmentMarks(heartbeat_interval=timedelta(milliseconds=50)))
    for delivered_at, interval in (
        (None, 0.05),
        (float("-inf"), 0.2),
        (box.now, 0.05),
        (box.now - 60, 0.2),
    ):
        box.handle(ev.Polled(at=box.now, delivered_at=delivered_at))
        box.beat()
        start = box.now
        box.beat()
        assert box.now - start == pytest.approx(interval)


@pytest.mark.parametrize("state", [State.JOINING, State.SYNCING])
def test_leaving_lets_the_round_under_way_end_first(state: State) -> None:
    """The last commit would be refused otherwise, under a generation that is over."""
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    if state is State.SYNCING:
        box.answer_join(generation=2)
    box.handle(ev.Close())
    assert not box.sent(ef.OfferStep)
    if state is State.JOINING:
        box.answer_join(generation=2)
    box.answer_sync(T01)
    assert box.stands(State.LEAVING)
    assert box.last(ef.IdentityChanged).metadata.generation == 2
    assert box.actions() == [ef.CallAssigned(partitions=NOTHING), *revoked_and_released(T01)]


def test_leaving_does_not_wait_long_for_a_round_to_end() -> None:
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.handle(ev.Close())
    box.tick(1.0)
    assert box.stands(State.LEAVING)
    assert box.actions() == revoked_and_released(T01)


def test_an_unsubscribe_that_waits_for_a_round_is_undone_by_a_subscribe() -> None:
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    box.handle(ev.Unsubscribe())
    box.subscribe("t")
    box.answer_join(generation=2)
    box.answer_sync(T01)
    assert box.stands(State.STABLE)


# --- what is parked when it is not wanted any more -----------------------------------------


def parked(at: State) -> tuple[MemberBox, int]:
    """The other members, or the leader, let it wait. Returns its request's token, too."""
    box = stable()
    box.beat(ErrorCode.rebalance_in_progress)
    if at is State.SYNCING:
        box.answer_join(generation=2)
    assert box.stands(at)
    sent = box.last(ef.SendJoin) if at is State.JOINING else box.last(ef.SendSync)
    return box, sent.token


def unsubscribes(box: MemberBox) -> None:
    box.handle(ev.Unsubscribe())
    box.tick(1.0)
    box.do_steps()
    box.answer_leave()
    box.subscribe("t")


def polls_too_late(box: MemberBox) -> None:
    box.tick(301.0)
    box.do_steps()


def is_removed_from_the_group(box: MemberBox) -> None:
    box.beat(ErrorCode.unknown_member_id)
    box.do_steps()


@pytest.mark.parametrize("happens", [unsubscribes, polls_too_late, is_removed_from_the_group])
@pytest.mark.parametrize("at", [State.JOINING, State.SYNCING])
def test_a_new_join_does_not_queue_behind_what_was_parked_before(
    at: State, happens: Callable[[MemberBox], None]
) -> None:
    """The coordinator never answers whom it has removed, and reads nothing else meanwhile."""
    box, token = parked(at)
    box.effects.clear()
    happens(box)
    aborted, joined = ef.AbortParked(token=token), box.last(ef.SendJoin)
    assert box.effects.index(aborted) < box.effects.index(joined)


def test_nor_does_it_where_an_id_that_was_waited_for_did_not_come() -> None:
    """A static member's first JoinGroup is parked without one."""
    box = MemberBox.fresh(instance_id="i")
    box.subscribe("t")
    box.find()
    first = box.last(ef.SendJoin).token
    box.handle(ev.Unsubscribe())
    box.tick(1.0)
    assert box.stands(State.UNSUBSCRIBED)
    box.subscribe("t")
    aborted, joined = ef.AbortParked(token=first), box.last(ef.SendJoin)
    assert box.effects.index(aborted) < box.effects.index(joined)


HEIR = Node(node_id=2, host="broker-2", port=9092)


def hear_nothing(box: MemberBox) -> None:
    """A heartbeat is not answered in time; the coordinator is looked for."""
    box.time_out(box.next_beat())
    box.tick(box.until_deadline())


@pytest.mark.parametrize("node", [NODE, HEIR], ids=["the same", "another"])
@pytest.mark.parametrize("at", [State.JOINING, State.SYNCING])
def test_what_a_silent_coordinator_has_parked_is_asked_of_whoever_is_found(
    at: State, node: Node
) -> None:
    """Its host had vanished. The heir wanted a round, and got heartbeats for five minutes."""
    box, token = parked(at)
    hear_nothing(box)
    assert not box.sent(ef.AbortParked), "as long as nobody else is known it may yet be answered"
    found, joins = box.now, len(box.sent(ef.SendJoin))
    box.find(node=node)
    assert [aborted.token for aborted in box.sent(ef.AbortParked)] == [token]
    while len(box.sent(ef.SendJoin)) == joins:
        box.tick(box.until_deadline())
    assert box.now - found <= seconds(box.member.settings.retry_backoff) * 1.2
    join = box.last(ef.SendJoin)
    assert join.node == node
    assert join.request.member_id == "me"
    assert box.subscription().owned == T01
    assert not box.actions(), "nothing is given up for it"


def test_who_is_in_no_round_need_not_join_whoever_is_found() -> None:
    box = stable()
    hear_nothing(box)
    box.find(node=HEIR)
    box.beat()
    assert box.stands(State.STABLE)
    assert not box.sent(ef.SendJoin)
    assert not box.sent(ef.AbortParked)


def test_a_coordinator_that_is_refused_is_told_of_outside_of_a_group_too() -> None:
    """Partitions that were assigned by hand would wait for their starts without end."""
    box = MemberBox.fresh()
    box.handle(ev.CoordinatorWanted())
    box.find(ErrorCode.group_authorization_failed)
    (told,) = box.actions()
    assert isinstance(told, ef.RaiseError)
    assert told.failure.code == ErrorCode.group_authorization_failed
    box.do_steps()
    assert box.stands(State.UNSUBSCRIBED)


@pytest.mark.parametrize("data", ["a word", 5, [1]])
def test_user_data_that_is_no_bytes_is_told_of(data: object) -> None:
    class Faulty(CooperativeSticky):
        def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
            del topics
            return cast(bytes, data)

    box = MemberBox(Member(MemberSettings(group_id="group", assignors=(Faulty(),))))
    box.subscribe()
    box.find()
    (told,) = box.actions()
    assert isinstance(told, ef.RaiseError)
    assert isinstance(told.failure.cause, AssignorFailedError)
