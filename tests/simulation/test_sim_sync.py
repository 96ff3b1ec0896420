"""SyncGroup, Heartbeat, sessions and LeaveGroup, by the group's state."""

from __future__ import annotations

from datetime import timedelta

import pytest
from coordinator_box import GROUP, Box, Peer, finish_round, join_round, rejoin_all, stable_group

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import GroupJoined, GroupSynced
from kafka_coop.simulation.group import GroupState
from kafka_coop.simulation.journal import (
    AssignmentStored,
    Departure,
    GenerationStarted,
    MemberRemoved,
    RebalanceStarted,
)
from kafka_coop.types import Generation, MemberId


def preparing(box: Box) -> tuple[Peer, Peer]:
    """The leader has asked for a round; the follower has yet to hear of it."""
    a, b = Peer(box), Peer(box)
    stable_group(box, a, b)
    a.join()
    return a, b


def departures(box: Box) -> list[tuple[str, Departure]]:
    return [
        (e.member_id, e.cause)
        for e in box.coordinator.journal(GROUP)
        if isinstance(e, MemberRemoved)
    ]


class TestSync:
    def test_followers_wait_for_the_leaders_plan(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        waiting = b.send_sync()
        assert box.is_parked(waiting)
        mine = a.sync({a.member_id: b"A", b.member_id: b"B"})
        assert mine == GroupSynced(
            error=ErrorCode.none,
            protocol_type="consumer",
            protocol_name="coop",
            assignment=b"A",
        )
        assert box.answer(waiting, GroupSynced).assignment == b"B"
        assert box.is_in(GroupState.STABLE)

    def test_after_the_plan_everyone_is_answered_at_once(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        a.sync({b.member_id: b"B"})
        assert b.sync().assignment == b"B"
        assert b.sync().assignment == b"B"

    def test_who_is_not_in_the_plan_gets_nothing(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        a.sync({"stranger": b"X", a.member_id: b"A"})
        assert b.sync().assignment == b""

    def test_a_plan_from_a_follower_is_not_taken(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        waiting = b.send_sync({a.member_id: b"stolen"})
        assert box.is_parked(waiting)
        assert a.sync({a.member_id: b"A"}).assignment == b"A"

    def test_a_stable_leaders_second_plan_is_not_taken(self) -> None:
        """KIP-814's restarted leader sends an empty one."""
        box = Box()
        a = Peer(box)
        join_round(box, a)
        a.sync({a.member_id: b"first"})
        assert a.sync({a.member_id: b"second"}).assignment == b"first"

    def test_while_a_round_is_prepared(self) -> None:
        box = Box()
        _, b = preparing(box)
        assert b.sync().error is ErrorCode.rebalance_in_progress

    @pytest.mark.parametrize("change", [-1, 1])
    def test_of_another_generation(self, change: int) -> None:
        box = Box()
        a = Peer(box)
        join_round(box, a)
        a.generation = Generation(a.generation + change)
        assert a.sync().error is ErrorCode.illegal_generation

    def test_of_another_protocol(self) -> None:
        box = Box()
        a = Peer(box)
        join_round(box, a)
        a.protocol_name = "range"
        assert a.sync().error is ErrorCode.inconsistent_group_protocol

    def test_by_a_stranger_or_in_no_group(self) -> None:
        box = Box()
        ghost = Peer(box)
        ghost.member_id = MemberId("ghost")
        assert ghost.sync().error is ErrorCode.unknown_member_id
        a = Peer(box)
        join_round(box, a)
        assert ghost.sync().error is ErrorCode.unknown_member_id

    def test_a_repeated_one_supersedes_the_parked_one(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        first, second = b.send_sync(), b.send_sync()
        a.sync({b.member_id: b"B"})
        assert box.is_parked(first)
        assert first in box.coordinator.forgotten
        assert box.answer(second, GroupSynced).assignment == b"B"

    def test_those_that_never_sync_are_removed(self) -> None:
        """It heartbeats and so stays in the group, but would hold partitions it never heard of."""
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        a.sync()
        for _ in range(3):
            box.wait(9.5)
            assert a.beat() is b.beat() is ErrorCode.none
        box.wait(1.5)
        assert departures(box) == [(b.member_id, Departure.NOT_SYNCED)]
        assert a.beat() is ErrorCode.rebalance_in_progress
        assert b.beat() is ErrorCode.unknown_member_id

    def test_a_leader_that_never_syncs_is_removed_too(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        waiting = b.send_sync()
        for _ in range(3):
            box.wait(9.5)
            a.beat()
        box.wait(1.5)
        assert box.answer(waiting, GroupSynced).error is ErrorCode.rebalance_in_progress
        b.join()
        finish_round(b)
        assert box.group.leader == b.member_id


class TestHeartbeat:
    def test_by_state(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        ghost = Peer(box)
        ghost.member_id = MemberId("ghost")
        assert ghost.beat() is ErrorCode.unknown_member_id  # no such group
        join_round(box, a, b)
        assert box.is_in(GroupState.COMPLETING_REBALANCE)
        assert b.beat() is ErrorCode.none
        finish_round(a, b)
        assert b.beat() is ErrorCode.none
        a.join()
        assert b.beat() is ErrorCode.rebalance_in_progress
        b.leave()
        a.joined()
        a.leave()
        assert box.is_in(GroupState.EMPTY)
        assert a.beat() is ErrorCode.unknown_member_id

    def test_of_another_generation(self) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        a.generation = Generation(0)
        assert a.beat() is ErrorCode.illegal_generation

    def test_of_an_unmapped_or_another_s_instance_id(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box, instance_id="b")
        stable_group(box, a, b)
        a.instance_id = "nobody's"
        assert a.beat() is ErrorCode.unknown_member_id
        a.instance_id = "b"
        assert a.beat() is ErrorCode.fenced_instance_id


class TestSession:
    def test_ends_after_its_timeout_without_a_sign(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        box.wait(6)
        a.beat()
        box.wait(3.9)
        assert b.is_member()
        box.wait(0.1)
        assert departures(box) == [(b.member_id, Departure.SESSION_EXPIRED)]

    @pytest.mark.parametrize("sign", ["heartbeat", "commit"])
    @pytest.mark.parametrize("state", [GroupState.STABLE, GroupState.PREPARING_REBALANCE])
    def test_is_extended_by(self, sign: str, state: GroupState) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        if state is GroupState.PREPARING_REBALANCE:
            a.join()
        box.wait(9)
        b.beat() if sign == "heartbeat" else b.commit(1)
        box.wait(9)
        assert b.is_member()

    def test_is_not_extended_by_a_followers_idle_rejoin_or_sync(self) -> None:
        """Answered from memory; Kafka 4 restarts no timer for it."""
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        box.wait(9)
        a.beat()
        b.join()
        b.joined()
        b.sync()
        box.wait(1)
        assert not b.is_member()

    @pytest.mark.parametrize("generation", [0, 2])
    def test_is_not_extended_by_a_stale_heartbeat(self, generation: int) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        box.wait(9)
        a.generation = Generation(generation)
        a.beat()
        box.wait(1)
        assert not a.is_member()

    def test_of_a_parked_join_does_not_end(self) -> None:
        box = Box()
        a = Peer(box)
        b = Peer(box, session=timedelta(seconds=100))
        stable_group(box, a, b)
        a.join()
        box.wait(29)
        assert a.is_member()
        b.join()
        finish_round(a, b)
        deadline = box.group.members[0].session_deadline
        assert deadline == box.now + 10  # begun anew

    def test_of_a_parked_sync_does_not_end(self) -> None:
        box = Box()
        a = Peer(box, session=timedelta(seconds=100))
        b = Peer(box)
        join_round(box, a, b)
        waiting = b.send_sync()
        box.wait(25)
        assert b.is_member()
        a.sync({b.member_id: b"B"})
        assert box.answer(waiting, GroupSynced).assignment == b"B"
        assert box.group.members[1].session_deadline == box.now + 10

    def test_of_the_last_one_missing_ends_the_join_phase(self) -> None:
        box = Box()
        a, b = preparing(box)
        box.wait(10)
        assert [m.member_id for m in a.joined().members] == [a.member_id]
        assert not b.is_member()

    def test_of_a_leader_ends_a_sync_phase(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        waiting = b.send_sync()
        box.wait(10)
        assert box.answer(waiting, GroupSynced).error is ErrorCode.rebalance_in_progress
        b.join()
        finish_round(b)

    def test_of_everyone_empties_the_group(self) -> None:
        box = Box()
        stable_group(box, Peer(box), Peer(box))
        box.wait(60)
        assert box.is_in(GroupState.EMPTY)
        assert box.group.members == ()
        assert box.group.leader is None
        assert box.coordinator.next_deadline() is None


class TestLeave:
    def test_starts_a_round(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        assert b.leave("the consumer is being closed") is ErrorCode.none
        assert a.beat() is ErrorCode.rebalance_in_progress
        removed = next(e for e in box.coordinator.journal(GROUP) if isinstance(e, MemberRemoved))
        assert removed.cause is Departure.LEFT
        assert removed.reason == "the consumer is being closed"
        rejoin_all(a)

    def test_of_the_one_awaited_ends_the_join_phase(self) -> None:
        box = Box()
        a, b = preparing(box)
        b.leave()
        assert a.joined().generation == 2

    def test_answers_its_own_parked_join(self) -> None:
        """close() while joining: LeaveGroup comes in on another connection."""
        box = Box()
        a, _ = preparing(box)
        a.leave()
        assert a.join_error() is ErrorCode.unknown_member_id

    def test_forgets_its_own_parked_sync(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        waiting = b.send_sync()
        b.leave()
        assert box.is_parked(waiting)
        assert waiting in box.coordinator.forgotten

    def test_during_the_sync_phase_starts_over(self) -> None:
        box = Box()
        a, b, c = Peer(box), Peer(box), Peer(box)
        join_round(box, a, b, c)
        waiting = b.send_sync()
        c.leave()
        assert box.answer(waiting, GroupSynced).error is ErrorCode.rebalance_in_progress
        rejoin_all(a, b)

    def test_of_the_last_member_empties_the_group_in_a_new_generation(self) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        a.leave()
        assert (box.group.state, box.group.generation) == (GroupState.EMPTY, 2)

    def test_during_the_initial_delay_does_not_end_it(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        a.join()
        b.join()
        b.leave()
        assert box.is_parked(a.join_token)
        box.until_answered(a.join_token)
        assert len(a.joined().members) == 1

    def test_of_a_pending_member_starts_a_round_in_a_stable_group(self) -> None:
        """Kafka 4: it counts as one that left, though nobody knew it."""
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a)
        b.member_id = box.answer(b.send_join(), GroupJoined).member_id
        assert b.leave() is ErrorCode.none
        assert a.beat() is ErrorCode.rebalance_in_progress

    def test_of_a_stranger(self) -> None:
        box = Box()
        ghost = Peer(box)
        ghost.member_id = MemberId("ghost")
        assert ghost.leave() is ErrorCode.unknown_member_id
        stable_group(box, Peer(box))
        assert ghost.leave() is ErrorCode.unknown_member_id
        assert box.is_in(GroupState.STABLE)

    def test_of_everyone_but_a_pending_member(self) -> None:
        """Nobody has a rebalance timeout left: the join phase ends at once, empty."""
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a)
        b.member_id = box.answer(b.send_join(), GroupJoined).member_id
        a.leave()
        assert box.is_in(GroupState.EMPTY)
        b.join()
        box.until_answered(b.join_token)
        assert b.joined().generation == 3


def test_the_journal_tells_the_whole_story() -> None:
    box = Box()
    a, b = Peer(box), Peer(box)
    stable_group(box, a, b)
    b.leave()
    rejoin_all(a)
    story = [
        e
        for e in box.coordinator.journal(GROUP)
        if isinstance(e, RebalanceStarted | GenerationStarted | AssignmentStored)
    ]
    assert [(type(e).__name__, e.generation) for e in story] == [
        ("RebalanceStarted", 0),
        ("GenerationStarted", 1),
        ("AssignmentStored", 1),
        ("RebalanceStarted", 1),
        ("GenerationStarted", 2),
        ("AssignmentStored", 2),
    ]
    last = story[-1]
    assert isinstance(last, AssignmentStored)
    assert last.assignments == {a.member_id: f"for {a.member_id}".encode()}
