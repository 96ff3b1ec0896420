"""What is to happen when, in virtual time: the only clock of a simulated world."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

Job: TypeAlias = Callable[..., object]

_NEVER = float("inf")


class Agenda:
    """Calls by their time, in seconds; of two at one time the one written down first.

    Attributes:
        now: The virtual time. It never goes back.
    """

    __slots__ = ("_heap", "_sequence", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Job, tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, time: float, job: Job, *args: Any) -> None:
        """Writes a call down; one for the past happens now."""
        self._sequence += 1
        heapq.heappush(self._heap, (max(time, self.now), self._sequence, job, args))

    def after(self, delay: float, job: Job, *args: Any) -> None:
        """Writes a call down for ``delay`` seconds from now."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay, self._sequence, job, args))

    def next_time(self) -> float:
        """When the next call is due; infinity: there is none."""
        return self._heap[0][0] if self._heap else _NEVER

    def step(self) -> None:
        """Makes the next call."""
        self.now, _, job, args = heapq.heappop(self._heap)
        job(*args)
