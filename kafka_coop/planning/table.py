"""A plan as text: what it costs, what each member has of it, and what goes where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from kafka_coop.types import Partitions

if TYPE_CHECKING:
    from kafka_coop.planning.group_plan import GroupPlan

_MOST_ROWS = 60
_MOST_RUNS = 8


def table(plan: GroupPlan) -> str:
    """Returns the plan as lines of text, no wider than its names make it.

    Of long lists the first rows are shown, and how many more there are.
    """
    rows = [*_members(plan)]
    lines = [*headline(plan), "", *_aligned(rows, numbers=frozenset(range(1, len(rows[0]))))]
    changes = [*_changes(plan)]
    if len(changes) > 1:
        lines += ["", *_aligned(changes, numbers=frozenset({2}))]
    return "\n".join(lines)


def headline(plan: GroupPlan) -> Iterator[str]:
    """The lines above the table: what the plan costs, and what it is worth."""
    n = plan.totals
    yield f"{plan.strategy}: {_many(len(plan.members), 'member')}"
    yield (
        f"{_many(n.partitions, 'partition')}: {n.kept:,} kept, {n.moved:,} moved (the best balance "
        f"by count takes {n.fewest_moves:,}), {n.placed:,} placed, {n.unassigned:,} left out"
    )
    yield f"per member: {plan.balance_before} before, {plan.balance_after} after"
    if plan.eager:
        yield f"eager: all {_many(n.interrupted, 'owned partition')} revoked first"
    elif plan.rounds > 1:
        yield f"{plan.rounds} rounds: {n.withheld:,} withheld in the first"
    for warning in plan.warnings:
        yield f"warning: {shown(warning)}"


def shown(text: str) -> str:
    """The text without what would move a terminal's cursor: member ids are other people's."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def runs(partitions: Partitions) -> str:
    """``orders 0-3, 7; users 2``: numbers in runs."""
    parts = []
    for topic, numbers in partitions.items():
        breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
        pieces = [
            str(run[0]) if run.size == 1 else f"{run[0]}-{run[-1]}"
            for run in np.split(numbers, breaks)[: _MOST_RUNS + 1]
        ]
        if len(pieces) > _MOST_RUNS:
            pieces = [*pieces[:_MOST_RUNS], "…"]
        parts.append(f"{shown(topic)} {', '.join(pieces)}")
    if len(parts) > _MOST_RUNS:
        parts = [*parts[:_MOST_RUNS], f"… {len(parts) - _MOST_RUNS} more topics"]
    return "; ".join(parts)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _members(plan: GroupPlan) -> Iterator[tuple[str, ...]]:
    loads = any(m.load_before is not None for m in plan.by_member)
    yield (
        "member",
        "topics",
        "before",
        "after",
        "gives",
        "gets",
        *(("load before", "load after") if loads else ()),
    )
    for m in islice(plan.by_member, _MOST_ROWS):
        load = (f"{m.load_before:.4g}", f"{m.load_after:.4g}") if loads else ()
        counts = (m.topics, m.before, m.after, m.gives, m.gets)
        yield (shown(m.member), *map(str, counts), *load)
    if len(plan.by_member) > _MOST_ROWS:
        yield (f"… {len(plan.by_member) - _MOST_ROWS} more", *[""] * (7 if loads else 5))


def _changes(plan: GroupPlan) -> Iterator[tuple[str, ...]]:
    yield "from", "to", "count", "partitions", "why"
    ways = plan.ways()
    for way in islice(ways, _MOST_ROWS):
        yield (
            shown(way.source or "-"),
            shown(way.destination or "-"),
            str(len(way.partitions)),
            runs(way.partitions),
            way.reason.value + ("; withheld until it is revoked" if way.withheld else ""),
        )
    left = sum(1 for _ in ways)
    if left:
        yield f"… {left} more", "", "", "", ""


def _aligned(rows: Sequence[Sequence[str]], *, numbers: Iterable[int]) -> Iterator[str]:
    right = frozenset(numbers)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
