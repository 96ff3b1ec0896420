"""Heartbeats: when to send them, what their answers prove, and the lease they renew.

Pace. While nothing happens the leader's suggestion holds, a budget for the whole group
(or ``heartbeat.interval.ms``, where the user set it): for a minute after each round, for rounds
come in series, when a service is deployed or scaled. Then, and where there are no records, a
member beats five times a second at most: four that went on a hundred times each would cost their
coordinator a tenth of a core, for ever, and so would every such group (benchmarks/beats.py).

While a follow-up round is announced the members that have nothing to revoke would be the last to
hear of it: the coordinator tells them only in answer to a heartbeat, so every heartbeat interval is
added to the time that the moving partitions have no owner. Where the leader says so they join
before it has begun (`kafka_coop.assignors.withholding.may_go_ahead`). Else they beat every 4 ms
instead, and more slowly the longer the revoking member takes (a callback of 30 s must not cost the
broker 3,000 beats a member).

Lease. The broker restarts a member's session timer when it *receives* a heartbeat, which is
not before the member *sent* it. So until ``session.timeout.ms`` after the last acknowledged
heartbeat was sent, no other member can have been given our partitions. A process that was
stopped or suspended finds its lease over and delivers nothing, before it has heard a word from
the broker. REBALANCE_IN_PROGRESS is an acknowledgement too: the broker restarts the timer
before it says so.

A member that beats may lose its partitions all the same: one that does not join, or does not
sync, within the rebalance timeout of a round. Its user may be in a callback when that round
begins, or its JoinGroup may be lost; whoever waits no longer gives its partitions away at once,
and the member hears of it with its next heartbeat only. So the lease ends, too, a rebalance
timeout after the last moment for which it is *proven* that no round had begun to wait for us.

Silence. A beat may hang, on a connection that a firewall or a vanished host has left half-open. It
is given up while the session has time for another one, which goes out as soon as the coordinator
has been looked for anew: the same one, on a new connection, may be well.

Doubt. A coordinator that has just taken the group over acknowledges every heartbeat, for it
does not know its members yet. While our lease lasts this does no harm: we can't have been
dropped, and it gives everyone a new session when it has read the group. Once the lease has run
out we may have been dropped before it came, so an acknowledgement is believed only after a
JoinGroup or SyncGroup, sent later, has shown that we are a member: who still reads the group
refuses both. A newcomer whose JoinGroup was parked for longer than a session, behind a user who
takes long over a record, has no lease when it is answered: its SyncGroup is sent once more, to a
group that is stable, and that begins no round; a JoinGroup would.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from kafka_coop.errors import RequestFailedError
from kafka_coop.membership.effects import (
    Effect,
    EndLease,
    ExtendLease,
    HeartbeatObserved,
    SendHeartbeat,
)
from kafka_coop.membership.events import HeartbeatAnswered
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import Heartbeat, Node
from kafka_coop.types import GroupMetadata

DEFAULT_INTERVAL = timedelta(seconds=3)
"""Where neither the user nor the leader gave an interval: beside members of other clients, whose
default it is. Who beat more often would be missed later than they, once it died (the session begins
anew with each beat), and would hear of a round no sooner than the last of them."""

IDLE_AFTER = 10.0
SETTLED_AFTER = 60.0
CALM_INTERVAL = 0.2
"""Seconds. Who has had no record for so long, or whose group no round, does not beat more often. A
plain leave costs the others half of it more, on average. An interval set by the user holds."""

IN_STEP_UP_TO = 0.2
"""Seconds. Members that beat this often do so at the same moments, counted from the answer to
SyncGroup, which all get at once: a round waits for whoever hears of it last, and of four members
that beat at any time the last does so after 4/5 of an interval, on average; in step after 1/2.
Larger groups, whose interval is longer, must not fall upon the broker all at once."""

FOLLOW_UP_AFTER = 0.008
"""Seconds from the announcement to the first of these beats, or to the JoinGroup of who goes ahead:
whoever revokes has a callback to run, and most often a commit to send, and what the others send
would only be in its way. And all have most likely had their SyncGroup answered: whoever has not is
refused once the next round has begun."""

FOLLOW_UP_INTERVAL = 0.004
"""Seconds. Half of it is part of the gap of what moves, on average. Revoking takes some 20 ms."""
_FOLLOW_UP_SLOWDOWN = 0.1  # of the time since the announcement

_ACKNOWLEDGED = frozenset({ErrorCode.none, ErrorCode.rebalance_in_progress})
"""Answers that say that the session goes on. All others refuse the beat."""


def calm(pace: float, session_timeout: float) -> float:
    """Seconds between two beats of who beats at this pace otherwise, while there is no hurry."""
    return max(pace, min(CALM_INTERVAL, session_timeout / 3))


class Pulse:
    """The heartbeats of one member. Beats while it has an identity to beat with."""

    def __init__(self, settings: MemberSettings, new_token: Callable[[], int]) -> None:
        self._settings = settings
        self._new_token = new_token
        self._identity: GroupMetadata | None = None
        self._pace = 0.0
        """Seconds between two beats while nothing happens and the user has records."""
        self.suggest(None)
        self._announced_at: float | None = None
        self._goes_ahead = False
        self._delivered_at: float | None = None
        self._flying: tuple[int, float, GroupMetadata] | None = None
        self._last_sent = 0.0
        self._lost = False
        """The last beat was not answered: whoever is found next is asked at once."""
        self._not_before = 0.0
        self._session_ends: float | None = None
        self._acknowledged = float("-inf")
        """When the last of our requests that restarted the session timer was sent."""
        self._unhurried = float("-inf")
        """The latest moment before which no round can have begun to wait for us."""
        self._synced = False
        self._awaits_round = False
        """JoinGroup is sent, and SyncGroup not yet answered."""
        self._in_step_since: float | None = None
        """When SyncGroup was last answered."""
        self._hurried = float("-inf")
        """When the last heartbeat was sent that found a round waiting for us, us in the group."""
        self._lease = float("-inf")
        self.forfeited = False
        """A round was missed: what is owned may have been others' since, and is lost with the next
        assignment. Until then it has no lease."""
        self._doubtful: tuple[float, float] | None = None
        """When the acknowledgement that came after the lease's end was sent for, and came."""

    @property
    def doubtful(self) -> bool:
        """Whether heartbeats are acknowledged, but may be so to anyone."""
        return self._doubtful is not None

    @property
    def session_ends(self) -> float | None:
        """When the broker may have dropped us; None: not in the group."""
        return self._session_ends

    @property
    def lease_until(self) -> float:
        """From when on another member may own what we own."""
        return self._lease

    @property
    def announced(self) -> bool:
        """Whether a follow-up round is announced and has not begun."""
        return self._announced_at is not None

    @property
    def ahead_at(self) -> float | None:
        """When to join an announced follow-up round that nobody has begun; None: not at all."""
        if self._announced_at is None or not self._goes_ahead:
            return None
        return self._announced_at + FOLLOW_UP_AFTER

    @property
    def interval(self) -> float:
        """Seconds between two beats, and so until the group's next news, while nothing happens."""
        quiet = self._awaits_round or self._idle() or self._settled()
        if self._settings.heartbeat_interval is not None or not quiet:
            return self._pace
        return calm(self._pace, self._settings.session_timeout.total_seconds())

    @property
    def news_every(self) -> float:
        """Seconds between two looks of the user's thread for what a round wants of it.

        In a settled group, too, it looks as often as a new round's pace wants: where records come
        that costs nothing, for each ends a wait. Where none do, it is the interval's.
        """
        return self.interval if self._idle() else self._pace

    @property
    def follow_up_due(self) -> float | None:
        """When to stop waiting for the announced follow-up round; None: none is announced.

        Who is to begin it may have died, and its successor have got its place back without a
        round, and with it an assignment of which nothing is left to give up (static members,
        KIP-345): what was given up would be nobody's. A session is the time in which any other
        death would have been noticed.
        """
        if self._announced_at is None:
            return None
        return self._announced_at + self._settings.session_timeout.total_seconds()

    def rejoins(self) -> None:
        """JoinGroup is sent: its answer, and SyncGroup's, tell what beats would be sent for."""
        self._awaits_round = True
        self._announced_at = None  # whatever was waited for, this begins it

    def start(
        self, identity: GroupMetadata, now: float, *, joining_since: float, join_sent_at: float
    ) -> None:
        """Beats for this generation from now on.

        It began no earlier than ``joining_since``, when we first asked for it, nor than the
        last heartbeat which found that it had not; since then it waits for our SyncGroup, and
        our session runs anew.
        """
        began = max(joining_since, self._hurried)
        if self._identity is None:
            # Where the others let us wait long, the session may be half over.
            tired = now - began > self._settings.session_timeout.total_seconds() / 3
            self._last_sent = float("-inf") if tired else now
        if self._identity is None or self._identity.generation != identity.generation:
            self._acknowledged = max(self._acknowledged, began)
        self._believe(join_sent_at)
        # What was refused last was of the generation before: a beat that crossed the answer to our
        # JoinGroup. Were it to count, we would not hear of the follow-up round for a tenth of a
        # second, and what moves in it would wait for us.
        self._not_before = 0.0
        self._lost = False
        self._identity = identity
        self._synced = False
        self._unhurried = max(self._unhurried, began)
        self._announced_at = None
        if self._session_ends is None:
            self._session_ends = now + self._settings.session_timeout.total_seconds()

    def stop(self) -> tuple[Effect, ...]:
        """Out of the group: no beat, and no lease."""
        self.forfeited = False
        self._awaits_round = False
        if self._identity is None:
            return ()
        self._identity = None
        self._flying = None
        self._announced_at = None
        self._session_ends = None
        self._acknowledged = self._unhurried = self._hurried = self._lease = float("-inf")
        self._doubtful = None
        return (EndLease(),)

    def forfeit(self) -> None:
        """A round has ended without us: its plan may have given away what our lease is for."""
        self.forfeited = True

    def regain(self) -> tuple[Effect, ...]:
        """What was forfeited, if anything, has been given up."""
        was, self.forfeited = self.forfeited, False
        return self._renew_lease() if was else ()

    def suggest(self, interval: timedelta | None) -> None:
        """What the leader's assignment says of the pace; None where it says nothing.

        Java's advice, a third of the session timeout, is a bound on what a leader may suggest. Its
        own default isn't bound by it; one beat that is lost has to leave time for another.
        """
        s = self._settings
        own = s.heartbeat_interval
        if own is None and interval is not None:
            chosen = min(interval, s.session_timeout / 3)
        else:
            chosen = min(own or DEFAULT_INTERVAL, s.session_timeout / 2)
        self._pace = chosen.total_seconds()

    def delivered(self, at: float | None) -> None:
        """When the user was last given a record; None: it is not known."""
        self._delivered_at = at

    def announce(self, now: float, *, ahead: bool = False) -> None:
        """The leader announced a follow-up round, in which we have nothing to give up.

        ``ahead``: if nobody has begun it by `ahead_at`, we are to.
        """
        self._announced_at, self._goes_ahead = now, ahead

    def proves_too_little(self, sent_at: float) -> bool:
        """Whether an acknowledgement is in doubt that a later request of the kind would settle."""
        return self._doubtful is not None and sent_at < self._doubtful[1]

    def _believe(self, sent_at: float) -> None:
        """A request that nobody takes but who knows the group's members was answered."""
        if self._doubtful is not None and not self.proves_too_little(sent_at):
            self._acknowledged = max(self._acknowledged, self._doubtful[0])
            self._doubtful = None

    def synced(self, sent_at: float, now: float) -> tuple[Effect, ...]:
        """SyncGroup was answered: the next thing to wait for us is another round.

        It is no sign of life to the broker, which does not restart the session of a member
        that syncs after the leader has.
        """
        self._believe(sent_at)
        self._synced = True
        self._awaits_round = False
        self._in_step_since = now
        self._unhurried = max(self._unhurried, sent_at)
        return self._renew_lease()

    def _acknowledge(self, sent_at: float) -> tuple[Effect, ...]:
        """The broker received something of ours that restarts the session timer."""
        self._acknowledged = max(self._acknowledged, sent_at)
        self._doubtful = None
        self._session_ends = self._acknowledged + self._settings.session_timeout.total_seconds()
        return self._renew_lease()

    def _renew_lease(self) -> tuple[Effect, ...]:
        until = self._end_of_lease()
        if until == self._lease or self.forfeited:
            return ()
        self._lease = until
        return (ExtendLease(until=until),)

    def _end_of_lease(self) -> float:
        s = self._settings
        return min(
            self._acknowledged + s.session_timeout.total_seconds(),
            self._unhurried + s.rebalance_timeout.total_seconds(),
        )

    def beat(self, node: Node | None, now: float) -> tuple[Effect, ...]:
        """Sends a heartbeat if one is due. At most one is under way."""
        due = self.deadline()
        if node is None or due is None or now < due or self._identity is None:
            return ()
        me = self._identity
        token = self._new_token()
        self._flying = (token, now, me)
        self._lost = False
        self._last_sent = now
        request = Heartbeat(
            group_id=me.group_id,
            generation=me.generation,
            member_id=me.member_id,
            instance_id=me.instance_id,
        )
        timeout = min(self._settings.request_timeout, self._patience(now))
        return (SendHeartbeat(token=token, node=node, request=request, timeout=timeout),)

    def _patience(self, now: float) -> timedelta:
        """How long a beat may take: half of what is left, and another comes within the session.

        A quarter of a session in any case: a broker that is slow, and answers, is none that hangs.
        """
        session = self._settings.session_timeout
        left = timedelta(seconds=(self._session_ends or now) - now)
        return max(left / 2, session / 4)

    def lose(self) -> tuple[Effect, ...]:
        """The coordinator is to be looked for: its answer, if one is due, is awaited no more.

        A beat that hangs would keep us from beating for whoever is found, until it is given up;
        and that would have us look for the coordinator once more.
        """
        if self._flying is None:
            return ()
        self._flying, self._lost = None, True
        return (HeartbeatObserved(latency=None),)

    def answered(
        self, event: HeartbeatAnswered, now: float
    ) -> tuple[tuple[Effect, ...], ErrorCode | RequestFailedError | None, GroupMetadata | None]:
        """Returns effects, the answer's error, and the identity that the beat was sent with.

        The error is None where the beat is not awaited any more.
        """
        if self._flying is None or event.token != self._flying[0]:
            return (), None, None
        _, sent_at, sender = self._flying
        self._flying = None
        if isinstance(event.answer, RequestFailedError):
            self._lost = True
            self._not_before = now + self._settings.retry_backoff.total_seconds()
            return (HeartbeatObserved(latency=None),), event.answer, sender
        error = event.answer.error
        acknowledged = error in _ACKNOWLEDGED
        latency = timedelta(seconds=now - sent_at) if acknowledged else None
        observed = HeartbeatObserved(latency=latency)
        if error is ErrorCode.none and now >= self._end_of_lease():
            self._doubt(sent_at, now)
            self.expire(now)
            return (observed,), error, sender
        if error is ErrorCode.none and sender == self._identity and self._synced:
            self._unhurried = max(self._unhurried, sent_at)
        if error is ErrorCode.rebalance_in_progress and sender == self._identity:
            self._hurried = sent_at
        if acknowledged:
            return (observed, *self._acknowledge(sent_at)), error, sender
        if sender == self._identity:  # else as in `start`
            self._not_before = now + self._settings.retry_backoff.total_seconds()
        return (observed,), error, sender

    def _doubt(self, sent_at: float, now: float) -> None:
        """Of several the first: it is settled soonest.

        Else a SyncGroup that takes longer than the time between two beats would be sent for ever.
        """
        session = self._settings.session_timeout.total_seconds()
        if self._doubtful is None or now >= self._doubtful[0] + session:
            self._doubtful = sent_at, now

    def expire(self, now: float) -> None:
        """The session may be over; asks again after another session's time of silence."""
        if self._session_ends is not None:
            self._session_ends = now + self._settings.session_timeout.total_seconds()

    def told(self) -> None:
        """The follow-up round has begun, or is about to, by us: the ordinary pace will do."""
        self._announced_at = None

    def deadline(self) -> float | None:
        """When the next beat is due; None: no beat is."""
        if self._identity is None or self._flying is not None:
            return None
        return max(self._next_beat(), self._not_before)

    def _next_beat(self) -> float:
        if self._lost:
            return self._last_sent
        ordinary = self.interval
        due = self._last_sent + ordinary
        if self._announced_at is not None and not self._goes_ahead:
            waited = self._last_sent - self._announced_at
            hurried = max(FOLLOW_UP_INTERVAL, waited * _FOLLOW_UP_SLOWDOWN)
            return max(min(due, self._last_sent + hurried), self._announced_at + FOLLOW_UP_AFTER)
        since = self._in_step_since
        if since is None or ordinary > IN_STEP_UP_TO or self._last_sent == float("-inf"):
            return due
        # The beat of all that is nearest: no two of ours are closer than half an interval.
        return since + max(1, round((due - since) / ordinary)) * ordinary

    def _idle(self) -> bool:
        return self._delivered_at is not None and self._last_sent - self._delivered_at > IDLE_AFTER

    def _settled(self) -> bool:
        since = self._in_step_since
        return since is not None and self._last_sent - since > SETTLED_AFTER
