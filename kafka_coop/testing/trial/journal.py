"""What a member writes down, a line an event, as it happens: SIGKILL loses no whole line.

    S <ns>                                started
    A <ns> <generation> <partitions>      assigned: on_assign was called
    W <ns> <generation> <partitions>      a slow user's on_revoke was called; V follows
    V <ns> <generation> <partitions>      revoked: on_revoke is about to return
    L <ns> <generation> <partitions>      lost: on_lost is about to return
    R <ns> <partition> <offset>           a record was processed
    E <ns> <text>                         an error reached the user
    X <ns>                                closed

Times are the system's monotonic clock, the same for every process of a machine (CLOCK_MONOTONIC;
Java's nanoTime is it too). Partitions are numbers with commas, of the topic that is judged. The
generation is -1 where the client does not tell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

Kind: TypeAlias = Literal["S", "A", "W", "V", "L", "R", "E", "X"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line.

    Attributes:
        at: Monotonic nanoseconds.
        partitions: Of a callback, or the record's one.
        offset: The record's, else -1.
        generation: The callback's, or -1.
        text: An error's.
    """

    kind: Kind
    at: int
    partitions: tuple[int, ...] = ()
    offset: int = -1
    generation: int = -1
    text: str = ""


class Journal:
    """Writes. Each call is one ``write``: nothing waits in a buffer of ours."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, kind: Kind, rest: str = "") -> None:
        """Any event without partitions. An error's text of several lines becomes one."""
        self._write(f"{kind} {time.monotonic_ns()} {' '.join(rest.splitlines())}\n")

    def callback(self, kind: Kind, generation: int, partitions: Iterable[int]) -> None:
        """A callback."""
        self.note(kind, f"{generation} {','.join(map(str, sorted(partitions)))}")

    def records(self, records: Iterable[tuple[int, int]]) -> None:
        """Records that were processed: partition and offset."""
        now = time.monotonic_ns()
        self._write("".join(f"R {now} {p} {o}\n" for p, o in records))

    def _write(self, text: str) -> None:
        os.write(self._file, text.encode())

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


def read_journal(path: Path) -> list[Event]:
    """The events so far, none where there is no file yet. A line cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").split("\n")
    return [_event(line) for line in lines[:-1] if line]


def _event(line: str) -> Event:
    kind, at, *rest = line.split(" ", 2)
    if kind not in get_args(Kind):
        raise ValueError(f"not a journal's line: {line!r}")
    known, text = cast("Kind", kind), "".join(rest)
    match known:
        case "A" | "W" | "V" | "L":
            generation, _, numbers = text.partition(" ")
            partitions = tuple(int(n) for n in numbers.split(",") if n)
            return Event(kind=known, at=int(at), generation=int(generation), partitions=partitions)
        case "R":
            partition, offset = text.split()
            return Event(kind=known, at=int(at), partitions=(int(partition),), offset=int(offset))
        case _:
            return Event(kind=known, at=int(at), text=text)
