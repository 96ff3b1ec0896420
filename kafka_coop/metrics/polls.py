"""When the application polls, kept so that poll() pays next to nothing for it.

A histogram would take two locks an observation, as long as a whole poll() that finds a record
waiting. So poll() writes a few slots of a `PollClock`, without a lock, in about a third of that
time, and the scrape reads them: Prometheus gets a sum, a count, a recent maximum and the idle
time. consume(n) pays it once for n records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

MAX_WINDOW_SECONDS: Final = 60.0
"""The longest gap is that of the current window and of the one before."""


class PollReading(NamedTuple):
    """A `PollClock` at one moment. All in seconds; ``last`` by the clock that poll() used."""

    last: float | None
    """When the application was last inside poll(): now, while it waits there. None: never."""
    gaps: int
    gaps_sum: float
    gap_max: float
    idle: float


class PollClock:
    """Written by the thread that polls, read by any other.

    A poll() that finds a record waiting takes a short way, on which nothing is counted but the
    moment (`last_seen`): its gaps are not among the figures, but none goes unnoticed that begins
    or ends with a longer poll, and the short way is left every second.

    ``entered`` and ``left`` belong around every poll() or consume(); nested or concurrent
    polls count as one. Seconds of one steady clock, the same that the reader uses.

    Attributes:
        last_seen: When a poll was last seen, by the same clock; of whoever knows it.
    """

    __slots__ = (
        "_gap_max",
        "_gaps",
        "_gaps_sum",
        "_idle_read",
        "_last",
        "_left",
        "_polls",
        "_previous_gap_max",
        "_waiting",
        "_window_end",
        "last_seen",
    )

    def __init__(self) -> None:
        self.last_seen: Callable[[], float] = lambda: float("-inf")
        self._polls = 0
        self._gaps = 0
        self._gaps_sum = 0.0
        self._last = 0.0
        self._left: float | None = None
        self._gap_max = 0.0
        self._previous_gap_max = 0.0
        self._window_end = 0.0
        # One tuple, since a reader between two assignments would see the wait twice or never:
        # idle seconds until this poll, and when it began (None: outside poll()).
        self._waiting: tuple[float, float | None] = (0.0, None)
        self._idle_read = 0.0

    def entered(self, now: float) -> None:
        """poll() begins. The gap of Java's time-between-poll runs from begin to begin."""
        idle, since = self._waiting
        if since is not None:
            return
        self._waiting = (idle, now)
        if self._polls:
            gap = max(now - self._begun(), 0.0)
            self._gaps += 1
            self._gaps_sum += gap
            if now >= self._window_end:
                self._begin_window(now)
            if gap > self._gap_max:  # noqa: PLR1730  # max() would double the cost of poll's part
                self._gap_max = gap
        else:
            self._window_end = now + MAX_WINDOW_SECONDS
        self._last = now
        self._polls += 1

    def left(self, now: float) -> None:
        """poll() returns, or raises."""
        idle, since = self._waiting
        if since is not None:
            self._left = now
            self._waiting = (idle + (now - since), None)

    def read(self, now: float) -> PollReading:
        """The figures at ``now``; a wait that goes on counts as far as it has come."""
        idle, since = self._waiting
        last = self._left
        if since is not None:
            last = max(now, since)
            idle += last - since
        elif last is not None:
            last = max(last, self.last_seen())
        # ``left`` may carry a time taken before an earlier read's. A counter that steps back by
        # a microsecond is read as a restart of the process, and counted anew from zero.
        self._idle_read = max(self._idle_read, idle)
        return PollReading(
            last=last,
            gaps=self._gaps,
            gaps_sum=self._gaps_sum,
            gap_max=max(self._gap_max, self._previous_gap_max),
            idle=self._idle_read,
        )

    def _begun(self) -> float:
        """When the last poll began, one that took the short way included.

        While poll() waits it is seen again and again: that counts for what began after.
        """
        seen = self.last_seen()
        return seen if self._left is not None and seen > self._left else self._last

    def _begin_window(self, now: float) -> None:
        if now < self._window_end + MAX_WINDOW_SECONDS:
            self._previous_gap_max = self._gap_max
            self._window_end += MAX_WINDOW_SECONDS
        else:
            self._previous_gap_max = 0.0
            self._window_end = now + MAX_WINDOW_SECONDS
        self._gap_max = 0.0
