"""Whatever is sent in whatever order, hostile requests included: what always holds.

Every request goes to two coordinators, the second a copy of the first from some moment on:
they must agree for ever.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    GroupJoined,
    GroupSynced,
    Heartbeat,
    HeartbeatAcked,
    JoinGroup,
    LeaveGroup,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetsCommitted,
    SyncGroup,
)
from kafka_coop.simulation.coordinator import (
    Availability,
    GroupCoordinator,
    GroupRequest,
    MemberView,
)
from kafka_coop.simulation.group import GroupState, RequestToken
from kafka_coop.simulation.journal import (
    AssignmentStored,
    GenerationStarted,
    GroupDeleted,
    GroupLoaded,
    GroupUnloaded,
    MemberRemoved,
)
from kafka_coop.simulation.rebalancing import Reply
from kafka_coop.simulation.settings import Client, CoordinatorSettings
from kafka_coop.simulation.topics import Topics
from kafka_coop.types import NO_MEMBER_ID, Generation, MemberId, TopicPartition

GROUP = "g"
P0 = TopicPartition("orders", 0)
DELAY = timedelta(seconds=3)
SLOWEST = timedelta(seconds=30)
LONGEST_PARKING = DELAY + SLOWEST + timedelta(milliseconds=1)
"""A join phase lasts the longest rebalance timeout; an initial one one stretch more."""

PROTOCOLS = st.sampled_from(
    [
        (("coop", b"1"),),
        (("coop", b"2"),),
        (("coop", b"1"), ("range", b"1")),
        (("range", b"1"), ("coop", b"1")),
        (("range", b"1"),),
        (("coop", b"1"), ("coop", b"2")),
        (),
    ]
)
INSTANCES = st.sampled_from([None, None, None, "i", "j"])
CLIENTS = st.sampled_from([Client(), Client(), Client(join_group_version=3)])
INDEX = st.integers(0, 7)
STALENESS = st.sampled_from([0, 0, 0, 0, -1, 1])


class AnyRequests(RuleBasedStateMachine):
    """Members whose ids and generations are mostly right."""

    @initialize(limit=st.sampled_from([100, 2]), delay=st.sampled_from([DELAY, timedelta(0)]))
    def begin(self, limit: int, delay: timedelta) -> None:
        topics = Topics()
        topics.create("orders", 1)
        self.coordinator = GroupCoordinator(
            topics=topics,
            settings=CoordinatorSettings(initial_rebalance_delay=delay, max_group_size=limit),
        )
        self.copy = copy.deepcopy(self.coordinator)
        self.now = 0.0
        self.sent: dict[RequestToken, tuple[float, GroupRequest]] = {}
        self.answers: dict[RequestToken, Reply] = {}
        self.ids: list[tuple[MemberId, str | None]] = []

    # --- what can be done --------------------------------------------------------------

    @rule(
        protocols=PROTOCOLS,
        instance=INSTANCES,
        client=CLIENTS,
        rebalance=st.sampled_from([timedelta(seconds=5), SLOWEST]),
        session=st.sampled_from([timedelta(seconds=6), timedelta(seconds=10)]),
    )
    def come(
        self,
        protocols: tuple[tuple[str, bytes], ...],
        instance: str | None,
        client: Client,
        rebalance: timedelta,
        session: timedelta,
    ) -> None:
        request = JoinGroup(
            group_id=GROUP,
            session_timeout=session,
            rebalance_timeout=rebalance,
            member_id=NO_MEMBER_ID,
            instance_id=instance,
            protocols=protocols,
        )
        reply = self.send(request, client)
        if (
            reply is not None
            and isinstance(reply.response, GroupJoined)
            and reply.response.error is ErrorCode.member_id_required
        ):
            self.join_as(reply.response.member_id, None, protocols)

    @rule(index=INDEX, protocols=PROTOCOLS)
    def rejoin(self, index: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        member_id, instance = self.identity(index)
        self.join_as(member_id, instance, protocols)

    def join_as(
        self, member_id: MemberId, instance: str | None, protocols: tuple[tuple[str, bytes], ...]
    ) -> None:
        self.send(
            JoinGroup(
                group_id=GROUP,
                session_timeout=timedelta(seconds=10),
                rebalance_timeout=SLOWEST,
                member_id=member_id,
                instance_id=instance,
                protocols=protocols,
            )
        )

    @rule()
    def everyone_rejoins_and_syncs(self) -> None:
        """Without it, few runs get as far as a stable group."""
        for member in self.members():
            self.join_as(member.member_id, member.instance_id, member.protocols)
        for member in self.members():
            self.send_sync(member.member_id, member.instance_id, 0)

    @rule(index=INDEX, staleness=STALENESS)
    def sync(self, index: int, staleness: int) -> None:
        member_id, instance = self.identity(index)
        self.send_sync(member_id, instance, staleness)

    def send_sync(self, member_id: MemberId, instance: str | None, staleness: int) -> None:
        generation = self.generation(staleness)
        view = self.coordinator.group(GROUP)
        self.send(
            SyncGroup(
                group_id=GROUP,
                generation=generation,
                member_id=member_id,
                instance_id=instance,
                protocol_name=(view and view.protocol_name) or "coop",
                assignments={m.member_id: b"plan" for m in self.members()},
            )
        )

    @rule(index=INDEX, staleness=STALENESS)
    def beat(self, index: int, staleness: int) -> None:
        member_id, instance = self.identity(index)
        reply = self.send(
            Heartbeat(
                group_id=GROUP,
                generation=self.generation(staleness),
                member_id=member_id,
                instance_id=instance,
            )
        )
        assert reply is not None
        assert isinstance(reply.response, HeartbeatAcked)

    @rule(index=INDEX, staleness=STALENESS)
    def commit(self, index: int, staleness: int) -> None:
        member_id, instance = self.identity(index)
        generation = self.generation(staleness)
        before = self.coordinator.group(GROUP)
        request = OffsetCommit(
            group_id=GROUP,
            generation=generation,
            member_id=member_id,
            instance_id=instance,
            offsets={P0: OffsetAndMetadata(offset=1)},
        )
        reply = self.send(request)
        assert reply is not None
        assert isinstance(reply.response, OffsetsCommitted)
        if reply.response.errors[P0] is ErrorCode.none and generation >= 0:
            assert before is not None
            assert before.generation == generation
            assert before.state in {GroupState.STABLE, GroupState.PREPARING_REBALANCE}
            assert member_id in {m.member_id for m in before.members}

    @rule(index=INDEX, by_instance=st.booleans())
    def leave(self, index: int, *, by_instance: bool) -> None:
        member_id, instance = self.identity(index)
        request = LeaveGroup(
            group_id=GROUP,
            member_id=NO_MEMBER_ID if by_instance else member_id,
            instance_id=instance,
        )
        assert self.send(request) is not None

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0, 3.0, 5.0, 9.5, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.coordinator.advance(self.now), self.copy.advance(self.now))

    @rule(loading=st.sampled_from([0, 4]))
    def fail_over(self, loading: int) -> None:
        duration = timedelta(seconds=loading)
        self.take(
            self.coordinator.load(self.now, duration=duration),
            self.copy.load(self.now, duration=duration),
        )

    @rule()
    def delete(self) -> None:
        error = self.coordinator.delete_group(GROUP)
        assert self.copy.delete_group(GROUP) is error

    @rule()
    def take_a_copy(self) -> None:
        self.copy = copy.deepcopy(self.coordinator)

    # --- how it is done ----------------------------------------------------------------

    def send(self, request: GroupRequest, client: Client | None = None) -> Reply | None:
        token = RequestToken(len(self.sent))
        self.sent[token] = (self.now, request)
        client = client or Client()
        self.take(
            self.coordinator.handle(request, client=client, token=token, now=self.now),
            self.copy.handle(request, client=client, token=token, now=self.now),
        )
        return self.answers.get(token)

    def take(self, replies: list[Reply], of_the_copy: list[Reply]) -> None:
        assert replies == of_the_copy
        for reply in replies:
            assert reply.token in self.sent
            assert reply.token not in self.answers, "answered twice"
            assert reply.token not in self.coordinator.forgotten
            self.answers[reply.token] = reply
            if isinstance(reply.response, GroupJoined) and reply.response.member_id:
                instance = getattr(self.sent[reply.token][1], "instance_id", None)
                self.ids.append((reply.response.member_id, instance))

    def members(self) -> tuple[MemberView, ...]:
        view = self.coordinator.group(GROUP)
        return view.members if view else ()

    def identity(self, index: int) -> tuple[MemberId, str | None]:
        """A member's, if there is one; else that of someone who was one, or of nobody."""
        members = self.members()
        if index < len(members):
            return members[index].member_id, members[index].instance_id
        return self.ids[index % len(self.ids)] if self.ids else (MemberId("ghost"), None)

    def generation(self, staleness: int) -> Generation:
        view = self.coordinator.group(GROUP)
        return Generation((view.generation if view else 0) + staleness)

    # --- what always holds -------------------------------------------------------------

    def unanswered(self) -> Mapping[RequestToken, tuple[float, GroupRequest]]:
        gone = self.answers.keys() | self.coordinator.forgotten
        return {token: sent for token, sent in self.sent.items() if token not in gone}

    @invariant()
    def both_agree(self) -> None:
        assert self.coordinator.group(GROUP) == self.copy.group(GROUP)
        assert self.coordinator.next_deadline() == self.copy.next_deadline()

    @invariant()
    def every_request_is_answered_or_parked(self) -> None:
        pending = [request for _, request in self.unanswered().values()]
        joins = sum(isinstance(request, JoinGroup) for request in pending)
        syncs = sum(isinstance(request, SyncGroup) for request in pending)
        assert joins + syncs == len(pending)
        assert joins == sum(m.awaits_join for m in self.members())
        assert syncs == sum(m.awaits_sync for m in self.members())

    @invariant()
    def nothing_is_parked_for_ever(self) -> None:
        longest = LONGEST_PARKING.total_seconds()
        assert all(self.now - at <= longest for at, _ in self.unanswered().values())

    @invariant()
    def the_state_fits_what_is_parked(self) -> None:
        view = self.coordinator.group(GROUP)
        if view is None:
            return
        assert (view.leader is None) == (not view.members)
        assert view.leader is None or view.leader in {m.member_id for m in view.members}
        joining = view.state is GroupState.PREPARING_REBALANCE
        assert joining or not any(m.awaits_join for m in view.members)
        syncing = view.state is GroupState.COMPLETING_REBALANCE
        assert syncing or not any(m.awaits_sync for m in view.members)
        if view.state is GroupState.EMPTY:
            assert not view.members
        if view.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            assert view.members
            assert view.protocol_name is not None

    @invariant()
    def no_member_lives_without_a_deadline(self) -> None:
        for member in self.members():
            waits = member.awaits_join or member.awaits_sync
            assert waits or (member.session_deadline or 0.0) > self.now

    @invariant()
    def generations_count_up_by_one(self) -> None:
        last: int | None = None
        for event in self.coordinator.journal(GROUP):
            match event:
                case GenerationStarted(generation=generation):
                    assert generation == (last or 0) + 1
                    last = generation
                case GroupLoaded(generation=generation):
                    last = generation
                case GroupDeleted() | GroupUnloaded():
                    last = None  # from 0, unless the log knows better
                case _:
                    pass

    @invariant()
    def a_generation_has_one_plan_for_its_own_members(self) -> None:
        """One leader is asked, one plan is stored; members may have left meanwhile."""
        members: set[str] = set()
        planned = False
        for event in self.coordinator.journal(GROUP):
            match event:
                case GenerationStarted():
                    members, planned = set(event.members), False
                case AssignmentStored():
                    assert not planned
                    planned = True
                    assert set(event.assignments) == members
                case MemberRemoved() if not planned:
                    members.discard(event.member_id)
                case _:
                    pass

    @invariant()
    def an_acknowledged_sync_is_of_its_generation_s_plan(self) -> None:
        for token, reply in self.answers.items():
            response, request = reply.response, self.sent[token][1]
            if isinstance(response, GroupSynced) and response.error is ErrorCode.none:
                assert isinstance(request, SyncGroup)
                assert any(
                    isinstance(e, AssignmentStored) and e.generation == request.generation
                    for e in self.coordinator.journal(GROUP)
                )

    def teardown(self) -> None:
        """Left alone, every group empties itself and owes no answer."""
        if not hasattr(self, "coordinator"):
            return
        while (deadline := self.coordinator.next_deadline()) is not None:
            assert deadline <= self.now + 400
            self.take(self.coordinator.advance(deadline), self.copy.advance(deadline))
        assert not self.unanswered()
        assert self.coordinator.availability is Availability.ACTIVE
        view = self.coordinator.group(GROUP)
        assert view is None or view.state is GroupState.EMPTY
        assert view is None or not view.pending_join


AnyRequests.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyRequests = AnyRequests.TestCase
