"""How long to wait before connecting to a broker again (``reconnect.backoff.ms``)."""

from __future__ import annotations

import random
from datetime import timedelta

_JITTER = 0.2
"""KIP-144: without it, all clients of a restarted broker come back in the same instant."""

_MOST_DOUBLINGS = 30
"""Past any sensible maximum; without a bound, 2.0 ** 1024 overflows."""


class ReconnectBackoff:
    """One broker's waiting time: doubled by every failure in a row, forgotten by a success.

    A connection that opens has proved nothing yet: a broker that demands SASL opens it and
    cuts it at the first request. `succeeded` is for the first answer.
    """

    __slots__ = ("_base", "_failures", "_maximum", "_not_before", "_rng")

    def __init__(self, *, base: timedelta, maximum: timedelta, rng: random.Random) -> None:
        self._base = base.total_seconds()
        self._maximum = max(maximum, base).total_seconds()
        self._rng = rng
        self._failures = 0
        self._not_before = 0.0

    def failed(self, now: float) -> None:
        """A connection could not be made, or was lost.

        Args:
            now: Seconds on the clock that `delay` is asked with.
        """
        wait = min(self._base * 2.0**self._failures, self._maximum)
        self._failures = min(self._failures + 1, _MOST_DOUBLINGS)
        jitter = self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        self._not_before = now + wait * jitter

    def succeeded(self) -> None:
        """The broker answered: the next failure starts from the base again."""
        self._failures = 0
        self._not_before = 0.0

    def delay(self, now: float) -> float:
        """Seconds still to wait before the next attempt; zero when there is none to wait."""
        return max(0.0, self._not_before - now)

    def rank(self, now: float) -> tuple[int, float]:
        """The less, the sooner this broker is worth an attempt.

        A broker that hangs takes all the time that a request has, so it comes after those that
        answered the last time even when its waiting time is over.
        """
        return self._failures, self.delay(now)
