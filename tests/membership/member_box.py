"""One member, driven by hand: the broker's and the user's side of it in a few verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from kafka_coop.assignors import resolve
from kafka_coop.errors import ConnectionFailedError, RequestTimedOutError
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.member import Member
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.membership.states import State
from kafka_coop.protocol.assignment import encode_assignment
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.marks import AssignmentMarks, append_marks
from kafka_coop.protocol.messages import (
    ClusterMetadata,
    CoordinatorFound,
    GroupJoined,
    GroupLeft,
    GroupSynced,
    HeartbeatAcked,
    JoinedMember,
    Node,
    PartitionMetadata,
    TopicMetadata,
)
from kafka_coop.protocol.subscription import decode_subscription
from kafka_coop.types import Assignment, Generation, MemberId, Partitions, Subscription

E = TypeVar("E")

NODE = Node(node_id=1, host="broker-1", port=9092)
CUT = ConnectionFailedError("broker-1:9092: the connection was cut")


def settings(strategy: str = "cooperative-sticky", **changes: Any) -> MemberSettings:
    names = strategy.split(",")
    return MemberSettings(
        group_id="group", assignors=tuple(map(resolve, names)), client_id="client", **changes
    )


def partitions(topic: str, *indices: int) -> Partitions:
    return Partitions({topic: indices})


def metadata_of(topics: Mapping[str, int], **errors: ErrorCode) -> ClusterMetadata:
    known = {
        name: TopicMetadata(
            name=name,
            partitions=tuple(
                PartitionMetadata(partition=i, leader_id=1, replica_nodes=(1,))
                for i in range(count)
            ),
        )
        for name, count in topics.items()
    }
    known |= {name: TopicMetadata(name=name, error=error) for name, error in errors.items()}
    return ClusterMetadata(brokers={1: NODE}, racks={1: None}, topics=known)


@dataclass
class MemberBox:
    """Keeps the time and every effect; each verb returns the effects it caused."""

    member: Member
    now: float = 100.0
    effects: list[ef.Effect] = field(default_factory=list)
    done: set[int] = field(default_factory=set)

    @classmethod
    def fresh(cls, strategy: str = "cooperative-sticky", **changes: Any) -> MemberBox:
        return cls(Member(settings(strategy, **changes)))

    # --- looking ---------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.member.state

    def stands(self, state: State) -> bool:
        """Whether the member is in this state (a call: its answer changes between calls)."""
        return self.member.state is state

    def sent(self, kind: type[E]) -> list[E]:
        return [e for e in self.effects if isinstance(e, kind)]

    def last(self, kind: type[E]) -> E:
        return self.sent(kind)[-1]

    def actions(self) -> list[ef.Action]:
        """The actions of all steps offered so far, in order."""
        return [a for offer in self.sent(ef.OfferStep) for a in offer.step.actions]

    def subscription(self, nth: int = -1) -> Subscription:
        """What a JoinGroup told the leader."""
        return decode_subscription(self.sent(ef.SendJoin)[nth].request.protocols[0][1])

    # --- acting ----------------------------------------------------------------------------

    def handle(self, event: ev.Event) -> list[ef.Effect]:
        caused = list(self.member.handle(event, self.now))
        self.effects += caused
        return caused

    def tick(self, seconds: float = 0.0) -> list[ef.Effect]:
        self.now += seconds
        return self.handle(ev.Tick())

    def until_deadline(self) -> float:
        """Seconds until the member wants to be woken."""
        deadline = self.member.next_deadline()
        assert deadline is not None, "it asks for no wake-up"
        return deadline - self.now

    def subscribe(self, *topics: str, patterns: Iterable[str] = ()) -> list[ef.Effect]:
        return self.handle(ev.Subscribe(topics=topics or ("t",), patterns=tuple(patterns)))

    def find(self, error: ErrorCode = ErrorCode.none, *, node: Node = NODE) -> list[ef.Effect]:
        token = self.last(ef.SendFindCoordinator).token
        found = node if error is ErrorCode.none else None
        return self.handle(
            ev.CoordinatorAnswered(token=token, answer=CoordinatorFound(error=error, node=found))
        )

    def answer_join(
        self,
        error: ErrorCode = ErrorCode.none,
        *,
        generation: int = 1,
        member_id: str = "me",
        leader: str = "other",
        members: Iterable[JoinedMember] = (),
        **more: Any,
    ) -> list[ef.Effect]:
        answer = GroupJoined(
            error=error,
            generation=Generation(generation),
            protocol_name=self.member.settings.assignors[0].name,
            leader=MemberId(leader),
            member_id=MemberId(member_id),
            members=tuple(members),
        )
        if more:
            answer = GroupJoined(**{**_fields(answer), **more})
        return self.handle(ev.JoinAnswered(token=self.last(ef.SendJoin).token, answer=answer))

    def answer_sync(
        self,
        assigned: Partitions | None = None,
        error: ErrorCode = ErrorCode.none,
        *,
        marks: AssignmentMarks | None = None,
    ) -> list[ef.Effect]:
        user_data = append_marks(b"", marks) if marks is not None else b""
        data = encode_assignment(
            Assignment(partitions=assigned or Partitions(), user_data=user_data)
        )
        return self.handle(
            ev.SyncAnswered(
                token=self.last(ef.SendSync).token,
                answer=GroupSynced(error=error, assignment=data),
            )
        )

    def beat(self, error: ErrorCode = ErrorCode.none) -> list[ef.Effect]:
        """Sends the next heartbeat when it is due, and answers it."""
        self.next_beat()
        return self.answer_beat(error)

    def next_beat(self) -> ef.SendHeartbeat:
        """Sends the next heartbeat when it is due; nobody answers it yet."""
        before = len(self.sent(ef.SendHeartbeat))
        for _ in range(100):
            if len(self.sent(ef.SendHeartbeat)) > before:
                break
            self.tick(max(0.0, self.until_deadline()))
        return self.last(ef.SendHeartbeat)

    def time_out(self, hung: ef.SendHeartbeat) -> list[ef.Effect]:
        """A heartbeat that is not answered in its time."""
        self.now += seconds(hung.timeout)
        answer = RequestTimedOutError("no answer")
        return self.handle(ev.HeartbeatAnswered(token=hung.token, answer=answer))

    def answer_beat(self, error: ErrorCode = ErrorCode.none) -> list[ef.Effect]:
        return self.handle(
            ev.HeartbeatAnswered(
                token=self.last(ef.SendHeartbeat).token, answer=HeartbeatAcked(error=error)
            )
        )

    def answer_metadata(self, topics: Mapping[str, int], **errors: ErrorCode) -> list[ef.Effect]:
        return self.handle(
            ev.MetadataAnswered(
                token=self.last(ef.SendMetadata).token, answer=metadata_of(topics, **errors)
            )
        )

    def answer_leave(self) -> list[ef.Effect]:
        return self.handle(
            ev.LeaveAnswered(
                token=self.last(ef.SendLeave).token, answer=GroupLeft(error=ErrorCode.none)
            )
        )

    def do_steps(self) -> list[ef.Effect]:
        """The user polls: every step offered and not done yet is carried out."""
        caused: list[ef.Effect] = []
        for offer in self.sent(ef.OfferStep):
            if offer.step.step_id not in self.done:
                self.done.add(offer.step.step_id)
                caused += self.handle(ev.StepDone(step_id=offer.step.step_id))
        return caused

    # --- whole journeys --------------------------------------------------------------------

    def join(self, assigned: Partitions, *, generation: int = 1) -> MemberBox:
        """From UNSUBSCRIBED or UNJOINED to STABLE as a follower, with its steps done."""
        if self.state is State.UNSUBSCRIBED:
            self.subscribe(*(assigned.topics() or ("t",)))
        if self.state is State.UNJOINED and self.sent(ef.SendFindCoordinator):
            self.find()
        self.answer_join(generation=generation)
        self.answer_sync(assigned)
        self.do_steps()
        return self

    def at(self, state: State) -> MemberBox:
        """A member that was just brought to this state, owning t-0 and t-1 where it can."""
        for stop, go_on in _JOURNEY:
            if state is stop:
                return self
            go_on(self)
        _DETOURS[state](self)
        return self


def _as_leader(box: MemberBox) -> None:
    box.handle(ev.EnforceRebalance(reason="a test"))
    me = JoinedMember(member_id=MemberId("me"), instance_id=None, metadata=b"")
    box.answer_join(leader="me", members=[me])


def _settle(box: MemberBox) -> None:
    box.answer_sync(partitions("t", 0, 1))
    box.do_steps()


def _lose_one(box: MemberBox) -> None:
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    box.answer_sync(partitions("t", 0))


def _close(box: MemberBox) -> None:
    box.handle(ev.Close())
    box.do_steps()
    box.answer_leave()


_JOURNEY: list[tuple[State, Callable[[MemberBox], object]]] = [
    (State.UNSUBSCRIBED, lambda box: box.subscribe("t")),
    (State.UNJOINED, lambda box: box.find()),
    (State.JOINING, lambda box: box.answer_join()),
    (State.SYNCING, _settle),
]

_DETOURS: dict[State, Callable[[MemberBox], object]] = {
    State.STABLE: lambda _box: None,
    State.ADOPTING: _lose_one,
    State.PREPARING: lambda box: box.beat(ErrorCode.unknown_member_id),
    State.LEADING: _as_leader,
    State.LEAVING: lambda box: box.handle(ev.Close()),
    State.CLOSED: _close,
}


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def seconds(delta: timedelta) -> float:
    return delta.total_seconds()
