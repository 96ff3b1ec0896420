"""How the leader's time grows with partitions and with members, beside n log n."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final

from benchmarks.leader.groups import Row
from benchmarks.leader.measure import OURS, Patience, measure
from benchmarks.peers.ours import OurPeer

_TOPICS: Final = 100
_SIZES: Final[dict[str, list[Row]]] = {
    "partitions": [
        Row(topics=_TOPICS, partitions=n // _TOPICS, members=1000)
        for n in (1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000, 4_096_000)
    ],
    "members": [
        Row(topics=_TOPICS, partitions=1000, members=n)
        for n in (10, 40, 160, 640, 2_560, 10_240, 40_960)
    ],
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One size: ``count`` of what grows."""

    growing: str
    state: str
    count: int
    seconds: float


def run(patience: Patience, assignor: str) -> Iterator[Point]:
    """Leads larger and larger groups of equal subscriptions."""
    for growing, rows in _SIZES.items():
        for row in rows:
            fresh = row.fresh()
            with OurPeer() as peer:
                plan = peer.lead(assignor, row.cluster, fresh)
            for state, group in (("fresh", fresh), ("+1", row.one_more(plan))):
                led = measure([OURS], row.cluster, group, patience)[OURS]
                if led.best is None:
                    raise SystemExit(f"{row}, {state}: {led.trouble}")
                count = row.size if growing == "partitions" else row.members
                print(f"{count:,} {growing}, {state}: {led.best * 1e3:,.1f} ms", file=sys.stderr)
                yield Point(growing=growing, state=state, count=count, seconds=led.best)


def series(points: list[Point]) -> dict[tuple[str, str], list[Point]]:
    """The points of each curve, by size."""
    key = attrgetter("growing", "state", "count")
    by_curve = groupby(sorted(points, key=key), key=attrgetter("growing", "state"))
    return {curve: list(its) for curve, its in by_curve}


def n_log_n(count: float) -> float:
    return count * math.log2(count)


def table(points: list[Point]) -> Iterator[str]:
    """Markdown. From one size to the next: time's growth divided by that of n log n."""
    yield "| growing | | n | ms | growth to that of n log n |"
    yield "|---|---|---|---|---|"
    for (growing, state), its in series(points).items():
        first = its[0]
        yield f"| {growing} | {state} | {first.count:,} | {first.seconds * 1e3:,.1f} | |"
        for a, b in pairwise(its):
            slower = b.seconds / a.seconds / (n_log_n(b.count) / n_log_n(a.count))
            yield f"| {growing} | {state} | {b.count:,} | {b.seconds * 1e3:,.1f} | {slower:.2f} |"


def plot(points: list[Point], path: Path) -> None:
    """One panel for partitions, one for members; n log n runs through each last point."""
    import matplotlib as mpl  # noqa: PLC0415  # half a second, and not needed to measure

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # after its backend is chosen

    figure, panels = plt.subplots(1, len(_SIZES), figsize=(11, 4), layout="constrained")
    axes_of = dict(zip(_SIZES, panels, strict=True))
    for (growing, state), its in series(points).items():
        axes, last = axes_of[growing], its[-1]
        (curve,) = axes.plot(
            [p.count for p in its], [p.seconds * 1e3 for p in its], marker="o", label=state
        )
        axes.plot(
            [p.count for p in its],
            [last.seconds * 1e3 * n_log_n(p.count) / n_log_n(last.count) for p in its],
            linestyle=":",
            color=curve.get_color(),
            label="n log n",
        )
        axes.set(xscale="log", yscale="log", xlabel=growing, ylabel="ms")
        axes.legend(loc="upper left")
    figure.savefig(path)
    plt.close(figure)
