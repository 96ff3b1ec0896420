"""The phases of a rebalance as the broker runs them: when they begin and when they end.

After Apache Kafka 4.1's group coordinator (KIP-62, KIP-345, KIP-394), its odd corners included:
where a tidier rule comes to mind, Kafka does what stands here. Writing to the log takes no
time, so a record is durable with the request that caused it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import GroupJoined, GroupSynced, Response
from kafka_coop.simulation import group_log
from kafka_coop.simulation.group import (
    Group,
    GroupMember,
    GroupState,
    InitialDelay,
    Pick,
    RequestToken,
)
from kafka_coop.simulation.group_log import GroupRecord
from kafka_coop.simulation.journal import (
    AssignmentStored,
    Departure,
    GenerationStarted,
    GroupDeleted,
    GroupEvent,
    GroupLoaded,
    GroupUnloaded,
    MemberRemoved,
    RebalanceStarted,
)
from kafka_coop.simulation.settings import CoordinatorSettings
from kafka_coop.simulation.timers import Timers
from kafka_coop.types import MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a request, as it leaves the broker at virtual time ``at`` (seconds)."""

    token: RequestToken
    response: Response
    at: float


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """A member, or a pending one, has not been heard of for its session timeout."""

    group_id: str
    member_id: MemberId


@dataclass(frozen=True, slots=True)
class JoinTimer:
    """The join phase ends for those who came, or the initial delay is over."""

    group_id: str


@dataclass(frozen=True, slots=True)
class SyncTimer:
    """Members that have not sent SyncGroup are removed."""

    group_id: str


GroupTimer: TypeAlias = SessionTimer | JoinTimer | SyncTimer


class Rebalancer:
    """All groups of one coordinator, their timers and what is parked with them.

    Attributes:
        now: Virtual time in seconds, set by whoever calls.
        groups: The groups held in memory; none while the coordinator is not loaded.
        log: The last record of every group: it outlives the coordinator.
        journals: What happened, group by group.
        outbox: Answers not yet handed out, in the order they were given.
        forgotten: Requests that will never be answered: a member sent the same request again,
            or was removed while its SyncGroup was parked. The client's timeout is its only way
            out.
    """

    def __init__(
        self, settings: CoordinatorSettings, timers: Timers[GroupTimer], *, pick: Pick
    ) -> None:
        self.settings = settings
        self.timers = timers
        self.now = 0.0
        self.groups: dict[str, Group] = {}
        self.log: dict[str, GroupRecord] = {}
        self.journals: dict[str, list[GroupEvent]] = {}
        self.outbox: list[Reply] = []
        self.forgotten: set[RequestToken] = set()
        self._pick = pick

    # --- groups ----------------------------------------------------------------------------

    def create(self, group_id: str) -> Group:
        """A new, empty group."""
        group = self.groups[group_id] = Group(group_id, pick=self._pick)
        return group

    def delete(self, group: Group) -> None:
        """Deletes an empty group for good; pending members are forgotten with it."""
        assert group.state is GroupState.EMPTY
        for member_id in group.pending_join:
            self.timers.cancel(SessionTimer(group.group_id, member_id))
        group.transition_to(GroupState.DEAD)
        del self.groups[group.group_id]
        self.log.pop(group.group_id, None)
        self.record(group, GroupDeleted(at=self.now, generation=group.generation))

    def persist(self, group: Group) -> None:
        """Writes the group to the log as it stands."""
        assignments = {m.member_id: m.assignment for m in group.members.values()}
        self.log[group.group_id] = group_log.write(group, assignments)

    def persist_empty(self, group: Group) -> None:
        """Writes a group without members, as it was when it came into being."""
        self.log[group.group_id] = group_log.write(Group(group.group_id, pick=self._pick), {})

    def load(self, *, with_offsets: Iterable[str]) -> None:
        """Takes every group over from the log; sessions begin anew.

        Args:
            with_offsets: Groups that have committed offsets. One without a record of its own
                was made by a commit, and is back at generation 0.
        """
        for group_id in with_offsets:
            self.groups[group_id] = Group(group_id, pick=self._pick)
        for group_id, record in self.log.items():
            self.groups[group_id] = group_log.read(group_id, record, pick=self._pick)
        for group in self.groups.values():
            members = tuple(group.members)
            self.record(
                group, GroupLoaded(at=self.now, generation=group.generation, members=members)
            )
            for member in group.members.values():
                self.keep_alive(group, member)
            if len(members) > self.settings.max_group_size:
                self.prepare(group, "the loaded group is larger than group.max.size")

    def unload(self) -> None:
        """Gives every group up; what is parked is answered NOT_COORDINATOR."""
        for group in self.groups.values():
            for member in group.members.values():
                self.answer_join(
                    group,
                    member,
                    GroupJoined(error=ErrorCode.not_coordinator, member_id=member.member_id),
                )
                self._answer_sync(member, GroupSynced(error=ErrorCode.not_coordinator))
            group.transition_to(GroupState.DEAD)
            self.record(group, GroupUnloaded(at=self.now, generation=group.generation))
        self.groups.clear()
        self.timers.clear()

    def record(self, group: Group, event: GroupEvent) -> None:
        """Writes the event to the group's journal."""
        self.journals.setdefault(group.group_id, []).append(event)

    # --- timers ----------------------------------------------------------------------------

    def keep_alive(self, group: Group, member: GroupMember, timeout: float | None = None) -> None:
        """Restarts the member's session, or gives it another timeout (seconds)."""
        self.timers.schedule(
            SessionTimer(group.group_id, member.member_id),
            self.now + (member.session_timeout if timeout is None else timeout),
        )

    def fire(self, timer: GroupTimer) -> None:
        """Does what is due when the timer runs out."""
        group = self.groups[timer.group_id]
        match timer:
            case SessionTimer(member_id=member_id):
                self._expire_session(group, member_id)
            case JoinTimer():
                self._end_join_timer(group)
            case SyncTimer():
                self._expire_syncs(group)

    def _expire_session(self, group: Group, member_id: MemberId) -> None:
        """Removes a silent member.

        One whose request is parked stays, and its timer is set again with the answer. A join
        phase that waited for nobody else ends, an initial one too.
        """
        member = group.members.get(member_id)
        if member_id not in group.pending_join and (member is None or member.is_excused):
            return
        self.remove(group, member_id, Departure.SESSION_EXPIRED)
        if group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            if member is not None:
                self.prepare(group, f"the session of member {member_id} expired")
        elif group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            self._complete_join(group)

    def _end_join_timer(self, group: Group) -> None:
        delay = group.initial_delay
        if delay is None or not (group.newcomers and delay.remaining):
            self._complete_join(group)
            return
        group.newcomers = False
        extension = min(self._initial_delay, delay.remaining)
        group.initial_delay = InitialDelay(
            current=extension, remaining=max(delay.remaining - delay.current, 0.0)
        )
        self.timers.schedule(JoinTimer(group.group_id), self.now + extension)

    def _expire_syncs(self, group: Group) -> None:
        late = tuple(group.pending_sync)
        for member_id in late:
            self.remove(group, member_id, Departure.NOT_SYNCED)
        self.prepare(group, f"no SyncGroup from {', '.join(late)}")

    @property
    def _initial_delay(self) -> float:
        return self.settings.initial_rebalance_delay.total_seconds()

    # --- members ---------------------------------------------------------------------------

    def remove(
        self, group: Group, member_id: MemberId, cause: Departure, reason: str | None = None
    ) -> None:
        """Removes a member or a pending one; its parked JoinGroup earns UNKNOWN_MEMBER_ID."""
        member = group.members.get(member_id)
        if member is not None:
            self.answer_join(group, member, GroupJoined(error=ErrorCode.unknown_member_id))
            if member.parked_sync is not None:
                self.forgotten.add(member.parked_sync)
        known = member is not None or member_id in group.pending_join
        group.remove(member_id)
        self.timers.cancel(SessionTimer(group.group_id, member_id))
        if known:
            removed = MemberRemoved(
                at=self.now,
                member_id=member_id,
                instance_id=None if member is None else member.instance_id,
                cause=cause,
                reason=reason,
            )
            self.record(group, removed)

    def reply(self, token: RequestToken, response: Response) -> None:
        """Answers the request."""
        self.outbox.append(Reply(token=token, response=response, at=self.now))

    def park_join(self, group: Group, member: GroupMember, token: RequestToken) -> None:
        """Parks a member's JoinGroup; an earlier one of its is never answered."""
        earlier = group.park_join(member, token)
        if earlier is not None:
            self.forgotten.add(earlier)

    def park_sync(self, member: GroupMember, token: RequestToken) -> None:
        """Parks a member's SyncGroup; an earlier one of its is never answered."""
        if member.parked_sync is not None:
            self.forgotten.add(member.parked_sync)
        member.parked_sync = token

    def answer_join(self, group: Group, member: GroupMember, response: GroupJoined) -> None:
        """Answers the member's parked JoinGroup, if there is one."""
        token = group.unpark_join(member)
        if token is not None:
            self.reply(token, response)

    def fence(self, group: Group, member: GroupMember) -> None:
        """Tells the waiting process that another one has taken its instance id."""
        self.answer_join(
            group,
            member,
            GroupJoined(error=ErrorCode.fenced_instance_id, member_id=member.member_id),
        )
        self._answer_sync(member, GroupSynced(error=ErrorCode.fenced_instance_id))

    def _answer_sync(self, member: GroupMember, response: GroupSynced) -> bool:
        token, member.parked_sync = member.parked_sync, None
        if token is not None:
            self.reply(token, response)
        return token is not None

    # --- the join phase --------------------------------------------------------------------

    def prepare_or_complete(self, group: Group, reason: str) -> None:
        """Begins a rebalance, or ends the join phase that runs, if nobody is missing."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_all_joined(group)
        else:
            self.prepare(group, reason)

    def prepare(self, group: Group, reason: str) -> None:
        """Begins a join phase. It ends with the last known member's JoinGroup, or in time.

        Parked SyncGroups are answered REBALANCE_IN_PROGRESS. An empty group's phase lasts its
        initial delay, however soon everyone is there.
        """
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._propagate(group, ErrorCode.rebalance_in_progress)
        group.pending_sync.clear()
        self.timers.cancel(SyncTimer(group.group_id))
        is_initial = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE)
        self.record(
            group, RebalanceStarted(at=self.now, generation=group.generation, reason=reason)
        )
        if is_initial:
            group.initial_delay = InitialDelay(
                current=self._initial_delay,
                remaining=max(group.rebalance_timeout - self._initial_delay, 0.0),
            )
            self.timers.schedule(JoinTimer(group.group_id), self.now + self._initial_delay)
        elif group.all_joined:
            self._complete_join(group)
        else:
            self._await_joins(group)

    def complete_if_all_joined(self, group: Group) -> None:
        """Ends the join phase where nobody is missing; an initial one waits for its delay."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.is_initial_rebalance
            and group.all_joined
        ):
            self._complete_join(group)

    def _await_joins(self, group: Group) -> None:
        self.timers.schedule(JoinTimer(group.group_id), self.now + group.rebalance_timeout)

    def _complete_join(self, group: Group) -> None:
        """Ends the join phase: dynamic members that did not come are removed.

        Static members stay, and are awaited for a sync. If none but those are left, and none
        of them came, nobody could lead: the phase is extended until their sessions end.
        """
        self.timers.cancel(JoinTimer(group.group_id))
        group.initial_delay = None
        missing = [
            m.member_id for m in group.members.values() if m.parked_join is None and not m.is_static
        ]
        for member_id in missing:
            self.remove(group, member_id, Departure.NOT_REJOINED)
        if not group.elect_joined_leader() and group.members:
            self._await_joins(group)
            return
        group.begin_generation()
        self.record(
            group,
            GenerationStarted(
                at=self.now,
                generation=group.generation,
                protocol_name=group.protocol_name,
                leader=group.leader,
                members=tuple(group.members),
            ),
        )
        if group.members:
            self._await_syncs(group)
        else:
            self.persist(group)

    def _await_syncs(self, group: Group) -> None:
        for member in group.members.values():
            self.answer_join(group, member, self.joined(group, member))
            self.keep_alive(group, member)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        self.timers.schedule(SyncTimer(group.group_id), self.now + group.rebalance_timeout)

    def joined(self, group: Group, member: GroupMember) -> GroupJoined:
        """The present generation, as a JoinGroup's answer tells the member of it."""
        assert group.leader is not None
        return GroupJoined(
            error=ErrorCode.none,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader,
            member_id=member.member_id,
            members=group.joined_members() if group.leader == member.member_id else (),
        )

    # --- the sync phase --------------------------------------------------------------------

    def sync_seen(self, group: Group, member: GroupMember) -> None:
        """Crosses the member off the list of those that have yet to send SyncGroup."""
        group.pending_sync.pop(member.member_id, None)
        if not group.pending_sync:
            self.timers.cancel(SyncTimer(group.group_id))

    def stabilise(self, group: Group, assignments: dict[MemberId, bytes]) -> None:
        """Takes the leader's plan: written to the log, then told to everyone who waits."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.persist(group)
        self._propagate(group, ErrorCode.none)
        group.transition_to(GroupState.STABLE)
        stored = {m.member_id: m.assignment for m in group.members.values()}
        self.record(
            group,
            AssignmentStored(at=self.now, generation=group.generation, assignments=stored),
        )

    def synced(self, group: Group, member: GroupMember) -> GroupSynced:
        """The member's assignment of this generation."""
        return GroupSynced(
            error=ErrorCode.none,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        )

    def _propagate(self, group: Group, error: ErrorCode) -> None:
        """Answers every parked SyncGroup, with the assignment or with an error.

        Sessions of those answered begin anew: one that ran out while the request was parked
        was ignored, and its timer is gone.
        """
        for member in group.members.values():
            if error is not ErrorCode.none:
                member.assignment = b""
                response = GroupSynced(error=error)
            else:
                response = self.synced(group, member)
            if self._answer_sync(member, response):
                self.keep_alive(group, member)
