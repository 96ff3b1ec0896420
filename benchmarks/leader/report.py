"""The table and the plot, and whether the goals were met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.leader.groups import Row
from benchmarks.leader.measure import CONTESTANTS, FRANZ, JAVA, OURS, Result

_ALWAYS_FAST_ENOUGH: Final = 0.010
_LARGE: Final = 1_000_000
_FASTER_THAN: Final = {FRANZ: 3, JAVA: 10}
_MOST_MEMORY: Final = 4 << 30


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row in one of its two states."""

    row: Row
    state: str
    results: Mapping[str, Result]

    def best(self, name: str) -> float | None:
        return self.results[name].best if name in self.results else None

    @property
    def goal(self) -> float | None:
        """How many seconds ours may take; None where no peer has a figure.

        As many as franz-go, or 10 ms. For a million partitions a third of franz-go's and a
        tenth of Java's.
        """
        franz, java = self.best(FRANZ), self.best(JAVA)
        if self.row.size < _LARGE:
            return None if franz is None else max(franz, _ALWAYS_FAST_ENOUGH)
        known = {FRANZ: franz, JAVA: java}
        return min((t / _FASTER_THAN[n] for n, t in known.items() if t is not None), default=None)

    @property
    def verdict(self) -> str:
        ours, memory = self.best(OURS), self.results[OURS].memory if OURS in self.results else None
        if memory is not None and memory > _MOST_MEMORY:
            return "missed: memory"
        if ours is None or self.goal is None:
            return ""
        return "met" if ours <= self.goal else f"missed {ours / self.goal:.1f}x"


def table(lines: Sequence[Line]) -> Iterator[str]:
    """Markdown: times are milliseconds, memory is MB of the whole process."""
    names = [n for n in CONTESTANTS if any(n in line.results for line in lines)]
    peers = [n for n in names if n != OURS]
    heads = ["topics × partitions × members, subscriptions", ""]  # noqa: RUF001  # a product
    heads += [f"{n} ms" for n in names] + [f"{n} to ours" for n in peers]
    heads += ["goal ms", "", *(f"{n} MB" for n in names)]
    yield _cells(heads)
    yield _cells(["---"] * len(heads))
    for line in lines:
        yield _cells(_values(line, names, peers))


def _values(line: Line, names: list[str], peers: list[str]) -> Iterator[str]:
    yield str(line.row)
    yield line.state
    for name in names:
        yield _time(line.results.get(name))
    for name in peers:
        ours, theirs = line.best(OURS), line.best(name)
        yield f"{theirs / ours:.1f}" if ours and theirs else ""
    yield "" if line.goal is None else _milliseconds(line.goal)
    yield line.verdict
    for name in names:
        memory = line.results[name].memory if name in line.results else None
        yield "" if memory is None else f"{memory / 1e6:,.0f}"


def _time(result: Result | None) -> str:
    if result is None:
        return ""
    return result.trouble or ("" if result.best is None else _milliseconds(result.best))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.{1 if seconds < 0.1 else 0}f}"


def _cells(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def plot(lines: Sequence[Line], path: Path) -> None:
    """Bars beside one another, row by row, on a logarithmic scale."""
    import matplotlib as mpl  # noqa: PLC0415  # half a second, and not needed to measure

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # after its backend is chosen

    names = [n for n in CONTESTANTS if any(line.best(n) for line in lines)]
    figure, axes = plt.subplots(figsize=(11, 1 + 0.55 * len(lines)), layout="constrained")
    height = 0.8 / max(len(names), 1)
    for nth, name in enumerate(names):
        at = [i + nth * height for i, line in enumerate(lines) if line.best(name)]
        took = [seconds for line in lines if (seconds := line.best(name))]
        bars = axes.barh(at, [t * 1e3 for t in took], height, label=name)
        axes.bar_label(bars, list(map(_milliseconds, took)), padding=2, fontsize=7)
    axes.set_yticks(
        [i + height * (len(names) - 1) / 2 for i in range(len(lines))],
        [f"{line.row}, {line.state}" for line in lines],
        fontsize=8,
    )
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.1, y=0.01)
    axes.set_xlabel(
        "ms: all subscriptions' bytes in, all assignments' bytes out; shorter is better"
    )
    axes.legend(loc="upper right")
    figure.savefig(path)
    plt.close(figure)
