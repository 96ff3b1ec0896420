"""What a rolling restart costs: every member is restarted, one after the other.

    python -m benchmarks.rolling [--runs 1] [--kafka 4.1.0]
        [--ways close,drain,static,cooperative-sticky,java,mixed] [--phases "in phase,spread"]

A real Kafka on loopback and a steady load, as in `benchmarks.rebalance`; four members, each a
process. A member gets SIGTERM; when its process has ended, its successor starts, which is the same
client's (all that it needs is loaded: what is measured is the group, not Python or a JVM). The
heartbeats are *in phase*, *spread* or *as left* before each restart, as there; the restarts fall at
four places between two heartbeats.

    close               ours, close()
    drain               ours, drain() and polls until it is drained, then close()
    static              ours, group.instance.id, close()
    cooperative-sticky  librdkafka's, close()
    java                kafka-clients', close()
    mixed               ours, Java's, librdkafka's, ours, in this order; close(). Theirs is
                        the first in mixed-java-leads, and in mixed-librdkafka-leads

The columns are those of `benchmarks.rebalance_cost`, over all restarts; the event is the SIGTERM.
The goals follow (`benchmarks.rebalance_goals`); the exit status is 1 where one was missed. A static
member's gap has none: it is the time that a process takes to end and the next one to join.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.group import HEARTBEAT, MEMBERS, Group, under_load
from benchmarks.rebalance import PHASES, add_phases, wait_for_moment
from benchmarks.rebalance_cost import Cost, report
from benchmarks.rebalance_goals import verdict
from kafka_coop.testing.ending import end_in_order_at_sigterm
from kafka_coop.testing.local import DEFAULT_VERSION

WINDOW = 10.0
"""Seconds from one restart to the next: theirs take up to three heartbeats' time."""


def measure(
    way: str, bootstrap: str, topic: str, folder: Path, *, apart: float | None
) -> list[Cost]:
    ours = way in ("close", "drain", "static")
    group = Group("kafka_coop" if ours else way, bootstrap, topic, folder)
    windows: list[tuple[float, float]] = []

    def options(place: int) -> list[str]:
        return {"drain": ["drain"], "static": [f"group.instance.id=i{place}"]}.get(way, [])

    try:
        group.start_all(*(options(place) for place in range(MEMBERS)))
        for place in range(MEMBERS):
            group.start(*options(place), wait=True, like=place)
        group.settle()
        for place in range(MEMBERS):
            wait_for_moment(group, apart, HEARTBEAT * (1 + (place + 0.5) / MEMBERS))
            began = time.time()
            group.terminate(place)
            group.processes[place].wait(30)
            group.go(MEMBERS + place)
            time.sleep(WINDOW)
            windows.append((began, time.time()))
    finally:
        group.stop()
    history = group.history()
    return [history.cost(start, end) for start, end in windows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help="the broker's version")
    parser.add_argument("--ways", default="close,drain,static,cooperative-sticky,java,mixed")
    add_phases(parser)
    options = parser.parse_args()
    end_in_order_at_sigterm()
    costs: dict[tuple[str, str, str], list[Cost]] = defaultdict(list)
    with under_load(options.kafka) as place:
        for _ in range(options.runs):
            for phase, way in itertools.product(options.phases, options.ways.split(",")):
                costs[way, phase, "restart"] += measure(way, *place, apart=PHASES[phase])
    report(costs)
    return verdict(costs)


if __name__ == "__main__":
    sys.exit(main())
