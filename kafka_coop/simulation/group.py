"""A classic group's bookkeeping at the broker: members, votes, leader, generation.

No timers, no answers: `kafka_coop.simulation.rebalancing` decides when and what to answer.
What is counted (parked joins, votes) is counted as members change, so that each request of a
group of thousands costs O(1).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NewType, TypeAlias

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import CONSUMER_PROTOCOL_TYPE, JoinedMember
from kafka_coop.types import Generation, MemberId

RequestToken = NewType("RequestToken", int)
"""The sender's name for a request; its answer carries it."""

Pick: TypeAlias = Callable[[Sequence[str]], str]
"""Decides where Kafka leaves it to the order of a hash table."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


class GroupState(enum.Enum):
    """Where a group stands between two generations."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


@dataclass(slots=True, kw_only=True)
class GroupMember:
    """A member as the broker knows it. Timeouts are in seconds.

    Attributes:
        is_new: No round was finished with it yet: it expires even while its JoinGroup is
            parked.
        parked_join, parked_sync: The request that is waiting for its answer.
    """

    member_id: MemberId
    instance_id: str | None
    client_id: str
    session_timeout: float
    rebalance_timeout: float
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    parked_join: RequestToken | None = None
    parked_sync: RequestToken | None = None

    @property
    def is_static(self) -> bool:
        """Whether it has a ``group.instance.id`` (KIP-345)."""
        return self.instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether it is waiting for us, so that its session can't run out."""
        return not self.is_new and (self.parked_join is not None or self.parked_sync is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its subscription under that protocol.

        Raises:
            KeyError: It does not speak the protocol.
        """
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: frozenset[str]) -> str:
        """The candidate it prefers. It speaks all of them."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialDelay:
    """The wait before an empty group's first round. Seconds.

    Attributes:
        current: The stretch that is running.
        remaining: By how much later stretches may extend it.
    """

    current: float
    remaining: float


class Group:
    """One classic group.

    Attributes:
        previous_state: Before the last change: a rebalance that began EMPTY is an initial one.
        pending_join: Dynamic members that were given an id and have yet to come back with it
            (KIP-394), in the order they came.
        pending_sync: Members of this generation that have yet to send SyncGroup.
        newcomers: A member was added during the initial delay, which extends it.
        initial_delay: The initial delay that is running.
    """

    __slots__ = (
        "_awaiting_join",
        "_instances",
        "_pick",
        "_supporters",
        "generation",
        "group_id",
        "initial_delay",
        "leader",
        "members",
        "newcomers",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
    )

    def __init__(self, group_id: str, *, pick: Pick) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.generation = Generation(0)
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: MemberId | None = None
        self.members: dict[MemberId, GroupMember] = {}
        self.pending_join: dict[MemberId, None] = {}
        self.pending_sync: dict[MemberId, None] = {}
        self.newcomers = False
        self.initial_delay: InitialDelay | None = None
        self._instances: dict[str, MemberId] = {}
        self._supporters: Counter[str] = Counter()
        self._awaiting_join = 0
        self._pick = pick

    # --- state -----------------------------------------------------------------------------

    def transition_to(self, state: GroupState) -> None:
        """Moves to the state; one that may not follow the present one is our own bug."""
        assert self.state in _PREDECESSORS[state], f"{self.state} -> {state}"
        self.previous_state, self.state = self.state, state

    def begin_generation(self) -> None:
        """Ends the join phase: the next generation, and a protocol where there are members."""
        self.generation = Generation(self.generation + 1)
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY)

    @property
    def all_joined(self) -> bool:
        """Whether every known member's JoinGroup is parked, and no one has still to come."""
        return len(self.members) == self._awaiting_join and not self.pending_join

    @property
    def is_initial_rebalance(self) -> bool:
        """Whether the join phase that runs began with an empty group."""
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    @property
    def awaiting_join(self) -> int:
        """How many members' JoinGroups are parked."""
        return self._awaiting_join

    @property
    def rebalance_timeout(self) -> float:
        """How long a join phase may take: the longest of the members' timeouts, seconds."""
        return max((m.rebalance_timeout for m in self.members.values()), default=0.0)

    # --- members ---------------------------------------------------------------------------

    def add(self, member: GroupMember) -> None:
        """Adds a member, with nothing parked yet; the first one becomes the leader."""
        assert member.member_id not in self.members
        assert member.parked_join is None
        if not self.members:
            self.protocol_type = CONSUMER_PROTOCOL_TYPE
        if member.instance_id is not None:
            assert member.instance_id not in self._instances
            self._instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, by=1)
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: MemberId) -> GroupMember | None:
        """Removes a member or a pending one; a leader leaves the lead to any other member.

        A parked JoinGroup must have been taken out; a parked SyncGroup is lost.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, by=-1)
            assert member.parked_join is None
            if member.instance_id is not None:
                del self._instances[member.instance_id]
        if self.leader == member_id:
            self.leader = MemberId(self._pick(list(self.members))) if self.members else None
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        return member

    def replace_static(self, old: GroupMember, new_id: MemberId) -> GroupMember:
        """Gives a static member's place, lead and assignment to its new process.

        The old id stays among those awaited for a sync, where it can never be crossed off: at
        the rebalance timeout the group goes through one more round for nothing. So does Kafka.
        """
        assert old.parked_join is None
        assert old.instance_id is not None
        new = GroupMember(
            member_id=new_id,
            instance_id=old.instance_id,
            client_id=old.client_id,
            session_timeout=old.session_timeout,
            rebalance_timeout=old.rebalance_timeout,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        del self.members[old.member_id]
        self.members[new_id] = new
        self._instances[old.instance_id] = new_id
        if self.leader == old.member_id:
            self.leader = new_id
        return new

    def update(
        self,
        member: GroupMember,
        *,
        protocols: Protocols,
        session_timeout: float,
        rebalance_timeout: float,
    ) -> None:
        """Takes over what a member's new JoinGroup says."""
        self._count(member.protocols, by=-1)
        self._count(protocols, by=1)
        member.protocols = protocols
        member.session_timeout = session_timeout
        member.rebalance_timeout = rebalance_timeout

    def park_join(self, member: GroupMember, token: RequestToken) -> RequestToken | None:
        """Parks a JoinGroup.

        Returns:
            The member's earlier one, which will never be answered.
        """
        earlier, member.parked_join = member.parked_join, token
        self._awaiting_join += earlier is None
        return earlier

    def unpark_join(self, member: GroupMember) -> RequestToken | None:
        """Takes the member's parked JoinGroup out, to be answered."""
        token, member.parked_join = member.parked_join, None
        self._awaiting_join -= token is not None
        return token

    def member_of_instance(self, instance_id: str | None) -> MemberId | None:
        """Which member id the instance id stands for."""
        return None if instance_id is None else self._instances.get(instance_id)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether that member may speak: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID if not."""
        if instance_id is not None:
            mapped = self._instances.get(instance_id)
            if mapped is None:
                return ErrorCode.unknown_member_id
            if mapped != member_id:
                return ErrorCode.fenced_instance_id
        known = MemberId(member_id) in self.members
        return ErrorCode.none if known else ErrorCode.unknown_member_id

    def elect_joined_leader(self) -> bool:
        """Sees to it that the leader is among those who joined this round.

        Returns:
            False where nobody can lead: no member, or none that has rejoined.
        """
        if self.leader is None:
            return False
        if self.members[self.leader].parked_join is not None:
            return True
        joined = [m.member_id for m in self.members.values() if m.parked_join is not None]
        if joined:
            self.leader = MemberId(self._pick(joined))
        return bool(joined)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Everyone's subscription under the chosen protocol, for the leader's answer."""
        return tuple(
            JoinedMember(
                member_id=m.member_id,
                instance_id=m.instance_id,
                metadata=m.metadata(self.protocol_name),
            )
            for m in self.members.values()
        )

    # --- protocols -------------------------------------------------------------------------

    def supports(self, protocols: Protocols) -> bool:
        """Whether a member with these protocols may join: one of them is everybody's."""
        names = _names(protocols)
        if self.state is GroupState.EMPTY:
            return bool(names)
        return any(self._supporters[name] == len(self.members) for name in names)

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that every member speaks."""
        everyone = len(self.members)
        candidates = frozenset(n for n, count in self._supporters.items() if count == everyone)
        votes = Counter(member.vote(candidates) for member in self.members.values())
        most = max(votes.values())
        return self._pick(sorted(name for name, count in votes.items() if count == most))

    def _count(self, protocols: Protocols, *, by: int) -> None:
        for name in _names(protocols):
            self._supporters[name] += by


def _names(protocols: Iterable[tuple[str, bytes]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, _ in protocols))
