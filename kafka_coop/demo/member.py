"""A member of the group, in a process of its own: `python -m kafka_coop.demo.member`.

It reads flights, adds up their delays and journals each of them, and reports what happens on
its standard output. It leaves the group when its standard input ends: when the demo says so,
and when the demo itself is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from prometheus_client import CollectorRegistry, generate_latest

from kafka_coop import CoopConsumer
from kafka_coop.demo.delays import Delays
from kafka_coop.demo.flights import parse
from kafka_coop.demo.journal import Journal, encode_entry
from kafka_coop.demo.reports import (
    CallbackName,
    Called,
    Committed,
    Exposition,
    Progress,
    Rebalanced,
    Report,
    Warned,
    encode,
)

GROUP: Final = "flight-delays"

SESSION_TIMEOUT_MS: Final = 2000
"""The embedded broker collects the members of a rebalance for a second less than this.

So 1100 would rebalance in 100 ms, yet evict a member whenever a busy machine keeps its process
from running for a second. With 2000 a round takes 1 s, which is also easier on the eye, a kill
is noticed within 2 s, and a member that beats every 100 ms has twenty tries. A real broker ends
a round as soon as all have joined, whatever the session.
"""

COMMIT_INTERVAL_MS: Final = 1000
"""What a kill costs: the records since the last commit are processed again, by others."""

_BATCH: Final = 500
_POLL: Final = 0.1
_REPORT_INTERVAL: Final = 0.5


_REFUSED: Final = (
    "; this broker, unlike Kafka's, takes no commit while members join: the next owner repeats"
    " what was not committed"
)


def in_words(error: KafkaError) -> str:
    """Why a commit failed.

    Whoever gives partitions up commits and joins again; who does so a millisecond later than
    another finds a round begun, in which librdkafka's mock cluster refuses it.
    """
    refused = error.code() == KafkaError.REBALANCE_IN_PROGRESS
    return str(error.str()) + (_REFUSED if refused else "")


class Outlet(logging.Handler):
    """Writes reports to standard output, also those that kafka_coop's log events make."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._writing = threading.Lock()

    def report(self, report: Report) -> None:
        """Callable from any thread. Does nothing once the demo is gone: standard input tells."""
        line = encode(report)
        with self._writing, contextlib.suppress(BrokenPipeError):
            sys.stdout.write(line)
            sys.stdout.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Reports a round, and whatever is a warning."""
        fields = getattr(record, "kafka_coop", None)
        if fields is not None:
            self.report(Rebalanced.of_log(fields))
        elif record.levelno >= logging.WARNING:
            self.report(Warned(text=record.getMessage()))


class Member:
    """The work of one member, until standard input ends."""

    def __init__(self, name: str, bootstrap: str, topic: str, journal: Journal) -> None:
        self._outlet = Outlet()
        log = logging.getLogger("kafka_coop")
        log.addHandler(self._outlet)
        log.setLevel(logging.INFO)
        log.propagate = False
        self._journal = journal
        self._delays = Delays()
        self._processed = 0
        self._next_report = 0.0
        self._registry = CollectorRegistry()
        self._consumer = CoopConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
                "on_commit": self._on_commit,
            },
            registry=self._registry,
        )
        # Nothing is to be saved in these: the journal is written at once, and what goes is
        # committed when on_revoke returns.
        self._consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: self._called("on_assign", partitions),
            on_revoke=lambda _, partitions: self._called("on_revoke", partitions),
            on_lost=lambda _, partitions: self._called("on_lost", partitions),
        )

    def run(self, stopping: threading.Event) -> None:
        """Polls and processes until told to stop; then leaves the group."""
        with self._consumer:
            while not stopping.is_set():
                self._process(self._poll())
                if time.monotonic() >= self._next_report:
                    self._report_progress()
            self._report_progress()
            exposition = generate_latest(self._registry).decode()  # close() takes it all away
            self._outlet.report(Exposition(text=exposition))

    def _poll(self) -> list[Message]:
        try:
            return self._consumer.consume(_BATCH, _POLL)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            self._outlet.report(Warned(text=error.args[0].str()))  # the next poll tries again
            return []

    def _process(self, messages: list[Message]) -> None:
        """Journals before it returns, hence before the next poll can commit these."""
        entries = []
        for message in messages:
            if (error := message.error()) is not None:
                self._outlet.report(Warned(text=error.str()))
                continue
            partition, offset, row = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            flight = parse(row or b"")
            self._delays.add(flight)
            entries.append(encode_entry(partition, offset, flight))
        self._journal.append(entries)
        self._processed += len(entries)

    def _report_progress(self) -> None:
        self._next_report = time.monotonic() + _REPORT_INTERVAL
        self._outlet.report(Progress(processed=self._processed, arrivals=self._delays.arrivals))

    def _called(self, callback: CallbackName, partitions: list[TopicPartition]) -> None:
        changed = sorted(p.partition for p in partitions)
        self._outlet.report(Called(callback=callback, partitions=changed))

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            self._outlet.report(Warned(text=in_words(error)))
        taken = {p.partition: p.offset for p in partitions if p.error is None}
        if taken:
            self._outlet.report(Committed(offsets=taken))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one member."""
    parser = argparse.ArgumentParser(prog="kafka_coop.demo.member")
    for option in ("--name", "--bootstrap", "--topic"):
        parser.add_argument(option, required=True)
    parser.add_argument("--journal", required=True, type=Path)
    given = parser.parse_args(arguments)
    stopping = threading.Event()
    threading.Thread(target=_stop_at_end_of_input, args=(stopping,), daemon=True).start()
    with Journal(given.journal) as journal:
        Member(given.name, given.bootstrap, given.topic, journal).run(stopping)


def _stop_at_end_of_input(stopping: threading.Event) -> None:
    sys.stdin.read()
    stopping.set()


if __name__ == "__main__":
    main()
