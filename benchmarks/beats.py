"""What heartbeats cost: members that have nothing to read, and their coordinator.

    python -m benchmarks.beats [--members 4] [--seconds 20] [--intervals 10 20 100 500 3000]

One group after the other on one real Kafka, each with ``heartbeat.interval.ms`` set: a set interval
holds, also for who has had no record for long. The members are processes that call ``poll(1.0)``.
CPU time is user and system time of all threads, once the broker's compilers rest; the first row
is the broker's alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from benchmarks.broker import broker
from benchmarks.spark.processes import cpu_seconds
from benchmarks.warm import wait_for_compilers

_TOPIC = "quiet"


def member(bootstrap: str, interval: int) -> None:
    """Polls until its input ends."""
    # Where hypothesis is installed (here, for the tests), a dependency of kio's imports it.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    from kafka_coop import CoopConsumer  # noqa: PLC0415  # that is what is measured

    settings = {"bootstrap.servers": bootstrap, "group.id": f"beats-{interval}"}
    with CoopConsumer({**settings, "heartbeat.interval.ms": interval}) as consumer:
        consumer.subscribe([_TOPIC])
        while not consumer.assignment():
            consumer.poll(1.0)
        print("assigned", flush=True)
        over = threading.Thread(target=sys.stdin.read)
        over.start()
        while over.is_alive():
            consumer.poll(1.0)


def used_by(processes: Sequence[int], seconds: float) -> list[float]:
    """The part of a core that each of them used, in so many seconds."""
    began, before = time.monotonic(), [cpu_seconds(pid) for pid in processes]
    time.sleep(seconds)
    took = time.monotonic() - began
    return [(cpu_seconds(pid) - was) / took for pid, was in zip(processes, before, strict=True)]


def group(bootstrap: str, interval: int, members: int) -> list[subprocess.Popen[str]]:
    """A group's members, each with its partitions."""
    command = [sys.executable, "-m", "benchmarks.beats", "--member", bootstrap, str(interval)]
    started = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for _ in range(members)
    ]
    for one in started:
        assert one.stdout is not None
        assert one.stdout.readline() == "assigned\n"
    return started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--intervals", type=int, nargs="+", default=[10, 20, 100, 500, 3000])
    parser.add_argument("--member", nargs=2, metavar=("BOOTSTRAP", "INTERVAL"))
    options = parser.parse_args()
    if options.member:
        member(options.member[0], int(options.member[1]))
        return
    print("| interval, ms | beats/s | a member, % of a core | the broker, % of a core |")
    print("|---|---|---|---|")
    with broker() as kafka:
        kafka.create_topic(_TOPIC, partitions=12)
        java = kafka.pid(1)
        wait_for_compilers(kafka, lambda: time.sleep(1))
        (alone,) = used_by([java], options.seconds)
        print(f"| - | 0 | - | {alone:.1%} |", flush=True)
        for interval in options.intervals:
            started = group(kafka.bootstrap_servers, interval, options.members)
            wait_for_compilers(kafka, lambda: time.sleep(1))
            brokers, *theirs = used_by([java, *(one.pid for one in started)], options.seconds)
            rate = options.members * 1000 / interval
            mean = sum(theirs) / len(theirs)
            print(f"| {interval} | {rate:,.0f} | {mean:.1%} | {brokers:.1%} |", flush=True)
            for one in started:
                one.communicate()


if __name__ == "__main__":
    main()
