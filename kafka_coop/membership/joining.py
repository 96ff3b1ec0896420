"""Into the group and through a round: prepare, JoinGroup, lead, SyncGroup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from kafka_coop.errors import AssignorFailedError, Failure, MalformedDataError, RequestFailedError
from kafka_coop.membership import events as ev
from kafka_coop.membership.adopting import Adopting
from kafka_coop.membership.backoff import backoff
from kafka_coop.membership.core import Effects, Joined, Leadership
from kafka_coop.membership.effects import IdentityChanged, RunAssignor, SendJoin, SendSync
from kafka_coop.membership.failures import failure_of_code, failure_of_exception
from kafka_coop.membership.interest import subscription_bytes
from kafka_coop.membership.record import Role
from kafka_coop.membership.responses import JOIN, SYNC, Reaction
from kafka_coop.membership.states import State
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.marks import AssignmentMarks, split_marks
from kafka_coop.protocol.messages import (
    CONSUMER_PROTOCOL_TYPE,
    GroupJoined,
    GroupSynced,
    JoinGroup,
    Node,
    SyncGroup,
)
from kafka_coop.protocol.subscription import decode_topics
from kafka_coop.types import NO_GENERATION, NO_PARTITIONS, Assignment, Generation, Partitions

_JOIN_GRACE = timedelta(seconds=5)
"""What a JoinGroup may take beyond the rebalance timeout (Java's value)."""

_TOO_LARGE = (
    "the coordinator says no more; it does so where all subscriptions and assignments of the group,"
    " user data included, are more than one message of __consumer_offsets may hold: "
    "max.message.bytes of that topic, 1 MiB by default"
)

_METADATA_FRESH_ENOUGH = 1.0
"""Seconds. A follow-up round need not ask again what the round before it asked.

No plan is made by older ones, though Java's are, and a leader would save the time of an answer: a
follower's may be minutes old. Elected then, it would take away what has been added to a topic
since, which others own and read, and give it back two rounds later.
"""

BUSY_AFTER = 0.1
"""Seconds for which a user does not poll who will most likely not give anything up at once."""

_REASON_LIMIT = 255

_FEW = 256
"""Partitions whose offsets every member of a group may ask for in every round."""


class Joining(Adopting):
    """The part of a member that joins."""

    # --- towards a join --------------------------------------------------------------------

    def _advance_unjoined(self, now: float) -> Effects:
        """Goes on as far as the preconditions of a join hold."""
        if self._retry_at is not None:
            if now < self._retry_at:
                return ()
            self._retry_at = None
        if self._blocking is not None and not self._may_outlive(self._blocking):
            return ()
        if self.generation == NO_GENERATION and (self.owned or self._overdue is not None):
            self._enter(State.PREPARING)
            return self._offer_blocking(self._losing(), now)[0]
        if self._halted_by is not None or self._discovery.node is None:
            return ()
        if self._interest.patterns and not self._watch.everything_known(
            since=self._begin_round(now).began_at - _METADATA_FRESH_ENOUGH
        ):
            return self._watch.fetch(now)
        if not self._prepared:
            self._prepared = True
            if (giving := self._preparation()).actions:
                self._enter(State.PREPARING)
                # Also where the last plan was refused: SyncGroup was answered, and the coordinator
                # takes what is committed of what goes.
                opened = IdentityChanged(metadata=self.metadata, commits_open=True)
                return (opened, *self._offer_blocking(giving, now)[0])
        return self._join(now)

    def _join(self, now: float) -> Effects:
        node = self._discovery.node
        assert node is not None
        current = self._begin_round(now)
        if current.first_join_at is None:
            current.busy = now - self._last_polled > BUSY_AFTER
        protocols, failures = self._protocols(busy=current.busy)
        if not protocols:
            return self._give_up_round(failures[0], now)
        effects: Effects = ()
        for failure in failures:
            effects += self._fail(failure)
        self._enter(State.JOINING)
        current.attempts += 1
        current.claimed = self.owned
        current.first_join_at = current.first_join_at or now
        self._awaited = self._new_token()
        self._rejoin = None
        self._pulse.rejoins()
        self._join_sent_at = now
        self._joining_since = self._joining_since or now
        s = self.settings
        request = JoinGroup(
            group_id=s.group_id,
            session_timeout=s.session_timeout,
            rebalance_timeout=s.rebalance_timeout,
            member_id=self.member_id,
            instance_id=s.instance_id,
            protocols=protocols,
            reason=current.sent_reason[:_REASON_LIMIT],
        )
        timeout = max(s.request_timeout, s.rebalance_timeout + _JOIN_GRACE)
        join = SendJoin(token=self._awaited, node=node, request=request, timeout=timeout)
        return (*effects, join, *self._ask_ahead(now))

    def _ask_ahead(self, now: float) -> Effects:
        """Who led the last round will most likely lead this one, and need fresh metadata then.

        Asked for while the others join, it costs the round no time.
        """
        if self._leadership is None or self._watch.covers((), since=now - _METADATA_FRESH_ENOUGH):
            return ()
        return self._watch.fetch(now)

    def _protocols(self, *, busy: bool) -> tuple[tuple[tuple[str, bytes], ...], list[Failure]]:
        """Each strategy's bytes; a strategy whose own code raises is left out, and reported."""
        made: list[tuple[str, bytes]] = []
        failures: list[Failure] = []
        for assignor in self.settings.assignors:
            try:
                data = subscription_bytes(
                    assignor,
                    interest=self._interest,
                    owned=self.owned,
                    applied=self.applied,
                    rack=self.settings.rack,
                    rejoins=self._rejoins,
                    draining=self._asks_for_relief,
                    busy=busy,
                )
            except AssignorFailedError as error:
                failures.append(failure_of_exception(error))
            else:
                made.append((assignor.name, data))
        return tuple(made), failures

    # --- JoinGroup's answer ----------------------------------------------------------------

    def _on_join_answered(self, event: ev.JoinAnswered, now: float) -> Effects:
        if event.token != self._awaited:
            return ()
        self._awaited = None
        answer = event.answer
        if isinstance(answer, RequestFailedError):
            # The member id stays: the broker may have us in its books already.
            return self._unanswered("JoinGroup", answer, now)
        if answer.error is not ErrorCode.none:
            return self._react(JOIN[answer.error], answer.error, "JoinGroup", now, answer)
        wrong = self._unusable_protocol(answer)
        if wrong is not None:
            return self._give_up_round(wrong, now)
        return self._take_place(answer, now)

    def _unanswered(self, what: str, error: RequestFailedError, now: float) -> Effects:
        retried = self._retry_round(f"{what}: {error}", now, rediscover=True)
        return self._tell_if_hopeless(error) + retried

    def _take_place(self, answer: GroupJoined, now: float) -> Effects:
        """In the group, in COMPLETING_REBALANCE: heartbeats start here."""
        if self._has_missed_a_round(answer.generation, now):
            self._pulse.forfeit()
        self._attendance.joined(answer)
        self.member_id, self.generation = answer.member_id, answer.generation
        self._returns = False
        if not self._pulse.forfeited:
            self.vouched = self.metadata
        self._pulse.start(
            self.metadata,
            now,
            joining_since=self._joining_since or self._join_sent_at,
            join_sent_at=self._join_sent_at,
        )
        current = self._begin_round(now)
        current.joined_at = now
        current.elected(answer.generation, leads=answer.leader == answer.member_id)
        current.protocol_name = answer.protocol_name
        current.broker_assigns = not answer.leader
        identity: Effects = (IdentityChanged(metadata=self.metadata, commits_open=False),)
        identity += self._notice_an_upgrade(answer)
        if answer.leader != answer.member_id:
            current.role = Role.FOLLOWER
            own = self._interest.all_topics
            self._leadership = None if answer.leader else Leadership(union=own)
            self._joined = Joined(answer=answer, at=now)
            self._watch_topics(now)
            watched = self._watch.fetch(now) if self._leadership else ()
            return identity + self._sync({}, now) + watched
        current.role = Role.LEADER
        current.members = len(answer.members)
        union = _union_of_topics(m.metadata for m in answer.members)
        self._joined = Joined(answer=answer, union=union, at=now)
        self._leadership = Leadership(union=union)
        self._watch_topics(now)
        if answer.skip_assignment:
            # KIP-814: the plan stands. From now on we watch for it to become outdated.
            return identity + self._sync({}, now) + self._watch.fetch(now)
        self._enter(State.LEADING)
        return identity + self._lead(now)

    def _notice_an_upgrade(self, answer: GroupJoined) -> Effects:
        """Who joins a group with no leader is assigned by the broker (KIP-848).

        A member of the new protocol turns the whole group over without a word to the others:
        their strategies are not asked any more.
        """
        upgraded, before = not answer.leader, self._upgraded
        self._upgraded = upgraded
        if not upgraded or before:
            return ()
        what = "JoinGroup (a member with group.protocol=consumer has upgraded the group)"
        text = (
            f"{what}: the broker assigns partitions now, and partition.assignment.strategy has no "
            "effect. Move all members to group.protocol=consumer, or stop those that use it "
            "(docs/MIGRATION.md)"
        )
        return self._fail(Failure(code=int(ErrorCode.inconsistent_group_protocol), message=text))

    def _lead(self, now: float) -> Effects:
        joined = self._joined
        assert joined is not None
        assert self._leadership is not None
        if self._awaited is not None:
            return ()
        if not self._watch.covers(joined.union, since=joined.at - _METADATA_FRESH_ENOUGH):
            return self._watch.fetch(now)
        self._awaited = self._new_token()
        self._leadership.cluster = self._watch.cluster(joined.union)
        answer = joined.answer
        return (
            RunAssignor(
                token=self._awaited,
                protocol_name=answer.protocol_name or "",
                cluster=self._leadership.cluster,
                members={m.member_id: m.metadata for m in answer.members},
                instance_ids={
                    m.member_id: m.instance_id for m in answer.members if m.instance_id is not None
                },
                leader=answer.leader,
                generation=answer.generation,
                recalled=self._marks.recalled,
                announced=self._marks.follow_up,
            ),
        )

    def _on_assignment_computed(self, event: ev.AssignmentComputed, now: float) -> Effects:
        if event.token != self._awaited:
            return ()
        self._awaited = None
        if self._round is not None:
            self._round.assign = event.duration
            self._round.plan = event.figures
            self._round.planned_at = now
        told = self._fail(failure_of_exception(event.error)) if event.error is not None else ()
        return told + self._sync(event.assignments, now)

    def _sync(self, assignments: Mapping[str, bytes], now: float) -> Effects:
        assert self._joined is not None
        node = self._discovery.node
        if node is None:
            return self._retry_round("the coordinator was lost before SyncGroup", now)
        self._enter(State.SYNCING)
        self._begin_round(now).sync_sent_at = now
        request = SyncGroup(
            group_id=self.settings.group_id,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            protocol_name=self._joined.answer.protocol_name or "",
            assignments=assignments,
        )
        return (self._send_sync(request, node, now),)

    def _send_sync(self, request: SyncGroup, node: Node, now: float) -> SendSync:
        self._awaited = self._new_token()
        self._sync_sent_at = now
        self._sync_request = request
        return SendSync(
            token=self._awaited,
            node=node,
            request=request,
            timeout=self.settings.rebalance_timeout + _JOIN_GRACE,
            ahead=self._may_come(),
        )

    def _may_come(self) -> Partitions:
        """What the plan may bring, as far as is known: of some few partitions, all.

        To ask for their offsets before it is here saves a moved partition's gap the time from one
        answer to the next request, and its way.
        """
        topics = self._interest.all_topics
        if len(topics) > _FEW:
            return NO_PARTITIONS
        counts = self._watch.counts(topics)
        if sum(counts.values()) > _FEW:
            return NO_PARTITIONS
        return Partitions({t: range(count) for t, count in counts.items()}) - self.owned

    def _has_missed_a_round(self, joined: Generation, now: float) -> bool:
        """Whether the group may have held a round of which we said nothing.

        A static member that does not join in time keeps its place (KIP-345), and a round has given
        what it owned to others. It was stopped, say: it comes back in the generation after that as
        if nothing had happened, and would commit what it had processed two generations ago. While
        our lease lasted no such round can have ended.
        """
        missed = bool(self.owned) and self._attendance.skips(joined)
        return missed and now >= self._pulse.lease_until

    # --- SyncGroup's answer ----------------------------------------------------------------

    def _on_sync_answered(self, event: ev.SyncAnswered, now: float) -> Effects:
        if event.token != self._awaited:
            return ()
        self._awaited = None
        answer = event.answer
        if isinstance(answer, RequestFailedError):
            return self._unanswered("SyncGroup", answer, now)
        if answer.error is not ErrorCode.none:
            return self._react(SYNC[answer.error], answer.error, "SyncGroup", now)
        request, self._sync_request = self._sync_request, None
        assert request is not None
        node = self._discovery.node
        if node is not None and self._pulse.proves_too_little(self._sync_sent_at):
            return (self._send_sync(request, node, now),)  # it is answered at once
        renewed = self._pulse.synced(self._sync_sent_at, now)
        self._joining_since = None
        self._begin_round(now).synced_at = now
        self._marks = AssignmentMarks()
        try:
            assignment, marks = _read_assignment(answer, strategy=self._strategy)
        except MalformedDataError as error:
            return renewed + self._give_up_round(failure_of_exception(error), now)
        self._marks = marks or self._marks
        unwanted = [t for t in assignment.partitions.topics() if not self._interest.wants(t)]
        if unwanted:
            if self._not_covered():
                self._prepared = False  # what is not wanted any more goes before the next join
            why = f"assigned topics that are not subscribed to: {', '.join(unwanted[:5])}"
            return renewed + self._retry_round(why, now, force=True)
        self._retries = 0  # not by JoinGroup: a round that can't be completed comes again and again
        return renewed + self._complete(assignment, now, is_marked=marks is not None)

    @property
    def _strategy(self) -> str | None:
        """Of the round under way, as JoinGroup's answer named it."""
        return None if self._joined is None else self._joined.answer.protocol_name

    # --- errors ----------------------------------------------------------------------------

    def _react(
        self,
        reaction: Reaction,
        error: ErrorCode,
        what: str,
        now: float,
        answer: GroupJoined | None = None,
    ) -> Effects:
        """Carries a row of the JOIN or SYNC table out."""
        reason = f"rebalance failed due to {error.name.upper()}"
        match reaction:
            case Reaction.ADOPT_MEMBER_ID:
                assert answer is not None
                self.member_id = answer.member_id
                self._leave_for_unjoined()
                self._wish(f"need to re-join with the given member-id: {self.member_id}", now)
                # The coordinator waits for this id from now on, whatever becomes of us: who is to
                # leave in our name must know it before the JoinGroup that may be parked for long.
                return (IdentityChanged(metadata=self.metadata, commits_open=False),)
            case Reaction.RETRY:
                self._leave_for_unjoined()
                self._wish(reason, now)
                return ()
            case Reaction.BACK_OFF:
                return self._retry_round(reason, now)
            case Reaction.REDISCOVER:
                return self._retry_round(reason, now, rediscover=True)
            case Reaction.RESET_GENERATION | Reaction.RESET_MEMBER:
                announced = self._announce_failure(f"{what}: {error.name.upper()}", now)
                keep = reaction is Reaction.RESET_GENERATION
                why = f"encountered {error.name.upper()} from {what} response"
                return announced + self._reset(why, now, keep_member_id=keep)
            case Reaction.FENCED if self._returns:
                # As a process that starts does, without the id that was kept.
                self._returns = False
                return self._reset(
                    f"another took our place before {what}", now, keep_member_id=False
                )
            case Reaction.FENCED:
                failure = failure_of_code(error, what, fatal=True)
                gone = self._give_up_round(failure, now, reason)
                return gone + self._reset(failure.message, now, keep_member_id=True)
            case _:
                return self._for_the_user(error, what, now, reason)

    def _for_the_user(self, error: ErrorCode, what: str, now: float, reason: str) -> Effects:
        """No retry can help but the user's."""
        ours = None
        if error is ErrorCode.inconsistent_group_protocol:
            listed = ",".join(assignor.name for assignor in self.settings.assignors)
            ours = f"partition.assignment.strategy={listed}"
        elif error is ErrorCode.unknown_server_error and what == "SyncGroup":
            ours = _TOO_LARGE
        failure = failure_of_code(error, what, detail=ours)
        given_up = self._give_up_round(failure, now, reason)
        if error is not ErrorCode.group_max_size_reached:
            return given_up
        # Who has been a member is none any more, and what it owned is others' by now.
        return given_up + self._reset(failure.message, now, keep_member_id=False)

    def _retry_round(
        self, why: str, now: float, *, rediscover: bool = False, force: bool = False
    ) -> Effects:
        """The attempt failed; nothing is reset, prepare is not repeated."""
        s = self.settings
        self._leave_for_unjoined()
        self._retry_at = now + backoff(
            self._retries, base=s.retry_backoff, cap=s.retry_backoff_max, seed=s.seed
        )
        self._retries += 1
        self._wish(why, now)
        if force:
            self._rejoins += 1
        return self._forget_coordinator(now) if rediscover else ()

    def _give_up_round(self, failure: Failure, now: float, why: str | None = None) -> Effects:
        """No retry of ours can help: the user hears of it, and the next poll tries again."""
        announced = self._announce_failure(failure.message, now)
        told = self._fail(failure, halt=True)
        return announced + told + self._retry_round(why or failure.message, now)

    def _unusable_protocol(self, answer: GroupJoined) -> Failure | None:
        kind, name = answer.protocol_type, answer.protocol_name
        if kind not in (None, CONSUMER_PROTOCOL_TYPE) or name not in self._assignors:
            what = f"JoinGroup (the group chose {name!r} of type {kind!r}, which is not ours)"
            return failure_of_code(ErrorCode.inconsistent_group_protocol, what)
        return None


def _union_of_topics(subscriptions: Iterable[bytes]) -> tuple[str, ...]:
    """What all members together subscribe to. A member whose bytes are broken wants nothing."""
    union: set[str] = set()
    for data in set(subscriptions):
        try:
            union.update(decode_topics(data))
        except MalformedDataError:
            continue
    return tuple(sorted(union))


def _read_assignment(
    answer: GroupSynced, *, strategy: str | None
) -> tuple[Assignment, AssignmentMarks | None]:
    """Raises MalformedDataError for bytes that are none, or another strategy's (KIP-559)."""
    if None not in (answer.protocol_name, strategy) and answer.protocol_name != strategy:
        raise MalformedDataError(
            f"SyncGroup: an assignment by {answer.protocol_name!r}, of a round of {strategy!r}"
        )
    if answer.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise MalformedDataError(f"SyncGroup: protocol type {answer.protocol_type!r}")
    if not answer.assignment:
        # A member that joined while the leader was already at work is given nothing.
        return Assignment(), None
    assignment = decode_assignment(answer.assignment)
    user_data, marks = split_marks(assignment.user_data)
    plain = Assignment(partitions=assignment.partitions, user_data=user_data or b"")
    return plain, marks if isinstance(marks, AssignmentMarks) else None
