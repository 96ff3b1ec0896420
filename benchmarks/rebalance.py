"""What a rebalance costs: the gap of a moved partition, the silence of a kept one, and how long.

    python -m benchmarks.rebalance [--runs 3] [--kafka 4.1.0] [--calm 65]
        [--clients kafka_coop,kafka_coop+drain+watchdog,cooperative-sticky,java,mixed,…]

A real Kafka on loopback, 48 partitions at 2,000 records/s in all (24 ms between two records of a
partition), four members, each a process. For a while nothing happens; then a fifth joins, then
closes; then the first is killed. Before each event all members beat *in phase*, 20 ms after one
another, or *spread*, 0.6 s after one another: each is stopped while its next heartbeat falls due,
and goes on when it is to be sent. *As left*, they beat when the last round has left them to, which
is elsewhere for each client: where a round takes long, all beat at its end. From run to run the
events fall elsewhere between two heartbeats of 3 s, at the same places for every client: after the
first member's heartbeat or, as left, the last round. With ``--calm`` the group is left alone for so
many more seconds before each event: ours beat less often when the last round was a minute ago. A
first group of each client is not measured: it warms up the broker.

    kafka_coop          five of ours
    cooperative-sticky  five of librdkafka's, by confluent-kafka
    java                five of kafka-clients', with its CooperativeStickyAssignor
    mixed               ours, Java's, librdkafka's, ours, all of them cooperative-sticky; the fifth,
                        which joins and closes, is ours
    theirs              the same without ours: Java's twice, librdkafka's twice, and Java's
    range               five of librdkafka's, eager: all partitions are given up in each round
    consumer            five of librdkafka's, by KIP-848's protocol; its sessions are the broker's
    …+drain             the same, but that ours leave by drain(): they poll on until they are
                        drained, and then close
    …+watchdog          the same, but that ours have coop.watchdog
    …+quick             the same, but that each one's heartbeat.interval.ms is 300

Each has its own defaults, but for session.timeout.ms: 6000 for all. The first member starts alone,
so that it leads the group, until it is killed: in a mixed group that is one of ours. Others
are told to start by a line on their standard input, when all that they need is loaded: Python's
modules, and Java's classes, for which each JVM has joined a group of its own before. The process of
the one that leaves ends later, when nothing is measured.

The columns are those of `benchmarks.rebalance_cost`; the goals, and what has become of them,
follow (`benchmarks.rebalance_goals`). The exit status is 1 where one was missed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import operator
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.broker import broker
from benchmarks.rebalance_cost import Cost, History, report
from benchmarks.rebalance_goals import verdict
from benchmarks.settled import MemberLog, settled
from kafka_coop.testing.ending import end_in_order_at_sigterm
from kafka_coop.testing.java import client_program
from kafka_coop.testing.local import DEFAULT_VERSION

PARTITIONS = 48
RATE = 2_000
MEMBERS = 4
CREWS = {
    "mixed": ("kafka_coop", "java", "cooperative-sticky", "kafka_coop"),
    "theirs": ("java", "java", "cooperative-sticky", "cooperative-sticky"),
}
"""Whose client each member is, of groups that are not all of one. A fifth is the first's again."""
VARIANTS = {"drain": "drain", "watchdog": "coop.watchdog=true"}
"""What our members are started with, by what is added to a client's name."""
OF_ALL = {"quick": "heartbeat.interval.ms=300"}
"""The same, of all members."""
CLIENTS = (
    "kafka_coop,kafka_coop+drain+watchdog,cooperative-sticky,java,theirs,mixed,mixed+drain+watchdog"
)
EVENTS = ("nothing", "join", "leave", "kill")
HEARTBEAT = 3.0
PHASES = {"in phase": 0.02, "spread": 0.6, "as left": None}
"""Seconds from one member's heartbeat to the next one's. Were it none at all, the first one's
session would end, once it is killed, in the same millisecond as the others send a heartbeat, and
which comes first, a difference of three seconds, would be a matter of chance."""
TO_BEAT = ((0.0, 1.6), (4.55, 6.05))
"""When a process is stopped that is to beat as soon as it goes on for good: from and to, seconds.
Whose next heartbeat is due in the first half of an interval sends it at its end, the other later:
so both are due in the second stop. One stop for more than a heartbeat's interval would do, but
somebody who has just not sent one would be silent for more than a session of two."""
NO_COMMIT = (6.35, 9.55)
"""A third stop, right behind a heartbeat: most auto-commits, too, are due in it."""
PAUSE = 2 * HEARTBEAT
"""Seconds from the end of what an event has brought about to that of its window."""
STOPS = {"kill": (*TO_BEAT, NO_COMMIT)}
BEATS_BEFORE = {"kill": 4}
"""How many heartbeats there are between the first member's, which is on time, and the interval in
which an event falls; one, where nothing is said. A commit begins a session anew, too, and whether
one comes between the last heartbeat and the kill would be a matter of chance. Auto-commits come
every 5 s, one that was due in the third stop as soon as that is over: 0 to 1.8 s after the first
heartbeat, and 5 s later, 10, 15. None of them is between 12 s and 15."""
AFTER_KILL = 12.0
PATIENCE = 120.0
"""Seconds that a group may take to settle."""
REST = HEARTBEAT
"""Seconds that a settled group is left alone: all members have heard of the last round by then."""


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


@functools.cache
def _member(client: str) -> list[str]:
    """What a member's command begins with."""
    if client == "java":
        return client_program(Path(__file__).with_name("RebalanceMember.java"))
    return [sys.executable, "-m", "benchmarks.rebalance_member", client]


class Group:
    """The members of one run.

    Args:
        client: One of the clients that `benchmarks.rebalance_member` has, java, or a crew's name;
            with variants, as above.
        bootstrap, topic: What they read.
        folder: For their logs.

    Attributes:
        processes: Of all members started, by their numbers.
    """

    def __init__(self, client: str, bootstrap: str, topic: str, folder: Path) -> None:
        name, *variants = client.split("+")
        self._crew = CREWS.get(name, (name,))
        self._variants = [VARIANTS[variant] for variant in variants if variant in VARIANTS]
        self._of_all = [OF_ALL[variant] for variant in variants if variant not in VARIANTS]
        self._bootstrap = bootstrap
        self._group = f"{client}-{time.time_ns()}"
        self._topic = topic
        self._folder = folder
        self._waiting: set[int] = set()
        self._staying: set[int] = set()
        self._killed: dict[int, float] = {}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, wait: bool = False, stay: bool = False) -> int:
        """Starts a member; `benchmarks.rebalance_member` says what it does with these."""
        number = len(self.processes)
        client = self._crew[number % len(self._crew)]
        arguments = [*_member(client), self._bootstrap, self._group]
        arguments += [self._topic, str(self._log(number)), *options, *self._of_all]
        if client == "kafka_coop":
            arguments += self._variants
        if wait:
            arguments.append("wait")
            self._waiting.add(number)
        if stay:
            arguments.append("stay")
            self._staying.add(number)
        self.processes.append(
            subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE if wait or stay else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        return number

    def start_all(self, *options: Sequence[str]) -> None:
        """Starts a member with each of these options; the first alone, so that it leads."""
        for number, chosen in enumerate(options):
            self.start(*chosen)
            if not number:
                self.settle(1, rest=0.0)

    def go(self, number: int) -> None:
        """Has a member begin that was started with ``wait``."""
        stdin = self.processes[number].stdin
        assert stdin is not None, "it was started with wait"
        stdin.write(b"go\n")
        stdin.flush()
        if number not in self._staying:
            stdin.close()
        self._waiting.discard(number)

    def terminate(self, number: int) -> None:
        """Has a member close its consumer."""
        self.processes[number].send_signal(signal.SIGTERM)

    def kill(self, number: int) -> None:
        self._killed[number] = time.time()
        self.processes[number].kill()

    def settle(self, members: int, *, waiting: int = 0, rest: float = REST) -> None:
        """Waits until the first members share the topic, and those after them can be told to go.

        Args:
            members: How many are to own partitions, all of them evenly, and to deliver them.
            waiting: How many more have been started with ``wait``.
            rest: Seconds for which nothing must have changed: the first event's window begins then.

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
            elif now >= since + rest:
                return
            ended = [n for n in logs if self.processes[n].poll() is not None]
            if ended or now > until:
                said = "".join(f"\n  member {number} {log}" for number, log in logs.items())
                why = f"members {ended} have ended" if ended else f"not within {PATIENCE:.0f} s"
                raise RuntimeError(f"{self._group} has not settled, {why}:{said}")
            time.sleep(0.1)

    def _log(self, number: int) -> Path:
        return self._folder / f"{self._group}-{number}.log"

    def history(self) -> History:
        """All that the members have logged, once they have ended."""
        logs = {number: self._log(number) for number in range(len(self.processes))}
        return History.read({n: log for n, log in logs.items() if log.exists()}, self._killed)

    def beat(self, apart: float, stops: Sequence[tuple[float, float]] = TO_BEAT) -> float:
        """Has the members beat in the order of their numbers, and each one's interval thereafter.

        Args:
            apart: Seconds from one member's heartbeat to the next one's.
            stops: When each is stopped, from and to, seconds; it beats at the end of the last.

        Returns:
            When the first one beats, by `time.monotonic`. The last has by the time this returns.
        """
        begun = time.monotonic()
        running = [
            process
            for number, process in enumerate(self.processes)
            if process.poll() is None and number not in self._waiting
        ]
        signals = [
            (begun + apart * place + at, process, sent)
            for place, process in enumerate(running)
            for stop in stops
            for at, sent in zip(stop, (signal.SIGSTOP, signal.SIGCONT), strict=True)
        ]
        for at, process, sent in sorted(signals, key=operator.itemgetter(0)):
            time.sleep(max(0.0, at - time.monotonic()))
            process.send_signal(sent)
        return begun + stops[-1][1]

    def stop(self) -> None:
        for process in self.processes:
            # In this order: who ends with its input has no handler any more for a signal that comes
            # then, and would die of it.
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            if process.stdin is not None:
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measure(
    client: str,
    bootstrap: str,
    topic: str,
    folder: Path,
    *,
    apart: float | None,
    calm: float,
    later: float,
) -> list[Cost]:
    """One group's life.

    Args:
        client, bootstrap, topic, folder: As `Group` has them.
        apart: As `Group.beat` has it; None: the members beat when they do.
        calm: Seconds for which the group is left alone before each event.
        later: Seconds by which each event comes later than some whole heartbeats after the first
            member's heartbeat, or after the last round; less than one.
    """
    group = Group(client, bootstrap, topic, folder)
    windows: list[tuple[float, float]] = []
    try:
        group.start_all(*[()] * MEMBERS)
        group.start(wait=True, stay=True)
        group.settle(MEMBERS, waiting=1)
        for event in EVENTS:
            time.sleep(calm)
            wait_for_moment(
                group,
                apart,
                HEARTBEAT * BEATS_BEFORE.get(event, 1) + later,
                STOPS.get(event, TO_BEAT),
            )
            began = time.time()
            if event == "join":
                group.go(MEMBERS)
            elif event == "leave":
                group.terminate(MEMBERS)
            if event == "kill":
                group.kill(0)
                time.sleep(AFTER_KILL)
            else:
                group.settle(MEMBERS + (event == "join"), rest=PAUSE)
            windows.append((began, time.time()))
    finally:
        group.stop()
    history = group.history()
    return [history.cost(start, end) for start, end in windows]


def wait_for_moment(
    group: Group,
    apart: float | None,
    later: float,
    stops: Sequence[tuple[float, float]] = TO_BEAT,
) -> None:
    """Returns ``later`` seconds after the first member's heartbeat, or now, in a group at rest."""
    first = time.monotonic() if apart is None else group.beat(apart, stops)
    time.sleep(max(0.0, first + later - time.monotonic()))


def warm_up(client: str, bootstrap: str, topic: str, folder: Path) -> None:
    group = Group(client, bootstrap, topic, folder)
    try:
        for members in (1, 2):
            group.start()
            group.settle(members)
    finally:
        group.stop()


def add_phases(parser: argparse.ArgumentParser) -> None:
    """Adds ``--phases``, a list of names in `PHASES`: what is none of them is refused."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in PHASES]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(PHASES)}")
        return found

    parser.add_argument("--phases", type=names, default="in phase,spread", help="comma-separated")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--clients", default=CLIENTS)
    add_phases(parser)
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help="the broker's version")
    parser.add_argument("--calm", type=float, default=0.0, help="seconds before each event")
    options = parser.parse_args()
    end_in_order_at_sigterm()
    costs: dict[tuple[str, str, str], list[Cost]] = defaultdict(list)
    with broker(options.kafka) as kafka, tempfile.TemporaryDirectory() as folder:
        kafka.create_topic("load", partitions=PARTITIONS)
        load = Load(kafka.bootstrap_servers, "load")
        load.start()
        for client in options.clients.split(","):
            warm_up(client, kafka.bootstrap_servers, "load", Path(folder))
        for run in range(options.runs):
            for phase in options.phases:
                for client in options.clients.split(","):
                    measured = measure(
                        client,
                        kafka.bootstrap_servers,
                        "load",
                        Path(folder),
                        apart=PHASES[phase],
                        calm=options.calm,
                        later=HEARTBEAT * (run + 0.5) / options.runs,
                    )
                    for event, cost in zip(EVENTS, measured, strict=True):
                        costs[client, phase, event].append(cost)
        load.stop()
    report(costs)
    return verdict(costs)


if __name__ == "__main__":
    sys.exit(main())
