"""Deadlines by name, in virtual time: scheduling a name again moves its deadline.

A timer is a plain value, not a closure, so that a coordinator with timers running can be
copied and both copies go their own way.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

TimerT = TypeVar("TimerT", bound=Hashable)


class _Entry(NamedTuple):
    deadline: float
    sequence: int
    """Breaks ties: of two equal deadlines the one scheduled first goes first."""


class Timers(Generic[TimerT]):
    """A heap of deadlines; moved and cancelled ones are skipped when they surface.

    Scheduling costs O(log n). A timer moved k times leaves k entries behind until their
    deadlines pass, or until they outnumber the live ones: the heap is then rebuilt.
    """

    __slots__ = ("_heap", "_live", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[_Entry, TimerT]] = []
        self._live: dict[TimerT, _Entry] = {}
        self._sequence = 0

    def schedule(self, timer: TimerT, deadline: float) -> None:
        """Sets or moves the timer's deadline (seconds)."""
        self._sequence += 1
        entry = _Entry(deadline, self._sequence)
        self._live[timer] = entry
        heapq.heappush(self._heap, (entry, timer))
        if len(self._heap) > _SLACK + 2 * len(self._live):
            self._heap = [(entry, timer) for timer, entry in self._live.items()]
            heapq.heapify(self._heap)

    def cancel(self, timer: TimerT) -> None:
        """Forgets the timer; one that is not set is not an error."""
        self._live.pop(timer, None)

    def deadline(self, timer: TimerT) -> float | None:
        """When the timer will fire; None where it is not set."""
        entry = self._live.get(timer)
        return None if entry is None else entry.deadline

    def next_deadline(self) -> float | None:
        """The earliest deadline; None where no timer is set."""
        self._drop_stale()
        return self._heap[0][0].deadline if self._heap else None

    def pop_due(self, now: float) -> tuple[float, TimerT] | None:
        """Takes out the earliest timer whose deadline is not after ``now``.

        Returns:
            Its deadline and itself; None where none is due.
        """
        # A stale entry that is not due yet can stay: most calls end here.
        if not self._heap or self._heap[0][0].deadline > now:
            return None
        self._drop_stale()
        if not self._heap or self._heap[0][0].deadline > now:
            return None
        entry, timer = heapq.heappop(self._heap)
        del self._live[timer]
        return entry.deadline, timer

    def running(self) -> tuple[tuple[str, float], ...]:
        """Every timer that is set, as text, with its deadline, sorted."""
        return tuple(sorted((repr(timer), entry.deadline) for timer, entry in self._live.items()))

    def clear(self) -> None:
        """Forgets every timer."""
        self._heap.clear()
        self._live.clear()

    def _drop_stale(self) -> None:
        heap, live = self._heap, self._live
        while heap and live.get(heap[0][1]) is not heap[0][0]:
            heapq.heappop(heap)


_SLACK = 64
