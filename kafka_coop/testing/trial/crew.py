"""Starts the members of a trial, each a process; reads their journals; ends them all."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Container, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.java import client_program
from kafka_coop.testing.pact import DeathPact
from kafka_coop.testing.trial.journal import Event, read_journal
from kafka_coop.testing.trial.member import Client, Job
from kafka_coop.testing.trial.orders import DRAIN, slow
from kafka_coop.testing.trial.verdict import Tenure, tenures
from kafka_coop.testing.trial.wall_clock import WallClock
from kafka_coop.testing.unavailable import KafkaUnavailableError

CLIENTS: Final[tuple[Client, ...]] = ("ours", "confluent", "java", "kafka-python")

_JAVA_STRATEGIES: Final = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
}
_ROOT: Final = Path(__file__).parents[3]
_PATIENCE: Final = 120.0  # a close is bounded, but a busy machine is not
_ANSWER: Final = timedelta(seconds=5)
_WORDS: Final = 8000


class Crew:
    """Members of one group. Leaving its ``with`` block ends them all.

    Where an error is why, it is told what each one owned, was at, and had last said. They die with
    this process, too, those that are stopped among them. Not for several threads at once, but for
    `resume`.

    Args:
        bootstrap: The brokers, or what stands before them.
        group, topic: Which group, and the one topic that it reads.
        folder: Where the journals go: an existing folder, empty at first.
        config: Settings of every member, in librdkafka's names; those that Java and
            kafka-python have too.
        faketime: libfaketime's library. With it every member has a wall clock of its own.

    Attributes:
        killed: When members were killed, monotonic nanoseconds.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        folder: Path,
        config: Mapping[str, Any] | None = None,
        *,
        faketime: Path | None = None,
    ) -> None:
        self.group = group
        self.topic = topic
        self.killed: dict[str, int] = {}
        self._bootstrap = bootstrap
        self._folder = folder.resolve()  # members run elsewhere
        self._config = dict(config or {})
        self._faketime = faketime
        self._clocks: dict[str, WallClock] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._closed: set[str] = set()

    def __enter__(self) -> Self:
        # The end of its standard input would tell a member to leave, but not one that is stopped.
        self._pact = DeathPact()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, Exception):
                for name in self.running:
                    self.ask_what_it_does(name)
                    error.add_note(f"{name} owned {self.owned(name)}: {self.last_words(name)}")
        finally:
            self._end_all()

    def _end_all(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
        for process in self._processes.values():
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self._pact.close()

    @property
    def running(self) -> tuple[str, ...]:
        """Members whose process runs, in the order of their start."""
        return tuple(name for name, p in self._processes.items() if p.poll() is None)

    def deserters(self) -> list[str]:
        """Members that ended by themselves: nobody killed them.

        Those that were told to leave are among them, unless they ended in order.
        """
        ended = self.statuses().items()
        return [n for n, s in ended if n not in self.killed and (s or n not in self._closed)]

    def was_told_to_leave(self, name: str) -> bool:
        """Whether it was, whatever became of it."""
        return name in self._closed

    def statuses(self) -> dict[str, int]:
        """The exit statuses of those that have ended; negative: the signal's number."""
        codes = ((name, process.poll()) for name, process in self._processes.items())
        return {name: code for name, code in codes if code is not None}

    def start(
        self,
        name: str,
        client: Client,
        strategies: Sequence[str] = ("cooperative-sticky",),
        *,
        output: str = "",
        aside: str = "",
        bootstrap: str | None = None,
        **config: Any,
    ) -> None:
        """Starts a member. A name is used once.

        Args:
            name: Its client id; its journal's name.
            client: Whose consumer.
            strategies: Names on the wire, most preferred first. None, of Java's: its default.
            output: See `Job`.
            aside: The same.
            bootstrap: Its brokers, if not the crew's.
            config: Further settings, underscores for dots.

        Raises:
            KafkaUnavailableError: The client is not installed here.
            ValueError: The name was used before.
        """
        if name in self._processes:
            raise ValueError(f"there was a member {name} already")
        job = Job(
            client=client,
            name=name,
            bootstrap=bootstrap or self._bootstrap,
            group=self.group,
            topic=self.topic,
            journal=str(self._journal(name)),
            strategies=list(strategies),
            config={**self._config, **{k.replace("_", "."): v for k, v in config.items()}},
            output=output,
            aside=aside,
        )
        command = _java(job) if client == "java" else _python(job)
        environment = None
        if self._faketime is not None:
            self._clocks[name] = WallClock(self._faketime, self._folder / f"{name}.clock")
            environment = {**os.environ, **self._clocks[name].environment}
        with (self._folder / f"{name}.stderr").open("wb") as errors:
            self._processes[name] = subprocess.Popen(  # noqa: S603  # our own members
                command,
                cwd=_ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                # Not of our group: a Ctrl-C in the terminal is ours to answer.
                process_group=self._pact.group,
            )

    def ask_to_leave(self, name: str, *, drain: bool = False) -> None:
        """Tells a member to leave, and waits for nothing: `close` does.

        Args:
            name: Who.
            drain: It hands over first; ours alone can.
        """
        process = self._processes[name]
        assert process.stdin is not None
        self._closed.add(name)
        with contextlib.suppress(BrokenPipeError):
            if drain:
                process.stdin.write(DRAIN)
            process.stdin.close()

    def slow_down(self, name: str, lasting: timedelta) -> None:
        """Has a member's user take so long in its next on_revoke that takes anything.

        Zero: it is as quick as ever. Java's member does not listen.
        """
        process = self._processes[name]
        assert process.stdin is not None
        if name not in self._closed:
            with contextlib.suppress(BrokenPipeError):  # unbuffered: nothing is left for the close
                os.write(process.stdin.fileno(), slow(lasting))

    @property
    def leaving(self) -> set[str]:
        """Members that were told to leave and have not ended yet."""
        return self._closed & {*self.running}

    def close(self, name: str, *, forgiven: Container[int] = ()) -> None:
        """Tells a member to leave, unless it was told, and waits for its end.

        Args:
            name: Who.
            forgiven: Exit statuses with which it may end, beside 0.

        Raises:
            RuntimeError: It does not end, or has failed where it must not; the text has its last
                words.
        """
        process = self._processes[name]
        self.ask_to_leave(name)
        try:
            code = process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.ask_what_it_does(name)
            self.kill(name)
            raise RuntimeError(f"{name} does not end: {self.last_words(name)}") from None
        if code and code not in forgiven:
            raise RuntimeError(f"{name} ended with status {code}: {self.last_words(name)}")

    def close_all(self, *, forgiven: Container[int] = ()) -> None:
        """Closes all that were not killed, those that were told to leave before among them."""
        for name in self._processes.keys() - self.killed.keys():
            self.ask_to_leave(name)
        for name in sorted(self._processes.keys() - self.killed.keys()):
            self.close(name, forgiven=forgiven)

    def ask_what_it_does(self, name: str) -> None:
        """Has a member say what its threads are at, as a JVM does: see `last_words`."""
        errors = self._folder / f"{name}.stderr"
        before = errors.stat().st_size
        said = [before]

        def has_said() -> bool:
            said.append(errors.stat().st_size)
            return before < said[-2] == said[-1]  # it is written piece by piece

        self.resume(name)
        self._processes[name].send_signal(signal.SIGQUIT)
        with contextlib.suppress(TimeoutError):
            wait_until(has_said, "it does not say", _ANSWER)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._processes[name].kill()
        self._processes[name].wait()
        self.killed[name] = time.monotonic_ns()

    def stop(self, name: str) -> None:
        """SIGSTOP: it runs no more, and does not know."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    def set_clock(self, name: str, ahead: timedelta) -> None:
        """Sets a member's wall clock so far ahead of the true time, or behind it."""
        self._clocks[name].set(ahead)

    def events(self, name: str) -> list[Event]:
        """A member's journal so far."""
        return read_journal(self._journal(name))

    def has_started(self, name: str) -> bool:
        """Whether a member has made its consumer."""
        path = self._journal(name)
        return path.exists() and path.stat().st_size > 0

    def journals(self) -> dict[str, list[Event]]:
        """Everyone's journal so far."""
        return {name: self.events(name) for name in self._processes}

    def owned(self, name: str) -> set[int]:
        """What a member owns by its callbacks, if its process runs; else nothing."""
        if name not in self.running:
            return set()
        owned: set[int] = set()
        for event in self.events(name):
            if event.kind == "A":
                owned |= {*event.partitions}
            elif event.kind in "VL":
                owned -= {*event.partitions}
        return owned

    def has_joined(self, name: str) -> bool:
        """Whether a member was ever told what it has, be it nothing."""
        return any(event.kind == "A" for event in self.events(name))

    def generation(self) -> int:
        """The newest that any callback named."""
        return max((e.generation for j in self.journals().values() for e in j), default=-1)

    def tenures(self) -> list[Tenure]:
        """Who owned what, and when."""
        found = self.journals().items()
        return [t for name, events in found for t in tenures(name, events, self.killed)]

    def last_words(self, name: str) -> str:
        """The end of what a member wrote to its standard error."""
        return (self._folder / f"{name}.stderr").read_text(errors="replace")[-_WORDS:]

    def _journal(self, name: str) -> Path:
        return self._folder / f"{name}.journal"


def _python(job: Job) -> list[str]:
    if job.client == "kafka-python" and importlib.util.find_spec("kafka") is None:
        raise KafkaUnavailableError(
            "kafka-python is not installed: `pip install 'kafka-python>=3'`"
        )
    return [sys.executable, "-m", "kafka_coop.testing.trial.member", job.to_json()]


def _java(job: Job) -> list[str]:
    config = {
        "bootstrap.servers": job.bootstrap,
        "group.id": job.group,
        "client.id": job.name,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": "200",
        "fetch.max.wait.ms": "100",
        "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
        "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
        **job.config,
    }
    if job.strategies:
        listed = ",".join(_JAVA_STRATEGIES[s] for s in job.strategies)
        config["partition.assignment.strategy"] = listed
    return [
        *client_program(Path(__file__).with_name("Member.java")),
        *(job.topic, job.journal),
        *(f"{k}={v}" for k, v in config.items()),
    ]
