"""Static members (KIP-345) and their restarted leaders (KIP-814)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from coordinator_box import (
    GROUP,
    SECOND,
    Box,
    Peer,
    finish_round,
    join_round,
    rejoin_all,
    stable_group,
)

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import GroupJoined, GroupLeft, GroupSynced, LeaveGroup
from kafka_coop.simulation.group import GroupState
from kafka_coop.simulation.journal import Departure, MemberRemoved
from kafka_coop.simulation.settings import Client
from kafka_coop.types import NO_MEMBER_ID

OLD_CLIENT = Client(join_group_version=8)


def restarted(peer: Peer, *, client: Client | None = None) -> Peer:
    """A new process with the same configuration: it knows nothing but its instance id."""
    return Peer(
        peer.box,
        instance_id=peer.instance_id,
        protocols=peer.protocols,
        session=peer.session,
        client=client or peer.client,
    )


def pair(box: Box, *, client: Client | None = None) -> tuple[Peer, Peer]:
    leader = Peer(box, instance_id="a", client=client)
    follower = Peer(box, instance_id="b", client=client)
    stable_group(box, leader, follower)
    return leader, follower


class TestRestartWhenStable:
    def test_a_follower_gets_its_generation_and_assignment_back(self) -> None:
        box = Box()
        _, follower = pair(box)
        again = restarted(follower)
        again.join()
        answer = again.joined()
        assert answer.generation == 1
        assert answer.member_id != follower.member_id
        assert (answer.members, answer.skip_assignment) == ((), False)
        assert again.sync().assignment == f"for {follower.member_id}".encode()
        assert box.is_in(GroupState.STABLE)

    def test_a_leader_is_told_to_lead_without_assigning(self) -> None:
        """KIP-814: it must watch the metadata again, but the plan stands."""
        box = Box()
        leader, follower = pair(box)
        again = restarted(leader)
        again.join()
        answer = again.joined()
        assert answer.skip_assignment
        assert answer.leader == again.member_id
        assert [m.member_id for m in answer.members] == [follower.member_id, again.member_id]
        assert again.sync().assignment == f"for {leader.member_id}".encode()

    def test_an_older_leader_is_told_that_its_former_self_leads(self) -> None:
        box = Box()
        leader, _ = pair(box, client=OLD_CLIENT)
        again = restarted(leader)
        again.join()
        answer = again.joined()
        assert (answer.leader, answer.members) == (leader.member_id, ())
        assert not answer.skip_assignment
        assert box.group.leader == again.member_id

    def test_a_changed_subscription_starts_no_round_either(self) -> None:
        box = Box()
        _, follower = pair(box)
        again = restarted(follower)
        again.protocols = (("coop", b"other topics"),)
        again.join()
        assert again.joined().generation == 1
        # It takes effect in the next round.
        assert box.group.members[1].protocols == again.protocols

    def test_a_choice_that_would_change_starts_one(self) -> None:
        box = Box()
        both = (("range", b""), ("coop", b""))
        a = Peer(box, instance_id="a", protocols=both)
        b = Peer(box, instance_id="b", protocols=both)
        stable_group(box, a, b)
        again = restarted(b)
        again.protocols = (("coop", b""),)
        again.join()
        assert box.is_parked(again.join_token)
        a.join()
        assert again.joined().protocol_name == "coop"
        assert a.joined().generation == 2

    def test_the_former_process_is_fenced(self) -> None:
        box = Box()
        leader, follower = pair(box)
        again = restarted(follower)
        again.join()
        again.joined()
        assert follower.beat() is ErrorCode.fenced_instance_id
        assert follower.commit(5) is ErrorCode.fenced_instance_id
        assert follower.sync().error is ErrorCode.fenced_instance_id
        assert follower.leave() is ErrorCode.fenced_instance_id
        follower.join()
        assert follower.join_error() is ErrorCode.fenced_instance_id
        assert again.beat() is leader.beat() is ErrorCode.none

    def test_without_its_instance_id_the_former_process_is_unknown(self) -> None:
        box = Box()
        _, follower = pair(box)
        restarted(follower).join()
        follower.instance_id = None
        assert follower.beat() is ErrorCode.unknown_member_id

    def test_the_session_is_the_former_process_s_until_it_is_extended(self) -> None:
        box = Box()
        _, follower = pair(box)
        again = restarted(follower)
        again.session = timedelta(seconds=60)
        again.join()
        again.joined()
        view = box.group.members[1]
        assert view.session_deadline == box.now + 10
        again.beat()
        assert box.group.members[1].session_deadline == box.now + 60

    def test_a_restart_before_its_sync_costs_one_more_round(self) -> None:
        """The old id is still awaited for a sync that can not come.

        The leader's SyncGroup made the group stable; the follower died after its JoinGroup and
        came back. At the rebalance timeout the coordinator gives up on the old id.
        """
        box = Box()
        leader = Peer(box, instance_id="a", session=timedelta(seconds=60))
        follower = Peer(box, instance_id="b", session=timedelta(seconds=60))
        join_round(box, leader, follower)
        leader.sync()
        again = restarted(follower)
        again.join()
        again.joined()
        assert again.sync().error is ErrorCode.none
        box.wait(29)
        assert leader.beat() is ErrorCode.none
        box.wait(1)
        assert leader.beat() is ErrorCode.rebalance_in_progress
        rejoin_all(leader, again)


class TestRestartDuringARound:
    def test_the_former_process_s_parked_join_is_fenced(self) -> None:
        box = Box()
        leader, follower = pair(box)
        leader.join()
        again = restarted(leader)
        again.join()
        answer = box.answer(leader.join_token, GroupJoined)
        assert answer.error is ErrorCode.fenced_instance_id
        follower.join()
        finish_round(again, follower)
        assert box.group.leader == again.member_id

    def test_the_former_process_s_parked_sync_is_fenced(self) -> None:
        box = Box()
        leader, follower = Peer(box, instance_id="a"), Peer(box, instance_id="b")
        join_round(box, leader, follower)
        waiting = follower.send_sync()
        again = restarted(follower)
        again.join()
        assert box.answer(waiting, GroupSynced).error is ErrorCode.fenced_instance_id
        assert box.is_in(GroupState.PREPARING_REBALANCE)

    def test_after_the_join_phase_it_starts_over(self) -> None:
        """The leader may have been told of the old id: its plan would leave the new one out."""
        box = Box()
        leader, follower = Peer(box, instance_id="a"), Peer(box, instance_id="b")
        join_round(box, leader, follower)
        again = restarted(follower)
        again.join()
        leader.join()
        finish_round(leader, again)
        assert box.group.generation == 2


class TestLifetime:
    def test_a_static_member_expires_like_any_other(self) -> None:
        box = Box()
        leader, follower = pair(box)
        box.wait(9)
        leader.beat()
        box.wait(1)
        assert not follower.is_member()
        assert leader.beat() is ErrorCode.rebalance_in_progress

    def test_it_is_kept_where_it_did_not_rejoin_in_time(self) -> None:
        """Unlike a dynamic member; but it is awaited for a sync, and does not outlive that."""
        box = Box()
        a = Peer(box, session=timedelta(seconds=120))
        b = Peer(box, instance_id="b", session=timedelta(seconds=120))
        stable_group(box, a, b)
        a.join()
        box.wait(30)
        assert [m.instance_id for m in a.joined().members] == [None, "b"]
        a.sync()
        assert b.is_member()
        box.wait(30)
        assert not b.is_member()
        removed = [e for e in box.coordinator.journal(GROUP) if isinstance(e, MemberRemoved)]
        assert [(e.instance_id, e.cause) for e in removed] == [("b", Departure.NOT_SYNCED)]

    def test_where_none_rejoins_the_phase_goes_on_until_sessions_end(self) -> None:
        box = Box()
        a = Peer(box, instance_id="a", session=timedelta(seconds=40))
        b = Peer(box, instance_id="b", session=timedelta(seconds=100))
        c = Peer(box, instance_id="c", session=timedelta(seconds=100))
        stable_group(box, a, b, c)
        box.wait(35)
        b.beat()
        c.beat()
        box.wait(5)  # a's session ends, and nobody rejoins
        assert box.is_in(GroupState.PREPARING_REBALANCE)
        box.wait(30)
        assert box.is_in(GroupState.PREPARING_REBALANCE)
        assert len(box.group.members) == 2
        box.wait(100)
        assert box.is_in(GroupState.EMPTY)

    def test_an_administrator_removes_it_by_instance_id(self) -> None:
        box = Box()
        leader, follower = pair(box)
        request = LeaveGroup(group_id=GROUP, member_id=NO_MEMBER_ID, instance_id="b")
        assert box.answer(box.send(request), GroupLeft).error is ErrorCode.none
        assert not follower.is_member()
        assert leader.beat() is ErrorCode.rebalance_in_progress

    @pytest.mark.parametrize("instance_id", ["nobody", None])
    def test_an_unknown_instance_id_can_not_be_removed(self, instance_id: str | None) -> None:
        box = Box()
        pair(box)
        request = LeaveGroup(group_id=GROUP, member_id=NO_MEMBER_ID, instance_id=instance_id)
        assert box.answer(box.send(request), GroupLeft).error is ErrorCode.unknown_member_id
        assert box.is_in(GroupState.STABLE)

    def test_it_is_never_sent_back_for_an_id(self) -> None:
        box = Box()
        a = Peer(box, instance_id="a")
        token = a.send_join()
        assert box.is_parked(token)
        box.wait(SECOND.total_seconds())
        assert box.answer(token, GroupJoined).member_id.startswith("a-")
