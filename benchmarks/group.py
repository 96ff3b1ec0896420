"""The group of a rebalance benchmark, and its broker under load.

The members are processes of `benchmarks.rebalance_member`, or Java's of ``RebalanceMember.java``,
which share one topic of `PARTITIONS`, and log what comes; how they stand is read off the logs.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import operator
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import kafka_coop
from benchmarks.broker import broker
from benchmarks.load import load
from benchmarks.rebalance_cost import History
from benchmarks.settled import MemberLog, settled
from benchmarks.warm import warm_up
from kafka_coop.testing.ending import wait_or_kill
from kafka_coop.testing.java import client_program

PARTITIONS = 48
RATE = 2_000
MEMBERS = 4
_OURS, _JAVA, _LIBRDKAFKA = "kafka_coop", "java", "cooperative-sticky"
CREWS = {
    "mixed": (_OURS, _JAVA, _LIBRDKAFKA, _OURS, _OURS),
    "mixed-java-leads": (_JAVA, _LIBRDKAFKA, _OURS, _OURS, _OURS),
    "mixed-librdkafka-leads": (_LIBRDKAFKA, _JAVA, _OURS, _OURS, _OURS),
    "mixed-java-joins": (_OURS, _JAVA, _LIBRDKAFKA, _OURS, _JAVA),
    "mixed-librdkafka-joins": (_OURS, _JAVA, _LIBRDKAFKA, _OURS, _LIBRDKAFKA),
    "theirs": (_JAVA, _JAVA, _LIBRDKAFKA, _LIBRDKAFKA, _JAVA),
}
"""Whose client each member is, of groups that are not all of one: of the four that are there from
the start, whose first leads, and of a fifth."""
VARIANTS = {"drain": "drain", "watchdog": "coop.watchdog=true"}
"""What our members are started with, by what is added to a client's name."""
OF_ALL = {"quick": "heartbeat.interval.ms=300"}
"""The same, of all members."""
HEARTBEAT = 3.0
TO_BEAT = ((0.0, 1.6), (4.55, 6.05))
"""When a process is stopped that is to beat as soon as it goes on for good: from and to, seconds.
Whose next heartbeat is due in the first half of an interval sends it at its end, the other later:
so both are due in the second stop. One stop for more than a heartbeat's interval would do, but
somebody who has just not sent one would be silent for more than a session of two."""
PATIENCE = 120.0
"""Seconds that a group may take to settle."""
ALONE = 1.0
"""Seconds before a group is first looked at, and between two looks: they take a core's time, which
an event, and the round that it brings about, would have to wait for."""
REST = HEARTBEAT
"""Seconds that a settled group is left alone: all members have heard of the last round by then."""
OUR_CODE = Path(kafka_coop.__file__).parents[1]
"""The folder that this process has its `kafka_coop` from."""


@contextlib.contextmanager
def under_load(version: str) -> Iterator[tuple[str, str, Path]]:
    """A broker of this version that is warm, and a topic on it that is written to.

    Yields:
        The broker's address, the topic, and a folder for logs: what `Group` takes.
    """
    topic = "load"
    with broker(version) as kafka, tempfile.TemporaryDirectory() as folder:
        kafka.create_topic(topic, partitions=PARTITIONS)
        with load(kafka.bootstrap_servers, topic, PARTITIONS, RATE):
            place = (kafka.bootstrap_servers, topic, Path(folder))
            readers = Group("kafka_coop", *place)
            try:
                readers.start_all(*[()] * MEMBERS)
                warm_up(kafka)
            finally:
                readers.stop()
            yield place


def names_among(known: Collection[str]) -> Callable[[str], list[str]]:
    """Reads a list of names, for argparse: what is none of the known ones is refused."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return found

    return names


@functools.cache
def _member(client: str) -> list[str]:
    """What a member's command begins with."""
    if client == "java":
        return client_program(Path(__file__).with_name("RebalanceMember.java"))
    return [sys.executable, "-P", str(Path(__file__).with_name("rebalance_member.py")), client]


class Group:
    """The members of one run.

    Args:
        client: One of the clients that `benchmarks.rebalance_member` has, java, or a crew's name;
            with variants, as above.
        bootstrap, topic: What they read.
        folder: For their logs.
        code: Where the members' `kafka_coop` is; this process' own, where nothing is said.

    Attributes:
        processes: Of all members started, by their numbers.
    """

    def __init__(
        self, client: str, bootstrap: str, topic: str, folder: Path, code: Path = OUR_CODE
    ) -> None:
        name, *variants = client.split("+")
        self._crew = CREWS.get(name, (name,))
        self._variants = [VARIANTS[variant] for variant in variants if variant in VARIANTS]
        self._of_all = [OF_ALL[variant] for variant in variants if variant not in VARIANTS]
        self._bootstrap = bootstrap
        self._group = f"{client}-{time.time_ns()}"
        self._topic = topic
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(code)}
        self._reading: set[int] = set()
        self._waiting: set[int] = set()
        self._staying: set[int] = set()
        self._killed: dict[int, float] = {}
        self._logs: dict[int, MemberLog] = {}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(
        self, *options: str, wait: bool = False, stay: bool = False, like: int | None = None
    ) -> int:
        """Starts a member.

        Args:
            options, wait, stay: `benchmarks.rebalance_member` says what it does with these.
            like: The number of the member whose client it has; its own, where nothing is said.
        """
        number = len(self.processes)
        client = self._crew[(number if like is None else like) % len(self._crew)]
        arguments = [*_member(client), self._bootstrap, self._group]
        arguments += [self._topic, str(self._log(number)), *options, *self._of_all]
        if client == "kafka_coop":
            arguments += self._variants
        if wait:
            arguments.append("wait")
        (self._waiting if wait else self._reading).add(number)
        if stay:
            arguments.append("stay")
            self._staying.add(number)
        self.processes.append(
            subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE if wait or stay else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
            )
        )
        return number

    def start_all(self, *options: Sequence[str]) -> None:
        """Starts a member with each of these options; the first alone, so that it leads."""
        for number, chosen in enumerate(options):
            self.start(*chosen)
            if not number:
                self.settle(rest=0.0)

    def go(self, number: int) -> None:
        """Has a member begin that was started with ``wait``."""
        stdin = self.processes[number].stdin
        assert stdin is not None, "it was started with wait"
        stdin.write(b"go\n")
        stdin.flush()
        if number not in self._staying:
            stdin.close()
        self._waiting.discard(number)
        self._reading.add(number)

    def terminate(self, number: int) -> None:
        """Has a member close its consumer."""
        self._reading.discard(number)
        self.processes[number].send_signal(signal.SIGTERM)

    def end(self, number: int) -> None:
        """Has the process of a member end that has left and was started with ``stay``."""
        stdin = self.processes[number].stdin
        assert stdin is not None, "it was started with stay"
        stdin.close()
        self.processes[number].wait(20)

    def kill(self, number: int) -> None:
        self._reading.discard(number)
        self._killed[number] = time.time()
        self.processes[number].kill()

    def settle(self, *, rest: float = REST) -> None:
        """Waits until all that have been told to go, and not to end, share the topic.

        Each of them owns as many partitions as the others, or one more, and has delivered records
        of all; and who waits can be told to go.

        Args:
            rest: Seconds for which nothing must have changed: the first event's window begins then.

        Raises:
            RuntimeError: A member has ended, or they have not settled in time.
        """
        logs = {n: self._read_so_far(n) for n in sorted(self._reading | self._waiting)}
        sharing = {number: logs[number] for number in self._reading}
        until = time.monotonic() + PATIENCE
        since: float | None = None
        while True:
            time.sleep(ALONE)
            for log in logs.values():
                log.read_on()
            now = time.monotonic()
            if not (settled(sharing, PARTITIONS) and all(log.ready for log in logs.values())):
                since = None
            elif now >= (since := since or now) + rest:
                return  # not counted from when they were last seen unsettled, a look before
            ended = [n for n in logs if self.processes[n].poll() is not None]
            if ended or now > until:
                said = "".join(f"\n  member {number} {log}" for number, log in logs.items())
                why = f"members {ended} have ended" if ended else f"not within {PATIENCE:.0f} s"
                raise RuntimeError(f"{self._group} has not settled, {why}:{said}")

    def _read_so_far(self, number: int) -> MemberLog:
        """Not from its beginning, after each event: that would take seconds in the end."""
        return self._logs.setdefault(number, MemberLog(self._log(number)))

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
            wait_or_kill(process, 20)
