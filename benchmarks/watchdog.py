"""What a watchdog costs, and what it saves.

    python -m benchmarks.watchdog [--runs 3]

The gap of a killed member's partitions with ``coop.watchdog`` and without, in one run (see
`benchmarks.rebalance`), and the memory of the watchdog's process once it waits.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.rebalance import (
    MEMBERS,
    PARTITIONS,
    WINDOW,
    Cost,
    Delivery,
    Group,
    Load,
    cost_of,
    report,
)
from kafka_coop.testing import LocalKafka


def measure(bootstrap: str, topic: str, folder: Path, *options: str) -> tuple[Cost, list[int]]:
    """The cost of a kill, and the resident memory of the members' children, in KiB."""
    group = Group("kafka_coop", bootstrap, topic, folder)
    try:
        for _ in range(MEMBERS):
            group.start(*options)
        time.sleep(14)
        memory = [_resident(child) for p in group.processes for child in _children(p.pid)]
        marks = [time.time()]
        os.kill(group.processes[0].pid, signal.SIGKILL)
        time.sleep(WINDOW["kill"])
        marks.append(time.time())
    finally:
        group.stop()
    by_partition: dict[int, list[Delivery]] = defaultdict(list)
    for partition, delivery in group.deliveries():
        by_partition[partition].append(delivery)
    ((start, end),) = itertools.pairwise(marks)
    return cost_of(by_partition, start, end), memory


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for listed in Path(f"/proc/{pid}/task").glob("*/children")
        for child in listed.read_text().split()
    ]


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    costs: dict[tuple[str, str, str], list[Cost]] = defaultdict(list)
    memory: list[int] = []
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        kafka.create_topic("load", partitions=PARTITIONS)
        load = Load(kafka.bootstrap_servers, "load")
        load.start()
        for _ in range(options.runs):
            for name, chosen in (("without", ()), ("with", ("coop.watchdog=true",))):
                cost, resident = measure(kafka.bootstrap_servers, "load", Path(folder), *chosen)
                costs[f"{name} watchdog", "in phase", "kill"].append(cost)
                memory += resident
        load.stop()
    report(costs)
    print(f"\nA watchdog's memory: {max(memory) / 1024:.0f} MiB resident")


if __name__ == "__main__":
    main()
