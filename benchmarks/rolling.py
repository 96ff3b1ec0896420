"""What a rolling restart costs: every member is restarted, one after the other.

    python -m benchmarks.rolling [--runs 1] [--ways close,drain,static,cooperative-sticky]

A real Kafka on loopback and a steady load, as in `benchmarks.rebalance`; four members, each a
process. A member gets SIGTERM; when its process has ended, its successor starts (its interpreter
is warm: what is measured is the group, not Python).

    close               ours, close()
    drain               ours, drain() and polls until it is drained, then close()
    static              ours, group.instance.id, close()
    cooperative-sticky  librdkafka's, close()

    gap      from the last record that one owner delivered to the first of the next
    silence  the longest time between two deliveries of a partition that did not move, per restart
"""

from __future__ import annotations

import argparse
import itertools
import signal
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.rebalance import MEMBERS, PARTITIONS, Cost, Delivery, Group, Load, cost_of, report
from kafka_coop.testing import LocalKafka

WINDOW = 4.0
"""Seconds from one restart to the next."""


def measure(way: str, bootstrap: str, topic: str, folder: Path) -> list[Cost]:
    ours = way in ("close", "drain", "static")
    group = Group("kafka_coop" if ours else way, bootstrap, topic, folder)
    marks: list[float] = []

    def options(place: int) -> list[str]:
        return {"drain": ["drain"], "static": [f"group.instance.id=i{place}"]}.get(way, [])

    try:
        for place in range(MEMBERS):
            group.start(*options(place))
        for place in range(MEMBERS):
            group.start(*options(place), wait=True)
        group.settle(MEMBERS, waiting=MEMBERS)
        for place in range(MEMBERS):
            marks.append(time.time())
            old, new = group.processes[place], group.processes[MEMBERS + place]
            old.send_signal(signal.SIGTERM)
            old.wait(30)
            new.send_signal(signal.SIGUSR1)
            time.sleep(WINDOW)
        marks.append(time.time())
    finally:
        group.stop()
    by_partition: dict[int, list[Delivery]] = defaultdict(list)
    for partition, delivery in group.deliveries():
        by_partition[partition].append(delivery)
    return [cost_of(by_partition, start, end) for start, end in itertools.pairwise(marks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--ways", default="close,drain,static,cooperative-sticky")
    options = parser.parse_args()
    costs: dict[tuple[str, str, str], list[Cost]] = defaultdict(list)
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        kafka.create_topic("load", partitions=PARTITIONS)
        load = Load(kafka.bootstrap_servers, "load")
        load.start()
        for _ in range(options.runs):
            for way in options.ways.split(","):
                costs[way, "as they come", "restart"] += measure(
                    way, kafka.bootstrap_servers, "load", Path(folder)
                )
        load.stop()
    report(costs)


if __name__ == "__main__":
    main()
