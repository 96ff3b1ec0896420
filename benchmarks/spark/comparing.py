"""Ours beside the built-in source, in turns: medians, ratios, and whether the goals were met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

OF_RECORDS = ("all", "limited")
WHAT = (*OF_RECORDS, "latency", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a figure has to be: of ours alone, or in ratio to the built-in's."""

    least_ratio: float | None = None
    most_ratio: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        if self.least_ratio is not None:
            return f"ratio ≥ {self.least_ratio:g}"
        return f"ratio ≤ {self.most_ratio:g}" if self.most_ratio is not None else f"< {self.most:g}"

    def is_met(self, ours: float, ratio: float | None) -> bool | None:
        """None: it can't be told, the built-in source having no figure."""
        if self.most is not None:
            return ours < self.most
        if ratio is None:
            return None
        if self.least_ratio is not None:
            return ratio >= self.least_ratio
        return self.most_ratio is not None and ratio <= self.most_ratio


FIGURES: Mapping[str, Mapping[str, Goal | None]] = {
    "all": {"rows_per_second": Goal(least_ratio=1.5)},
    "limited": {"rows_per_second": Goal(least_ratio=1.5)},
    "latency": {"least_ms": Goal(most_ratio=1.2), "median_ms": None},
    "idle": {"cores": Goal(most=0.03)},
}
"""Of each measurement, what it says, and the goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Of one measurement: pairs that were taken one after the other, or ours alone.

    Attributes:
        partitions: The topic's.
        taken: What each source measured, ours first, round by round.
    """

    what: str
    partitions: int
    taken: Sequence[Sequence[Mapping[str, Any]]]

    @property
    def ours(self) -> Sequence[Mapping[str, Any]]:
        return self.taken[0]

    @property
    def theirs(self) -> Sequence[Mapping[str, Any]]:
        return self.taken[1] if len(self.taken) > 1 else ()

    def ratios(self, figure: str) -> list[float]:
        """Ours to theirs, pair by pair: a busy minute of the machine is in both."""
        pairs = zip(self.ours, self.theirs, strict=bool(self.theirs))
        return [a[figure] / b[figure] for a, b in pairs if b[figure]]


def versions(rounds: Sequence[Rounds]) -> str:
    """Which PySpark each one ran on."""
    ours = sorted({run["spark"] for one in rounds for run in one.ours})
    theirs = sorted({run["spark"] for one in rounds for run in one.theirs})
    beside = f", the built-in source on PySpark {', '.join(theirs)}" if theirs else ""
    return f"Ours on PySpark {', '.join(ours)}{beside}."


def table(rounds: Sequence[Rounds]) -> Iterator[str]:
    """Markdown: medians, and the median of the pairs' ratios with the least and the most."""
    heads = ["", "partitions", "figure", "ours", "built-in"]
    heads += ["ours to built-in: median (least, most)", "goal", ""]
    yield f"| {' | '.join(heads)} |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in rounds:
        for figure, goal in FIGURES[one.what].items():
            ours = median(run[figure] for run in one.ours)
            theirs = _number(median(run[figure] for run in one.theirs)) if one.theirs else ""
            ratios = one.ratios(figure)
            ratio = _middle(ratios)
            shown = f"{ratio:.2f} ({min(ratios):.2f}, {max(ratios):.2f})" if ratio else ""
            met = None if goal is None else goal.is_met(ours, ratio)
            verdict = {None: "", True: "met", False: "missed"}[met]
            cells = [
                one.what,
                str(one.partitions),
                figure,
                _number(ours),
                theirs,
                shown,
                str(goal or ""),
                verdict,
            ]
            yield f"| {' | '.join(cells)} |"


def all_met(rounds: Sequence[Rounds]) -> bool:
    """Whether no goal was missed; one that can't be told was not."""
    return not any(
        goal is not None
        and goal.is_met(median(run[figure] for run in one.ours), _middle(one.ratios(figure)))
        is False
        for one in rounds
        for figure, goal in FIGURES[one.what].items()
    )


def _middle(ratios: Sequence[float]) -> float | None:
    return median(ratios) if ratios else None


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.4g}"
