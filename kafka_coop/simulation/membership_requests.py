"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup as the broker answers them, state by state."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, assert_never

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    GroupJoined,
    GroupLeft,
    GroupSynced,
    Heartbeat,
    HeartbeatAcked,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from kafka_coop.simulation.group import Group, GroupMember, GroupState, RequestToken
from kafka_coop.simulation.journal import Departure, MemberAdded, MemberRemoved
from kafka_coop.simulation.rebalancing import Rebalancer, SessionTimer
from kafka_coop.simulation.settings import Client
from kafka_coop.types import NO_MEMBER_ID, MemberId


class _Join(NamedTuple):
    """A JoinGroup, who sent it, and where its answer goes."""

    request: JoinGroup
    client: Client
    token: RequestToken


class MembershipRequests:
    """What requests do to the groups of a `Rebalancer`. Its ``now`` must be set."""

    def __init__(self, rebalancer: Rebalancer) -> None:
        self._rebalancer = rebalancer
        self._ids_given = 0

    # --- JoinGroup -------------------------------------------------------------------------

    def join(self, request: JoinGroup, client: Client, token: RequestToken) -> None:
        """Adds a member, or begins or joins a rebalance, or repeats what it already knows."""
        rebalancer = self._rebalancer
        group = rebalancer.groups.get(request.group_id)
        is_new_group = group is None
        if group is None:
            if request.member_id:
                self._refuse_join(token, ErrorCode.unknown_member_id, request.member_id)
                return
            group = rebalancer.create(request.group_id)
        if not self._has_room_for(group, request.member_id):
            rebalancer.remove(group, request.member_id, Departure.GROUP_FULL)
            self._refuse_join(token, ErrorCode.group_max_size_reached)
        elif not group.supports(request.protocols):
            self._refuse_join(token, ErrorCode.inconsistent_group_protocol, request.member_id)
        elif request.member_id:
            self._join_known(group, _Join(request, client, token))
        elif request.instance_id is not None:
            self._join_static(group, _Join(request, client, token), request.instance_id)
        else:
            self._join_dynamic(group, _Join(request, client, token))
        if is_new_group:
            # Written empty, whatever it has become since: members are written with a plan.
            rebalancer.persist_empty(group)

    def _has_room_for(self, group: Group, member_id: MemberId) -> bool:
        """Whether ``group.max.size`` lets the member in.

        While a join phase runs, parked joins are counted, not members: where the limit was
        lowered, the last to rejoin are the ones turned away.
        """
        limit = self._rebalancer.settings.max_group_size
        member = group.members.get(member_id)
        match group.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return True
            case GroupState.PREPARING_REBALANCE:
                is_waiting = member is not None and member.parked_join is not None
                return is_waiting or group.awaiting_join < limit
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < limit
            case _ as never:
                assert_never(never)

    def _join_dynamic(self, group: Group, join: _Join) -> None:
        member_id = self._new_id(join.client.client_id)
        if not join.client.requires_known_member_id:
            self._add(group, join, member_id)
            return
        group.pending_join[member_id] = None
        self._rebalancer.timers.schedule(
            SessionTimer(group.group_id, member_id),
            self._rebalancer.now + join.request.session_timeout.total_seconds(),
        )
        self._refuse_join(join.token, ErrorCode.member_id_required, member_id)

    def _join_static(self, group: Group, join: _Join, instance_id: str) -> None:
        member_id = self._new_id(instance_id)
        mapped = group.member_of_instance(instance_id)
        if mapped is None:
            self._add(group, join, member_id)
        else:
            self._replace_static(group, join, group.members[mapped], member_id)

    def _join_known(self, group: Group, join: _Join) -> None:
        request = join.request
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.instance_id is not None:
                # An internal error at the broker: static members are never pending.
                self._refuse_join(join.token, ErrorCode.unknown_server_error)
            else:
                self._add(group, join, member_id)
            return
        error = group.check_member(member_id, request.instance_id)
        if error is not ErrorCode.none:
            self._refuse_join(join.token, error, member_id)
            return
        self._rejoin(group, group.members[member_id], join)

    def _rejoin(self, group: Group, member: GroupMember, join: _Join) -> None:
        """A known member joins again.

        What it knows already is repeated, without a round: in CompletingRebalance to anyone
        with unchanged metadata (the answer may have been lost), when stable to a follower
        (KAFKA-10455). A stable group's leader always gets its round: what it saw change may
        not show in its metadata.
        """
        unchanged = member.protocols == join.request.protocols
        match group.state:
            case GroupState.COMPLETING_REBALANCE:
                repeat = unchanged
            case GroupState.STABLE:
                repeat = unchanged and group.leader != member.member_id
            case _:
                repeat = False
        if repeat:
            self._rebalancer.reply(join.token, self._rebalancer.joined(group, member))
            return
        _take_over(group, member, join.request)
        self._rebalancer.park_join(group, member, join.token)
        self._rebalancer.prepare_or_complete(
            group, _why(join.request, f"{member.member_id} rejoins")
        )

    def _add(self, group: Group, join: _Join, member_id: MemberId) -> None:
        rebalancer, request = self._rebalancer, join.request
        member = GroupMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=join.client.client_id,
            session_timeout=request.session_timeout.total_seconds(),
            rebalance_timeout=request.rebalance_timeout.total_seconds(),
            protocols=request.protocols,
            is_new=True,
        )
        group.newcomers |= group.is_initial_rebalance
        group.add(member)
        self._record_arrival(group, member, request)
        rebalancer.park_join(group, member, join.token)
        rebalancer.keep_alive(
            group, member, rebalancer.settings.new_member_join_timeout.total_seconds()
        )
        rebalancer.prepare_or_complete(group, _why(request, f"{member_id} joins"))

    def _replace_static(
        self, group: Group, join: _Join, old: GroupMember, new_id: MemberId
    ) -> None:
        """A static member's new process takes its place (KIP-345).

        When stable no round follows, even where its subscription changed, unless the group
        would choose another protocol.
        """
        rebalancer, former_leader = self._rebalancer, group.leader
        rebalancer.fence(group, old)
        member = group.replace_static(old, new_id)
        self._record_departure(group, old)
        self._record_arrival(group, member, join.request)
        rebalancer.timers.cancel(SessionTimer(group.group_id, old.member_id))
        # For the session timeout that the former process asked for: the new one's counts from
        # the next time the session is extended.
        rebalancer.keep_alive(group, member)
        _take_over(group, member, join.request)
        rebalancer.park_join(group, member, join.token)
        if group.state is GroupState.PREPARING_REBALANCE:
            rebalancer.complete_if_all_joined(group)
        elif group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            rebalancer.persist(group)
            answer = self._welcome_back(group, member, join.client, former_leader)
            rebalancer.answer_join(group, member, answer)
        else:
            rebalancer.prepare(
                group, _why(join.request, f"{new_id} takes the place of {old.member_id}")
            )

    def _welcome_back(
        self,
        group: Group,
        member: GroupMember,
        client: Client,
        former_leader: MemberId | None,
    ) -> GroupJoined:
        """The present generation, for a static member's new process.

        One that knows KIP-814 is told where it leads, and to assign nothing. An older one is
        told that its former self leads, so that it doesn't try.
        """
        answer = self._rebalancer.joined(group, member)
        if client.supports_skip_assignment:
            return replace(answer, skip_assignment=group.leader == member.member_id)
        assert former_leader is not None
        return replace(answer, leader=former_leader, members=())

    def _record_arrival(self, group: Group, member: GroupMember, request: JoinGroup) -> None:
        arrival = MemberAdded(
            at=self._rebalancer.now,
            member_id=member.member_id,
            instance_id=member.instance_id,
            reason=request.reason,
        )
        self._rebalancer.record(group, arrival)

    def _record_departure(self, group: Group, replaced: GroupMember) -> None:
        departure = MemberRemoved(
            at=self._rebalancer.now,
            member_id=replaced.member_id,
            instance_id=replaced.instance_id,
            cause=Departure.REPLACED,
        )
        self._rebalancer.record(group, departure)

    def _refuse_join(
        self, token: RequestToken, error: ErrorCode, member_id: MemberId = NO_MEMBER_ID
    ) -> None:
        self._rebalancer.reply(token, GroupJoined(error=error, member_id=member_id))

    def _new_id(self, prefix: str) -> MemberId:
        self._ids_given += 1
        return MemberId(f"{prefix}-{self._ids_given}")

    # --- SyncGroup -------------------------------------------------------------------------

    def sync(self, request: SyncGroup, token: RequestToken) -> None:
        """Hands out the assignment, or parks the request until the leader's has come."""
        rebalancer = self._rebalancer
        group = rebalancer.groups.get(request.group_id)
        error = _check_sync(group, request)
        if group is None or error is not ErrorCode.none:
            rebalancer.reply(token, GroupSynced(error=error))
            return
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            rebalancer.sync_seen(group, member)
            rebalancer.reply(token, rebalancer.synced(group, member))
            return
        assert group.state is GroupState.COMPLETING_REBALANCE
        rebalancer.park_sync(member, token)
        rebalancer.sync_seen(group, member)
        if group.leader == member.member_id:
            rebalancer.stabilise(
                group, {MemberId(m): plan for m, plan in request.assignments.items()}
            )

    # --- Heartbeat -------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat, token: RequestToken) -> None:
        """Extends the session; a member of a group that prepares a round is told so."""
        rebalancer = self._rebalancer
        group = rebalancer.groups.get(request.group_id)
        error = _check_heartbeat(group, request)
        if group is not None and error is ErrorCode.none:
            rebalancer.keep_alive(group, group.members[request.member_id])
            if group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.rebalance_in_progress
        rebalancer.reply(token, HeartbeatAcked(error=error))

    # --- LeaveGroup ------------------------------------------------------------------------

    def leave(self, request: LeaveGroup, token: RequestToken) -> None:
        """Removes a member by its id, or a static one by its instance id alone.

        A pending member that leaves a stable group begins a round, too.
        """
        rebalancer = self._rebalancer
        group = rebalancer.groups.get(request.group_id)
        error = ErrorCode.unknown_member_id
        if group is not None:
            member_id, error = _who_leaves(group, request)
            if error is ErrorCode.none:
                rebalancer.remove(group, member_id, Departure.LEFT, request.reason)
                if group.state is not GroupState.EMPTY:
                    rebalancer.prepare_or_complete(group, f"{member_id} left")
        rebalancer.reply(token, GroupLeft(error=error))


def _take_over(group: Group, member: GroupMember, request: JoinGroup) -> None:
    group.update(
        member,
        protocols=request.protocols,
        session_timeout=request.session_timeout.total_seconds(),
        rebalance_timeout=request.rebalance_timeout.total_seconds(),
    )


def _why(request: JoinGroup, what: str) -> str:
    return what if request.reason is None else f"{what}: {request.reason}"


def _check_sync(group: Group | None, request: SyncGroup) -> ErrorCode:
    if group is None or group.state is GroupState.EMPTY:
        return ErrorCode.unknown_member_id
    error = group.check_member(request.member_id, request.instance_id)
    if error is not ErrorCode.none:
        return error
    if request.generation != group.generation:
        return ErrorCode.illegal_generation
    # The protocol is that of the last finished join phase, even while the next one runs.
    if request.protocol_type != group.protocol_type or (
        group.protocol_name is not None and request.protocol_name != group.protocol_name
    ):
        return ErrorCode.inconsistent_group_protocol
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _check_heartbeat(group: Group | None, request: Heartbeat) -> ErrorCode:
    if group is None:
        return ErrorCode.unknown_member_id
    error = group.check_member(request.member_id, request.instance_id)
    if error is ErrorCode.none and request.generation != group.generation:
        return ErrorCode.illegal_generation
    return error


def _who_leaves(group: Group, request: LeaveGroup) -> tuple[MemberId, ErrorCode]:
    """The member meant, and whether it may be removed."""
    if not request.member_id:
        mapped = group.member_of_instance(request.instance_id)
        error = ErrorCode.unknown_member_id if mapped is None else ErrorCode.none
        return mapped or NO_MEMBER_ID, error
    if request.member_id in group.pending_join:
        return request.member_id, ErrorCode.none
    return request.member_id, group.check_member(request.member_id, request.instance_id)
