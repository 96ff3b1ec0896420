"""What a rebalance costs: the gap of a moved partition, the silence of a kept one.

    python -m benchmarks.rebalance [--runs 3] [--clients kafka_coop,cooperative-sticky]

A real Kafka on loopback, 48 partitions at 2,000 records/s in all (24 ms between two records of a
partition), four members, each a process. For a while nothing happens; then a fifth joins, then
closes; another is killed. Before each event the members' heartbeats are *in phase* (they restart
together with a round) or *spread* (each member is stopped for 0.6 s times its number, once).
librdkafka is measured beside ours in the same run, at its own defaults; session.timeout.ms is
6000 for both. From run to run the events fall elsewhere between two heartbeats of 3 s, at the
same places for every client. A first group of each client is not measured: it warms up the broker.

    gap      from the last record that the old owner delivered to the first of the new one
    silence  the longest time between two deliveries of a partition that stayed; where nothing
             happens, it is the machine's own
"""

from __future__ import annotations

import argparse
import contextlib
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

from benchmarks.settled import MemberLog, settled
from kafka_coop.testing import LocalKafka

PARTITIONS = 48
RATE = 2_000
MEMBERS = 4
EVENTS = ("nothing", "join", "leave", "kill")
WINDOW = {"nothing": 6.0, "join": 8.0, "leave": 6.0, "kill": 12.0}
HEARTBEAT = 3.0
PATIENCE = 120.0
"""Seconds that a group may take to settle."""
REST = HEARTBEAT
"""Seconds that a settled group is left alone: all members have heard of the last round by then."""


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
            with contextlib.suppress(BufferError):  # a busy machine: what is due is sent later
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
        arguments = [*self._command, self._group, self._topic, str(self._log(number))]
        arguments += [*options, *(["wait"] if wait else [])]
        self.processes.append(subprocess.Popen(arguments, stderr=subprocess.DEVNULL))
        return number

    def settle(self, members: int, *, waiting: int = 0) -> None:
        """Waits until the first members share the topic, and those after them can be woken.

        For `REST` seconds nothing must have changed: the first event's window begins after.

        Args:
            members: How many are to own partitions, all of them evenly, and to deliver them.
            waiting: How many more have been started with ``wait``.

        Raises:
            RuntimeError: A member has ended, or they have not settled in time.
        """
        logs = {number: MemberLog(self._log(number)) for number in range(members + waiting)}
        sharing = {number: logs[number] for number in range(members)}
        now = since = time.monotonic()
        until = now + PATIENCE
        while True:
            for log in logs.values():
                log.read_on()
            now = time.monotonic()
            if not (settled(sharing, PARTITIONS) and all(log.ready for log in logs.values())):
                since = now
            elif now >= since + REST:
                return
            ended = [n for n in logs if self.processes[n].poll() is not None]
            if ended or now > until:
                said = "".join(f"\n  member {number} {log}" for number, log in logs.items())
                why = f"members {ended} have ended" if ended else f"not within {PATIENCE:.0f} s"
                raise RuntimeError(f"{self._group} has not settled, {why}:{said}")
            time.sleep(0.1)

    def _log(self, number: int) -> Path:
        return self._folder / f"{self._group}-{number}.log"

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


def measure(
    client: str, bootstrap: str, topic: str, folder: Path, *, spread: bool, later: float
) -> list[Cost]:
    """One group's life; ``later``: seconds by which each event comes later after the one before."""
    group = Group(client, bootstrap, topic, folder)
    windows: list[tuple[float, float]] = []
    try:
        for _ in range(MEMBERS):
            group.start()
        group.start(wait=True)
        group.settle(MEMBERS, waiting=1)
        for event in EVENTS:
            if spread:
                group.spread()
            began = time.time()
            if event == "join":
                group.processes[MEMBERS].send_signal(signal.SIGUSR1)
            elif event == "leave":
                group.processes[MEMBERS].send_signal(signal.SIGTERM)
            elif event == "kill":
                os.kill(group.processes[0].pid, signal.SIGKILL)
            time.sleep(WINDOW[event] + later)
            windows.append((began, time.time()))
    finally:
        group.stop()
    by_partition: dict[int, list[Delivery]] = defaultdict(list)
    for partition, delivery in group.deliveries():
        by_partition[partition].append(delivery)
    return [cost_of(by_partition, start, end) for start, end in windows]


def warm_up(client: str, bootstrap: str, topic: str, folder: Path) -> None:
    group = Group(client, bootstrap, topic, folder)
    try:
        for members in (1, 2):
            group.start()
            group.settle(members)
    finally:
        group.stop()


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
        for client in options.clients.split(","):
            warm_up(client, kafka.bootstrap_servers, "load", Path(folder))
        for run in range(options.runs):
            for phase in options.phases.split(","):
                for client in options.clients.split(","):
                    measured = measure(
                        client,
                        kafka.bootstrap_servers,
                        "load",
                        Path(folder),
                        spread=phase == "spread",
                        later=HEARTBEAT * run / options.runs,
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
