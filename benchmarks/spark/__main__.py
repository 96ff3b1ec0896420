"""Our source and Spark's built-in Kafka source, in one run, on one real Kafka.

    python -m benchmarks.spark [--records 2000000] [--partitions 4 16 64] [--only all limited]
    python -m benchmarks.spark memory [--records 10000000]
    python -m benchmarks.spark scaling [--records 1000000]

The first form takes turns, ours, theirs, ours, theirs, and counts the median of the pairs' ratios,
for a topic of each of these numbers of partitions.
The second reads a fifth of a topic and all of it, in an executor that is a process of its own, and
tells what the driver, the reader beside it, the executor and its workers took at most. The third
goes through numbers of cores and of partitions. Each writes a table to the folder, the third a plot
too.

The exit status is 1 where a goal was missed.

The built-in source runs in a PySpark 4.0.0 of its own, for which its jars are to be had. Figures
are rows a second, milliseconds, cores and MB; only their ratios travel.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.broker import broker
from benchmarks.spark import comparing, memory, scaling
from benchmarks.spark.contestants import Contestant, builtin, in_turns, ours
from benchmarks.spark.filling import fill

_RECORDS = {"compare": 2_000_000, "memory": 10_000_000, "scaling": 1_000_000}


def compare(options: argparse.Namespace, contestants: list[Contestant]) -> bool:
    found = []
    with broker() as kafka:
        servers = kafka.bootstrap_servers
        for partitions in options.partitions:
            full, quiet = f"bench-{partitions}", f"quiet-{partitions}"
            for topic in (full, quiet):
                kafka.create_topic(topic, partitions=partitions)
            fill(servers, full, options.records, partitions)
            for what in options.only:
                topic = full if what in comparing.OF_RECORDS else quiet
                taken = in_turns(what, contestants, options.rounds, servers, topic)
                found.append(comparing.Rounds(what=what, partitions=partitions, taken=taken))
    text = f"{options.records:,} records, {options.rounds} rounds. {comparing.versions(found)}"
    publish([text, "", *comparing.table(found)], options.out / "spark.md")
    return comparing.all_met(found)


def take_memory(options: argparse.Namespace, contestants: list[Contestant]) -> bool:
    (partitions,) = options.partitions
    with broker() as kafka:
        kafka.create_topic("bench", partitions=partitions)
        fill(kafka.bootstrap_servers, "bench", options.records, partitions)
        args = (kafka.bootstrap_servers, "bench", options.records, partitions)
        taken = list(memory.run(contestants, *args))
    text = (
        "MB, the largest sums seen, shared pages divided among those who share them (PSS). The "
        f"executor is a process of its own ({memory.MASTER}). {memory.GOAL}"
    )
    publish([text, "", *memory.table(taken)], options.out / "spark-memory.md")
    return memory.is_bounded(taken)


def scale(options: argparse.Namespace, contestants: list[Contestant]) -> bool:
    points = list(scaling.run(contestants, options.records, options.rounds))
    text = (
        f"Thousands of rows a second: availableNow over {options.records:,} records in one batch, "
        f"the median of {options.rounds} rounds. Brokers and drivers want the same cores."
    )
    publish([text, "", *scaling.table(points)], options.out / "spark-scaling.md")
    scaling.plot(points, options.out / "spark-scaling.svg")
    return True


def publish(lines: Iterable[str], path: Path) -> None:
    text = "\n".join(lines)
    print(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=_RECORDS, default="compare")
    parser.add_argument("--records", type=int, help=f"{_RECORDS}")
    parser.add_argument("--partitions", type=int, nargs="+", default=[4])
    parser.add_argument("--only", nargs="+", choices=comparing.WHAT, default=comparing.WHAT)
    parser.add_argument("--rounds", type=int, default=3, help="turns each source gets")
    parser.add_argument("--python", type=Path, help="one with another PySpark, for ours")
    parser.add_argument("--builtin-python", type=Path, help="one that has PySpark 4.0.0")
    parser.add_argument("--without-builtin", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    options = parser.parse_args()
    if options.what == "memory" and len(options.partitions) > 1:
        parser.error("--partitions: memory is taken with one number of partitions")
    options.records = options.records or _RECORDS[options.what]
    contestants = [ours(options.python)]
    if not options.without_builtin:
        contestants.append(builtin(options.builtin_python))
    met = {"compare": compare, "memory": take_memory, "scaling": scale}[options.what](
        options, contestants
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
