"""The invariants of the design, checked at every step of a run.

1  One deliverer: a record is handed out under a lease, and never while another process that owns
   the partition holds one, too. A lease lasts a session at most, from the last request that was
   acknowledged (`kafka_coop.simulation.standing`).
2  on_revoke before leaving: whatever a process stops claiming (in JoinGroup, by LeaveGroup) its
   user has given up already, and what was delivered of it was committed before, or that was tried
   to its end; no round that waits for on_revoke is waited for by that. Evicted meanwhile: on_lost
   instead.
3  Liveness, checked at the end of a run (`kafka_coop.simulation.settling`).
4  Cooperative: what a member is given again is never revoked in between, nor lost, nor withheld
   while its session is sure.
5  Deltas: assigned once, then revoked or lost once, and not both revoked and assigned by one
   generation. No commit of a partition that others have begun to own is taken, none goes beyond
   what its owner delivered, none rewinds; of a partition that was lost none is sent.
6  No change in, no change out: a round that is asked for where nothing has changed moves nothing
   (`kafka_coop.simulation.undisturbed`).
7  A plan gives each partition to one member at most, who subscribes to its topic; none fails.
8  Owned partitions are claimed with the generation of the assignment that was applied, the same to
   every strategy, and a forced rejoin changes its bytes.
D  Planned leaves (`kafka_coop.simulation.planned_leave`): a member who drains says so, as long as
   it does; the group relieves it, and its partitions lie idle for one cooperative round.
L  Nothing is lost: whoever takes a partition over begins where it was delivered to, or before, and
   not before what is committed.
M  The machine never raises, never spins, and tells its user of no error that there is not.

Not here: that the order of members does not matter (6) and that no bytes harm a leader (7), which
the assignors' and the leader's own tests show; and 9, for there is no librdkafka in the box.

A topic that was deleted begins again at offset 0, and positions of its former self may be
committed to it by whoever has not heard: such topics are excused from the checks of offsets.
So are commits that their client gave up waiting for: TCP may deliver them late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_coop.errors import Failure
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.failures import LOCAL_MAX_POLL_EXCEEDED
from kafka_coop.membership.states import MEMBER, State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    GroupJoined,
    JoinGroup,
    OffsetCommit,
    OffsetsCommitted,
    Response,
    SyncGroup,
)
from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.sayings import assignment_in, partitions_in, read_join, topics_in
from kafka_coop.simulation.standing import Standing
from kafka_coop.simulation.trace import briefly
from kafka_coop.types import (
    NO_GENERATION,
    NO_PARTITIONS,
    Generation,
    GroupMetadata,
    Partitions,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)

if TYPE_CHECKING:
    from kafka_coop.simulation.network import Call
    from kafka_coop.simulation.process import Process

_EVENTS_PER_SECOND = 2000
"""More than this, and a member spins. One that hunts for a follow-up round beats every 4 ms."""

_POLL_TIMEOUT = "consumer poll timeout has expired."
"""The one reason to leave while the user owns: he is told afterwards, and has no lease."""

_FORCED = frozenset(
    {
        "subscription has changed",
        "cached metadata has changed",
        "the user asked for a rebalance",
        "the consumer is draining",
        "need to revoke partitions and re-join",
        "a follow-up round is announced",
        "the follow-up round did not begin",
        _POLL_TIMEOUT,
    }
)
"""Reasons to join that nobody else has: a round must come of it."""

_EVICTED = "encountered "
"""How the reason of one begins that was told to be out: its session is to begin anew."""

_NEVER = float("inf")


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
        claimed: What its last JoinGroup said that it owns.
        withheld: Of these, what the plan did not give it: its own until it has given it up, which
            may be when the next round is long under way.
        released: What the user's thread has given up in the step that runs.
        offered: The assignment in the answer that it is being given.
        resubscribed: Its subscription has changed since ``granted``.
        joined_with: The protocols of its last JoinGroup.
        draining: It was asked to drain, and has not begun anew since.
        unsubscribing: It was asked to unsubscribe, and is about to, or at it.
        saves: The step that runs is to commit what it gives up.
        announced: What the step that runs has called on_revoke or on_lost for.
        lost_in_step: Of these, what it has called on_lost for.
        saved: Of these, what it has committed, or tried to, to the end.
        revoked_in: Partition -> the generation whose assignment last took it.
        lost: What on_lost was called for and has not come back.
        topics: By member, what those subscribe to whom it leads.
        second, events: The present second of virtual time, and the events in it.
    """

    standing: Standing
    granted: Partitions = NO_PARTITIONS
    granted_in: Generation = NO_GENERATION
    claimed: Partitions = NO_PARTITIONS
    withheld: Partitions = NO_PARTITIONS
    released: Partitions = NO_PARTITIONS
    offered: Partitions | None = None
    resubscribed: bool = False
    joined_with: tuple[tuple[str, bytes], ...] = ()
    draining: bool = False
    unsubscribing: bool = False
    saves: bool = False
    announced: frozenset[TopicPartition] = frozenset()
    lost_in_step: frozenset[TopicPartition] = frozenset()
    saved: frozenset[TopicPartition] = frozenset()
    revoked_in: dict[TopicPartition, Generation] = field(default_factory=dict)
    lost: set[TopicPartition] = field(default_factory=set)
    topics: dict[str, frozenset[str]] = field(default_factory=dict)
    second: int = -1
    events: int = 0


class Watcher:
    """Sees everything that happens, and raises where it must not.

    Attributes:
        owners: Partition -> the processes whose users own it.
        delivered: Partition -> how far it was ever delivered, by anyone.
        reborn: Topics that were deleted once.
        metadata_lag_until: Until then somebody may go by a broker's metadata that lagged behind. A
            member with patterns that asks it takes a new topic for gone, and revokes what it is
            given back a little later.
        strategies_differ: Members may be refused for having no strategy in common.
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
        self.metadata_lag_until = float("-inf")
        self.strategies_differ = False
        self.held_back_polls = 0
        self.deliveries = 0
        self.delivered_twice = 0
        self.coverage = Coverage()
        self.longest_idle = 0.0
        self._idle_since: dict[TopicPartition, float] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._records: dict[Process, _Record] = {}
        self._last_owner: dict[TopicPartition, tuple[Generation, Process]] = {}

    def watch_idleness(self) -> None:
        """From now on, as if nothing had been idle before."""
        self.longest_idle = 0.0
        self._idle_since.clear()

    def lags_until(self, time: float) -> None:
        """A broker's metadata begin to lag behind."""
        self.metadata_lag_until = max(self.metadata_lag_until, time)

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
        record.standing.hears(event, process.world.agenda.now, process.mailbox.lease_until)
        if isinstance(event, ev.Subscribe):
            record.resubscribed = True
            record.draining = False
            record.unsubscribing &= process.member.state is State.LEAVING
        elif isinstance(event, ev.Unsubscribe):
            record.unsubscribing |= process.member.state in MEMBER
        elif isinstance(event, ev.Close):
            record.unsubscribing &= process.member.state is State.LEAVING
        elif isinstance(event, ev.StepDone):  # from here on the machine knows, too
            record.withheld -= record.released
            record.released = NO_PARTITIONS
        elif isinstance(event, ev.Drain):
            record.draining |= process.member.state in MEMBER
        elif isinstance(event, ev.SyncAnswered):
            record.offered = assignment_in(event)
        elif isinstance(event, ev.JoinAnswered) and isinstance(event.answer, GroupJoined):
            record.topics = {m.member_id: topics_in(m.metadata) for m in event.answer.members}

    def effect(self, process: Process, effect: ef.Effect) -> None:
        """The machine wants something done."""
        record = self._record(process)
        record.standing.does(effect, process.world.agenda.now)
        match effect:
            case ef.SendHeartbeat() | ef.HeartbeatObserved():
                pass  # most are these
            case ef.ExtendLease(until=until):
                _check_lease(process, record, process.on_the_agenda(until))
            case ef.SendJoin(request=request):
                self._check_join(process, request)
            case ef.SendLeave(request=request):
                self._check_leave(process, request.reason or "")
            case ef.SendSync(request=request):
                self._tell(process, "SendSync")
                _check_plan(process, record, request)
            case ef.EndLease() | ef.AbortParked() | ef.WithdrawStep():
                self._tell(process, type(effect).__name__)
            case ef.IdentityChanged(metadata=metadata, commits_open=commits_open):
                self._tell_identity(process, metadata)
                if metadata.generation == NO_GENERATION:
                    record.unsubscribing &= process.member.state in MEMBER
                    record.revoked_in.clear()  # a static member may come back to a generation
                    record.claimed = record.withheld = NO_PARTITIONS
                if commits_open and record.offered is not None:
                    self._grant(process, record, record.offered, metadata.generation)
            case _:
                pass

    def _tell_identity(self, process: Process, metadata: GroupMetadata) -> None:
        if process.world.trace is not None:
            self._tell(process, f"is {metadata.member_id!r} in generation {metadata.generation}")

    def _grant(
        self, process: Process, record: _Record, given: Partitions, generation: Generation
    ) -> None:
        """It takes the assignment that it was answered with."""
        record.standing.given_an_assignment()
        record.granted, record.granted_in = given, generation
        record.withheld = record.claimed - given
        record.resubscribed = False
        if process.world.trace is not None:
            self._tell(process, f"is given {briefly(given)}")

    def _check_leave(self, process: Process, reason: str) -> None:
        self._tell(process, f"LeaveGroup: {reason}")
        if process.user.owned and reason != _POLL_TIMEOUT:
            owned = briefly(Partitions.of(process.user.owned))
            raise InvariantViolated("2", f"{process.name} leaves and owns {owned}")

    def _check_join(self, process: Process, request: JoinGroup) -> None:
        said, drains = read_join(request.protocols[0][1])
        if process.world.trace is not None:
            self._tell(
                process,
                f"JoinGroup({request.member_id!r}) owns {briefly(said.owned)}"
                f" of generation {said.generation}: {request.reason}",
            )
        if process.dialect is None and any(_unlike(said, drains, d) for _, d in request.protocols):
            raise InvariantViolated("8", f"{process.name} tells its strategies different things")
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
        more = said.owned - record.granted - record.withheld
        if more:
            text = f"{process.name} claims {briefly(more)}, which it was not given"
            raise InvariantViolated("8", text)
        record.claimed = said.owned

    def _check_forced(self, process: Process, request: JoinGroup) -> None:
        """The coordinator starts no round for a follower that repeats its bytes."""
        record = self._record(process)
        reason = request.reason or ""
        forced = reason in _FORCED or reason.startswith(_EVICTED)
        if forced and request.protocols == record.joined_with:
            text = f"{process.name} joins, for {request.reason!r}, with unchanged bytes"
            raise InvariantViolated("8", text)
        record.joined_with = request.protocols

    # --- the user --------------------------------------------------------------------------

    def begun(self, process: Process, step: ef.Step) -> None:
        """The user's thread begins a step."""
        record = self._record(process)
        record.announced = record.lost_in_step = record.saved = frozenset()
        # Java's unsubscribe() commits nothing either.
        record.saves = process.settings.auto_commit and not record.unsubscribing
        if process.world.trace is not None:
            actions = ", ".join(type(a).__name__ for a in step.actions) or "poll"
            self._tell(process, f"begins step {step.step_id}: {actions}")
        if process.member.generation == NO_GENERATION:
            unlike = "it is out"
        elif not process.commits_open:
            unlike = "what it commits waits for a round behind that"
        else:
            return
        for action in step.actions:
            if isinstance(action, ef.CallRevoked) and action.partitions:
                text = f"{process.name}: on_revoke of {briefly(action.partitions)}, and {unlike}"
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
            if process.member.state is State.ADOPTING:
                record.revoked_in.update(dict.fromkeys(some, process.member.generation))
            if process.member.protocol is RebalanceProtocol.COOPERATIVE:
                self._check_needed(process, record, partitions, "on_revoke")
        else:
            record.lost_in_step |= some
            record.lost |= some
            if record.standing.good and not record.standing.skipped:
                self._check_needed(process, record, partitions, "on_lost")

    def _check_needed(
        self, process: Process, record: _Record, partitions: Partitions, what: str
    ) -> None:
        if process.member.state is State.LEAVING or record.resubscribed:
            return
        if process.world.agenda.now < self.metadata_lag_until:
            return
        needless = [p for p in partitions & record.granted if p.topic not in self.reborn]
        if needless:
            raise InvariantViolated("4", f"{process.name}: {what} of {needless}, which it keeps")

    def saved(self, process: Process, partitions: Partitions) -> None:
        """The commit before the end of ownership has ended, well or not."""
        self._record(process).saved |= frozenset(partitions)

    def owning(self, process: Process, partitions: Partitions, generation: Generation) -> None:
        """Ownership begins for the user."""
        record = self._record(process)
        if process.world.trace is not None:
            self._tell(process, f"owns {briefly(partitions)} (generation {generation})")
        for partition in partitions:
            if partition in process.user.owned:
                raise InvariantViolated("5", f"{process.name} is assigned {partition} twice")
            if record.revoked_in.pop(partition, NO_GENERATION) == generation:
                text = f"{process.name} is told to give {partition} up, and given it, at once"
                raise InvariantViolated("5", text)
            record.lost.discard(partition)
            self.owners.setdefault(partition, []).append(process)
            idle = process.world.agenda.now - self._idle_since.pop(partition, _NEVER)
            self.longest_idle = max(self.longest_idle, idle)
            if generation >= self._last_owner.get(partition, (generation, process))[0]:
                # A user who polls late may own, for a moment, what has long been others'.
                self._last_owner[partition] = generation, process
            self._check_alone(process, partition)

    def releasing(
        self, process: Process, partitions: Partitions, unsaved: Iterable[TopicPartition]
    ) -> None:
        """Ownership ends for the user; of ``unsaved`` he was delivered more than is committed."""
        record = self._record(process)
        if process.world.trace is not None:
            self._tell(process, f"releases {briefly(partitions)}")
        record.released |= partitions
        for partition in partitions:
            if partition not in process.user.owned:
                raise InvariantViolated("5", f"{process.name} releases {partition}, not owned")
            if partition not in record.announced:
                raise InvariantViolated("2", f"{process.name} loses {partition} without a word")
            self.owners[partition].remove(process)
            if not self.owners[partition]:
                self._idle_since[partition] = process.world.agenda.now
        for partition in unsaved:
            if record.saves and partition not in record.saved | record.lost_in_step:
                text = f"{process.name} gives {partition} up, and has not committed it"
                raise InvariantViolated("2", text)

    def starting(self, process: Process, partition: TopicPartition, offset: int) -> None:
        """Fetching of an owned partition begins."""
        delivered = self.delivered.get(partition, 0)
        if process.world.trace is not None:
            self._tell(process, f"fetches {partition.topic}[{partition.partition}] from {offset}")
        if partition.topic in self.reborn:
            return
        if offset > delivered:
            text = f"{process.name} begins {partition} at {offset}, delivered up to {delivered}"
            raise InvariantViolated("L", text)
        # Who was evicted in its on_assign begins where that began, and is given no record.
        leased = process.world.agenda.now < process.mailbox.lease_until
        if leased and offset < (committed := self._committed.get(partition, 0)):
            text = f"{process.name} begins {partition} at {offset}, and {committed} is committed"
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
        standing = self._record(process).standing
        self.held_back_polls += 1
        if standing.good and process.world.agenda.now < standing.sure_until:
            text = f"{process.name} withholds records, and its session is sure"
            raise InvariantViolated("4", text)
        self._tell(process, "delivers nothing: no lease")

    def unleased(self, process: Process) -> None:
        """Another kind of client goes on where ours would stop: others may own these by now."""
        if any(len(self.owners[partition]) > 1 for partition in process.user.positions):
            self.delivered_twice += 1
            self._tell(process, "delivers what others own: it knows of no lease")

    def raised(self, process: Process, failure: Failure) -> None:
        """The user is told of an error."""
        self._tell(process, f"error {failure.code}: {failure.message}")
        expected = {LOCAL_MAX_POLL_EXCEEDED}
        if self.strategies_differ:
            expected.add(int(ErrorCode.inconsistent_group_protocol))
        if process.settings.instance_id is not None:
            # The coordinator had given it its former self's place, and failed over before that was
            # in the log: its successor knows the former self alone.
            expected.add(int(ErrorCode.fenced_instance_id))
        if failure.code not in expected:
            text = f"{process.name} raises error {failure.code} for no reason: {failure.message}"
            raise InvariantViolated("M", text)

    def led(self, process: Process, error: str | None) -> None:
        """An assignor has run, or failed."""
        if error is not None:
            raise InvariantViolated("7", f"{process.name} leads, and fails: {error}")

    def closed(self, process: Process) -> None:
        """close() returns."""
        self._tell(process, "has closed")
        if process.mailbox.left and process.user.owned:
            owned = briefly(Partitions.of(process.user.owned))
            raise InvariantViolated("2", f"{process.name} has closed and owns {owned}")

    def jumped(self, process: Process) -> None:
        """A process' clock jumps forward."""
        self._record(process).standing.clock_jumped()

    def gone(self, process: Process) -> None:
        """The process has ended: whatever it owned is nobody's."""
        for partition in process.user.owned:
            self.owners[partition].remove(process)

    # --- the coordinator -------------------------------------------------------------------

    def committing(self, process: Process, request: OffsetCommit) -> None:
        """A commit is sent."""
        lost = self._record(process).lost & request.offsets.keys()
        if any(partition.topic not in self.reborn for partition in lost):
            text = f"{process.name} commits {sorted(lost)}, which its user was told to have lost"
            raise InvariantViolated("5", text)

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
            record = self._records[process] = _Record(Standing(process.settings))
        return record

    def _tell(self, process: Process, what: str) -> None:
        process.world.tell(process.name, what)


def _unlike(said: Subscription, drains: bool, data: bytes) -> bool:  # noqa: FBT001  # as read
    other, other_drains = read_join(data)
    return (other.owned, other.generation, other_drains) != (said.owned, said.generation, drains)


def _check_lease(process: Process, record: _Record, until: float) -> None:
    longest = record.standing.longest_lease
    if until > longest:
        text = f"{process.name} takes a lease until {until:.3f}, which ends by {longest:.3f}"
        raise InvariantViolated("1", text)


def _check_plan(process: Process, record: _Record, request: SyncGroup) -> None:
    given: set[TopicPartition] = set()
    for member, data in request.assignments.items():
        for partition in partitions_in(data) or ():
            if partition in given:
                raise InvariantViolated("7", f"{process.name} gives {partition} away twice")
            given.add(partition)
            if partition.topic not in record.topics.get(member, ()):
                text = f"{process.name} gives {partition} to {member}, which does not want it"
                raise InvariantViolated("7", text)


def _about_commit(call: Call, request: OffsetCommit, response: OffsetsCommitted) -> str:
    offsets = " ".join(f"{p.topic}[{p.partition}]={o.offset}" for p, o in request.offsets.items())
    errors = ", ".join(sorted({error.name for error in response.errors.values()}))
    late = ", abandoned" if call.abandoned else ""
    return f"has its commit of {offsets} in generation {request.generation}{late} judged: {errors}"
