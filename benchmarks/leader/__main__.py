"""The leader's step, ours beside Java's and franz-go's: bytes in, bytes out.

    python -m benchmarks.leader [--rows 1,2,5] [--clients kafka_coop,franz-go,Java] [--out FOLDER]
    python -m benchmarks.leader growth [--out FOLDER]

Each contestant is a process of its own and leads the same groups under cooperative-sticky, of
members that sent what its own client would have sent: everyone's subscription is decoded,
partitions are assigned, transfers withheld, everyone's assignment encoded. *fresh*: nobody owns
anything. *+1*: all own the previous plan and one member has joined. Contestants take turns, and
their shortest run counts, by the clock on the wall or, where other processes want the same
cores, by the CPU time of all their threads (``--clock cpu``). The goals: at most franz-go's
time, or 10 ms; for a million partitions a third of franz-go's and a tenth of Java's; 4 GB of
memory.

The second form has ours alone lead larger and larger groups. Both write a table and a plot to
the folder. A peer that is not to be had here is left out, and the reason said.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.leader import growth
from benchmarks.leader.groups import ROWS, Row
from benchmarks.leader.measure import ASSIGNOR, CONTESTANTS, OURS, Patience, measure
from benchmarks.leader.report import Line, plot, table
from benchmarks.peers import franz, java
from benchmarks.peers.ours import OurPeer
from benchmarks.peers.wire import Peer, PeerUnavailableError

_T = TypeVar("_T")

CLOCKS = {"wall": "Wall-clock time", "cpu": "CPU time of all threads"}


def available(names: list[str]) -> list[str]:
    """Those of the contestants that run here; says why the others don't."""
    found = []
    for name in names:
        try:
            peer: Peer = CONTESTANTS[name]()
        except PeerUnavailableError as error:
            print(f"without {name}: {error}", file=sys.stderr)
        else:
            peer.close()
            found.append(name)
    return found


def lines_of(row: Row, names: list[str], patience: Patience) -> list[Line]:
    taking_part = [n for n in names if n == OURS or not row.alone]
    fresh = row.fresh()
    with OurPeer() as peer:
        plan = peer.lead(ASSIGNOR, row.cluster, fresh)
    led = measure(taking_part, row.cluster, fresh, patience)
    led_again = measure(taking_part, row.cluster, row.one_more(plan), patience)
    return [
        Line(row=row, state="fresh", results=led),
        Line(row=row, state="+1", results=led_again),
    ]


def compare(options: argparse.Namespace, patience: Patience) -> None:
    names = available(options.clients)
    lines: list[Line] = []
    for row in options.rows:
        lines += lines_of(row, names, patience)
        print(*list(table(lines))[-2:], sep="\n", file=sys.stderr, flush=True)
    versions = (
        f"Python {platform.python_version()}, numpy {np.__version__}; franz-go {franz.version()}; "
        f"kafka-clients {java.VERSION}. {CLOCKS[patience.clock]} in ms, the shortest of at least "
        f"{patience.rounds} runs; memory of the whole process, the group's bytes included."
    )
    publish([versions, "", *table(lines)], options.out / "leader.md")
    plot(lines, options.out / "leader.svg")


def grow(options: argparse.Namespace, patience: Patience) -> None:
    points = list(growth.run(patience, ASSIGNOR))
    text = [f"{CLOCKS[patience.clock]}, the shortest of at least {patience.rounds} runs.", ""]
    publish([*text, *growth.table(points)], options.out / "leader-growth.md")
    growth.plot(points, options.out / "leader-growth.svg")


def publish(lines: Iterable[str], path: Path) -> None:
    text = "\n".join(lines)
    print(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def rows(text: str) -> list[Row]:
    numbers = {str(n): row for n, row in enumerate(ROWS, 1)}
    return [_one_of(numbers, word) for word in text.split(",")]


def clients(text: str) -> list[str]:
    return [_one_of({n: n for n in CONTESTANTS}, word) for word in text.split(",")]


def _one_of(known: Mapping[str, _T], word: str) -> _T:
    if word.strip() not in known:
        raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
    return known[word.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.leader",
        description=(__doc__ or "").partition("\n")[0],
        epilog="\n".join(f"row {n}: {row}" for n, row in enumerate(ROWS, 1)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=("peers", "growth"), default="peers")
    parser.add_argument("--rows", type=rows, default=ROWS, help="numbers, see below; all")
    parser.add_argument("--clients", type=clients, default=[*CONTESTANTS], help="all")
    parser.add_argument("--rounds", type=int, default=3, help="turns each contestant gets")
    parser.add_argument("--seconds", type=float, default=2.0, help="of runs in a turn")
    parser.add_argument("--limit", type=float, default=60.0, help="of seconds for one run")
    parser.add_argument("--clock", choices=CLOCKS, help="wall, but cpu for growth")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    options = parser.parse_args()
    growing = options.what == "growth"
    patience = Patience(
        clock=options.clock or ("cpu" if growing else "wall"),
        rounds=options.rounds,
        seconds=options.seconds,
        limit=options.limit,
    )
    (grow if growing else compare)(options, patience)


if __name__ == "__main__":
    main()
