"""Rows a second by partitions and by cores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.broker import broker
from benchmarks.spark.contestants import Contestant, in_turns
from benchmarks.spark.filling import fill

PARTITIONS = (1, 2, 4, 8, 16, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One source with so many partitions and cores: the median of its rounds."""

    source: str
    cores: int
    partitions: int
    rate: float


def run(contestants: Sequence[Contestant], records: int, rounds: int) -> Iterator[Point]:
    """``local[1]`` to ``local[all cores]``, each with topics of the same number of records."""
    with broker() as kafka:
        servers = kafka.bootstrap_servers
        for partitions in PARTITIONS:
            topic = f"bench-{partitions}"
            kafka.create_topic(topic, partitions=partitions)
            fill(servers, topic, records, partitions)
            for cores in range(1, len(os.sched_getaffinity(0)) + 1):
                master = f"local[{cores}]"
                taken = in_turns("all", contestants, rounds, servers, topic, master=master)
                for contestant, its in zip(contestants, taken, strict=True):
                    rate = median(found["rows_per_second"] for found in its)
                    yield Point(
                        source=contestant.name, cores=cores, partitions=partitions, rate=rate
                    )


def table(points: Sequence[Point]) -> Iterator[str]:
    """Markdown: thousands of rows a second; a column for each source and number of cores."""
    columns = sorted({(p.source, p.cores) for p in points}, key=lambda c: (c[0] != "ours", *c))
    rates = {(p.source, p.cores, p.partitions): p.rate for p in points}
    heads = [f"{source}, {_cores(cores)}" for source, cores in columns]
    compared = sorted({cores for source, cores in columns if source != "ours"})
    heads += [f"ours to built-in, {_cores(cores)}" for cores in compared]
    yield f"| partitions | {' | '.join(heads)} |"
    yield f"|---|{'---|' * len(heads)}"
    for partitions in sorted({p.partitions for p in points}):
        cells = [f"{rates[(*column, partitions)] / 1e3:,.0f}" for column in columns]
        for cores in compared:
            ours, theirs = (rates[s, cores, partitions] for s in ("ours", "built-in"))
            cells.append(f"{ours / theirs:.2f}")
        yield f"| {partitions} | {' | '.join(cells)} |"


def _cores(count: int) -> str:
    return f"{count} core{'s' if count > 1 else ''}"


def plot(points: Sequence[Point], path: Path) -> None:
    """A curve for each source and number of cores, over partitions."""
    import matplotlib as mpl  # noqa: PLC0415  # half a second, and not needed to measure

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # after its backend is chosen

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    colours = {"ours": "C0", "built-in": "C1"}
    styles = ["-", "--", "-.", ":"]
    for source, cores in sorted({(p.source, p.cores) for p in points}, reverse=True):
        its = sorted(
            (p for p in points if (p.source, p.cores) == (source, cores)),
            key=lambda p: p.partitions,
        )
        axes.plot(
            [p.partitions for p in its],
            [p.rate / 1e6 for p in its],
            marker="o",
            color=colours[source],
            linestyle=styles[(cores - 1) % len(styles)],
            label=f"{source}, {_cores(cores)}",
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({p.partitions for p in points}))
    axes.get_xaxis().set_major_formatter(mpl.ticker.ScalarFormatter())
    axes.set_ylim(bottom=0)
    axes.set(xlabel="partitions", ylabel="million rows a second")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
