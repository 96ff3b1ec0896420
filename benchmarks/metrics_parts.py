"""The parts of what metrics cost consume(n), each by itself, in CPU time of this process.

    python -m benchmarks.metrics_parts BOOTSTRAP BATCH

Prints `Parts` as JSON. The broker is elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import timedelta

from prometheus_client import CollectorRegistry

from benchmarks.metrics_member import IN_THE_LOG, Member, NoPolls
from kafka_coop.backend import clock
from kafka_coop.metrics import serve
from kafka_coop.metrics.member import MemberMetrics

CALLS = 200_000
SCRAPES = 50
REPORT_EVERY_MS = 10
QUIET = 3.0
"""Seconds that a member without work is looked at."""

SCRAPER = """
import sys, time, urllib.request
for _ in range(int(sys.argv[2])):
    with urllib.request.urlopen(sys.argv[1]) as answer:
        assert len(answer.read()) > 1000
    time.sleep(0.01)
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """CPU seconds of the thread that calls consume(), and of the whole process."""

    thread: float
    process: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(thread=self.thread - other.thread, process=self.process - other.process)

    def __truediv__(self, number: float) -> Cost:
        return Cost(thread=self.thread / number, process=self.process / number)


def cost_of(work: Callable[[], object]) -> Cost:
    thread, process = time.thread_time(), time.process_time()
    work()
    return Cost(thread=time.thread_time() - thread, process=time.process_time() - process)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What each costs.

    Attributes:
        reading: A second of reading at full speed, all metrics included.
        calls: How many calls of consume() that second has.
    """

    reading: Cost
    calls: float
    call: Cost
    statistics: Cost
    scrape: Cost
    heartbeat: Cost


def measure(bootstrap: str, batch: int) -> Parts:
    member = Member(bootstrap, "parts", batch, {"statistics.interval.ms": 1000})
    with member.consumer as consumer, serve(consumer, 0) as server:
        member.read(IN_THE_LOG)
        began = time.perf_counter()
        reading = cost_of(lambda: member.read(2 * IN_THE_LOG))
        took = time.perf_counter() - began
        # Nothing is left to fetch: what goes on besides is a few beats.
        consumer.pause(consumer.assignment())
        url = f"http://127.0.0.1:{server.port}/metrics"
        scraper = [sys.executable, "-c", SCRAPER, url, str(SCRAPES)]
        scrapes = cost_of(lambda: subprocess.run(scraper, check=True))
    reports = QUIET * 1000 / REPORT_EVERY_MS
    return Parts(
        reading=reading / took,
        calls=2 * IN_THE_LOG / batch / took,
        call=(polled(MemberMetrics) - polled(None)) / CALLS,
        statistics=(quiet(bootstrap, REPORT_EVERY_MS) - quiet(bootstrap, 0)) / reports,
        # The thread that calls consume() has no part in it.
        scrape=Cost(thread=0, process=scrapes.process / SCRAPES),
        heartbeat=Cost(thread=0, process=beaten().process / CALLS),
    )


def unused() -> MemberMetrics:
    return MemberMetrics(group_id="group", client_id="client", registry=CollectorRegistry())


def polled(metrics: type[MemberMetrics] | None) -> Cost:
    """What `CALLS` calls of consume() say to the figures of polls."""
    polls = NoPolls() if metrics is None else unused().polls

    def work() -> None:
        for _ in range(CALLS):
            polls.entered(clock.now())
            polls.left(clock.now())

    return cost_of(work)


def beaten() -> Cost:
    metrics, latency = unused(), timedelta(milliseconds=1)

    def work() -> None:
        for _ in range(CALLS):
            metrics.heartbeat(latency)

    return cost_of(work)


def quiet(bootstrap: str, report_every_ms: int) -> Cost:
    """A member that has nothing to read, with librdkafka's reports as often as that."""
    more = {"statistics.interval.ms": report_every_ms}
    with closing(Member(bootstrap, f"quiet {report_every_ms}", 1, more).consumer) as consumer:
        consumer.pause(consumer.assignment())
        consumer.consume(500, 1)

        def work() -> None:
            ends = time.monotonic() + QUIET
            while time.monotonic() < ends:
                consumer.consume(1, 0.1)

        return cost_of(work)


if __name__ == "__main__":
    print(json.dumps(asdict(measure(sys.argv[1], int(sys.argv[2])))))
