"""A plan as text: what it costs, what each member has of it, and what goes where."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from kafka_coop.printable import shown
from kafka_coop.types import Partitions

if TYPE_CHECKING:
    from kafka_coop.planning.group_plan import GroupPlan

_MOST_ROWS = 60
_MOST_RUNS = 8
_LAST_COLUMN = 20
"""Narrower than this, the last column is not folded beside the others."""


def table(plan: GroupPlan, width: int | None = None) -> str:
    """Returns the plan as lines of text.

    Of long lists the first rows are shown, and how many more there are.

    Args:
        plan: Any.
        width: What does not fit into so many columns is folded: the last column, and where that
            does not do, a row becomes a few lines. Longer names stay whole. None: nothing is.
    """
    rows = [*_members(plan)]
    above = [line for text in headline(plan) for line in _folded(text, width)]
    lines = [*above, "", *_fitted(rows, frozenset(range(1, len(rows[0]))), width)]
    changes = [*_changes(plan)]
    if len(changes) > 1:
        lines += ["", *_fitted(changes, frozenset({2}), width)]
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


def _fitted(
    rows: Sequence[Sequence[str]], numbers: frozenset[int], width: int | None
) -> Iterator[str]:
    lines = [*_aligned(rows, numbers)]
    if width is None or max(map(len, lines)) <= width:
        yield from lines
        return
    last = max(len(row[-1]) for row in rows)
    room = width - (max(map(len, lines)) - last)
    if len(rows[0]) - 1 not in numbers and room >= _LAST_COLUMN:
        folded = [_folded(row[-1], room) or [""] for row in rows]
        blank = [""] * (len(rows[0]) - 1)
        pieces = [
            [*(blank if more else row[:-1]), piece]
            for row, cell in zip(rows, folded, strict=True)
            for more, piece in enumerate(cell)
        ]
        yield from _aligned(pieces, numbers)
        return
    names = rows[0]
    for first, *others in rows[1:]:
        yield f"{names[0]} {first}"
        told = ", ".join(f"{n} {o}" for n, o in zip(names[1:], others, strict=True) if o)
        yield from _folded(told, width, indent="  ")


def _folded(text: str, width: int | None, indent: str = "") -> list[str]:
    if width is None:
        return [indent + text]
    return textwrap.wrap(
        text,
        max(width, len(indent) + 1),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _aligned(rows: Sequence[Sequence[str]], right: frozenset[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
