"""What all metrics together cost consume(n).

    python -m benchmarks.metrics [--batch 500] [--starts 3]

First by parts (`benchmarks.metrics_parts`), each repeated until its CPU time can be told, and then
counted as often as it comes to a member that reads at full speed: the figures of polls with every
call, librdkafka's statistics every second, a scrape every `SCRAPE_EVERY` seconds, 20 heartbeats a
second (a group of one). The sum says what all of it adds to the CPU time of

    calling thread   the one that calls consume(), alone
    process          all its threads: librdkafka's, which write the statistics, the one that
                     answers the scrape, and the membership's. The broker and what scrapes have
                     processes of their own

Then as a whole. Three members read the same log, each a process in a group of its own: one with
all of this; one for which `MemberMetrics` is a stand-in that does nothing; and the control, which
is another one without. They take turns of `PIECE` records, a few hundredths of a second; a round
is as many as fit between two scrapes, and gives one ratio to the member without; after `ROUNDS`
all start anew, since no two processes lie alike in memory. The control says what the ratios are
worth. (Here statistics and scrapes come three times as often per record, since they come by the
clock and each member has a third of it.)

Ends with status 1 where the sum of the parts is above 2 %.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from itertools import count

from benchmarks.consume import produce
from benchmarks.metrics_member import IN_THE_LOG
from benchmarks.metrics_parts import Cost
from kafka_coop.testing import EmbeddedKafka

GOAL = 0.02
SCRAPE_EVERY = 10.0
BEATS = 20
PIECE = 100_000
ROUNDS = 3
ROUND_SECONDS = 5.0
SIDES = ("with", "without", "control")
WARM_UP = IN_THE_LOG


class Member:
    """A `benchmarks.metrics_member`, told when to read."""

    def __init__(self, side: str, bootstrap: str, group: str, batch: int) -> None:
        module = [sys.executable, "-m", "benchmarks.metrics_member"]
        self._process = subprocess.Popen(
            [*module, "with" if side == "with" else "without", bootstrap, group, str(batch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self._heard())
        self.cpu = self.read(WARM_UP)

    def read(self, records: int) -> Cost:
        assert self._process.stdin is not None
        print(records, file=self._process.stdin, flush=True)
        thread, process = self._heard().split()
        self.cpu = Cost(thread=float(thread), process=float(process))
        return self.cpu

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _heard(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a member of the benchmark has ended")
        return line


def scrape(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        answer.read()


@dataclass(frozen=True, kw_only=True)
class Round:
    """What each side used for `records`."""

    cpu: dict[str, Cost]
    records: int


def one_round(members: dict[str, Member]) -> Round:
    """Turns, in changing order, with a scrape beside them."""
    before = {side: member.cpu for side, member in members.items()}
    scraping = threading.Thread(target=scrape, args=[members["with"].port])
    scraping.start()
    ends = time.monotonic() + ROUND_SECONDS
    for turns in count(1):
        first = turns % len(SIDES)
        for side in (*SIDES[first:], *SIDES[:first]):
            members[side].read(PIECE)
        # Whole logs: to begin one anew costs something, too.
        if time.monotonic() >= ends and turns * PIECE % IN_THE_LOG == 0:
            break
    scraping.join()
    cpu = {side: member.cpu - before[side] for side, member in members.items()}
    return Round(cpu=cpu, records=turns * PIECE)


def one_start(bootstrap: str, number: int, batch: int) -> list[Round]:
    with contextlib.ExitStack() as stack:
        members = {}
        for side in SIDES:
            members[side] = Member(side, bootstrap, f"{side} {number}", batch)
            stack.callback(members[side].close)
        return [one_round(members) for _ in range(ROUNDS)]


def report_parts(bootstrap: str, batch: int) -> float:
    """Prints the parts; returns the larger of the two sums."""
    command = [sys.executable, "-m", "benchmarks.metrics_parts", bootstrap, str(batch)]
    parts = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    reading = parts["reading"]
    rows = (
        (f"polls' figures, each consume({batch})", "call", parts["calls"]),
        ("librdkafka's statistics, each second", "statistics", 1.0),
        (f"a scrape, every {SCRAPE_EVERY:g} s", "scrape", 1 / SCRAPE_EVERY),
        (f"a heartbeat, {BEATS} a second", "heartbeat", float(BEATS)),
    )
    print(
        "| part | µs of the calling thread | of the process | adds to the thread | to the process |"
    )
    print("|---|---|---|---|---|")
    sums = dict.fromkeys(reading, 0.0)
    for name, part, per_second in rows:
        cost = parts[part]
        shares = {of: cost[of] * per_second / reading[of] for of in sums}
        print(
            f"| {name} | {cost['thread'] * 1e6:,.2f} | {cost['process'] * 1e6:,.2f} "
            f"| {shares['thread']:.2%} | {shares['process']:.2%} |"
        )
        sums = {of: sums[of] + shares[of] for of in sums}
    print(f"| all | | | {sums['thread']:.2%} | {sums['process']:.2%} |")
    print(
        f"\nA second of reading has {parts['calls']:,.0f} calls and takes "
        f"{reading['thread']:.2f} s of the thread, {reading['process']:.2f} s of the process.\n",
        flush=True,
    )
    return max(sums.values())


def report_whole(rounds: list[Round]) -> None:
    print("| | CPU time of | µs/record | without | ratio | quartiles |")
    print("|---|---|---|---|---|---|")
    for side in ("with", "control"):
        for name, field in (("calling thread", "thread"), ("process", "process")):
            both = [(getattr(r.cpu[side], field), getattr(r.cpu["without"], field)) for r in rounds]
            low, median, high = statistics.quantiles([a / b for a, b in both], n=4)
            here, without = (
                statistics.median(c / r.records for c, r in zip(column, rounds, strict=True)) * 1e6
                for column in zip(*both, strict=True)
            )
            print(
                f"| {side} | {name} | {here:.3f} | {without:.3f} "
                f"| {median:.3f} | {low:.3f} to {high:.3f} |"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description="What all metrics cost consume(n).")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--starts", type=int, default=3, help="of the members; 0: the parts alone")
    given = parser.parse_args()
    rounds: list[Round] = []
    with EmbeddedKafka() as kafka:
        produce(kafka, IN_THE_LOG)
        added = report_parts(kafka.bootstrap_servers, given.batch)
        for number in range(given.starts):
            rounds += one_start(kafka.bootstrap_servers, number, given.batch)
    if rounds:
        print(f"Medians of {given.starts} x {ROUNDS} rounds:\n")
        report_whole(rounds)
    return int(added > GOAL)


if __name__ == "__main__":
    sys.exit(main())
