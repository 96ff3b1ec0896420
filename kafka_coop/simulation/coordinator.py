"""A broker's classic group coordinator in virtual time: requests in, replies out.

Deterministic and pure: no clock, no I/O, no randomness. Times are seconds of the caller's
clock, which never goes back; member ids come from a counter. The state is plain data:
``copy.deepcopy`` gives a coordinator that goes on by itself, timers and parked requests
included.

    replies = coordinator.handle(request, client=Client(), token=RequestToken(1), now=0.0)
    replies += coordinator.advance(now=coordinator.next_deadline() or 0.0)

JoinGroup and SyncGroup may be answered by a later call; some are never answered
(`GroupCoordinator.forgotten`), as at a real broker.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias, assert_never

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    GroupJoined,
    GroupLeft,
    GroupSynced,
    Heartbeat,
    HeartbeatAcked,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    Response,
    SyncGroup,
)
from kafka_coop.simulation.group import Group, GroupState, Pick, Protocols, RequestToken
from kafka_coop.simulation.journal import GroupEvent
from kafka_coop.simulation.membership_requests import MembershipRequests
from kafka_coop.simulation.offsets import CommittedOffset, CommittedOffsets
from kafka_coop.simulation.rebalancing import GroupTimer, Rebalancer, Reply, SessionTimer
from kafka_coop.simulation.settings import Client, CoordinatorSettings
from kafka_coop.simulation.timers import Timers
from kafka_coop.simulation.topics import Topics
from kafka_coop.types import NO_GENERATION, Generation, MemberId, TopicPartition

GroupRequest: TypeAlias = (
    JoinGroup | SyncGroup | Heartbeat | LeaveGroup | OffsetCommit | OffsetFetch
)


class Availability(enum.Enum):
    """Whether groups can be served."""

    ACTIVE = "active"
    LOADING = "loading"
    """The log is being read: COORDINATOR_LOAD_IN_PROGRESS, but heartbeats are acknowledged."""
    RESIGNED = "resigned"
    """Someone else's, or nobody's: NOT_COORDINATOR."""
    UNAVAILABLE = "unavailable"
    """Starting or shutting down: COORDINATOR_NOT_AVAILABLE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member at one moment. Times are virtual seconds."""

    member_id: MemberId
    instance_id: str | None
    client_id: str
    protocols: Protocols
    assignment: bytes
    awaits_join: bool
    awaits_sync: bool
    session_deadline: float | None
    """None: it ran out while a request was parked, and begins anew with the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group at one moment; hashable."""

    group_id: str
    state: GroupState
    generation: Generation
    protocol_name: str | None
    leader: MemberId | None
    members: tuple[MemberView, ...]
    pending_join: tuple[MemberId, ...]
    pending_sync: tuple[MemberId, ...]


def first(options: Sequence[str]) -> str:
    """The default `Pick`: the member that came first, the protocol first by name."""
    return options[0]


class GroupCoordinator:
    """The coordinator of every group of a cluster, wherever it lives at the moment.

    What a real coordinator keeps in the log survives `resign` and `load`: groups as their last
    record has them, offsets, open transactions.

    Attributes:
        denied: Groups whose ACLs refuse everyone: GROUP_AUTHORIZATION_FAILED.
    """

    def __init__(
        self,
        *,
        topics: Topics | None = None,
        settings: CoordinatorSettings | None = None,
        pick: Pick = first,
    ) -> None:
        """Starts with no groups, active.

        Args:
            topics: What exists; commits of other partitions are refused.
            settings: The broker's; None: its defaults.
            pick: Which of several the leader's successor or the winner of a tied vote is. Kafka
                leaves both to the order of a hash table, so a check of all behaviours tries
                all of them. It gets at least one option.
        """
        self.denied: set[str] = set()
        self._settings = settings or CoordinatorSettings()
        self._topics = topics or Topics()
        self._timers: Timers[GroupTimer] = Timers()
        self._rebalancer = Rebalancer(self._settings, self._timers, pick=pick)
        self._requests = MembershipRequests(self._rebalancer)
        self._offsets = CommittedOffsets()
        self._availability = Availability.ACTIVE
        self._loaded_at: float | None = None

    # --- requests and time -----------------------------------------------------------------

    def handle(
        self, request: GroupRequest, *, client: Client, token: RequestToken, now: float
    ) -> list[Reply]:
        """Takes one request in.

        Deadlines up to and including ``now`` are acted on first.

        Args:
            request: What a member sent.
            client: Who sent it.
            token: Comes back with the answer; must not be that of another parked request.
            now: Virtual time in seconds, not before that of any earlier call.

        Returns:
            Every answer that this gives, in order: to this request or to parked ones.

        Raises:
            ValueError: ``now`` lies before an earlier call's.
        """
        self._run_until(now)
        error = self._refusal(request)
        match request:
            case OffsetCommit():
                self._rebalancer.reply(token, self._commit(request, client, error))
            case OffsetFetch():
                self._rebalancer.reply(token, self._fetch(request, error))
            case _ if error is not ErrorCode.none:
                self._rebalancer.reply(token, refuse(request, error))
            case JoinGroup():
                self._requests.join(request, client, token)
            case SyncGroup():
                self._requests.sync(request, token)
            case Heartbeat() if self._availability is Availability.LOADING:
                self._rebalancer.reply(token, HeartbeatAcked(error=ErrorCode.none))
            case Heartbeat():
                self._requests.heartbeat(request, token)
            case LeaveGroup():
                self._requests.leave(request, token)
            case _ as never:
                assert_never(never)
        self._run_until(now)
        return self._take_replies()

    def advance(self, now: float) -> list[Reply]:
        """Lets time pass.

        Returns:
            The answers that deadlines gave, each stamped with its deadline.

        Raises:
            ValueError: ``now`` lies before an earlier call's.
        """
        self._run_until(now)
        return self._take_replies()

    def next_deadline(self) -> float | None:
        """When `advance` has something to do next; None: only a request can change anything."""
        return self._timers.next_deadline() if self._loaded_at is None else self._loaded_at

    def _run_until(self, now: float) -> None:
        if now < self._rebalancer.now:
            raise ValueError(f"time went back from {self._rebalancer.now} to {now}")
        if self._loaded_at is not None and self._loaded_at <= now:
            self._rebalancer.now, self._loaded_at = self._loaded_at, None
            self._finish_loading()
        while (due := self._timers.pop_due(now)) is not None:
            deadline, timer = due
            self._rebalancer.now = max(deadline, self._rebalancer.now)
            self._rebalancer.fire(timer)
        self._rebalancer.now = now

    def _take_replies(self) -> list[Reply]:
        replies, self._rebalancer.outbox = self._rebalancer.outbox, []
        return replies

    def _refusal(self, request: GroupRequest) -> ErrorCode:
        """What a request is checked for before any group is looked at, in the broker's order."""
        if request.group_id in self.denied:
            return ErrorCode.group_authorization_failed
        if self._availability is Availability.UNAVAILABLE:
            return ErrorCode.coordinator_not_available
        malformed = self._malformed(request)
        if malformed is not ErrorCode.none:
            return malformed
        if self._availability is Availability.RESIGNED:
            return ErrorCode.not_coordinator
        if self._availability is Availability.LOADING and not isinstance(request, Heartbeat):
            # To SyncGroup, too, since Kafka 4; up to 3.9 that was told of a rebalance.
            return ErrorCode.coordinator_load_in_progress
        return ErrorCode.none

    def _malformed(self, request: GroupRequest) -> ErrorCode:
        match request:
            case OffsetCommit() | OffsetFetch():
                return ErrorCode.none  # old clients keep offsets under the empty group id
            case _ if not request.group_id:
                return ErrorCode.invalid_group_id
            case JoinGroup(session_timeout=timeout):
                shortest = self._settings.min_session_timeout
                longest = self._settings.max_session_timeout
                is_valid = shortest <= timeout <= longest
                return ErrorCode.none if is_valid else ErrorCode.invalid_session_timeout
            case _:
                return ErrorCode.none

    # --- offsets ---------------------------------------------------------------------------

    def _commit(
        self,
        request: OffsetCommit,
        client: Client,
        refusal: ErrorCode,
        *,
        producer_id: int | None = None,
    ) -> OffsetsCommitted:
        """Writes what may be written; unknown partitions don't hold the others up."""
        errors = {
            partition: refusal
            if refusal is ErrorCode.group_authorization_failed or self._topics.exists(partition)
            else ErrorCode.unknown_topic_or_partition
            for partition in request.offsets
        }
        writable = [
            p for p in request.offsets if errors[p] is ErrorCode.none and refusal is ErrorCode.none
        ]
        if not writable:
            return OffsetsCommitted(errors=errors)
        verdict = self._check_commit(request, client, in_transaction=producer_id is not None)
        for partition in writable:
            metadata = request.offsets[partition].metadata
            if verdict is not ErrorCode.none:
                errors[partition] = verdict
            elif len(metadata) > self._settings.offset_metadata_max_size:
                errors[partition] = ErrorCode.offset_metadata_too_large
            else:
                self._offsets.commit(
                    request, partition, at=self._rebalancer.now, producer_id=producer_id
                )
        return OffsetsCommitted(errors=errors)

    def _check_commit(
        self, request: OffsetCommit, client: Client, *, in_transaction: bool
    ) -> ErrorCode:
        """Fences the commit by member and generation; one that passes extends the session."""
        group = self._rebalancer.groups.get(request.group_id)
        if group is None:
            if request.generation <= NO_GENERATION:
                # A consumer without membership: the group exists for its offsets alone.
                self._rebalancer.create(request.group_id)
                return ErrorCode.none
            knows = client.knows_group_id_not_found and not in_transaction
            return ErrorCode.group_id_not_found if knows else ErrorCode.illegal_generation
        error = _fence_commit(group, request, in_transaction=in_transaction)
        member = group.members.get(request.member_id)
        if error is ErrorCode.none and member is not None and not in_transaction:
            self._rebalancer.keep_alive(group, member)
        return error

    def _fetch(self, request: OffsetFetch, error: ErrorCode) -> OffsetsFetched:
        if error is not ErrorCode.none:
            return OffsetsFetched(error=error)
        offsets = self._offsets.fetch(
            request.group_id, request.partitions, require_stable=request.require_stable
        )
        return OffsetsFetched(error=ErrorCode.none, offsets=offsets)

    def commit_in_transaction(
        self, request: OffsetCommit, *, producer_id: int, now: float
    ) -> OffsetsCommitted:
        """A producer's TxnOffsetCommit (KIP-98, KIP-447): pending until the transaction ends.

        It is fenced like a commit where it carries a member or a generation; without either it
        is taken in any state. No session is extended.

        Answers that deadlines up to ``now`` gave to others come with the next call.
        """
        self._run_until(now)
        return self._commit(request, Client(), self._refusal(request), producer_id=producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The producer's transaction is committed or aborted; without one, does nothing."""
        self._offsets.end_transaction(producer_id, committed=committed)

    def drop_topic(self, topic: str) -> None:
        """The topic was deleted, and with it every group's offsets of it."""
        self._offsets.drop_topic(topic)

    def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups: an empty group and its offsets.

        Returns:
            NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND where it could not be done.
        """
        group = self._rebalancer.groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.state is not GroupState.EMPTY:
            return ErrorCode.non_empty_group
        self._rebalancer.delete(group)
        self._offsets.drop_group(group_id)
        return ErrorCode.none

    # --- failover --------------------------------------------------------------------------

    @property
    def availability(self) -> Availability:
        """Whether groups can be served."""
        return self._availability

    def resign(
        self, now: float, *, availability: Availability = Availability.RESIGNED
    ) -> list[Reply]:
        """Gives the groups up, to nobody or to another broker; what is not logged is lost.

        Returns:
            NOT_COORDINATOR for every parked request. A broker that dies sends none of them:
            discard them then.
        """
        self._run_until(now)
        self._rebalancer.unload()
        self._loaded_at = None
        self._availability = availability
        return self._take_replies()

    def load(self, now: float, *, duration: timedelta = timedelta(0)) -> list[Reply]:
        """Takes the groups over from the log, which takes ``duration``.

        A group whose members were joining, or had joined but not been assigned, is back at its
        last assigned generation: the next round repeats a generation that some of them have
        seen already, with other members and another plan.

        Returns:
            Nothing as a rule; the answers that deadlines before ``now`` gave.
        """
        replies = self.resign(now, availability=Availability.LOADING)
        self._loaded_at = now + duration.total_seconds()
        self._run_until(now)
        return replies + self._take_replies()

    def _finish_loading(self) -> None:
        self._availability = Availability.ACTIVE
        self._rebalancer.load(with_offsets=self._offsets.groups())

    # --- for checks and traces -------------------------------------------------------------

    @property
    def groups(self) -> tuple[str, ...]:
        """The ids of the groups in memory, sorted."""
        return tuple(sorted(self._rebalancer.groups))

    def group(self, group_id: str) -> GroupView | None:
        """The group as it stands; None where there is none (or it is not loaded).

        Costs O(members).
        """
        group = self._rebalancer.groups.get(group_id)
        return None if group is None else self._view(group)

    def generation(self, group_id: str) -> Generation:
        """The group's generation; 0 where there is no such group (or it is not loaded)."""
        group = self._rebalancer.groups.get(group_id)
        return Generation(0) if group is None else group.generation

    def state(self, group_id: str) -> GroupState | None:
        """Where the group stands; None where there is none (or it is not loaded)."""
        group = self._rebalancer.groups.get(group_id)
        return None if group is None else group.state

    def deadlines(self) -> tuple[tuple[str, float], ...]:
        """Every timer that runs, with its deadline, sorted."""
        return self._timers.running()

    def journal(self, group_id: str) -> tuple[GroupEvent, ...]:
        """All that happened to the group, across failovers, in order."""
        return tuple(self._rebalancer.journals.get(group_id, ()))

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """The group's offsets, with who committed them in which generation."""
        return dict(self._offsets.of_group(group_id))

    @property
    def commits(self) -> tuple[CommittedOffset, ...]:
        """Every commit that was ever accepted, in order."""
        return tuple(self._offsets.history)

    @property
    def forgotten(self) -> frozenset[RequestToken]:
        """Requests that will never be answered.

        A member repeated a parked JoinGroup or SyncGroup on another connection, or was removed
        while its SyncGroup was parked. The client's request timeout is its only way out.
        """
        return frozenset(self._rebalancer.forgotten)

    def _view(self, group: Group) -> GroupView:
        return GroupView(
            group_id=group.group_id,
            state=group.state,
            generation=group.generation,
            protocol_name=group.protocol_name,
            leader=group.leader,
            members=tuple(
                MemberView(
                    member_id=m.member_id,
                    instance_id=m.instance_id,
                    client_id=m.client_id,
                    protocols=m.protocols,
                    assignment=m.assignment,
                    awaits_join=m.parked_join is not None,
                    awaits_sync=m.parked_sync is not None,
                    session_deadline=self._timers.deadline(
                        SessionTimer(group.group_id, m.member_id)
                    ),
                )
                for m in group.members.values()
            ),
            pending_join=tuple(group.pending_join),
            pending_sync=tuple(group.pending_sync),
        )


def _fence_commit(group: Group, request: OffsetCommit, *, in_transaction: bool) -> ErrorCode:
    is_empty = group.state is GroupState.EMPTY
    has_generation = request.generation > NO_GENERATION
    if not has_generation and is_empty:
        return ErrorCode.none
    if has_generation or request.member_id or request.instance_id is not None:
        error = group.check_member(request.member_id, request.instance_id)
        if error is not ErrorCode.none:
            return error
        if request.generation != group.generation:
            return ErrorCode.illegal_generation
    elif not in_transaction:
        return ErrorCode.unknown_member_id
    if group.state is GroupState.COMPLETING_REBALANCE and not in_transaction:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def refuse(request: GroupRequest, error: ErrorCode) -> Response:
    """The answer that carries nothing but an error."""
    match request:
        case JoinGroup():
            return GroupJoined(error=error)
        case SyncGroup():
            return GroupSynced(error=error)
        case Heartbeat():
            return HeartbeatAcked(error=error)
        case LeaveGroup():
            return GroupLeft(error=error)
        case OffsetCommit():
            return OffsetsCommitted(errors=dict.fromkeys(request.offsets, error))
        case OffsetFetch():
            return OffsetsFetched(error=error)
        case _ as never:
            assert_never(never)
