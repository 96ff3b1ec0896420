"""`python -m kafka_coop.demo`: the whole demo. Exit status 0 only if the check passes."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console
from rich.text import Text

from kafka_coop.demo import flights
from kafka_coop.demo.crew import Crew
from kafka_coop.demo.flights import DatasetUnavailableError
from kafka_coop.demo.group import Group
from kafka_coop.demo.journal import read_journal
from kafka_coop.demo.publisher import Publisher, PublishingError
from kafka_coop.demo.results import Outcome, delays_table, metrics_table, outcome, verdict_lines
from kafka_coop.demo.scenario import PlayFailedError, Scenario
from kafka_coop.demo.screen import Screen
from kafka_coop.terminal import PIPE_CLOSED, PipeConsole, write_no_more
from kafka_coop.testing.embedded import EmbeddedKafka, EmbeddedKafkaError

_TOPIC: Final = "flights"
_PARTITIONS: Final = 12

_GATHERING: Final = timedelta(seconds=1)
"""The broker waits this long for the first members, as real ones do (3 s by default)."""

_WIDE_ENOUGH_FOR_NAMES: Final = 60
_SHORTEST: Final = 0.1
_LONGEST: Final = 3600.0
"""Seconds of publishing."""

_UNWRITABLE: Final = 2
_INTERRUPTED: Final = 128 + signal.SIGINT
_UNAVAILABLE: Final = 7
"""As `kafka-coop` has it, which stands above: something that is needed is not installed."""

_INTRODUCTION: Final = """\
kafka_coop: {flights:,} flights that left New York City in 2013, keyed by aircraft, are published \
to a topic of {partitions} partitions on a broker inside this process. A group of CoopConsumers, \
each a process of its own, adds up the delays per airport.

What you see: who owns which partition, the callbacks (only what changes: +3 came, -3 went), and \
each rebalance with its phases. This broker collects the members of every rebalance for 1 s; \
partitions that stay are read all the while. At the end every offset is accounted for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo. Returns its exit status."""
    given = _parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        return _status(PipeConsole(), given.flights, given.seconds)
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough; or Ctrl-C ended it too
        write_no_more()
        return PIPE_CLOSED
    except OSError as error:  # a full disk, as a rule
        write_no_more()
        sys.stderr.write(f"FAILED: can't read or write: {error.strerror or error}\n")
        return _UNWRITABLE


def _status(console: Console, limit: int, seconds: float) -> int:
    """Runs it, and says how it ended."""
    try:
        return 0 if _run(console, limit, seconds) else 1
    except KeyboardInterrupt:
        console.print("Interrupted: the members and the broker are stopped.")
        return _INTERRUPTED
    except (DatasetUnavailableError, PlayFailedError, PublishingError, EmbeddedKafkaError) as error:
        console.print(Text(f"FAILED: {error}", style="bold red"))
        return _UNAVAILABLE if isinstance(error, DatasetUnavailableError) else 1


def _run(console: Console, limit: int, seconds: float) -> bool:
    began = time.monotonic()
    rows = flights.load(limit)
    console.print(Text(_INTRODUCTION.format(flights=len(rows), partitions=_PARTITIONS)))
    group = Group(_PARTITIONS)
    with (
        EmbeddedKafka(group_initial_rebalance_delay=_GATHERING) as kafka,
        tempfile.TemporaryDirectory(prefix="kafka-coop-demo-") as folder,
    ):
        kafka.create_topic(_TOPIC, partitions=_PARTITIONS)
        servers = kafka.bootstrap_servers
        duration = timedelta(seconds=seconds)
        with (
            Publisher(servers, _TOPIC, rows, duration=duration) as publisher,
            Crew(servers, _TOPIC, Path(folder)) as crew,
            Screen(console) as screen,
        ):
            play = Scenario(crew, publisher, group, screen, began=began)
            play.play()
        journals = {name: read_journal(crew.journal(name)) for name in group.members}
        result = outcome(rows, publisher.positions, journals, play.killed)
    _report(console, result, group, began)
    return result.passed


def _report(console: Console, result: Outcome, group: Group, began: float) -> None:
    console.print()
    names = flights.airport_names() if console.width >= _WIDE_ENOUGH_FOR_NAMES else {}
    console.print(delays_table(result.computed, names))
    expositions = {name: member.exposition for name, member in group.members.items()}
    console.print(metrics_table(expositions, console.width))
    console.print()
    for line in verdict_lines(result, time.monotonic() - began):
        console.print(line)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kafka_coop.demo", description=__doc__)
    parser.add_argument(
        "--flights", type=_count, default=flights.TOTAL, help="how many of them (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=20.0, help="for publishing them (%(default)s)"
    )
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    return int(_between(1, flights.TOTAL, int, text))


def _seconds(text: str) -> float:
    return _between(_SHORTEST, _LONGEST, float, text)


def _between(least: float, most: float, kind: Callable[[str], float], text: str) -> float:
    with contextlib.suppress(ValueError):
        if least <= (number := kind(text)) <= most:
            return number
    raise argparse.ArgumentTypeError(f"between {least:,} and {most:,}, not {text!r}")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: no process stays behind."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
