"""A coordinator and members that do what a test tells them, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeVar

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    GroupJoined,
    GroupLeft,
    GroupSynced,
    Heartbeat,
    HeartbeatAcked,
    JoinGroup,
    LeaveGroup,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    Response,
    SyncGroup,
)
from kafka_coop.simulation.coordinator import GroupCoordinator, GroupRequest, GroupView
from kafka_coop.simulation.group import GroupState, RequestToken
from kafka_coop.simulation.rebalancing import Reply
from kafka_coop.simulation.settings import Client, CoordinatorSettings
from kafka_coop.simulation.topics import Topics
from kafka_coop.types import (
    NO_GENERATION,
    NO_MEMBER_ID,
    Generation,
    MemberId,
    Partitions,
    TopicPartition,
)

GROUP = "g"
ORDERS_0 = TopicPartition("orders", 0)
SESSION = timedelta(seconds=10)
REBALANCE = timedelta(seconds=30)
SECOND = timedelta(seconds=1)
BRIEF = CoordinatorSettings(initial_rebalance_delay=SECOND)

ResponseT = TypeVar("ResponseT")


class Description(NamedTuple):
    """What an administrator can see of a group."""

    state: str
    assignments: Mapping[str, bytes]


class Stage(Protocol):
    """Where members act: a simulated coordinator or a real one."""

    group_id: str

    def send(self, request: GroupRequest, client: Client | None = None) -> RequestToken: ...
    def answer(self, token: RequestToken, kind: type[ResponseT]) -> ResponseT: ...
    def is_parked(self, token: RequestToken) -> bool: ...
    def until_answered(self, *tokens: RequestToken) -> None: ...
    def wait(self, seconds: float) -> None: ...
    def describe(self) -> Description: ...
    def fail_over(self) -> None: ...


class Box:
    """One coordinator, its clock, and every answer it gave."""

    def __init__(
        self, settings: CoordinatorSettings = BRIEF, *, topics: Topics | None = None
    ) -> None:
        if topics is None:
            topics = Topics()
            topics.create("orders", 4)
        self.topics = topics
        self.coordinator = GroupCoordinator(topics=topics, settings=settings)
        self.group_id = GROUP
        self.now = 0.0
        self.answers: dict[RequestToken, Reply] = {}
        self._tokens = 0

    def send(self, request: GroupRequest, client: Client | None = None) -> RequestToken:
        self._tokens += 1
        token = RequestToken(self._tokens)
        self.take(
            self.coordinator.handle(request, client=client or Client(), token=token, now=self.now)
        )
        return token

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.coordinator.advance(self.now))

    def until_answered(self, *tokens: RequestToken) -> None:
        """Lets time pass, deadline by deadline, until these are answered."""
        while any(self.is_parked(token) for token in tokens):
            deadline = self.coordinator.next_deadline()
            assert deadline is not None, "parked for ever"
            self.wait(deadline - self.now)

    def take(self, replies: list[Reply]) -> None:
        for reply in replies:
            assert reply.token not in self.answers, "answered twice"
            self.answers[reply.token] = reply

    def answer(self, token: RequestToken, kind: type[ResponseT]) -> ResponseT:
        assert token in self.answers, "still parked"
        response: Response = self.answers[token].response
        assert isinstance(response, kind)
        return response

    def is_parked(self, token: RequestToken) -> bool:
        return token not in self.answers

    @property
    def group(self) -> GroupView:
        view = self.coordinator.group(GROUP)
        assert view is not None
        return view

    def describe(self) -> Description:
        members = {str(m.member_id): m.assignment for m in self.group.members}
        return Description(state=self.group.state.value, assignments=members)

    def fail_over(self) -> None:
        self.take(self.coordinator.load(self.now))

    def is_in(self, state: GroupState) -> bool:
        return self.group.state is state

    def member_ids(self) -> list[str]:
        return [m.member_id for m in self.group.members]


class Peer:
    """A member by hand: it remembers its id and generation, and nothing else by itself."""

    def __init__(
        self,
        box: Stage,
        name: str = "m",
        *,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("coop", b"v1"),),
        session: timedelta = SESSION,
        rebalance: timedelta = REBALANCE,
        client: Client | None = None,
    ) -> None:
        self.box = box
        self.instance_id = instance_id
        self.protocols = protocols
        self.session = session
        self.rebalance = rebalance
        self.client = client or Client(client_id=name)
        self.member_id: MemberId = NO_MEMBER_ID
        self.generation: Generation = NO_GENERATION
        self.protocol_name = protocols[0][0] if protocols else ""
        self.join_token = RequestToken(0)

    def send_join(self, reason: str | None = None) -> RequestToken:
        request = JoinGroup(
            group_id=self.box.group_id,
            session_timeout=self.session,
            rebalance_timeout=self.rebalance,
            member_id=self.member_id,
            instance_id=self.instance_id,
            protocols=self.protocols,
            reason=reason,
        )
        return self.box.send(request, self.client)

    def join(self, reason: str | None = None) -> RequestToken:
        """Joins, coming back with the id it is given; the answer may be parked."""
        self.join_token = self.send_join(reason)
        if not self.box.is_parked(self.join_token):
            first = self.box.answer(self.join_token, GroupJoined)
            if first.error is ErrorCode.member_id_required:
                self.member_id = first.member_id
                self.join_token = self.send_join(reason)
        return self.join_token

    def joined(self) -> GroupJoined:
        """The answer to the last join: this is who the member is from now on."""
        answer = self.box.answer(self.join_token, GroupJoined)
        assert answer.error is ErrorCode.none
        self.member_id, self.generation = answer.member_id, answer.generation
        self.protocol_name = answer.protocol_name or ""
        return answer

    def join_error(self) -> ErrorCode:
        return self.box.answer(self.join_token, GroupJoined).error

    def send_sync(self, assignments: Mapping[str, bytes] | None = None) -> RequestToken:
        return self.box.send(
            SyncGroup(
                group_id=self.box.group_id,
                generation=self.generation,
                member_id=self.member_id,
                instance_id=self.instance_id,
                protocol_name=self.protocol_name,
                assignments=assignments or {},
            ),
            self.client,
        )

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> GroupSynced:
        return self.box.answer(self.send_sync(assignments), GroupSynced)

    def beat(self) -> ErrorCode:
        request = Heartbeat(
            group_id=self.box.group_id,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
        )
        return self.box.answer(self.box.send(request, self.client), HeartbeatAcked).error

    def leave(self, reason: str | None = None) -> ErrorCode:
        request = LeaveGroup(
            group_id=self.box.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            reason=reason,
        )
        return self.box.answer(self.box.send(request, self.client), GroupLeft).error

    def commit_request(
        self, offset: int, *, metadata: str = "", partition: TopicPartition = ORDERS_0
    ) -> OffsetCommit:
        return OffsetCommit(
            group_id=self.box.group_id,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            offsets={partition: OffsetAndMetadata(offset=offset, metadata=metadata)},
        )

    def commit(
        self, offset: int, *, metadata: str = "", partition: TopicPartition = ORDERS_0
    ) -> ErrorCode:
        request = self.commit_request(offset, metadata=metadata, partition=partition)
        answer = self.box.answer(self.box.send(request, self.client), OffsetsCommitted)
        return answer.errors[partition]

    def is_member(self) -> bool:
        return self.member_id in self.box.describe().assignments


def fetch(
    box: Stage, partition: TopicPartition = ORDERS_0, *, require_stable: bool = True
) -> OffsetsFetched:
    request = OffsetFetch(
        group_id=box.group_id, partitions=Partitions.of([partition]), require_stable=require_stable
    )
    return box.answer(box.send(request), OffsetsFetched)


def finish_round(*peers: Peer) -> None:
    """The joins were sent: take the answers, and sync."""
    answers = {peer: peer.joined() for peer in peers}
    tokens = [(peer, peer.send_sync()) for peer in peers if answers[peer].leader != peer.member_id]
    for peer in peers:
        if answers[peer].leader == peer.member_id:
            plan: dict[str, bytes] = {
                m.member_id: f"for {m.member_id}".encode() for m in answers[peer].members
            }
            assert peer.sync(plan).error is ErrorCode.none
    for peer, token in tokens:
        answer = peer.box.answer(token, GroupSynced)
        assert answer.assignment == f"for {peer.member_id}".encode()


def stable_group(box: Stage, *peers: Peer) -> None:
    """The members' first round, initial delay and all: the group is stable."""
    for peer in peers:
        peer.join()
    box.until_answered(*(peer.join_token for peer in peers))
    finish_round(*peers)


def join_round(box: Stage, *peers: Peer) -> None:
    """A join phase from its first to its last: everyone knows the generation, none has synced."""
    for peer in peers:
        peer.join()
    box.until_answered(*(peer.join_token for peer in peers))
    for peer in peers:
        peer.joined()


def rejoin_all(*peers: Peer) -> None:
    """Everyone who was told to comes back, and the round is finished."""
    for peer in peers:
        peer.join()
    finish_round(*peers)
