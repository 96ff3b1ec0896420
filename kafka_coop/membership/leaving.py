"""Out of the group, in order: give up, then LeaveGroup, promptly whatever fails."""

from __future__ import annotations

from datetime import timedelta

from kafka_coop.errors import Failure, RequestFailedError
from kafka_coop.membership import events as ev
from kafka_coop.membership.core import Effects, MemberCore
from kafka_coop.membership.effects import AbortParked, IdentityChanged, Left, SendLeave
from kafka_coop.membership.failures import LOCAL_MAX_POLL_EXCEEDED
from kafka_coop.membership.interest import Interest
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.membership.states import State
from kafka_coop.membership.steps import revoke
from kafka_coop.protocol.marks import AssignmentMarks
from kafka_coop.protocol.messages import LeaveGroup
from kafka_coop.types import NO_GENERATION, NO_MEMBER_ID

_PATIENCE = timedelta(seconds=1)
"""How long leaving waits for what it needs first: a coordinator, a member id on its way."""

_TIMEOUT = timedelta(seconds=3)
"""How long LeaveGroup may take. Whatever its answer, we are gone."""


_IN_A_ROUND = frozenset({State.JOINING, State.LEADING, State.SYNCING})


class Leaving(MemberCore):
    """The part of a member that leaves (and, where the user changed their mind, begins anew)."""

    def __init__(self, settings: MemberSettings) -> None:
        super().__init__(settings)
        self._closing = False
        self._round_ends_by: float | None = None
        """Leaving is wanted; until then the round under way may end first."""
        self._after_leaving: ev.Subscribe | None = None
        self._final_offered = False
        self._leave_by: float | None = None
        """When leaving gives up waiting; None while the user's thread is at its final step."""

    def _leave_after_round(self, now: float) -> None:
        """Leaves; if a round is under way, once it has ended, or has used up its patience.

        Were a parked JoinGroup abandoned instead, the round could end without our knowing:
        the coordinator would refuse the last commit, sent under the generation before, and
        what was processed since the one before that would be processed again.
        """
        waits = self.state in _IN_A_ROUND and bool(self.owned)
        self._round_ends_by = now + (_PATIENCE.total_seconds() if waits else 0.0)

    def _leaves_now(self, now: float) -> bool:
        """Whether leaving is wanted and nothing is worth waiting for."""
        if self._round_ends_by is None:
            return False
        return self.state not in _IN_A_ROUND or now >= self._round_ends_by

    def _begin_leaving(self, now: float) -> Effects:
        effects: Effects = ()
        awaits_id = self.state is State.JOINING and self.member_id == NO_MEMBER_ID
        if not awaits_id:
            effects += self._abort_parked()
            self._awaited = None
        self._enter(State.LEAVING)
        self._round_ends_by = None
        self._final_offered = False
        self._leave_by = None
        self._halted_by = None
        self._retry_at = None  # nothing retries any more: a deadline left behind would spin
        self._watch.want((), now)
        self._leadership = None
        in_group = self.generation != NO_GENERATION
        opened = IdentityChanged(metadata=self.metadata, commits_open=in_group)
        return (*effects, *self._withdraw(), opened)

    def _advance_leaving(self, now: float) -> Effects:
        """The user's thread first, then the coordinator."""
        if self._blocking is not None:
            return self._discovery.ensure(now)
        if not self._final_offered:
            self._final_offered = True
            in_group = self.generation != NO_GENERATION and self.member_id != NO_MEMBER_ID
            # Cut off for longer than the lease, the group may have gone on without our hearing.
            in_group = in_group and now < self._pulse.lease_until
            auto_commit = self.settings.auto_commit and self._closing
            if in_group:
                closed: Effects = ()
                giving = revoke(self.owned, auto_commit=auto_commit)
            else:
                # What the user's thread commits before it hears of the loss must not be sent.
                closed = (IdentityChanged(metadata=self.metadata, commits_open=False),)
                giving = self._losing()
            if giving.actions:
                return closed + self._offer_blocking(giving, now)[0]
        if self._leave_by is None:
            self._leave_by = now + _PATIENCE.total_seconds()
        return self._send_leave(now)

    def _send_leave(self, now: float) -> Effects:
        assert self._leave_by is not None
        if now >= self._leave_by:
            return self._finish_leaving(now)
        if self._awaited is not None:
            return ()  # LeaveGroup's answer, or the JoinGroup that brings our id
        if self._stays_in_the_books() or self.member_id == NO_MEMBER_ID:
            return self._finish_leaving(now)
        if self._discovery.node is None:
            return self._discovery.ensure(now)
        reason = (
            "the consumer is being closed"
            if self._closing
            else "the consumer unsubscribed from all topics"
        )
        sent = self._leave_request(reason)
        self._awaited = self._tokens
        self._leave_by = now + _TIMEOUT.total_seconds()
        return self._pulse.stop() + sent

    def _needs_coordinator_to_leave(self) -> bool:
        """Whether `_advance_leaving` still looks for it: a commit, or LeaveGroup, is to be sent.

        One that is lost while LeaveGroup is under way is looked for no more.
        """
        return self.state is State.LEAVING and (self._blocking is not None or self._awaited is None)

    def _stays_in_the_books(self) -> bool:
        """Whether the coordinator is to keep our place until the session times out (KIP-345).

        Whoever subscribes again before comes back by the same id. Without one it would pass for
        another process that takes its place, and a JoinGroup that it had given up, and that arrives
        late, would fence it (KAFKA-20985).

        Not that of a static member that drained: whoever restarts it would be given its last
        assignment back without a round, which is nothing, and stay idle until the next one.
        """
        return self.settings.instance_id is not None and not self._draining

    def _leave_request(self, reason: str) -> Effects:
        node = self._discovery.node
        if node is None or self._stays_in_the_books() or self.member_id == NO_MEMBER_ID:
            return ()
        request = LeaveGroup(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            reason=reason,
        )
        token = self._new_token()
        return (SendLeave(token=token, node=node, request=request, timeout=_TIMEOUT),)

    def _on_join_answered_while_leaving(self, event: ev.JoinAnswered, _now: float) -> Effects:
        """The coordinator would wait for an id that it gave and that never joins (KIP-394)."""
        if event.token == self._awaited:
            self._awaited = None
            if not isinstance(event.answer, RequestFailedError):
                self.member_id = event.answer.member_id
        return ()

    def _on_leave_answered(self, event: ev.LeaveAnswered, now: float) -> Effects:
        return self._finish_leaving(now) if event.token == self._awaited else ()

    def _finish_leaving(self, now: float) -> Effects:
        effects = self._pulse.stop()
        if self._awaited is not None and self.member_id == NO_MEMBER_ID:
            # The JoinGroup that was to bring our id is parked, as a static member's first one is.
            effects += (AbortParked(token=self._awaited),)
        self.generation = self.applied = NO_GENERATION
        if self._closing or not self._stays_in_the_books():
            self.member_id = NO_MEMBER_ID
        self._given = frozenset()
        self._attendance.reset()
        self._awaited, self._joined, self._round, self._rejoin = None, None, None, None
        self._prepared = False
        self._joining_since = None
        self._marks = AssignmentMarks()
        self._retry_at = None
        self._interest = Interest()
        self._overdue = None
        self._draining = False
        self._lingers_until = None
        effects += (IdentityChanged(metadata=self.metadata, commits_open=False),)
        if self._closing:
            self._enter(State.CLOSED)
            return (*effects, Left())
        self._enter(State.UNSUBSCRIBED)
        pending, self._after_leaving = self._after_leaving, None
        if pending is not None:
            self._begin(pending, now)
        return effects

    def _begin(self, event: ev.Subscribe, now: float) -> None:
        self._last_polled = now
        self._set_interest(event, now)
        self._enter(State.UNJOINED)
        if self.member_id == NO_MEMBER_ID:
            self._wish("the consumer subscribed", now)
        else:  # in the coordinator's books still: see `_reset`
            self._returns = True
            self._force_rejoin("the consumer subscribed", now)

    # --- pushed out by our own user's silence ----------------------------------------------

    def _leave_until_polled(self, now: float) -> Effects:
        """``max.poll.interval.ms`` is over: others shall have our partitions.

        A static member says nothing: it has the session timeout to come back. It keeps its
        member id, or its own next request would be fenced by itself (KAFKA-20985). A member that
        unsubscribed, and whose user never came to give up what it owns, goes the same way.
        """
        limit = self.settings.rebalance_timeout
        text = (
            f"max.poll.interval.ms ({limit}) passed without a call of poll(): the group goes on "
            "without this consumer. Poll more often, process less per poll, or raise it"
        )
        self._overdue = Failure(code=LOCAL_MAX_POLL_EXCEEDED, message=text, retriable=True)
        left = self._leave_request("consumer poll timeout has expired.")
        static = self.settings.instance_id is not None
        return left + self._reset("consumer poll timeout has expired.", now, keep_member_id=static)
