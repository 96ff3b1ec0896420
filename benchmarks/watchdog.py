"""What a watchdog costs, and what it saves.

    python -m benchmarks.watchdog [--runs 3] [--kafka 4.1.0]

The gap of a killed member's partitions with ``coop.watchdog`` and without, in one run, beside the
goals (see `benchmarks.rebalance`), and the memory of the watchdog's process once it waits.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.group import MEMBERS, PATIENCE, Group, under_load
from benchmarks.rebalance import AFTER_KILL
from benchmarks.rebalance_cost import Cost, report
from benchmarks.rebalance_goals import WATCHED, verdict
from kafka_coop.testing.ending import end_in_order_at_sigterm
from kafka_coop.testing.local import DEFAULT_VERSION
from kafka_coop.watchdog.guard import LOADS_AFTER

_COMMITTED = "auto.commit.interval.ms=1000"
"""Every partition has a committed offset when a group has settled: who takes one over without would
begin at its end, with auto.offset.reset=latest, and what came meanwhile would be missing."""


def measure(bootstrap: str, topic: str, folder: Path, *options: str) -> tuple[Cost, list[int]]:
    """The cost of a kill, and the resident memory of the members' watchdogs, in KiB.

    Args:
        bootstrap, topic, folder: As in `benchmarks.rebalance`.
        options: What turns watchdogs on; none: there are none.
    """
    group = Group("kafka_coop", bootstrap, topic, folder)
    try:
        for _ in range(MEMBERS):
            group.start(_COMMITTED, *options)
        group.settle()
        memory = _at_rest([p.pid for p in group.processes]) if options else []
        start = time.time()
        group.kill(0)
        time.sleep(AFTER_KILL)
        end = time.time()
    finally:
        group.stop()
    return group.history().cost(start, end), memory


def _at_rest(pids: list[int]) -> list[int]:
    """The memory of these processes' children, once each has one and none grows any more.

    Raises:
        RuntimeError: They have not come to rest in time.
    """
    time.sleep(LOADS_AFTER)  # until then one is small
    until = time.monotonic() + PATIENCE
    before: dict[int, dict[int, int]] = {}
    while True:
        now = {pid: _children(pid) for pid in pids}
        if all(now.values()) and now == before:
            return [resident for children in now.values() for resident in children.values()]
        if time.monotonic() > until:
            raise RuntimeError(
                f"not every member's watchdog is at rest after {PATIENCE:.0f} s; "
                f"KiB by child by member: {now}"
            )
        before = now
        time.sleep(0.5)


def _children(pid: int) -> dict[int, int]:
    """A process' children, and the resident memory of each in KiB, less those just gone."""
    found: dict[int, int] = {}
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in listed.read_text().split():
                status = Path(f"/proc/{child}/status").read_text().splitlines()
                sizes = [int(line.split()[1]) for line in status if line.startswith("VmRSS")]
                found |= {int(child): size for size in sizes}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help="the broker's version")
    options = parser.parse_args()
    end_in_order_at_sigterm()
    costs: dict[tuple[str, str, str], list[Cost]] = defaultdict(list)
    memory: list[int] = []
    with under_load(options.kafka) as place:
        for _ in range(options.runs):
            for name, chosen in (("", ()), (WATCHED, ("coop.watchdog=true",))):
                cost, resident = measure(*place, *chosen)
                costs[f"kafka_coop{name}", "in phase", "kill"].append(cost)
                memory += resident
    report(costs)
    status = verdict(costs)
    print(f"\nA watchdog's memory: {max(memory) / 1024:.0f} MiB resident")
    return status


if __name__ == "__main__":
    sys.exit(main())
