"""What each member was doing when, for the plot."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from kafka_coop.simulation.planner.ownership import Floats, Ints


class Phase(enum.Enum):
    """What a member does, other than consuming."""

    DOWN = "not running"
    GIVING_UP = "giving partitions up"
    WAITING = "waiting for the others"
    SYNCING = "waiting for the assignment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One phase of one member. Virtual seconds."""

    row: int
    phase: Phase
    start: float
    end: float


class Timeline:
    """The spans of some rows; a restarted member goes on in the row it had.

    Attributes:
        rows: The members shown, by their number among all.
    """

    def __init__(self, row_of: Ints, rows: int) -> None:
        """Shows some rows, spread evenly.

        Args:
            row_of: The row of each process.
            rows: How many to show at most.
        """
        total = int(row_of.max()) + 1
        self._total = total
        self._step = max(1, -(-total // rows))
        self.rows = tuple(range(0, total, self._step))
        self.spans: list[Span] = []
        self._row_of = row_of

    def shown(self) -> str:
        """Whom a row stands for: a member, or one of so many."""
        if self._step == 1:
            return "member"
        return f"every {ordinal(self._step)} of {self._total:,} members"

    def add(
        self, processes: Ints, phase: Phase, start: Floats | float, end: Floats | float
    ) -> None:
        """These processes were in this phase."""
        rows = self._row_of[processes]
        shown = rows % self._step == 0
        starts = np.broadcast_to(start, rows.shape)[shown].tolist()
        ends = np.broadcast_to(end, rows.shape)[shown].tolist()
        for row, a, b in zip((rows[shown] // self._step).tolist(), starts, ends, strict=True):
            if b > a:
                self.spans.append(Span(row=row, phase=phase, start=a, end=b))


def ordinal(number: int) -> str:
    """`2nd`, `50th`."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if number % 100 in (11, 12, 13) else endings.get(number % 10, "th")
    return f"{number}{ending}"
