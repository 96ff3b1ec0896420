"""Members' reports in words: one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafka_coop.demo.reports import Called, Rebalanced, Report, Warned

_CALLBACKS: Final = {"revoke": "on_revoke", "assigned": "on_assign", "lost": "on_lost"}
"""The phases that are a callback, by their names."""


def describe(report: Report) -> str | None:
    """What is worth a line, or None."""
    match report:
        case Called(callback="on_assign"):
            return f"on_assign  {_signed('+', report.partitions)}"
        case Called():
            return f"{report.callback:<9}  {_signed('-', report.partitions)}"
        case Rebalanced():
            return _round(report)
        case Warned():
            return f"warning    {report.text}"
        case _:
            return None


def _signed(sign: str, partitions: Sequence[int]) -> str:
    return " ".join(f"{sign}{p}" for p in partitions) or "nothing new"


def _round(report: Rebalanced) -> str:
    if report.error is not None:
        return f"rebalance  failed: {report.error} (joined because: {report.reason})"
    role = report.role if report.members is None else f"{report.role} of {report.members}"
    moved = [f"+{report.gained}", f"-{report.given_up}", f"kept {report.kept}"]
    if report.lost:
        moved.insert(2, f"lost {report.lost}")
    phases = ", ".join(
        f"{_CALLBACKS.get(phase, phase)} {duration(seconds)}"
        for phase, seconds in report.phases.items()
    )
    follow_up = "; follow-up round announced" if report.follow_up else ""
    return (
        f"rebalance  generation {report.generation}, {role}: {' '.join(moved)}; {phases};"
        f" total {duration(report.total)}{follow_up} ({report.reason})"
    )


def duration(seconds: float) -> str:
    """Two or three digits, and the unit that suits them."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"  # noqa: PLR2004  # digits, see above
