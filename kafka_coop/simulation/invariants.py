"""The invariants of the design, checked at every step of a run.

1  One deliverer: a record is handed out under a lease, and never while another process that owns
   the partition holds one, too.
2  on_revoke before leaving: whatever a process stops claiming (in JoinGroup, by LeaveGroup) its
   user has given up already. Evicted meanwhile: on_lost instead.
3  Liveness, checked at the end of a run (`kafka_coop.simulation.settling`).
4  Cooperative: what a member is given again is never revoked in between.
5  Deltas: assigned once, then revoked or lost once. No commit of a partition that others have
   begun to own is taken, none goes beyond what its owner delivered, none rewinds.
8  Owned partitions are claimed with the generation of the assignment that was applied, and a
   forced rejoin changes its bytes.
D  Planned leaves (`kafka_coop.simulation.planned_leave`): a member who drains says so, as long as
   it does; the group relieves it, and its partitions lie idle for one cooperative round.
L  Nothing is lost: whoever takes a partition over begins where it was delivered to, or before.
M  The machine never raises, and never spins.

A topic that was deleted begins again at offset 0, and positions of its former self may be
committed to it by whoever has not heard: such topics are excused from the checks of offsets.
So are commits that their client gave up waiting for: TCP may deliver them late.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kafka_coop.errors import Failure, MalformedDataError
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.states import MEMBER, State
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.marks import SubscriptionMarks, split_marks
from kafka_coop.protocol.messages import (
    GroupSynced,
    JoinGroup,
    OffsetCommit,
    OffsetsCommitted,
    Response,
)
from kafka_coop.protocol.subscription import decode_subscription
from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.trace import briefly
from kafka_coop.types import (
    NO_GENERATION,
    NO_PARTITIONS,
    Generation,
    Partitions,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)

if TYPE_CHECKING:
    from kafka_coop.simulation.network import Call
    from kafka_coop.simulation.process import Process

_EVENTS_PER_SECOND = 2000
"""More than this, and a member spins. One that hunts for a follow-up round beats every 10 ms."""


_FORCED = frozenset(
    {
        "subscription has changed",
        "cached metadata has changed",
        "the user asked for a rebalance",
        "the consumer is draining",
        "need to revoke partitions and re-join",
    }
)
"""Reasons to join that nobody else has: a round must come of it."""

_POLL_TIMEOUT = "consumer poll timeout has expired."
"""The one reason to leave while the user owns: he is told afterwards, and has no lease."""


_NEVER = float("inf")

_REMEMBERED = 4096


class InvariantViolated(Exception):  # noqa: N818  # not an error of the program: its finding
    """An invariant does not hold.

    Attributes:
        invariant: Its number or letter in this module's list.
    """

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"invariant {invariant}: {text}")
        self.invariant = invariant


@dataclass(slots=True)
class _Record:
    """What the watcher knows of one process.

    Attributes:
        granted, granted_in: The last assignment it accepted, and the generation that came with.
        offered: The assignment in the answer that it is being given.
        resubscribed: Its subscription has changed since ``granted``.
        joined_with: The protocols of its last JoinGroup.
        draining: It was asked to drain, and has not begun anew since.
        revoking: What the step that runs has called on_revoke or on_lost for.
        second, events: The present second of virtual time, and the events in it.
    """

    granted: Partitions = NO_PARTITIONS
    granted_in: Generation = NO_GENERATION
    offered: Partitions | None = None
    resubscribed: bool = False
    joined_with: tuple[tuple[str, bytes], ...] = ()
    draining: bool = False
    announced: frozenset[TopicPartition] = frozenset()
    second: int = -1
    events: int = 0


class Watcher:
    """Sees everything that happens, and raises where it must not.

    Attributes:
        owners: Partition -> the processes whose users own it.
        delivered: Partition -> how far it was ever delivered, by anyone.
        reborn: Topics that were deleted once.
        metadata_lagged: A broker's metadata once lagged behind. A member with patterns that asks it
            takes a new topic for gone, and revokes what it is given back a little later.
        held_back_polls: How often a poll found the lease over.
        deliveries: How often records of a partition were handed out.
        delivered_twice: How often a poll of another kind of client handed out what others owned,
            its session being over: they hold no lease, so that invariant 1 can't be kept.
        longest_idle: The longest time between one owner's release and the next one's beginning.
        coverage: Which cells and edges of the members' table were visited.
    """

    def __init__(self) -> None:
        self.owners: dict[TopicPartition, list[Process]] = {}
        self.delivered: dict[TopicPartition, int] = {}
        self.reborn: set[str] = set()
        self.metadata_lagged = False
        self.held_back_polls = 0
        self.deliveries = 0
        self.delivered_twice = 0
        self.coverage = Coverage()
        self.longest_idle = 0.0
        self._idle_since: dict[TopicPartition, float] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._records: dict[Process, _Record] = {}
        self._last_owner: dict[TopicPartition, tuple[Generation, Process]] = {}

    # --- the machine -----------------------------------------------------------------------

    def handled(self, process: Process, event: ev.Event) -> None:
        """An event is about to be given to the machine."""
        record = self._record(process)
        second = int(process.world.agenda.now)
        if second != record.second:
            record.second, record.events = second, 0
        record.events += 1
        if record.events > _EVENTS_PER_SECOND:
            raise InvariantViolated("M", f"{process.name} spins on {type(event).__name__}")
        record.offered = None
        if isinstance(event, ev.Subscribe):
            record.resubscribed = True
            record.draining = False
        elif isinstance(event, ev.Drain):
            record.draining |= process.member.state in MEMBER
        elif isinstance(event, ev.SyncAnswered):
            record.offered = _assignment_in(event)

    def effect(self, process: Process, effect: ef.Effect) -> None:
        """The machine wants something done."""
        match effect:
            case ef.SendHeartbeat() | ef.HeartbeatObserved() | ef.ExtendLease():
                pass  # most are these
            case ef.SendJoin(request=request):
                self._check_join(process, request)
            case ef.SendLeave():
                self._check_leave(process, effect.request.reason or "")
            case ef.SendSync() | ef.EndLease() | ef.AbortJoin() | ef.WithdrawStep():
                self._tell(process, type(effect).__name__)
            case ef.IdentityChanged(metadata=metadata, commits_open=commits_open):
                traced = process.world.trace is not None
                if traced:
                    text = f"is {metadata.member_id!r} in generation {metadata.generation}"
                    self._tell(process, text)
                record = self._record(process)
                if commits_open and record.offered is not None:
                    record.granted, record.granted_in = record.offered, metadata.generation
                    record.resubscribed = False
                    if traced:
                        self._tell(process, f"is given {briefly(record.granted)}")
            case _:
                pass

    def _check_leave(self, process: Process, reason: str) -> None:
        self._tell(process, f"LeaveGroup: {reason}")
        if process.user.owned and reason != _POLL_TIMEOUT:
            owned = briefly(Partitions.of(process.user.owned))
            raise InvariantViolated("2", f"{process.name} leaves and owns {owned}")

    def _check_join(self, process: Process, request: JoinGroup) -> None:
        said, drains = _said(request.protocols[0][1])
        if process.world.trace is not None:
            self._tell(
                process,
                f"JoinGroup({request.member_id!r}) owns {briefly(said.owned)}"
                f" of generation {said.generation}: {request.reason}",
            )
        self._check_forced(process, request)
        kept = process.user.owned.difference(said.owned)
        if kept:
            text = f"{process.name} joins without {briefly(Partitions.of(kept))}, which it owns"
            raise InvariantViolated("2", text)
        record = self._record(process)
        if said.owned and said.generation != record.granted_in:
            text = (
                f"{process.name} claims generation {said.generation} for what it was given in "
                f"{record.granted_in}"
            )
            raise InvariantViolated("8", text)
        if process.dialect is None and drains != record.draining:
            says = "does not say" if record.draining else "says"
            raise InvariantViolated("D", f"{process.name} {says} that it drains")
        if said.owned - record.granted:
            more = briefly(said.owned - record.granted)
            raise InvariantViolated("8", f"{process.name} claims {more}, which it was not given")

    def _check_forced(self, process: Process, request: JoinGroup) -> None:
        """The coordinator starts no round for a follower that repeats its bytes."""
        record = self._record(process)
        if request.reason in _FORCED and request.protocols == record.joined_with:
            text = f"{process.name} joins, for {request.reason!r}, with unchanged bytes"
            raise InvariantViolated("8", text)
        record.joined_with = request.protocols

    # --- the user --------------------------------------------------------------------------

    def begun(self, process: Process, step: ef.Step) -> None:
        """The user's thread begins a step."""
        record = self._record(process)
        record.announced = frozenset()
        if process.world.trace is not None:
            actions = ", ".join(type(a).__name__ for a in step.actions) or "poll"
            self._tell(process, f"begins step {step.step_id}: {actions}")
        if process.member.generation != NO_GENERATION:
            return
        for action in step.actions:
            if isinstance(action, ef.CallRevoked) and action.partitions:
                text = f"{process.name}: on_revoke of {briefly(action.partitions)}, and it is out"
                raise InvariantViolated("2", text)

    def calling(self, process: Process, action: ef.Action, partitions: Partitions) -> None:
        """A callback is about to be called."""
        record = self._record(process)
        if process.world.trace is not None:
            self._tell(process, f"{type(action).__name__} {briefly(partitions)}")
        some = frozenset(partitions)
        if isinstance(action, ef.CallAssigned):
            if not some <= process.user.owned:
                text = f"{process.name}: on_assign of {some - process.user.owned} before ownership"
                raise InvariantViolated("5", text)
            return
        if not some <= process.user.owned:
            text = (
                f"{process.name}: {type(action).__name__} of {some - process.user.owned}, not owned"
            )
            raise InvariantViolated("5", text)
        record.announced |= some
        if isinstance(action, ef.CallRevoked):
            self._check_revocation(process, record, partitions)

    def _check_revocation(self, process: Process, record: _Record, partitions: Partitions) -> None:
        member = process.member
        if member.protocol is RebalanceProtocol.EAGER or member.state is State.LEAVING:
            return
        if record.resubscribed or self.metadata_lagged:
            return
        needless = [p for p in partitions & record.granted if p.topic not in self.reborn]
        if needless:
            raise InvariantViolated("4", f"{process.name}: on_revoke of {needless}, which it keeps")

    def owning(self, process: Process, partitions: Partitions, generation: Generation) -> None:
        """Ownership begins for the user."""
        self._record(process)
        if process.world.trace is not None:
            self._tell(process, f"owns {briefly(partitions)} (generation {generation})")
        for partition in partitions:
            if partition in process.user.owned:
                raise InvariantViolated("5", f"{process.name} is assigned {partition} twice")
            self.owners.setdefault(partition, []).append(process)
            idle = process.world.agenda.now - self._idle_since.pop(partition, _NEVER)
            self.longest_idle = max(self.longest_idle, idle)
            if generation >= self._last_owner.get(partition, (generation, process))[0]:
                # A user who polls late may own, for a moment, what has long been others'.
                self._last_owner[partition] = generation, process
            self._check_alone(process, partition)

    def releasing(self, process: Process, partitions: Partitions) -> None:
        """Ownership ends for the user."""
        record = self._record(process)
        if process.world.trace is not None:
            self._tell(process, f"releases {briefly(partitions)}")
        for partition in partitions:
            if partition not in process.user.owned:
                raise InvariantViolated("5", f"{process.name} releases {partition}, not owned")
            if partition not in record.announced:
                raise InvariantViolated("2", f"{process.name} loses {partition} without a word")
            self.owners[partition].remove(process)
            if not self.owners[partition]:
                self._idle_since[partition] = process.world.agenda.now

    def starting(self, process: Process, partition: TopicPartition, offset: int) -> None:
        """Fetching of an owned partition begins."""
        delivered = self.delivered.get(partition, 0)
        if process.world.trace is not None:
            self._tell(process, f"fetches {partition.topic}[{partition.partition}] from {offset}")
        if offset > delivered and partition.topic not in self.reborn:
            text = f"{process.name} begins {partition} at {offset}, delivered up to {delivered}"
            raise InvariantViolated("L", text)

    def delivering(self, process: Process, partition: TopicPartition, until: int) -> None:
        """Records are handed out: those up to the offset ``until``, which is the next."""
        self.deliveries += 1
        if partition not in process.user.owned:
            raise InvariantViolated("2", f"{process.name} delivers {partition}, which it gave up")
        if len(self.owners[partition]) > 1:
            self._check_alone(process, partition)
        if until > self.delivered.get(partition, 0):
            self.delivered[partition] = until

    def _check_alone(self, process: Process, partition: TopicPartition) -> None:
        """Nobody else who owns the partition may deliver it, now or when it goes on again."""
        now = process.world.agenda.now
        if now >= process.mailbox.lease_until:
            return
        for other in self.owners[partition]:
            if other is not process and now < other.mailbox.lease_until:
                text = (
                    f"{process.name} and {other.name} may both deliver {partition} (leases until "
                    f"{process.mailbox.lease_until:.3f} and {other.mailbox.lease_until:.3f})"
                )
                raise InvariantViolated("1", text)

    def held_back(self, process: Process) -> None:
        """A poll hands out nothing, for the lease is over."""
        self._record(process)
        self.held_back_polls += 1
        self._tell(process, "delivers nothing: no lease")

    def unleased(self, process: Process) -> None:
        """Another kind of client goes on where ours would stop: others may own these by now."""
        if any(len(self.owners[partition]) > 1 for partition in process.user.positions):
            self.delivered_twice += 1
            self._tell(process, "delivers what others own: it knows of no lease")

    def raised(self, process: Process, failure: Failure) -> None:
        """The user is told of an error."""
        self._tell(process, f"error {failure.code}: {failure.message}")

    def closed(self, process: Process) -> None:
        """close() returns."""
        self._tell(process, "has closed")
        if process.mailbox.left and process.user.owned:
            owned = briefly(Partitions.of(process.user.owned))
            raise InvariantViolated("2", f"{process.name} has closed and owns {owned}")

    def gone(self, process: Process) -> None:
        """The process has ended: whatever it owned is nobody's."""
        for partition in process.user.owned:
            self.owners[partition].remove(process)

    # --- the coordinator -------------------------------------------------------------------

    def answered(self, call: Call, response: Response, process: Process | None) -> None:
        """A broker answers."""
        if isinstance(response, OffsetsCommitted) and isinstance(call.request, OffsetCommit):
            if process is not None and process.world.trace is not None:
                self._tell(process, _about_commit(call, call.request, response))
            for partition, error in response.errors.items():
                if error is ErrorCode.none:
                    offset = call.request.offsets[partition].offset
                    self._check_commit(call, partition, offset, process)

    def _check_commit(
        self, call: Call, partition: TopicPartition, offset: int, process: Process | None
    ) -> None:
        if partition.topic in self.reborn:
            return
        before = self._committed.get(partition, 0)
        self._committed[partition] = offset
        delivered = self.delivered.get(partition, 0)
        if offset > delivered:
            text = f"{call.sender} commits {partition} at {offset}, delivered up to {delivered}"
            raise InvariantViolated("5", text)
        if call.abandoned or process is None:
            return
        if partition in self._last_owner and self._last_owner[partition][1] is not process:
            raise InvariantViolated("5", f"{call.sender} commits {partition}, which others own")
        if offset < before:
            text = f"{call.sender} rewinds {partition} from {before} to {offset}"
            raise InvariantViolated("5", text)

    # --- what they share -------------------------------------------------------------------

    def _record(self, process: Process) -> _Record:
        record = self._records.get(process)
        if record is None:
            record = self._records[process] = _Record()
        return record

    def _tell(self, process: Process, what: str) -> None:
        process.world.tell(process.name, what)


# Three of four of these bytes were read before, in this run or in another one.


@lru_cache(maxsize=_REMEMBERED)
def _said(data: bytes) -> tuple[Subscription, bool]:
    """What a member says in JoinGroup, and whether it says that it drains."""
    said = decode_subscription(data)
    _, marks = split_marks(said.user_data)
    return said, isinstance(marks, SubscriptionMarks) and marks.draining


@lru_cache(maxsize=_REMEMBERED)
def _given(data: bytes) -> Partitions | None:
    """What an assignment's bytes give; None where they do not parse."""
    try:
        return decode_assignment(data).partitions
    except MalformedDataError:
        return None


def _assignment_in(event: ev.SyncAnswered) -> Partitions | None:
    """What the answer gives; None where it is an error or does not parse."""
    answer = event.answer
    if not isinstance(answer, GroupSynced) or answer.error is not ErrorCode.none:
        return None
    return _given(answer.assignment) if answer.assignment else NO_PARTITIONS


def _about_commit(call: Call, request: OffsetCommit, response: OffsetsCommitted) -> str:
    offsets = " ".join(f"{p.topic}[{p.partition}]={o.offset}" for p, o in request.offsets.items())
    errors = ", ".join(sorted({error.name for error in response.errors.values()}))
    late = ", abandoned" if call.abandoned else ""
    return f"has its commit of {offsets} in generation {request.generation}{late} judged: {errors}"
