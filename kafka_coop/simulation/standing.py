"""A member's standing with its group, as the requests and answers of its process show it.

What the machine says of its lease is checked against this, which looks at no field of the machine:
it may not hold a lease longer than the coordinator was asked to keep it (invariant 1), and where
the coordinator has just confirmed it, it may neither withhold records nor tell its user of a loss
(invariant 4).
"""

from __future__ import annotations

from kafka_coop.errors import RequestFailedError
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.protocol.error_codes import ErrorCode

_ALIVE = (ErrorCode.none, ErrorCode.rebalance_in_progress)
"""Answers to a heartbeat which say that the session began anew when it came."""

_NEVER = float("-inf")
_ROUNDING = 1e-9


class Standing:
    """Of one process. Times are those of the agenda.

    Attributes:
        good: In the group as far as it can know: given an assignment, and not told otherwise.
        skipped: It has joined a round, and not the one before: that one may have given away what
            it owns.
        sure_until: Until then nobody else can have been given what it owns, whatever happens.
    """

    def __init__(self, settings: MemberSettings) -> None:
        self._session = settings.session_timeout.total_seconds()
        self._rebalance = settings.rebalance_timeout.total_seconds()
        self._sent: dict[int, float] = {}
        self._sent_before_a_jump: set[int] = set()
        self._proven = _NEVER
        self._synced = False
        self._joined = -1
        self._adopted = False
        self.good = False
        self.skipped = False
        self.sure_until = _NEVER

    @property
    def longest_lease(self) -> float:
        """No lease may last longer: a session from the last request that began it anew."""
        return self._proven + self._session + _ROUNDING

    def does(self, effect: ef.Effect, now: float) -> None:
        """The machine wants something done."""
        match effect:
            case ef.SendHeartbeat(token=token):
                self._sent[token] = now
            case ef.SendLeave():
                self._ends()
            case ef.IdentityChanged(metadata=metadata) if metadata.generation < 0:
                self._ends()

    def clock_jumped(self) -> None:
        """Its lease may be over, by its own clock, or is so sooner than what is under way says."""
        self.sure_until = _NEVER
        self._sent_before_a_jump = set(self._sent)

    def given_an_assignment(self) -> None:
        """SyncGroup was answered, and the answer is taken."""
        self.good = self._synced = self._adopted = True

    def hears(self, event: ev.Event, now: float, lease_until: float) -> None:
        """An answer is about to be given to the machine.

        An acknowledgement that comes when the lease is over proves nothing: a coordinator that has
        just taken the group over acknowledges everything.
        """
        if isinstance(event, ev.JoinAnswered):
            if not isinstance(event.answer, RequestFailedError) and (
                event.answer.error is ErrorCode.none
            ):
                self._proven = max(self._proven, now)
                self._joins(event.answer.generation)
                self._synced = False  # a round waits for it: what is acknowledged proves less
            return
        if not isinstance(event, ev.HeartbeatAnswered):
            return
        sent = self._sent.pop(event.token, None)
        if sent is None or isinstance(event.answer, RequestFailedError):
            return
        if event.answer.error in _ALIVE:
            self._proven = max(self._proven, sent)
        sure = self.good and self._synced and now < lease_until
        sure = sure and event.token not in self._sent_before_a_jump
        if event.answer.error is ErrorCode.none and sure:
            self.sure_until = max(self.sure_until, sent + min(self._session, self._rebalance))

    def _joins(self, generation: int) -> None:
        self.skipped = 0 <= self._joined < generation - 1 or (self.skipped and not self._adopted)
        self._joined, self._adopted = generation, False

    def _ends(self) -> None:
        self.good = False
        self._joined = -1
        self.sure_until = _NEVER
