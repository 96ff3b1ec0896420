"""What every part of the member shares: its state, its steps, its rounds, its errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_coop.errors import Failure, RequestFailedError
from kafka_coop.membership import events as ev
from kafka_coop.membership.attendance import Attendance
from kafka_coop.membership.discovery import Discovery
from kafka_coop.membership.effects import (
    AbortParked,
    Action,
    Announce,
    Effect,
    IdentityChanged,
    OfferStep,
    RaiseError,
    Step,
    WithdrawStep,
)
from kafka_coop.membership.failures import failure_of_exception, is_hopeless
from kafka_coop.membership.interest import Interest
from kafka_coop.membership.pulse import Pulse
from kafka_coop.membership.rounds import Round
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.membership.states import EDGES, MEMBER, State
from kafka_coop.membership.steps import GivingUp, lose
from kafka_coop.membership.watch import Watch
from kafka_coop.protocol.marks import AssignmentMarks
from kafka_coop.protocol.messages import GroupJoined, SyncGroup
from kafka_coop.types import (
    NO_GENERATION,
    NO_MEMBER_ID,
    NO_PARTITIONS,
    Assignment,
    Assignor,
    Cluster,
    Generation,
    GroupMetadata,
    MemberId,
    Partitions,
    RebalanceProtocol,
)

Effects = tuple[Effect, ...]

_PARKED = frozenset({State.JOINING, State.SYNCING})
"""The coordinator answers when all have joined, or when the leader has sent its plan."""

_LINGER = 0.1
"""Seconds from the moment that a draining member is relieved to its close: a poll's return."""


@dataclass(slots=True)
class BlockingStep:
    """A blocking step that is out with the user's thread."""

    step_id: int
    gives_up: GivingUp
    offered_at: float
    adopts: Assignment | None = None
    """What is adopted once it is done, for the step between Sync and STABLE."""
    is_marked: bool = False
    """What is adopted comes from a leader of ours."""
    withdrawing: bool = False
    others_wait: bool = False
    """The group is in its next round meanwhile."""
    outlived: list[Round] = field(default_factory=list)
    """The rounds that have ended meanwhile, and were not waited with for this step; the first is
    the one that took what it gives up, which is ours, and claimed as such, until it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What JoinGroup's answer told, kept until the Sync is answered."""

    answer: GroupJoined
    union: tuple[str, ...] = ()
    at: float


@dataclass(slots=True)
class Leadership:
    """What a leader watches until another one leads.

    And each member of a group that has none (KIP-848): the broker may leave it to them without a
    round, when the last member of the new protocol is static and one of the old takes its place.
    Nobody leads then before somebody joins anew.
    """

    union: tuple[str, ...]
    """Everyone's topics; without a leader one's own."""
    cluster: Cluster | None = None
    """What they were when last seen; None: not since this member leads."""


class MemberCore:
    """The fields of a member, and the operations that several parts need."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.protocol = settings.protocol
        self.state = State.UNSUBSCRIBED
        self.member_id: MemberId = NO_MEMBER_ID
        self.generation: Generation = NO_GENERATION
        self.owned: Partitions = NO_PARTITIONS
        self.applied: Generation = NO_GENERATION
        """The generation that `owned` came with. A missed Sync leaves it behind `generation`."""
        self._given: frozenset[str] = frozenset()  # topics of which something was ever ours
        self._attendance = Attendance()
        # What producers are to send offsets with (KIP-447): an identity with which all that is
        # owned was ours. When we are out of the group it stays the one that is lost, which the
        # coordinator refuses; without a generation it would take offsets from anybody. Else a
        # process that was stopped with a transaction under way could undo what its successor has
        # committed, when it has heard that it is out, and its user has not.
        self.vouched: GroupMetadata = self.metadata
        self._gained_at = float("-inf")  # when partitions last came
        self._assignors: Mapping[str, Assignor] = {a.name: a for a in settings.assignors}
        self._tokens = 0
        self._discovery = Discovery(settings, self._new_token)
        self._pulse = Pulse(settings, self._new_token)
        self._watch = Watch(settings, self._new_token)

        # What is asked for.
        self._interest = Interest()
        self._rejoin: str | None = None
        """Why this member must join again. Sticky: only a JoinGroup clears it (KAFKA-9815)."""
        self._rejoins = 0
        self._upgraded = False
        """The broker assigns this group's partitions, since another member wanted that."""
        self._draining = False
        """About to leave for good, a static member, too."""
        # Relieved of everything: no JoinGroup before this, for a LeaveGroup most likely comes.
        self._lingers_until: float | None = None

        # The attempt under way.
        self._prepared = False
        self._awaited: int | None = None
        """The token of the one answer this state waits for."""
        self._joined: Joined | None = None
        self._joining_since: float | None = None
        """When the first JoinGroup was sent since the last assignment."""
        self._join_sent_at = self._sync_sent_at = 0.0
        self._sync_request: SyncGroup | None = None
        self._retries = 0
        self._retry_at: float | None = None
        self._round: Round | None = None

        # What is out with the user's thread.
        self._steps = 0
        self._blocking: BlockingStep | None = None
        self._announcing: dict[int, list[Round]] = {}
        self._raising: dict[int, Failure] = {}
        self._halted_by: int | None = None
        self._last_polled = 0.0
        self._overdue: Failure | None = None
        """Raised where the user hears of what their silence has cost: behind on_lost, and before
        the next join. Until then nothing else that they carry out settles it: on_revoke may have
        taken so long, and have left nothing to lose."""

        # Static, and subscribed anew: until its first join is answered another process may have
        # taken its place, from which it takes it back.
        self._returns = False

        # What a leader must know, and its watch.
        self._marks = AssignmentMarks()
        """Of the last assignment: for who leads the next round."""
        self._leadership: Leadership | None = None
        self._reported: dict[str, int] = {}

    @property
    def metadata(self) -> GroupMetadata:
        """The identity that commits carry now."""
        return GroupMetadata(
            group_id=self.settings.group_id,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
        )

    @property
    def _asks_for_relief(self) -> bool:
        """Whether the group is to take over before we leave.

        An eager round would take all from all, and the leave costs another one anyway.
        """
        return self._draining and self.settings.protocol is RebalanceProtocol.COOPERATIVE

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics subscribed to, by name or by pattern."""
        return self._interest.all_topics

    def _enter(self, state: State) -> None:
        if state is not self.state:
            assert state in EDGES[self.state], f"{self.state} -> {state}"
            self.state = state

    def _new_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _waits_for_poll(self) -> bool:
        """Whether the group may come to wait for our user."""
        if self.generation == NO_GENERATION:
            return False
        return self.state in MEMBER or (self.state is State.LEAVING and self._blocking is not None)

    # --- steps -----------------------------------------------------------------------------

    def _offer(self, actions: tuple[Action, ...]) -> tuple[Effects, int]:
        """Hands the user's thread a step that nothing waits for."""
        self._steps += 1
        return (OfferStep(step=Step(step_id=self._steps, actions=actions)),), self._steps

    def _offer_blocking(self, giving: GivingUp, now: float) -> tuple[Effects, BlockingStep]:
        """Hands the user's thread a step that the next JoinGroup waits for, within bounds."""
        assert self._blocking is None, "two blocking steps"
        self._steps += 1
        step = Step(step_id=self._steps, actions=giving.actions, blocking=True)
        self._blocking = BlockingStep(step_id=step.step_id, gives_up=giving, offered_at=now)
        return (OfferStep(step=step),), self._blocking

    def _withdraw(self) -> Effects:
        """What is out with the user's thread was decided by a generation that is over."""
        out = self._blocking
        if out is None or out.withdrawing:
            return ()
        out.withdrawing = True
        out.adopts = None
        return (WithdrawStep(step_id=out.step_id),)

    def _losing(self) -> GivingUp:
        """All that is owned is lost; on_lost comes first, then the error that explains it."""
        lost = lose(self.owned)
        if self._overdue is None:
            return lost
        told = RaiseError(failure=self._overdue)
        return GivingUp(actions=(*lost.actions, told), lost=lost.lost)

    # --- errors ----------------------------------------------------------------------------

    def _fail(self, failure: Failure, *, halt: bool = False) -> Effects:
        """Tells the user. ``halt``: nothing is tried again before they have heard."""
        for step_id, known in self._raising.items():
            if (known.code, known.message) == (failure.code, failure.message):
                self._halted_by = step_id if halt else self._halted_by
                return ()
        effects, step_id = self._offer((RaiseError(failure=failure),))
        self._raising[step_id] = failure
        if halt:
            self._halted_by = step_id
        return effects

    def _tell_if_hopeless(self, error: RequestFailedError) -> Effects:
        """The user hears of what may not pass by itself."""
        if not is_hopeless(error) or self.state not in MEMBER:
            return ()
        return self._fail(failure_of_exception(error))

    def _reset(self, why: str, now: float, *, keep_member_id: bool) -> Effects:
        """This generation is over for us: what we own is lost, and prepare is armed again."""
        self.generation = NO_GENERATION
        self.applied = NO_GENERATION
        self._attendance.reset()
        if not keep_member_id:
            self.member_id = NO_MEMBER_ID
        effects = self._pulse.stop() + self._abort_parked()
        if self.state in MEMBER:
            self._awaited = None
        self._joined = None
        self._joining_since = None
        self._prepared = False
        self._marks = AssignmentMarks()
        effects += self._withdraw()
        effects += (IdentityChanged(metadata=self.metadata, commits_open=False),)
        waits_for_step = self.state is State.PREPARING and self._blocking is not None
        if self.state in MEMBER:
            if not waits_for_step:
                self._leave_for_unjoined()
            # With an id that the coordinator knows and the same bytes it might answer at once,
            # with the generation that stands, and go on counting from our last heartbeat: we
            # would take its answer for a new session, and be dropped within the lease.
            self._force_rejoin(why, now)
        return effects

    def _abort_parked(self) -> Effects:
        """Gives up the JoinGroup or SyncGroup that is out, if one is.

        The coordinator answers neither for a member that it has removed, nor does it read on where
        one is parked: the next JoinGroup would wait behind it until it is given up.
        """
        if self.state not in _PARKED or self._awaited is None:
            return ()
        token, self._awaited = self._awaited, None
        return (AbortParked(token=token),)

    def _leave_for_unjoined(self) -> None:
        if self.state is not State.UNJOINED:
            self._enter(State.UNJOINED)

    def _forget_coordinator(self, now: float) -> Effects:
        """It does not answer, or says that it is none."""
        return self._pulse.lose() + self._discovery.forget(now)

    # --- rounds ----------------------------------------------------------------------------

    def _wish(self, reason: str, now: float) -> None:
        """This member is to join again; the wish stays until a JoinGroup is sent."""
        self._rejoin = self._rejoin or reason
        if self._round is None:
            self._round = Round(began_at=now, reason=reason)
        elif self.state is State.UNJOINED:
            self._round.sent_reason = reason

    def _force_rejoin(self, reason: str, now: float) -> None:
        """Our bytes must change, or the coordinator may start no round."""
        self._rejoins += 1
        self._wish(reason, now)

    def _linger(self, now: float) -> None:
        """Who has drained is in no hurry to join: it is about to be closed.

        LeaveGroup begins the follow-up round as a JoinGroup would, or has those who have begun it
        wait no longer. Were it joined first, and left in its midst, it would begin anew: those who
        have their Sync by then would hear of it with their next beat only, and what the others are
        to get would lie idle until then. Leaving by itself is not for the machine to do: the user
        may have a transaction to commit, under this member's name. One who does not close has the
        others wait for so long.
        """
        self._lingers_until = now + _LINGER

    def _begin_round(self, now: float) -> Round:
        if self._round is None:
            self._round = Round(began_at=now, reason=self._rejoin or "")
        return self._round

    def _announce_failure(self, error: str, now: float) -> Effects:
        current, self._round = self._begin_round(now), None
        current.assigned = NO_PARTITIONS  # not adopted, and so never the user's
        return (self._announcement(current, now, error),)

    def _announcement(self, ended: Round, now: float, error: str | None = None) -> Announce:
        return Announce(
            record=ended.record(
                now,
                group_id=self.settings.group_id,
                client_id=self.settings.client_id,
                member_id=self.member_id,
                cooperative=self.protocol is RebalanceProtocol.COOPERATIVE,
                error=error,
            )
        )

    # --- the subscription ------------------------------------------------------------------

    def _set_interest(self, event: ev.Subscribe, now: float) -> None:
        patterns = tuple(re.compile(p) for p in event.patterns)
        self._interest = Interest(topics=tuple(sorted(set(event.topics))), patterns=patterns)
        if patterns:
            self._interest = self._interest.matching(self._watch.matching(patterns))
        self._reported.clear()
        self._watch_topics(now)

    def _watch_topics(self, now: float) -> None:
        """Our own topics, and everyone's while we lead; all there are, if we have patterns.

        A leader's watch must follow its own new subscription, too: one that took up a pattern
        would else ask for the old names over and over, and never join.
        """
        wanted = {*(self._leadership.union if self._leadership else ()), *self._interest.topics}
        self._watch.want(None if self._interest.patterns else wanted, now)

    def _interest_covers(self, topic: str) -> bool:
        return topic in self._interest.topics or topic in self._interest.matched

    def _not_covered(self) -> Partitions:
        """What is owned of topics that are not wanted any more."""
        return self.owned.only(t for t in self.owned.topics() if not self._interest_covers(t))
