"""`kafka-coop watch`: looks again and again, and shows what changed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kafka_coop.cli.connection import Connection
from kafka_coop.cli.exits import CommandError, Exit
from kafka_coop.cli.group import GroupLook
from kafka_coop.cli.keys import Keys
from kafka_coop.cli.reading import look
from kafka_coop.cli.timeline import Happened, Timeline
from kafka_coop.cli.watch_screen import View, picture, status_line
from kafka_coop.cli.words import to_json

_KEPT: Final = 1000
"""Entries of the timeline."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """What the screen shows.

    Attributes:
        happened: The timeline, newest last: local time and entry.
        trouble: Why the last look failed; empty: it did not.
    """

    seen: GroupLook
    happened: deque[tuple[str, Happened]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    trouble: str = ""


def watch(
    connection: Connection,
    group: str,
    console: Console,
    *,
    interval: float,
    count: int | None,
    json_lines: bool,
) -> int:
    """Watches a group until the user ends it, or after ``count`` looks. Returns the status.

    Raises:
        CommandError: The first look failed. Later ones may: the screen says so and goes on.
    """
    timeline = Timeline()
    first = look(connection, group)
    timeline.see(first)
    state = Watch(seen=first)

    def again() -> list[Happened]:
        try:
            state.seen = look(connection, group)
        except CommandError as error:
            fresh = [] if state.trouble else [Happened(kind="trouble", text=str(error))]
            state.trouble = str(error)
        else:
            fresh = timeline.see(state.seen)
            state.trouble = ""
        state.happened += [(f"{datetime.now():%H:%M:%S}", h) for h in fresh]  # noqa: DTZ005  # the reader's own clock
        return fresh

    live = console.is_terminal and not console.is_dumb_terminal and not json_lines
    run = _run_screen if live else _run_json if json_lines else _run_lines
    return run(console, state, again, interval, count)


def _run_screen(
    console: Console,
    state: Watch,
    again: Callable[[], list[Happened]],
    interval: float,
    count: int | None,
) -> int:
    view = View()
    looks = 1
    with ExitStack() as stack:
        keys = stack.enter_context(Keys())
        live = stack.enter_context(Live(console=console, screen=True, auto_refresh=False))
        due = time.monotonic() + interval
        while True:
            shown = picture(state.seen, state.happened, view, console.size, state.trouble)
            live.update(shown, refresh=True)
            if count is not None and looks >= count:
                return Exit.OK
            key = keys.wait(due - time.monotonic())
            if key and not view.press(key):
                return Exit.OK
            if time.monotonic() >= due:
                if not view.paused:
                    again()
                    looks += 1
                due = time.monotonic() + interval


def _run_lines(
    console: Console,
    state: Watch,
    again: Callable[[], list[Happened]],
    interval: float,
    count: int | None,
) -> int:
    def tell(text: str) -> None:
        console.print(Text(f"{datetime.now():%H:%M:%S} {text}"), soft_wrap=True)  # noqa: DTZ005  # the reader's own clock

    last = status_line(state.seen)
    tell(last)
    for _ in _turns(interval, count):
        for happened in again():
            tell(happened.text)
        if state.trouble:
            last = ""  # what the group is like afterwards is told, changed or not
            continue
        now = status_line(state.seen)
        if now != last:
            tell(now)
        last = now
    return Exit.OK


def _run_json(
    console: Console,
    state: Watch,
    again: Callable[[], list[Happened]],
    interval: float,
    count: int | None,
) -> int:
    def tell(kind: str, **facts: object) -> None:
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": kind, **facts}
        console.file.write(to_json(line, indent=None) + "\n")
        console.file.flush()

    def tell_state() -> None:
        seen = state.seen
        tell(
            "look",
            state=seen.state,
            members={m.name: len(m.assigned) for m in seen.members},
            unowned=len(seen.unowned),
            lag=seen.total_lag,
            lag_unknown_because=seen.unread,
        )

    tell_state()
    for _ in _turns(interval, count):
        for happened in again():
            tell(happened.kind, text=happened.text, **happened.facts)
        if not state.trouble:  # else nothing was seen: the last look would be told as a new one
            tell_state()
    return Exit.OK


def _turns(interval: float, count: int | None) -> Iterator[None]:
    """One a further look, ``interval`` seconds apart."""
    looks = 1
    while count is None or looks < count:
        time.sleep(interval)
        yield
        looks += 1
