"""A plan as a picture: who owned what on the left, who is to own it on the right.

Both functions return one self-contained file: no script, no font, no address.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from kafka_coop.planning.group_plan import GroupPlan
from kafka_coop.planning.table import headline, runs, table
from kafka_coop.planning.values import Reason, Way
from kafka_coop.printable import shown

_WIDTH = 900
_COLUMN = 240
"""Space for names on either side."""
_BAR = 12
_ROW = 22
"""The least height of a member, for its name to be read."""
_GAP = 8
_HEIGHT = 560
"""What the partitions of one column share, gaps and least heights aside."""
_MOST_MEMBERS = 60

_STAYS, _COMES, _WAITS, _NEW, _OUT = "stays", "comes", "waits", "new", "out"

_STYLE = """
svg { font: 13px system-ui, sans-serif; background: #fff; color: #222 }
text { fill: currentColor } .small { font-size: 11px; opacity: .7 } .bar { fill: #555 }
.stays { fill: #8a94a6; opacity: .35 } .comes { fill: #d9822b; opacity: .8 }
.waits { fill: #c23030; opacity: .8 } .new { fill: #2b8a3e; opacity: .7 }
.out { fill: #111; opacity: .6 }
@media (prefers-color-scheme: dark) {
svg, body { background: #16181d; color: #ddd } .bar { fill: #bbb } .out { fill: #eee } }
"""

_LEGEND = {
    _STAYS: "stays",
    _COMES: "moves",
    _WAITS: "moves, after it is revoked",
    _NEW: "had no owner",
    _OUT: "goes to nobody",
}

_End: TypeAlias = str | None
"""A member; None: nobody."""
_OTHERS = ""
"""Stands for the members drawn as one. No coordinator gives out the empty id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """Partitions that go the same way."""

    source: _End
    destination: _End
    kind: str
    count: int
    title: str


@dataclass(slots=True, kw_only=True)
class _Box:
    """A member on one side, and how much of its height flows have used."""

    y: float
    height: float
    count: int
    used: float = 0.0


def svg(plan: GroupPlan) -> str:
    """Draws the plan.

    Bands are as high as partitions are many. Of groups with more than sixty members, those that
    neither give nor get anything are drawn as one.
    """
    quiet = _quiet(plan)
    ends: list[_End] = [*(m.member for m in plan.by_member if m.member not in quiet), _OTHERS, None]
    place = {end: i for i, end in enumerate(ends)}
    flows = sorted(
        _flows(plan, quiet), key=lambda f: (place[f.source], place[f.destination], f.title)
    )
    left = _boxes(ends, [(flow.source, flow.count) for flow in flows])
    right = _boxes(ends, [(flow.destination, flow.count) for flow in flows])
    height = max(_bottom(left), _bottom(right)) + 70
    size = f'viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{_text(plan.strategy)}: who owns what, before and after</title>",
        f"<style>{_STYLE}</style>",
        *_legend({flow.kind for flow in flows}),
        *(_band(flow, left[flow.source], right[flow.destination]) for flow in flows),
        *_column(left, x=_COLUMN, anchor="end"),
        *_column(right, x=_WIDTH - _COLUMN - _BAR, anchor="start"),
        "</svg>",
    ]
    return "\n".join(parts)


def html(plan: GroupPlan, title: str = "What a rebalance would move") -> str:
    """Returns a page with the picture, and the table below it."""
    lines = "".join(f"<p>{_text(line)}</p>" for line in headline(plan))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{_text(title)}</title><style>body {{ font: 15px system-ui, sans-serif; "
        "max-width: 60em; margin: 2em auto } pre { overflow-x: auto } p { margin: .2em 0 }"
        f"</style></head><body><h1>{_text(title)}</h1>{lines}\n{svg(plan)}\n"
        f"<pre>{escape(table(plan))}</pre></body></html>\n"
    )


def _quiet(plan: GroupPlan) -> set[str]:
    if len(plan.members) <= _MOST_MEMBERS:
        return set()
    return {m.member for m in plan.by_member if not m.gives and not m.gets}


def _flows(plan: GroupPlan, quiet: set[str]) -> Iterator[_Flow]:
    kept: dict[str, int] = defaultdict(int)
    for m in plan.by_member:
        kept[_OTHERS if m.member in quiet else m.member] += m.before - m.gives
    for name, count in kept.items():
        if count:
            title = f"{_label(name)}: {count:,} stay"
            yield _Flow(source=name, destination=name, kind=_STAYS, count=count, title=title)
    for way in plan.ways():
        ends = f"{_label(way.source)} → {_label(way.destination)}"
        yield _Flow(
            source=way.source,
            destination=way.destination,
            kind=_kind(way),
            count=len(way.partitions),
            title=f"{ends}: {runs(way.partitions)}. Why: {way.reason.value}",
        )


def _kind(way: Way) -> str:
    if way.reason is Reason.LEFT_OUT:
        return _OUT
    if way.withheld:
        return _WAITS
    return _NEW if way.source is None else _COMES


def _boxes(ends: Iterable[_End], counts: Iterable[tuple[_End, int]]) -> dict[_End, _Box]:
    """One below the other, in the same order on either side. Members with nothing have a line."""
    totals: dict[_End, int] = defaultdict(int)
    for end, count in counts:
        totals[end] += count
    scale = _HEIGHT / max(sum(totals.values()), 1)
    boxes: dict[_End, _Box] = {}
    y = 50.0
    for end in ends:
        if totals[end] or end not in {_OTHERS, None}:
            height = max(totals[end] * scale, 1.0)
            boxes[end] = _Box(y=y, height=height, count=totals[end])
            y += max(height, _ROW) + _GAP
    return boxes


def _bottom(boxes: dict[_End, _Box]) -> float:
    return max((box.y + max(box.height, _ROW) for box in boxes.values()), default=50.0)


def _band(flow: _Flow, source: _Box, destination: _Box) -> str:
    """A band from one bar to the other, as high at each end as its share of that bar."""
    ends = []
    for box in (source, destination):
        share = box.height * flow.count / box.count
        ends.append((box.y + box.used, box.y + box.used + share))
        box.used += share
    (top, bottom), (top_end, bottom_end) = ends
    x, end = _COLUMN + _BAR, _WIDTH - _COLUMN - _BAR
    mid = (x + end) / 2
    path = (
        f"M{x} {top:.1f}C{mid} {top:.1f} {mid} {top_end:.1f} {end} {top_end:.1f}"
        f"V{bottom_end:.1f}C{mid} {bottom_end:.1f} {mid} {bottom:.1f} {x} {bottom:.1f}Z"
    )
    return f'<path class="{flow.kind}" d="{path}"><title>{_text(flow.title)}</title></path>'


def _column(boxes: dict[_End, _Box], *, x: float, anchor: str) -> Iterator[str]:
    at = x - 6 if anchor == "end" else x + _BAR + 6
    heading = "before" if anchor == "end" else "after"
    yield f'<text class="small" x="{at}" y="40" text-anchor="{anchor}">{heading}</text>'
    for end, box in boxes.items():
        middle = box.y + box.height / 2 + 4
        yield (
            f'<rect class="bar" x="{x}" y="{box.y:.1f}" width="{_BAR}" height="{box.height:.1f}"/>'
            f'<text x="{at}" y="{middle:.1f}" text-anchor="{anchor}">{_text(_short(_label(end)))} '
            f'<tspan class="small">{box.count:,}</tspan></text>'
        )


def _legend(kinds: set[str]) -> Iterator[str]:
    x = 20
    for kind, text in _LEGEND.items():
        if kind in kinds:
            yield f'<rect class="{kind}" x="{x}" y="8" width="14" height="14"/>'
            yield f'<text x="{x + 20}" y="20">{text}</text>'
            x += 40 + 7 * len(text)


def _label(end: _End) -> str:
    return "nobody" if end is None else end or "the others"


def _short(name: str) -> str:
    """Member ids end in a UUID: the beginning tells people apart, the end the members."""
    return name if len(name) <= 28 else f"{name[:18]}…{name[-9:]}"  # noqa: PLR2004  # as it fits


def _text(text: str) -> str:
    return escape(shown(text))
