"""Every cell: state by event, and response by error."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import get_args

import pytest
from member_box import CUT, MemberBox, partitions

from kafka_coop.errors import Failure, LocalProtocolError
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.responses import FIND_COORDINATOR, HEARTBEAT, JOIN, SYNC, Reaction
from kafka_coop.membership.states import CELLS, EDGES, State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import HeartbeatAcked
from kafka_coop.types import NO_GENERATION, NO_MEMBER_ID, Generation, MemberId

EVENTS: list[type[ev.Event]] = list(get_args(ev.Event))

SAMPLES: dict[type[ev.Event], Callable[[], ev.Event]] = {
    ev.Subscribe: lambda: ev.Subscribe(topics=("t",)),
    ev.Unsubscribe: ev.Unsubscribe,
    ev.Close: ev.Close,
    ev.Drain: ev.Drain,
    ev.EnforceRebalance: lambda: ev.EnforceRebalance(reason="a test"),
    ev.Polled: lambda: ev.Polled(at=0.0),
    ev.StepDone: lambda: ev.StepDone(step_id=999),
    ev.StepWithdrawn: lambda: ev.StepWithdrawn(step_id=999),
    ev.CoordinatorAnswered: lambda: ev.CoordinatorAnswered(token=999, answer=CUT),
    ev.MetadataAnswered: lambda: ev.MetadataAnswered(token=999, answer=CUT),
    ev.JoinAnswered: lambda: ev.JoinAnswered(token=999, answer=CUT),
    ev.SyncAnswered: lambda: ev.SyncAnswered(token=999, answer=CUT),
    ev.HeartbeatAnswered: lambda: ev.HeartbeatAnswered(token=999, answer=CUT),
    ev.LeaveAnswered: lambda: ev.LeaveAnswered(token=999, answer=CUT),
    ev.CommitRefused: lambda: ev.CommitRefused(
        error=25, generation=Generation(77), member_id=MemberId("someone")
    ),
    ev.CoordinatorLost: ev.CoordinatorLost,
    ev.CoordinatorWanted: ev.CoordinatorWanted,
    ev.AssignmentComputed: lambda: ev.AssignmentComputed(token=999, assignments={}),
    ev.Tick: ev.Tick,
}


def test_every_event_has_a_sample() -> None:
    assert set(SAMPLES) == set(EVENTS)


@pytest.mark.parametrize("state", State)
def test_every_state_can_be_reached(state: State) -> None:
    assert MemberBox.fresh().at(state).stands(state)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.__name__)
@pytest.mark.parametrize("state", State)
def test_every_cell(state: State, event: type[ev.Event]) -> None:
    """A pair with a cell is handled; a pair without one raises, and changes nothing."""
    box = MemberBox.fresh().at(state)
    assert box.stands(state)
    if (state, event) in CELLS:
        box.handle(SAMPLES[event]())
        return
    before = _visible(box)
    with pytest.raises(LocalProtocolError, match=state.name):
        box.handle(SAMPLES[event]())
    assert _visible(box) == before


def _visible(box: MemberBox) -> object:
    member = box.member
    return copy.deepcopy(
        (member.state, member.member_id, member.generation, member.owned, member.topics)
    )


@pytest.mark.parametrize(
    "event",
    [
        ev.CoordinatorAnswered,
        ev.JoinAnswered,
        ev.SyncAnswered,
        ev.HeartbeatAnswered,
        ev.LeaveAnswered,
        ev.MetadataAnswered,
        ev.AssignmentComputed,
        ev.StepDone,
    ],
    ids=lambda e: e.__name__,
)
@pytest.mark.parametrize("state", [s for s in State if s is not State.CLOSED])
def test_an_answer_that_is_not_awaited_changes_nothing(state: State, event: type[ev.Event]) -> None:
    box = MemberBox.fresh().at(state)
    before = _visible(box)
    box.handle(SAMPLES[event]())
    assert _visible(box) == before


def test_every_edge_leads_somewhere_and_closed_nowhere() -> None:
    reachable = {State.UNSUBSCRIBED}
    while more := {t for s in reachable for t in EDGES[s]} - reachable:
        reachable |= more
    assert reachable == set(State)
    assert not EDGES[State.CLOSED]


# --- JoinGroup -----------------------------------------------------------------------------

RAISING = Reaction.RAISE


@pytest.mark.parametrize("error", [e for e in ErrorCode if e is not ErrorCode.none])
def test_join_errors(error: ErrorCode) -> None:
    box = MemberBox.fresh().at(State.STABLE)
    box.beat(ErrorCode.rebalance_in_progress)
    assert box.stands(State.JOINING)
    joins = len(box.sent(ef.SendJoin))
    box.answer_join(error, member_id="another")
    expected = _EXPECTED_AFTER_JOIN.get(error, RAISING)
    assert JOIN[error] is expected
    member = box.member
    again = len(box.sent(ef.SendJoin)) > joins
    match expected:
        case Reaction.RETRY:
            assert again
            assert (member.member_id, member.generation) == ("me", 1)
        case Reaction.ADOPT_MEMBER_ID:
            assert again
            assert box.last(ef.SendJoin).request.member_id == "another"
        case Reaction.BACK_OFF | Reaction.REDISCOVER:
            assert not again
            assert (member.member_id, member.generation) == ("me", 1)
            forgotten = ef.CoordinatorChanged(node=None) in box.effects
            assert forgotten == (expected is Reaction.REDISCOVER)
        case Reaction.RESET_MEMBER | Reaction.RESET_GENERATION:
            assert member.generation == NO_GENERATION
            kept = expected is Reaction.RESET_GENERATION
            assert member.member_id == ("me" if kept else NO_MEMBER_ID)
            assert box.actions()[-2:] == [
                ef.CallLost(partitions=partitions("t", 0, 1)),
                ef.Release(partitions=partitions("t", 0, 1)),
            ]
        case Reaction.FENCED:
            assert member.generation == NO_GENERATION
            assert member.member_id == "me"
            assert _raised(box)[-1].fatal
        case _:
            assert not again
            assert _raised(box)[-1].code == error
            box.do_steps()
            if error is ErrorCode.group_max_size_reached:
                box.tick(0.5)
                assert box.actions()[-2] == ef.CallLost(partitions=partitions("t", 0, 1))
                box.do_steps()
            box.tick(1.0)
            assert len(box.sent(ef.SendJoin)) == joins + 1, "the next poll tries again"


_EXPECTED_AFTER_JOIN = {
    ErrorCode.coordinator_load_in_progress: Reaction.BACK_OFF,
    ErrorCode.coordinator_not_available: Reaction.REDISCOVER,
    ErrorCode.not_coordinator: Reaction.REDISCOVER,
    ErrorCode.unknown_member_id: Reaction.RESET_MEMBER,
    ErrorCode.illegal_generation: Reaction.RESET_GENERATION,
    ErrorCode.member_id_required: Reaction.ADOPT_MEMBER_ID,
    ErrorCode.rebalance_in_progress: Reaction.RETRY,
    ErrorCode.fenced_instance_id: Reaction.FENCED,
}


def _raised(box: MemberBox) -> list[Failure]:
    return [a.failure for a in box.actions() if isinstance(a, ef.RaiseError)]


# --- SyncGroup -----------------------------------------------------------------------------

_EXPECTED_AFTER_SYNC = {
    ErrorCode.rebalance_in_progress: Reaction.RETRY,
    ErrorCode.unknown_member_id: Reaction.RESET_MEMBER,
    ErrorCode.illegal_generation: Reaction.RESET_GENERATION,
    ErrorCode.coordinator_not_available: Reaction.REDISCOVER,
    ErrorCode.not_coordinator: Reaction.REDISCOVER,
    ErrorCode.coordinator_load_in_progress: Reaction.BACK_OFF,
    ErrorCode.invalid_request: Reaction.BACK_OFF,
    ErrorCode.fenced_instance_id: Reaction.FENCED,
}


@pytest.mark.parametrize("error", [e for e in ErrorCode if e is not ErrorCode.none])
def test_sync_errors(error: ErrorCode) -> None:
    box = MemberBox.fresh().at(State.STABLE)
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    joins = len(box.sent(ef.SendJoin))
    box.answer_sync(error=error)
    expected = _EXPECTED_AFTER_SYNC.get(error, RAISING)
    assert SYNC[error] is expected
    member = box.member
    again = len(box.sent(ef.SendJoin)) > joins
    match expected:
        case Reaction.RETRY:
            assert again
            assert (member.member_id, member.generation) == ("me", 2)
            assert member.owned == partitions("t", 0, 1)
        case Reaction.BACK_OFF:
            assert not again
            assert (member.member_id, member.generation) == ("me", 2)
            assert not _raised(box)
        case Reaction.REDISCOVER:
            assert not again
            assert (member.member_id, member.generation) == ("me", 2)
            assert ef.CoordinatorChanged(node=None) in box.effects
        case Reaction.RESET_MEMBER | Reaction.RESET_GENERATION | Reaction.FENCED:
            assert member.generation == NO_GENERATION
            kept = expected is not Reaction.RESET_MEMBER
            assert member.member_id == ("me" if kept else NO_MEMBER_ID)
        case _:
            assert not again
            assert _raised(box)[-1].code == error


def test_a_round_that_can_not_be_completed_comes_less_and_less_often() -> None:
    """JoinGroup succeeds each time, and each costs the whole group a round."""
    box = MemberBox.fresh().at(State.STABLE)
    box.beat(ErrorCode.rebalance_in_progress)
    waits = []
    for generation in range(2, 8):
        box.answer_join(generation=generation)
        box.answer_sync(error=ErrorCode.coordinator_load_in_progress)
        failed_at, joins = box.now, len(box.sent(ef.SendJoin))
        while len(box.sent(ef.SendJoin)) == joins:
            box.tick(box.until_deadline())
        waits.append(box.now - failed_at)
    assert waits[-1] > 5 * waits[0]


def test_what_a_group_that_is_too_large_for_its_coordinator_can_do_is_said() -> None:
    box = MemberBox.fresh().at(State.STABLE)
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.answer_sync(error=ErrorCode.unknown_server_error)
    assert "max.message.bytes" in _raised(box)[-1].message


# --- Heartbeat -----------------------------------------------------------------------------

_EXPECTED_AFTER_HEARTBEAT = {
    ErrorCode.rebalance_in_progress: Reaction.REJOIN,
    ErrorCode.illegal_generation: Reaction.RESET_GENERATION,
    ErrorCode.unknown_member_id: Reaction.RESET_MEMBER,
    ErrorCode.fenced_instance_id: Reaction.FENCED,
    ErrorCode.coordinator_not_available: Reaction.REDISCOVER,
    ErrorCode.not_coordinator: Reaction.REDISCOVER,
}


@pytest.mark.parametrize("error", [e for e in ErrorCode if e is not ErrorCode.none])
def test_heartbeat_errors(error: ErrorCode) -> None:
    box = MemberBox.fresh().at(State.STABLE)
    joins = len(box.sent(ef.SendJoin))
    box.beat(error)
    expected = _EXPECTED_AFTER_HEARTBEAT.get(error, Reaction.BACK_OFF)
    assert HEARTBEAT[error] is expected
    member = box.member
    match expected:
        case Reaction.REJOIN:
            assert len(box.sent(ef.SendJoin)) == joins + 1
            assert member.owned == partitions("t", 0, 1)
        case Reaction.RESET_GENERATION | Reaction.RESET_MEMBER | Reaction.FENCED:
            assert member.generation == NO_GENERATION
            kept = expected is not Reaction.RESET_MEMBER
            assert member.member_id == ("me" if kept else NO_MEMBER_ID)
            assert ef.EndLease() in box.effects
            lost = [a for a in box.actions() if isinstance(a, ef.CallLost)]
            assert lost == [ef.CallLost(partitions=partitions("t", 0, 1))]
        case Reaction.REDISCOVER:
            assert ef.CoordinatorChanged(node=None) in box.effects
            assert member.generation == 1
        case _:
            assert box.stands(State.STABLE)
            assert member.generation == 1


@pytest.mark.parametrize(
    "error",
    [ErrorCode.illegal_generation, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id],
)
def test_a_heartbeat_of_an_older_generation_proves_nothing(error: ErrorCode) -> None:
    box = MemberBox.fresh().at(State.STABLE)
    box.now += 3
    box.tick()
    stale = box.last(ef.SendHeartbeat).token
    box.handle(ev.EnforceRebalance(reason="a test"))
    box.answer_join(generation=2)
    answer = ef_heartbeat(error)
    box.handle(ev.HeartbeatAnswered(token=stale, answer=answer))
    assert box.member.generation == 2
    assert box.stands(State.SYNCING)


def ef_heartbeat(error: ErrorCode) -> HeartbeatAcked:
    return HeartbeatAcked(error=error)


def test_illegal_generation_while_a_join_is_parked_proves_nothing() -> None:
    """The round may have ended with us in it, and JoinGroup's answer be on its way."""
    box = MemberBox.fresh().at(State.STABLE)
    box.handle(ev.EnforceRebalance(reason="a test"))
    assert box.stands(State.JOINING)
    box.beat(ErrorCode.illegal_generation)
    assert box.stands(State.JOINING)
    assert box.member.generation == 1


# --- FindCoordinator -----------------------------------------------------------------------


@pytest.mark.parametrize("error", [e for e in ErrorCode if e is not ErrorCode.none])
def test_find_coordinator_errors(error: ErrorCode) -> None:
    box = MemberBox.fresh()
    box.subscribe("t")
    box.find(error)
    raised = _raised(box)
    if error.retriable and error is not ErrorCode.group_authorization_failed:
        assert FIND_COORDINATOR[error] is Reaction.BACK_OFF
        assert not raised
    else:
        assert FIND_COORDINATOR[error] is Reaction.RAISE
        assert raised[-1].code == error
    before = len(box.sent(ef.SendFindCoordinator))
    box.tick(2.0)
    assert len(box.sent(ef.SendFindCoordinator)) == before + 1


# --- cut connections -----------------------------------------------------------------------


def test_a_cut_join_keeps_the_member_id() -> None:
    box = MemberBox.fresh()
    box.subscribe("t")
    box.find()
    box.answer_join(ErrorCode.member_id_required, member_id="mine")
    box.handle(ev.JoinAnswered(token=box.last(ef.SendJoin).token, answer=CUT))
    assert ef.CoordinatorChanged(node=None) in box.effects
    box.tick(1.0)
    box.find()
    assert box.last(ef.SendJoin).request.member_id == "mine"


def test_a_cut_sync_keeps_member_id_and_ownership() -> None:
    box = MemberBox.fresh().at(State.STABLE)
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.handle(ev.SyncAnswered(token=box.last(ef.SendSync).token, answer=CUT))
    assert box.stands(State.UNJOINED)
    assert box.member.member_id == "me"
    assert box.member.owned == partitions("t", 0, 1)
    box.tick(1.0)
    box.find()
    assert box.subscription().generation == 1, "the generation of the last assignment applied"
