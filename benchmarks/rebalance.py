"""What a rebalance costs: the gap of a moved partition, the silence of a kept one.

    python -m benchmarks.rebalance [--runs 3] [--clients kafka_coop,cooperative-sticky]

A real Kafka on loopback, 48 partitions at 2,000 records/s in all (24 ms between two records of a
partition), four members, each a process. A fifth joins, then closes; another is killed. Before
each event the members' heartbeats are *in phase* (they restart together with a round) or
*spread* (each member is stopped for 0.6 s times its number, once). librdkafka is measured beside
ours in the same run, at its own defaults; session.timeout.ms is 6000 for both.

    gap      from the last record that the old owner delivered to the first of the new one
    silence  the longest time between two deliveries of a partition that stayed
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from kafka_coop.testing import LocalKafka

PARTITIONS = 48
RATE = 2_000
MEMBERS = 4
EVENTS = ("join", "leave", "kill")
WINDOW = {"join": 8.0, "leave": 6.0, "kill": 12.0}


@dataclass
class Delivery:
    at: float
    member: int
    offset: int


@dataclass
class Cost:
    """One event of one run, milliseconds."""

    moved: int
    gaps: list[float] = field(default_factory=list)
    silences: list[float] = field(default_factory=list)
    repeated: int = 0
    missing: int = 0


class Load(threading.Thread):
    """Produces at a steady rate, round robin."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topic = topic
        self._stop_now = threading.Event()

    def run(self) -> None:
        started, sent = time.monotonic(), 0
        while not self._stop_now.wait(0.002):
            due = int((time.monotonic() - started) * RATE)
            while sent < due:
                self._producer.produce(self._topic, b"x" * 100, partition=sent % PARTITIONS)
                sent += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop_now.set()
        self.join()
        self._producer.flush(10)


class Group:
    """The members of one run."""

    def __init__(self, client: str, bootstrap: str, topic: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "benchmarks.rebalance_member", client, bootstrap]
        self._group = f"{client}-{time.time_ns()}"
        self._topic = topic
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, wait: bool = False) -> int:
        number = len(self.processes)
        log = self._folder / f"{self._group}-{number}.log"
        arguments = [*self._command, self._group, self._topic, str(log)]
        arguments += [*options, *(["wait"] if wait else [])]
        self.processes.append(subprocess.Popen(arguments, stderr=subprocess.DEVNULL))
        return number

    def deliveries(self) -> Iterator[tuple[int, Delivery]]:
        """Every record delivered: partition, delivery."""
        for log in sorted(self._folder.glob(f"{self._group}-*.log")):
            member = int(log.stem.rsplit("-", 1)[1])
            for line in log.read_text().splitlines():
                fields = line.split()
                if len(fields) == 4 and fields[1] == "r":
                    at = int(fields[0]) / 1e9
                    yield int(fields[2]), Delivery(at, member, int(fields[3]))

    def spread(self) -> None:
        """Puts the heartbeats out of phase: a stopped process beats that much later."""
        for number, process in enumerate(self.processes):
            if process.poll() is None and number:
                process.send_signal(signal.SIGSTOP)
                time.sleep(0.6 * number % 3)
                process.send_signal(signal.SIGCONT)
        time.sleep(1.0)

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measure(client: str, bootstrap: str, topic: str, folder: Path, *, spread: bool) -> list[Cost]:
    group = Group(client, bootstrap, topic, folder)
    marks: list[float] = []
    try:
        for _ in range(MEMBERS):
            group.start()
        group.start(wait=True)
        time.sleep(14)
        for event in EVENTS:
            if spread:
                group.spread()
            marks.append(time.time())
            if event == "join":
                group.processes[MEMBERS].send_signal(signal.SIGUSR1)
            elif event == "leave":
                group.processes[MEMBERS].send_signal(signal.SIGTERM)
            else:
                os.kill(group.processes[0].pid, signal.SIGKILL)
            time.sleep(WINDOW[event])
        marks.append(time.time())
    finally:
        group.stop()
    by_partition: dict[int, list[Delivery]] = defaultdict(list)
    for partition, delivery in group.deliveries():
        by_partition[partition].append(delivery)
    return [cost_of(by_partition, start, end) for start, end in itertools.pairwise(marks)]


def cost_of(by_partition: dict[int, list[Delivery]], start: float, end: float) -> Cost:
    cost = Cost(moved=0)
    for deliveries in by_partition.values():
        ordered = sorted(deliveries, key=lambda d: d.at)
        window = [d for d in ordered if start - 0.2 <= d.at < end - 0.3]
        changes = [(a, b) for a, b in itertools.pairwise(window) if a.member != b.member]
        offsets = [d.offset for d in window]
        cost.repeated += len(offsets) - len(set(offsets))
        if offsets:
            cost.missing += max(offsets) - min(offsets) + 1 - len(set(offsets))
        if changes:
            cost.moved += 1
            cost.gaps += [(b.at - a.at) * 1e3 for a, b in changes]
        elif len(window) > 1:
            pairs = itertools.pairwise(window)
            cost.silences.append(max((b.at - a.at) * 1e3 for a, b in pairs))
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--clients", default="kafka_coop,cooperative-sticky")
    parser.add_argument("--phases", default="in phase,spread")
    options = parser.parse_args()
    costs: dict[tuple[str, str, str], list[Cost]] = defaultdict(list)
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        kafka.create_topic("load", partitions=PARTITIONS)
        load = Load(kafka.bootstrap_servers, "load")
        load.start()
        for _ in range(options.runs):
            for phase in options.phases.split(","):
                for client in options.clients.split(","):
                    measured = measure(
                        client,
                        kafka.bootstrap_servers,
                        "load",
                        Path(folder),
                        spread=phase == "spread",
                    )
                    for event, cost in zip(EVENTS, measured, strict=True):
                        costs[client, phase, event].append(cost)
        load.stop()
    report(costs)


def report(costs: dict[tuple[str, str, str], list[Cost]]) -> None:
    print(
        "| client | heartbeats | event | moved | gap ms: median (max) | kept silent ms: p95 "
        "(max) | repeated | missing |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for (client, phase, event), runs in costs.items():
        gaps = [g for r in runs for g in r.gaps]
        silences = sorted(s for r in runs for s in r.silences)
        moved = statistics.median(r.moved for r in runs)
        gap = f"{statistics.median(gaps):,.0f} ({max(gaps):,.0f})" if gaps else "-"
        silent = (
            f"{silences[int(len(silences) * 0.95)]:,.0f} ({silences[-1]:,.0f})" if silences else "-"
        )
        print(
            f"| {client} | {phase} | {event} | {moved:.0f} | {gap} | {silent} | "
            f"{sum(r.repeated for r in runs)} | {sum(r.missing for r in runs)} |"
        )


if __name__ == "__main__":
    main()
