"""The group member: a state machine without I/O.

    effects = member.handle(event, now)     # then carry the effects out, in order
    wake_up_at = member.next_deadline()     # then handle(Tick(), now)

``now`` is seconds on a clock that counts suspension. The machine never looks at a clock, never
blocks and never raises for anything that a broker or a peer may send; it raises
`LocalProtocolError` for an event that makes no sense in its state, and is unchanged then.

`states` says which handler meets which event, `responses` what each error code means, `steps`
what the user's thread is told to do. The handlers are in `joining`, in `leaving`, and here:
what the user asks, what heartbeats, commits and metadata tell, and what time brings.
"""

from __future__ import annotations

from kafka_coop.errors import LocalProtocolError, RequestFailedError
from kafka_coop.membership import events as ev
from kafka_coop.membership.core import Effects
from kafka_coop.membership.effects import Left, RaiseError, ReportTopicErrors
from kafka_coop.membership.failures import failure_of_code
from kafka_coop.membership.joining import Joining
from kafka_coop.membership.leaving import Leaving
from kafka_coop.membership.responses import COMMIT, HEARTBEAT, Reaction
from kafka_coop.membership.states import CELLS, MEMBER, State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.types import NO_GENERATION, GroupMetadata, TopicPartition

_GIVING_UP = frozenset({State.PREPARING, State.ADOPTING, State.LEAVING})
_QUIET = frozenset({State.UNSUBSCRIBED, State.UNJOINED, State.STABLE, State.CLOSED})

_ON_ITS_WAY = 0.02
"""Seconds. Who wants to join does so as soon as a coordinator is found: at any moment."""

_TOLD_OF_NO_COORDINATOR = MEMBER | {State.UNSUBSCRIBED}
"""Outside of a group, too: then a commit wants it, or the start of what was assigned by hand."""

_PLANNED = frozenset({State.LEADING, State.SYNCING, State.ADOPTING, State.STABLE})
"""A leader's plan is made here, or being made."""


class Member(Joining, Leaving):
    """One member of one group. See the module's docstring for how it is driven."""

    def handle(self, event: ev.Event, now: float) -> Effects:
        """Takes an event in and returns what is to be done, in order.

        Raises:
            LocalProtocolError: No such event in this state; nothing has changed.
        """
        handler = CELLS.get((self.state, type(event)))
        if handler is None:
            raise LocalProtocolError(f"{type(event).__name__} in state {self.state.name}")
        effects: Effects = getattr(self, f"_on_{handler}")(event, now)
        return effects + self._advance(now)

    def next_deadline(self) -> float | None:
        """When to call `handle(Tick(), …)` if nothing else happens first; None: never."""
        pulse = self._pulse
        times = [self._watch.deadline(), pulse.session_ends, pulse.follow_up_due, self._retry_at]
        if self._discovery.node is not None:
            times.append(pulse.deadline())
        if self.state is State.STABLE:
            times.append(pulse.ahead_at)
        if self._waits_for_poll():
            times.append(self._poll_deadline())
        if self.state in MEMBER:
            times += (self._round_ends_by, self._lingers_until, self._outlive_at())
        if self.state in MEMBER or self._needs_coordinator_to_leave():
            times.append(self._discovery.deadline())
        if self.state is State.LEAVING and self._blocking is None:
            times.append(self._leave_by)
        # Asked for after every event: a generator for min() would cost more than all the rest.
        soonest: float | None = None
        for time in times:
            if time is not None and (soonest is None or time < soonest):
                soonest = time
        return soonest

    def _advance(self, now: float) -> Effects:
        """After every event: goes as far as the preconditions of what is wanted hold."""
        if self.state is State.LEAVING:
            return self._advance_leaving(now)
        if self.state not in MEMBER:
            return ()
        if self._leaves_now(now):
            return self._begin_leaving(now) + self._advance_leaving(now)
        found = self._discovery.ensure(now)
        lingers = self._lingers(now)
        outlive_at = self._outlive_at()
        if outlive_at is not None and now >= outlive_at:
            found += self._outlive(now)
        self._go_ahead(now)
        if self.state is State.STABLE and self._rejoin is not None and not lingers:
            self._go_and_join()
        if self.state is State.UNJOINED:
            return found + self._advance_unjoined(now)
        return found

    def _go_ahead(self, now: float) -> None:
        """Nobody has begun the follow-up round by now."""
        at = self._pulse.ahead_at
        if self.state is State.STABLE and at is not None and now >= at:
            self._pulse.told()
            self._force_rejoin("a follow-up round is announced", now)

    def _lingers(self, now: float) -> bool:
        if self._lingers_until is not None and now >= self._lingers_until:
            self._lingers_until = None
        return self._lingers_until is not None

    @property
    def expecting(self) -> bool:
        """Whether work for the user's thread may come at any moment."""
        return self.state not in _QUIET or self._pulse.announced

    @property
    def wants_to_join(self) -> bool:
        """Whether a round is to begin for us; where no coordinator is found, it may take long."""
        return self.state is State.UNJOINED or self._rejoin is not None

    @property
    def news_every(self) -> float:
        """Seconds between two moments at which a round may begin for us, while none does."""
        return _ON_ITS_WAY if self.state is State.UNJOINED else self._pulse.news_every

    @property
    def giving_up(self) -> bool:
        """Whether the user's thread is giving partitions up, and others may wait for it."""
        return self.state in _GIVING_UP

    @property
    def going(self) -> bool:
        """Whether all is given up, and only LeaveGroup's end is waited for."""
        return self.state is State.LEAVING and self._blocking is None and not self._closing

    def owns(self, partition: TopicPartition) -> bool:
        """Whether a commit of this partition is ours to make.

        Topics that were never subscribed to are nobody's in this group: a user may keep
        offsets of their own there. Of others, what is not ours may be another member's by now,
        which still subscribes: a commit from before would undo its own. What on_lost is told of is
        not ours any more, also while it runs: a topic may have vanished of which the coordinator
        has not heard.
        """
        if self._blocking is not None and partition in self._blocking.gives_up.lost:
            return False
        if partition in self.owned:
            # Also where its topic is not subscribed to any more: evicted before it was given
            # up, it would else be committed without a generation, past whoever has it now.
            return self.generation != NO_GENERATION and not self._pulse.forfeited
        return partition.topic not in self.topics and partition.topic not in self._given

    # --- the user --------------------------------------------------------------------------

    def _on_begin(self, event: ev.Subscribe, now: float) -> Effects:
        self._begin(event, now)
        return ()

    def _on_resubscribe(self, event: ev.Subscribe, now: float) -> Effects:
        if self._closing:  # and only waits for the round's end
            return ()
        before = self._interest
        self._round_ends_by = None  # an unsubscribe that waited for the round's end is undone
        self._set_interest(event, now)
        drained, self._draining = self._asks_for_relief, False
        self._lingers_until = None
        if drained or (before.topics, before.patterns) != (
            self._interest.topics,
            self._interest.patterns,
        ):
            self._force_rejoin("subscription has changed", now)
        return ()

    def _on_resubscribe_after_leaving(self, event: ev.Subscribe, _now: float) -> Effects:
        self._after_leaving = event
        return ()

    def _on_unsubscribe_after_leaving(self, _event: ev.Unsubscribe, _now: float) -> Effects:
        self._after_leaving = None
        return ()

    def _on_leave(self, _event: ev.Unsubscribe, now: float) -> Effects:
        self._leave_after_round(now)
        return ()

    def _on_close_at_once(self, _event: ev.Close, _now: float) -> Effects:
        self._enter(State.CLOSED)
        return (Left(),)

    def _on_close(self, _event: ev.Close, now: float) -> Effects:
        self._closing = True
        # Who closes lives, and is in on_revoke next.
        self._last_polled = max(self._last_polled, now)
        if self.state is not State.LEAVING:
            self._leave_after_round(now)
        return ()

    def _on_enforce_rebalance(self, event: ev.EnforceRebalance, now: float) -> Effects:
        self._force_rejoin(event.reason, now)
        return ()

    def _on_drain(self, _event: ev.Drain, now: float) -> Effects:
        if self._draining:
            return ()
        self._draining = True
        if self._asks_for_relief:
            self._force_rejoin("the consumer is draining", now)
        return ()

    def _on_polled(self, event: ev.Polled, _now: float) -> Effects:
        self._last_polled = max(self._last_polled, event.at)
        self._pulse.delivered(event.delivered_at)
        return ()

    def _on_nothing(self, _event: ev.Event, _now: float) -> Effects:
        return ()

    # --- the user's thread -----------------------------------------------------------------

    def _on_step_done(self, event: ev.StepDone, now: float) -> Effects:
        self._last_polled = max(self._last_polled, now)
        self._raising.pop(event.step_id, None)
        if self._halted_by == event.step_id:
            self._halted_by = None
        effects = self._finish_round(event, now)
        out = self._blocking
        if out is None or out.step_id != event.step_id:
            return effects
        self._blocking = None
        if any(isinstance(action, RaiseError) for action in out.gives_up.actions):
            self._overdue = None
        if out.outlived:
            effects += self._announce_outlived(out, now, after=event)
        elif self._round is not None:
            self._round.gave_up(out.gives_up, event)
        self.owned -= out.gives_up.released
        if self.state is State.PREPARING:
            self._prepared = True
            self._enter(State.UNJOINED)
        elif self.state is State.ADOPTING and out.adopts is not None:
            return effects + self._look_up_what_came_back(out) + self._make_way(out.adopts, now)
        return effects

    def _finish_round(self, event: ev.StepDone, now: float) -> Effects:
        finished = self._announcing.pop(event.step_id, [])
        if finished:
            finished[0].callbacks.append(event)
        return tuple(self._announcement(ended, now) for ended in finished)

    def _on_step_withdrawn(self, event: ev.StepWithdrawn, now: float) -> Effects:
        out = self._blocking
        if out is None or out.step_id != event.step_id:
            return ()
        self._blocking = None
        effects = self._announce_outlived(out, now, after=None) if out.outlived else ()
        if self.state is State.PREPARING:
            self._enter(State.UNJOINED)
        self._final_offered = False  # what it would have given up is ours still
        return effects

    # --- heartbeats and commits ------------------------------------------------------------

    def _on_heartbeat_answered(self, event: ev.HeartbeatAnswered, now: float) -> Effects:
        effects, error, sender = self._pulse.answered(event, now)
        if self._pulse.doubtful and self.state in (State.STABLE, State.ADOPTING):
            self._wish("the session may have run out", now)
        if error is None or sender is None or error is ErrorCode.none:
            return effects
        if isinstance(error, RequestFailedError):
            return effects + self._tell_if_hopeless(error) + self._forget_coordinator(now)
        return effects + self._refused(HEARTBEAT[error], error, "heartbeat", sender, now)

    def _on_commit_refused(self, event: ev.CommitRefused, now: float) -> Effects:
        error = ErrorCode(event.error)
        sender = GroupMetadata(
            group_id=self.settings.group_id,
            generation=event.generation,
            member_id=event.member_id,
            instance_id=self.settings.instance_id,
        )
        return self._refused(COMMIT[error], error, "offset commit", sender, now)

    def _refused(
        self, reaction: Reaction, error: ErrorCode, what: str, sender: GroupMetadata, now: float
    ) -> Effects:
        """Carries a row of the HEARTBEAT or COMMIT table out.

        An error about an identity concerns us only while that identity is still ours.
        """
        if reaction is Reaction.REDISCOVER:
            return self._forget_coordinator(now)
        if sender != self.metadata or self.generation == NO_GENERATION:
            return ()
        match reaction:
            case Reaction.REJOIN:
                if self.state in (State.STABLE, State.ADOPTING):
                    self._pulse.told()
                    if self._blocking is not None:
                        self._blocking.others_wait = True
                    self._wish("group is already rebalancing", now)
                return ()
            case Reaction.RESET_GENERATION if self.state is State.JOINING:
                # The group may have gone on to its next generation with us in it, and the
                # answer that says so may be on its way to us: this proves nothing.
                return ()
            case Reaction.RESET_GENERATION | Reaction.RESET_MEMBER | Reaction.FENCED:
                return self._evicted(reaction, error, what, now)
            case _:
                return ()

    def _evicted(self, reaction: Reaction, error: ErrorCode, what: str, now: float) -> Effects:
        why = f"encountered {error.name.upper()} from {what} response"
        keep = reaction is not Reaction.RESET_MEMBER
        announced = self._announce_failure(why, now) if self._round is not None else ()
        reset = self._reset(why, now, keep_member_id=keep)
        if reaction is not Reaction.FENCED:
            return announced + reset
        return announced + reset + self._fail(failure_of_code(error, what, fatal=True), halt=True)

    # --- the cluster -----------------------------------------------------------------------

    def _on_coordinator_answered(self, event: ev.CoordinatorAnswered, now: float) -> Effects:
        effects, failure = self._discovery.answered(event, now)
        if failure is not None and self.state in _TOLD_OF_NO_COORDINATOR:
            return effects + self._fail(failure)
        return effects + self._ask_anew(now) if effects else ()

    def _ask_anew(self, now: float) -> Effects:
        """A coordinator is found: what is parked was sent before the last one was lost.

        A host that vanishes says nothing, and a connection on which we only wait does not break.
        The heir has the group from the log, answers our heartbeats with what it wants of us, and
        gets nothing but heartbeats for the rest of JoinGroup's time. Who finds the same one again
        can't know what became of the other connection, either.
        """
        aborted = self._abort_parked()
        return aborted + self._retry_round("the coordinator was lost", now) if aborted else ()

    def _on_coordinator_lost(self, _event: ev.CoordinatorLost, now: float) -> Effects:
        return self._forget_coordinator(now)

    def _on_coordinator_wanted(self, _event: ev.CoordinatorWanted, now: float) -> Effects:
        return self._discovery.ensure(now)

    def _on_metadata_answered(self, event: ev.MetadataAnswered, now: float) -> Effects:
        if not self._watch.answered(event, now):
            return ()
        effects = self._report_topics()
        self._match_again(now)
        if self.state is State.LEADING and self._awaited is None:
            return effects + self._lead(now)
        self._compare_metadata(now)
        return effects

    def _report_topics(self) -> Effects:
        errors = self._watch.errors(self._interest.topics)
        new = {t: e for t, e in errors.items() if self._reported.get(t) != e}
        self._reported = errors
        return (ReportTopicErrors(errors=new),) if new else ()

    def _match_again(self, now: float) -> None:
        if not self._interest.patterns or not self._watch.everything_known(since=float("-inf")):
            return
        matched = self._watch.matching(self._interest.patterns)
        if matched == self._interest.matched:
            return
        self._interest = self._interest.matching(matched)
        if self.state not in (State.UNJOINED, State.PREPARING):
            # A JoinGroup that is out, or answered already, tells the leader of the topics as
            # they were: without another one a topic that appears now would stay nobody's.
            self._force_rejoin("subscription has changed", now)

    def _compare_metadata(self, now: float) -> None:
        """The leader's plan was made for the topics as they were then."""
        if self._leadership is None or self.state not in _PLANNED:
            return
        cluster, before = self._watch.cluster(self._leadership.union), self._leadership.cluster
        self._leadership.cluster = cluster
        if before is None:
            return  # a leader told to skip the assignment begins its watch here
        racks_matter = self.settings.rack is not None
        racks_changed = racks_matter and cluster.replica_racks != before.replica_racks
        if cluster.partitions != before.partitions or racks_changed:
            self._force_rejoin("cached metadata has changed", now)

    # --- time ------------------------------------------------------------------------------

    def _on_tick(self, _event: ev.Tick, now: float) -> Effects:
        effects: Effects = ()
        if self._waits_for_poll() and now >= self._poll_deadline():
            effects += self._leave_until_polled(now)
        ends = self._pulse.session_ends
        if ends is not None and now >= ends:
            # Only the coordinator can say that we are out; whoever it is now, ask it.
            self._pulse.expire(now)
            effects += self._forget_coordinator(now)
        overdue = self._pulse.follow_up_due
        if overdue is not None and now >= overdue:
            self._pulse.told()
            if self.state in (State.STABLE, State.ADOPTING):
                self._force_rejoin("the follow-up round did not begin", now)
        if self.state in MEMBER or self.state is State.LEAVING:
            effects += self._pulse.beat(self._discovery.node, now)
        return effects + self._watch.refresh_if_due(now)

    def _poll_deadline(self) -> float:
        return self._last_polled + self.settings.rebalance_timeout.total_seconds()
