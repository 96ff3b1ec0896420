"""Crowds: 500 members, 10,000 partitions, 10,000 joins and leaves; each on one machine.

    python -m benchmarks.crowd members    [--members 500] [--partitions 1000] [--processes 10]
    python -m benchmarks.crowd partitions [--members 20] [--partitions 10000] [--processes 4]
    python -m benchmarks.crowd turnover   [--turns 10000] [--groups 8]

A real Kafka on loopback. *members* and *partitions* start that many members, shared out over a few
processes, and print how long each step took, in how many rounds, and what the members are made of.
The steps: all join; a record for each partition; one process leaves; another is killed. Each ends
when every partition has one owner, by all members' word together, and every member its fair share.
It fails where that does not come, and where a record did not come, or came twice.

*turnover* has one member of each group stay, in this process, while others join, own partitions and
leave, one after the other. Every five hundredth turn it measures this process: resident memory,
Python objects, threads, descriptors, sockets, and what the metrics registry shows. A table and the
slope of each from a fifth of the way on; status 1 where threads, descriptors, sockets, objects or
metrics are more in the end than they were there, or where memory is more than it was half way.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from prometheus_client import CollectorRegistry

from benchmarks.cpu_time import cpu_time
from benchmarks.process_size import ProcessSize
from kafka_coop.consumer import CoopConsumer
from kafka_coop.testing import LocalKafka
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.ending import wait_or_kill

SESSION = timedelta(seconds=45)
PATIENCE = 900.0
"""Seconds for one step."""
SHARE = 1.01
STEP_KIB = 2048
"""Allocators take memory in steps: Python's a MiB at a time, glibc's for each thread that comes. Up
to 1.6 MiB at once were seen, in the last half of 2,000 turns 1.9 MiB, of 10,000 turns 1.0 MiB. Half
of 10,000 with a leak of a KiB each are 4.9 MiB."""
PER_TOPIC = 1000
"""Partitions; KRaft makes at most 10,000 records of one request."""


def topics_of(kafka: KafkaCluster, stem: str, partitions: int) -> dict[str, int]:
    """Creates topics with so many partitions in all. Returns the partitions of each."""
    made = {}
    for number, begin in enumerate(range(0, partitions, PER_TOPIC)):
        made[f"{stem}-{number}"] = min(PER_TOPIC, partitions - begin)
        kafka.create_topic(f"{stem}-{number}", partitions=made[f"{stem}-{number}"])
    return made


# --- many members, many partitions ---------------------------------------------------------------


@dataclass
class Step:
    """What one step took, and what there was at its end."""

    name: str
    members: int
    seconds: float
    cpu: float
    rounds: int
    moved: int


@dataclass
class Crowd:
    """Members in a few processes, asked by turns."""

    bootstrap: str
    group: str
    topics: dict[str, int]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    owners: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def start(self, members: int) -> None:
        """One more process, with so many members."""
        job = {
            "members": members,
            "topics": list(self.topics),
            "config": {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "session.timeout.ms": SESSION // timedelta(milliseconds=1),
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 5000,  # what is idle, stays idle
                "log_level": 0,
            },
        }
        self.processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.crowd_member", json.dumps(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        self.sizes.append(members)

    def ask(self) -> list[dict[str, Any]]:
        """How every process is."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("report\n")
            process.stdin.flush()
        told = []
        for process in self.processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"a process of members ended with status {process.wait()}")
            told.append(json.loads(line))
        return told

    def step(self, name: str, ready: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Waits for it; notes what it took."""
        began = time.monotonic()
        before = self.steps[-1].rounds if self.steps else 0
        cpu = sum(cpu_time(Path(f"/proc/{p.pid}")) for p in self.processes)
        while not ready(told := self.ask()):
            if time.monotonic() - began > PATIENCE:
                raise SystemExit(f"{name}: not within {PATIENCE:.0f} s")
            time.sleep(0.2)
        owners = owners_of(told)
        moved = sum(self.owners.get(pair, owner) != owner for pair, owner in owners.items())
        self.owners = owners
        rounds = max(g for t in told for g in t["generations"])
        self.steps.append(
            Step(
                name=name,
                members=sum(self.sizes),
                seconds=time.monotonic() - began,
                cpu=sum(cpu_time(Path(f"/proc/{p.pid}")) for p in self.processes) - cpu,
                rounds=rounds,
                moved=moved,
            )
        )
        print(f"| {self._row(self.steps[-1], rounds - before)} |", flush=True)

    @staticmethod
    def _row(step: Step, rounds: int) -> str:
        cells = (step.name, step.members, f"{step.seconds:.1f}", f"{step.cpu:.1f}", rounds)
        return " | ".join(map(str, (*cells, step.moved)))

    def whole(self, told: list[dict[str, Any]]) -> bool:
        """Every partition has one owner; nobody has much more than another."""
        owned: list[int] = [len(m) for t in told for m in t["owned"]]
        everything = sum(self.topics.values())
        least = everything // sum(self.sizes)
        return (
            sum(owned) == everything == len(owners_of(told))
            and min(owned) >= least
            and len({g for t in told for g in t["generations"]}) == 1
        )

    def read(self, records: int) -> Callable[[list[dict[str, Any]]], bool]:
        """Every member has what was published: in all, so many records."""

        def all_read(told: list[dict[str, Any]]) -> bool:
            return len([r for t in told for r in t["seen"]]) >= records

        return all_read

    def end(self, number: int, *, kill: bool) -> None:
        """One process leaves, or is killed."""
        process = self.processes.pop(number)
        self.sizes.pop(number)
        if kill:
            process.send_signal(signal.SIGKILL)
        close_pipes(process)
        process.wait()

    def stop(self) -> None:
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self.processes:
            wait_or_kill(process, 120)
            if process.stdout is not None:
                process.stdout.close()


def close_pipes(process: subprocess.Popen[str]) -> None:
    """The members close when their input ends; nobody reads what they say then."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def owners_of(told: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Who owns what, by the last who says so: processes answer at different moments."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for process in told:
        for member, owned in enumerate(process["owned"]):
            for topic, partition in owned:
                found[topic, partition] = (process["pid"], member)
    return found


def publish(bootstrap: str, topics: dict[str, int]) -> int:
    """One record to each partition. Returns how many."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    for topic, partitions in topics.items():
        for partition in range(partitions):
            producer.produce(topic, b"record", partition=partition)
            producer.poll(0)
    left = producer.flush(300)
    if left:
        raise SystemExit(f"{left} records were not taken")
    return sum(topics.values())


def crowd(kafka: KafkaCluster, members: int, partitions: int, processes: int) -> Crowd:
    """Carries out all steps. Returns what they took."""
    topics = topics_of(kafka, f"crowd-{time.time_ns()}", partitions)
    made = Crowd(kafka.bootstrap_servers, f"crowd-{time.time_ns()}", topics)
    print("| step | members | seconds | their CPU seconds | rounds | partitions moved |")
    print("|---|---|---|---|---|---|")
    try:
        for number in range(processes):
            made.start(members // processes + (number < members % processes))
        made.step("all join", made.whole)
        records = publish(kafka.bootstrap_servers, topics)
        made.step("a record for each partition", made.read(records))
        told = made.ask()
        twice = Counter(tuple(r) for t in told for r in t["seen"])
        if len(twice) != records or max(twice.values()) > 1:
            raise SystemExit(f"{len(twice)} of {records} records came, {twice.most_common(1)}")
        size = " + ".join(f"{t['rss_kib'] / 1024:.0f}" for t in told)
        if processes > 2:
            made.end(0, kill=False)
            made.step("one process leaves", made.whole)
            made.end(0, kill=True)
            made.step("one process is killed", made.whole)
    finally:
        made.stop()
    print(
        f"\nPartitions: {partitions}."
        f" Threads: {sum(t['threads'] for t in told)},"
        f" descriptors: {sum(t['descriptors'] for t in told)},"
        f" sockets: {sum(t['sockets'] for t in told)};"
        f" resident memory of each process, MiB: {size}."
    )
    return made


# --- coming and going ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """This process after so many turns."""

    turns: int
    rss_kib: int
    objects: int
    threads: int
    descriptors: int
    sockets: int
    metrics: int

    @classmethod
    def now(cls, turns: int, registry: CollectorRegistry) -> Sample:
        gc.collect()
        size = ProcessSize.now()
        return cls(
            turns=turns,
            rss_kib=size.rss_kib,
            objects=len(gc.get_objects()),
            threads=size.threads,
            descriptors=size.descriptors,
            sockets=size.sockets,
            metrics=sum(len(family.samples) for family in registry.collect()),
        )


class Turnstile:
    """One group: a member that stays, and one that comes and goes."""

    def __init__(self, bootstrap: str, topic: str, group: str, registry: CollectorRegistry) -> None:
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "session.timeout.ms": 10_000,
            "log_level": 0,
        }
        self._topic = topic
        self._registry = registry
        self.resident = self._join()
        self.guest: CoopConsumer | None = None
        self.turns = 0

    def _join(self) -> CoopConsumer:
        consumer = CoopConsumer(self._config, registry=self._registry)
        consumer.subscribe([self._topic])
        return consumer

    def step(self) -> None:
        """Polls both. A guest that owns a partition leaves; then the next comes."""
        self.resident.poll(0)
        if self.guest is None:
            if len(self.resident.assignment()) == 2:
                self.guest = self._join()
            return
        self.guest.poll(0)
        if self.guest.assignment():
            self.guest.close()
            self.guest = None
            self.turns += 1

    def close(self) -> None:
        for consumer in (self.guest, self.resident):
            if consumer is not None:
                consumer.close()
        self.guest = None


def turnover(
    kafka: KafkaCluster, turns: int, groups: int, every: int, *, show: bool = True
) -> list[Sample]:
    """Lets so many members join and leave. Returns the samples: the residents alone are there."""
    topic = f"turnover-{time.time_ns()}"
    kafka.create_topic(topic, partitions=2)
    registry = CollectorRegistry()
    stiles = [
        Turnstile(kafka.bootstrap_servers, topic, f"{topic}-{n}", registry) for n in range(groups)
    ]
    samples: list[Sample] = []
    names = [f.name.replace("_kib", ", KiB") for f in fields(Sample)]
    if show:
        print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    try:
        for due in itertools.count(every, every):
            run_until(stiles, min(due, turns))
            samples.append(Sample.now(sum(s.turns for s in stiles), registry))
            if show:
                row = (getattr(samples[-1], f.name) for f in fields(Sample))
                print(f"| {' | '.join(f'{v:,}' for v in row)} |", flush=True)
            if due >= turns:
                break
    finally:
        for stile in stiles:
            stile.close()
    return samples


def run_until(stiles: Sequence[Turnstile], turns: int) -> None:
    """All groups by turns, until there were so many; no guest is left then."""
    deadline = time.monotonic() + PATIENCE
    while (done := sum(s.turns for s in stiles)) < turns or any(s.guest for s in stiles):
        for stile in stiles:
            if done < turns or stile.guest is not None:
                stile.step()
        if time.monotonic() > deadline:
            raise SystemExit(f"{done} turns of {turns}: it does not go on")
        time.sleep(0.001)
    settle(stiles)


def settle(stiles: Sequence[Turnstile]) -> None:
    """What those who left had goes in a moment: until nothing has changed for a second."""
    last, quiet_since = ProcessSize.now(), time.monotonic()
    while time.monotonic() - quiet_since < 1.0:
        for stile in stiles:
            stile.resident.poll(0)
        now = replace(ProcessSize.now(), rss_kib=0)
        if now != last:
            last, quiet_since = now, time.monotonic()
        time.sleep(0.02)


def slopes(samples: Sequence[Sample]) -> Iterator[tuple[str, float, int]]:
    """Of each measure: growth in a thousand turns, and in all, from a fifth of the way on."""
    later = [s for s in samples if s.turns >= samples[-1].turns / 5]
    turns = [s.turns / 1000 for s in later]
    for item in fields(Sample)[1:]:
        values = [getattr(s, item.name) for s in later]
        slope = statistics.linear_regression(turns, values).slope if len(later) > 1 else 0.0
        yield item.name, slope, values[-1] - values[0]


def grown(samples: Sequence[Sample]) -> list[str]:
    """What is more in the end than a fifth of the way on, by a hundredth.

    Memory has until half way to come to rest, and may take a step more.
    """
    last = samples[-1]

    def at(part: float) -> Sample:
        return next(s for s in samples if s.turns >= last.turns * part)

    early = at(0.2)
    found = ["rss_kib"] if last.rss_kib > at(0.5).rss_kib * SHARE + STEP_KIB else []
    return found + [
        item.name
        for item in fields(Sample)[2:]
        if getattr(last, item.name) > getattr(early, item.name) * SHARE
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="?", choices=("members", "partitions", "turnover", "all"))
    parser.add_argument("--members", type=int)
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=8)
    options = parser.parse_args()
    what = options.what or "all"
    sizes = {"members": (500, 1000, 10), "partitions": (20, 10_000, 4)}
    for name, (members, partitions, processes) in sizes.items():
        if what in (name, "all"):
            print(f"\n### {name}\n")
            with LocalKafka(jvm_options=["-Xmx3g"]) as kafka:
                crowd(
                    kafka,
                    options.members or members,
                    options.partitions or partitions,
                    options.processes or processes,
                )
    if what not in ("turnover", "all"):
        return 0
    print("\n### turnover\n")
    with LocalKafka() as kafka:
        samples = turnover(kafka, options.turns, options.groups, max(1, options.turns // 20))
    print("\n| measure | in 1,000 turns | in all |\n|---|---|---|")
    for name, slope, whole in slopes(samples):
        print(f"| {name} | {slope:+.1f} | {whole:+,} |")
    more = grown(samples)
    print(f"\n{'Grown: ' + ', '.join(more) if more else 'Nothing has grown'}.")
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
