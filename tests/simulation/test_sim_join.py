from __future__ import annotations

from datetime import timedelta

import pytest
from coordinator_box import (
    BRIEF,
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
from kafka_coop.protocol.messages import GroupJoined, GroupSynced
from kafka_coop.simulation.coordinator import GroupCoordinator
from kafka_coop.simulation.group import Group, GroupState
from kafka_coop.simulation.journal import Departure, MemberAdded, MemberRemoved
from kafka_coop.simulation.settings import Client, CoordinatorSettings
from kafka_coop.types import MemberId


def coop(*names: str, metadata: bytes = b"v1") -> tuple[tuple[str, bytes], ...]:
    return tuple((name, metadata) for name in names)


class TestInitialDelay:
    def test_an_empty_group_waits_its_initial_delay(self) -> None:
        box = Box(CoordinatorSettings(initial_rebalance_delay=timedelta(seconds=3)))
        a = Peer(box)
        token = a.join()
        box.wait(2.999)
        assert box.is_parked(token)
        assert box.is_in(GroupState.PREPARING_REBALANCE)
        box.wait(0.001)
        assert a.joined().generation == 1
        assert box.answers[token].at == 3.0

    def test_each_stretch_with_a_newcomer_adds_another(self) -> None:
        box = Box(CoordinatorSettings(initial_rebalance_delay=timedelta(seconds=3)))
        a, b, c = Peer(box), Peer(box), Peer(box)
        a.join()
        box.wait(1)
        b.join()  # seen at 3 s: another stretch, until 6 s
        box.wait(4)
        c.join()  # seen at 6 s: another one, until 9 s, without newcomers
        box.wait(3.9)
        assert box.is_parked(a.join_token)
        box.wait(0.1)
        assert [len(p.joined().members) for p in (a, b, c)] == [3, 0, 0]
        assert box.answers[a.join_token].at == 9.0

    def test_newcomers_extend_it_no_further_than_the_rebalance_timeout(self) -> None:
        box = Box(CoordinatorSettings(initial_rebalance_delay=timedelta(seconds=3)))
        first = Peer(box, rebalance=timedelta(seconds=7))
        first.join()
        for _ in range(12):
            box.wait(1)
            Peer(box, rebalance=timedelta(seconds=7)).join()
        assert box.answers[first.join_token].at <= 7.0 + 3.0
        assert box.answers[first.join_token].at >= 7.0

    def test_everyone_being_there_does_not_end_it(self) -> None:
        box = Box(CoordinatorSettings(initial_rebalance_delay=timedelta(seconds=3)))
        a = Peer(box)
        a.join()
        again = a.send_join()  # the client gave up on the first and sends it again
        assert box.is_parked(again)

    def test_a_later_round_has_none(self) -> None:
        box = Box(CoordinatorSettings(initial_rebalance_delay=timedelta(seconds=3)))
        a, b = Peer(box), Peer(box)
        stable_group(box, a)
        b.join()
        a.join()
        assert a.joined().generation == b.joined().generation == 2


class TestMemberIdRequired:
    def test_a_dynamic_member_is_sent_back_with_an_id(self) -> None:
        box = Box()
        a = Peer(box, "client")
        refused = box.answer(a.send_join(), GroupJoined)
        assert refused.error is ErrorCode.member_id_required
        assert refused.member_id.startswith("client-")
        assert box.group.pending_join == (refused.member_id,)
        assert not box.group.members

    def test_old_clients_and_static_members_are_not(self) -> None:
        box = Box()
        old = Peer(box, client=Client(join_group_version=3))
        static = Peer(box, instance_id="i")
        old.send_join()
        static.send_join()
        assert len(box.group.members) == 2

    def test_a_pending_member_is_waited_for(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a)
        pending = box.answer(b.send_join(), GroupJoined)
        a.protocols = coop("coop", metadata=b"v2")
        a.join()
        assert box.is_parked(a.join_token)
        b.member_id = pending.member_id
        b.join()
        assert len(a.joined().members) == 2

    def test_a_pending_member_that_does_not_come_back_expires(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a)
        b.send_join()
        a.join()
        box.wait(9.9)
        assert box.is_parked(a.join_token)
        box.wait(0.2)
        assert a.joined().generation == 2
        assert box.group.pending_join == ()

    def test_a_static_member_can_not_have_been_pending(self) -> None:
        box = Box()
        a = Peer(box)
        a.member_id = box.answer(a.send_join(), GroupJoined).member_id
        a.instance_id = "i"
        assert box.answer(a.send_join(), GroupJoined).error is ErrorCode.unknown_server_error


class TestUnknownMembers:
    @pytest.mark.parametrize("instance_id", [None, "i"])
    def test_of_no_group(self, instance_id: str | None) -> None:
        box = Box()
        ghost = Peer(box, instance_id=instance_id)
        ghost.member_id = MemberId("ghost")
        ghost.join()
        assert ghost.join_error() is ErrorCode.unknown_member_id
        assert box.coordinator.groups == ()

    @pytest.mark.parametrize("instance_id", [None, "i"])
    def test_of_a_living_group(self, instance_id: str | None) -> None:
        box = Box()
        stable_group(box, Peer(box))
        ghost = Peer(box, instance_id=instance_id)
        ghost.member_id = MemberId("ghost")
        ghost.join()
        assert ghost.join_error() is ErrorCode.unknown_member_id

    def test_of_an_emptied_group(self) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        a.leave()
        a.join()
        assert box.is_in(GroupState.EMPTY)
        assert a.join_error() is ErrorCode.unknown_member_id


class TestProtocols:
    def test_no_protocol_at_all_is_refused(self) -> None:
        box = Box()
        a = Peer(box, protocols=())
        a.join()
        assert a.join_error() is ErrorCode.inconsistent_group_protocol

    def test_none_in_common_is_refused(self) -> None:
        box = Box()
        stable_group(box, Peer(box, protocols=coop("range")))
        b = Peer(box, protocols=coop("coop"))
        b.join()
        assert b.join_error() is ErrorCode.inconsistent_group_protocol
        assert len(box.group.members) == 1

    def test_the_one_that_all_speak_wins_over_the_popular_one(self) -> None:
        box = Box()
        peers = [Peer(box, protocols=coop("range", "coop")) for _ in range(3)]
        stable_group(box, *peers)
        assert box.group.protocol_name == "range"
        upgraded = Peer(box, protocols=coop("coop"))
        upgraded.join()
        for peer in peers:
            peer.join()
        assert peers[0].joined().protocol_name == "coop"

    def test_most_votes_win_among_common_ones(self) -> None:
        box = Box()
        peers = [
            Peer(box, protocols=coop("a", "b")),
            Peer(box, protocols=coop("b", "a")),
            Peer(box, protocols=coop("b", "a")),
        ]
        for peer in peers:
            peer.join()
        box.until_answered(peers[0].join_token)
        assert peers[0].joined().protocol_name == "b"

    def test_a_tie_is_the_pickers(self) -> None:
        def last(options: object) -> str:
            assert isinstance(options, list)
            choice = options[-1]
            assert isinstance(choice, str)
            return choice

        group = Group(GROUP, pick=last)
        box = Box()
        box.coordinator = GroupCoordinator(settings=BRIEF, pick=last)
        peers = [Peer(box, protocols=coop("a", "b")), Peer(box, protocols=coop("b", "a"))]
        for peer in peers:
            peer.join()
        box.until_answered(peers[0].join_token)
        assert peers[0].joined().protocol_name == "b"
        assert not group.members

    def test_leaving_takes_the_veto_along(self) -> None:
        box = Box()
        a, b = Peer(box, protocols=coop("a", "b")), Peer(box, protocols=coop("b"))
        stable_group(box, a, b)
        assert box.group.protocol_name == "b"
        b.leave()
        a.join()
        assert a.joined().protocol_name == "a"


class TestLeader:
    def test_the_first_to_join_leads_and_alone_sees_the_members(self) -> None:
        box = Box()
        a, b = Peer(box, protocols=coop("coop", metadata=b"A")), Peer(box)
        a.join()
        b.join()
        box.until_answered(a.join_token)
        assert [(m.member_id, m.metadata) for m in a.joined().members] == [
            (a.member_id, b"A"),
            (b.member_id, b"v1"),
        ]
        assert b.joined().members == ()
        assert a.joined().leader == b.joined().leader == a.member_id

    def test_it_stays_while_it_rejoins(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        b.protocols = coop("coop", metadata=b"v2")
        b.join()
        a.join()
        assert b.joined().leader == a.member_id

    def test_one_that_does_not_rejoin_is_succeeded(self) -> None:
        box = Box()
        a = Peer(box, instance_id="a", session=timedelta(seconds=60))
        b = Peer(box, session=timedelta(seconds=60))
        stable_group(box, a, b)
        b.protocols = coop("coop", metadata=b"v2")
        b.join()
        box.wait(30)
        answer = b.joined()
        assert answer.leader == b.member_id
        # The static former leader keeps its place, with its old metadata.
        assert [m.instance_id for m in answer.members] == ["a", None]


class TestRejoin:
    def test_a_follower_with_unchanged_metadata_starts_no_round(self) -> None:
        """KAFKA-10455: answered at once, with the generation it knows."""
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        b.join()
        assert b.joined().generation == 1
        assert b.joined().members == ()
        assert box.is_in(GroupState.STABLE)

    def test_the_leaders_always_starts_one(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        a.join()
        assert box.is_in(GroupState.PREPARING_REBALANCE)
        assert b.beat() is ErrorCode.rebalance_in_progress

    def test_changed_metadata_starts_one(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        b.protocols = coop("coop", metadata=b"v2")
        b.join()
        assert box.is_in(GroupState.PREPARING_REBALANCE)
        rejoin_all(a, b)
        assert box.group.generation == 2

    def test_another_order_of_protocols_is_a_change(self) -> None:
        box = Box()
        a, b = Peer(box, protocols=coop("x", "y")), Peer(box, protocols=coop("x", "y"))
        stable_group(box, a, b)
        b.protocols = coop("y", "x")
        b.join()
        assert box.is_in(GroupState.PREPARING_REBALANCE)

    @pytest.mark.parametrize("leads", [True, False])
    def test_completing_repeats_the_answer_to_unchanged_metadata(self, *, leads: bool) -> None:
        """The answer was lost with its connection: the member asks again."""
        box = Box()
        a, b = Peer(box), Peer(box)
        a.join()
        b.join()
        box.until_answered(a.join_token)
        asker = a if leads else b
        first = asker.joined()
        asker.join()
        assert asker.joined() == first
        assert box.is_in(GroupState.COMPLETING_REBALANCE)

    def test_completing_starts_over_on_changed_metadata(self) -> None:
        box = Box()
        a, b, c = Peer(box), Peer(box), Peer(box)
        join_round(box, a, b, c)
        waiting = b.send_sync()
        c.protocols = coop("coop", metadata=b"v2")
        c.join()
        assert box.answer(waiting, GroupSynced).error is ErrorCode.rebalance_in_progress
        assert box.is_in(GroupState.PREPARING_REBALANCE)
        rejoin_all(a, b, c)

    def test_a_repeated_join_supersedes_the_parked_one(self) -> None:
        """The client timed out and came again: Kafka forgets the first request."""
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        first = a.join()
        second = a.join()
        assert box.is_parked(second)  # a counts once: b is still awaited
        b.join()
        box.until_answered(a.join_token)
        assert box.is_parked(first)
        assert first in box.coordinator.forgotten
        assert box.answer(second, GroupJoined).generation == 2


class TestJoinPhase:
    def test_ends_with_the_last_known_member(self) -> None:
        box = Box()
        a, b, c = Peer(box), Peer(box), Peer(box)
        stable_group(box, a, b)
        c.join()
        a.join()
        assert box.is_parked(c.join_token)
        b.join()
        finish_round(a, b, c)

    def test_those_that_do_not_come_in_time_are_dropped(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        a.join()
        for _ in range(3):
            box.wait(9.5)
            assert b.beat() is ErrorCode.rebalance_in_progress  # alive, but it never rejoins
        box.wait(1.5)
        assert [m.member_id for m in a.joined().members] == [a.member_id]
        assert b.beat() is ErrorCode.unknown_member_id
        last = box.coordinator.journal(GROUP)[-2]
        assert isinstance(last, MemberRemoved)
        assert last.cause is Departure.NOT_REJOINED

    def test_lasts_as_long_as_the_slowest_member_may_take(self) -> None:
        box = Box()
        a = Peer(box, rebalance=timedelta(seconds=5), session=timedelta(seconds=200))
        b = Peer(box, rebalance=timedelta(seconds=90), session=timedelta(seconds=200))
        stable_group(box, a, b)
        a.join()
        box.wait(89)
        assert box.is_parked(a.join_token)
        box.wait(1)
        assert a.joined().generation == 2

    def test_a_parked_newcomer_is_turned_away_after_five_minutes(self) -> None:
        """A slow group: the client may be long gone, and would leave one ghost per retry."""
        box = Box()
        a = Peer(box, rebalance=timedelta(hours=1), session=timedelta(minutes=30))
        b = Peer(box)
        stable_group(box, a)
        b.join()
        box.wait(299)
        assert box.is_parked(b.join_token)
        box.wait(1)
        assert b.join_error() is ErrorCode.unknown_member_id

    def test_a_known_member_waits_longer_than_its_session(self) -> None:
        box = Box()
        a = Peer(box)
        b = Peer(box, rebalance=timedelta(minutes=20), session=timedelta(minutes=25))
        stable_group(box, a, b)
        a.join()
        box.wait(19 * 60)
        assert box.is_parked(a.join_token)
        assert a.is_member()

    def test_the_reason_is_kept(self) -> None:
        box = Box()
        Peer(box).join("cached metadata has changed")
        added = box.coordinator.journal(GROUP)[0]
        assert isinstance(added, MemberAdded)
        assert added.reason == "cached metadata has changed"


class TestLimits:
    def test_a_full_group_turns_newcomers_away(self) -> None:
        box = Box(CoordinatorSettings(initial_rebalance_delay=SECOND, max_group_size=1))
        stable_group(box, Peer(box))
        late = Peer(box)
        late.join()
        assert late.join_error() is ErrorCode.group_max_size_reached

    def test_while_joins_are_parked_those_are_counted(self) -> None:
        settings = CoordinatorSettings(
            initial_rebalance_delay=timedelta(seconds=3), max_group_size=2
        )
        box = Box(settings)
        a, b, c = Peer(box), Peer(box), Peer(box)
        for peer in (a, b, c):
            peer.member_id = box.answer(peer.send_join(), GroupJoined).member_id
        for peer in (a, b, c):
            peer.join()
        assert c.join_error() is ErrorCode.group_max_size_reached
        box.until_answered(a.join_token)
        assert len(a.joined().members) == 2

    @pytest.mark.parametrize("seconds", [5.999, 1800.001])
    def test_session_timeouts_out_of_bounds_are_refused(self, seconds: float) -> None:
        a = Peer(Box(), session=timedelta(seconds=seconds))
        a.join()
        assert a.join_error() is ErrorCode.invalid_session_timeout

    @pytest.mark.parametrize("seconds", [6, 1800])
    def test_the_bounds_themselves_are_not(self, seconds: float) -> None:
        box = Box()
        a = Peer(box, session=timedelta(seconds=seconds))
        a.join()
        box.until_answered(a.join_token)
        assert a.joined().generation == 1

    def test_denied_by_acl(self) -> None:
        box = Box()
        box.coordinator.denied.add(GROUP)
        a = Peer(box)
        a.join()
        assert a.join_error() is ErrorCode.group_authorization_failed
        assert a.beat() is ErrorCode.group_authorization_failed
        assert a.leave() is ErrorCode.group_authorization_failed
        assert a.commit(1) is ErrorCode.group_authorization_failed
