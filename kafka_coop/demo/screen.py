"""The play on a terminal: what happened scrolls by, above a panel of the group as it is now.

Without a terminal there are the same lines, and the group as one of them every other second.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.console import Group as Stack
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kafka_coop.demo.delays import worst
from kafka_coop.demo.group import Group, MemberView, State

_FRAME: Final = 0.2
_STATUS_LINE: Final = 2.0
_WIDE: Final = 72
_STYLES: Final = ("cyan", "magenta", "green", "yellow")
_FEWEST_FLIGHTS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far the play is, at ``elapsed`` seconds."""

    elapsed: float
    published: int
    total: int


class Screen:
    """Shows the play on a console, live if that is a terminal.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = (
            Live(console=console, auto_refresh=False, transient=True)
            if console.is_terminal and not console.is_dumb_terminal
            else None
        )
        self._next_frame = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """A new scene."""
        self.console.print()
        self.console.print(Text(text, style="bold"))

    def tell(self, elapsed: float, number: int, name: str, text: str) -> None:
        """An event of one member."""
        if self._live is None:
            line = f"{elapsed:5.1f} s  {name}  {text}"
            self.console.print(line, soft_wrap=True, markup=False, highlight=False)
        else:
            self.console.print(event(elapsed, number, name, text))

    def show(self, group: Group, standing: Standing) -> None:
        """The group as it is. May be called as often as one likes."""
        if standing.elapsed < self._next_frame:
            return
        if self._live is None:
            self._next_frame = standing.elapsed + _STATUS_LINE
            line = status_line(group, standing)
            self.console.print(line, soft_wrap=True, markup=False, highlight=False)
        else:
            self._next_frame = standing.elapsed + _FRAME
            ascii_only = self.console.options.ascii_only
            self._live.update(
                panel(group, standing, self.console.width, ascii_only=ascii_only), refresh=True
            )


def event(elapsed: float, number: int, name: str, text: str) -> RenderableType:
    """One event, its text wrapped in a column of its own."""
    row = Table.grid(padding=(0, 1))
    row.add_column(justify="right", width=4, no_wrap=True, style="dim")
    row.add_column(no_wrap=True, style=_style(number))
    row.add_column(overflow="fold")
    row.add_row(f"{elapsed:.1f}", name, Text(text))
    return row


def status_line(group: Group, standing: Standing) -> str:
    """The group in one line: who owns which partition, by the members' numbers."""
    owners = " ".join("-" if owner is None else str(owner) for owner in group.owners())
    return (
        f"{standing.elapsed:5.1f} s  owners of 0-{group.partitions - 1}: {owners}"
        f" | published {_share(standing.published, standing.total)},"
        f" committed {_share(group.committed, standing.total)}"
    )


def panel(
    group: Group, standing: Standing, width: int, *, ascii_only: bool = False
) -> RenderableType:
    """The group as a picture that fits into ``width`` columns."""
    full, empty = ("#", ".") if ascii_only else ("█", "·")
    bars = Table.grid(padding=(0, 1))
    length = max(4, min(width - 17, 48))
    for name, count in (("published", standing.published), ("committed", group.committed)):
        done = min(length, count * length // standing.total)
        bars.add_row(name, full * done + empty * (length - done), _share(count, standing.total))
    members = Table.grid(padding=(0, 1))
    for name, member in group.members.items():
        members.add_row(*_member(name, member, group.partitions, full, empty, wide=width >= _WIDE))
    late = ", ".join(
        f"{airport} {total.mean:.0f} min"
        for airport, total in worst(group.arrivals, 4, at_least=_FEWEST_FLIGHTS)
    )
    heading = Text(f"{standing.elapsed:.0f} s", style="dim")
    latest = Text(f"latest arrivals so far: {late}" if late else "", style="dim")
    return Padding(Stack(heading, bars, members, latest), (1, 0, 0, 0))


def _member(
    name: str, member: MemberView, partitions: int, full: str, empty: str, *, wide: bool
) -> list[Text]:
    style = _style(member.number) if member.alive else "dim"
    state = member.role if member.state is State.JOINED else member.state.value
    owned = "".join(full if p in member.owned else empty for p in range(partitions))
    cells = [name, f"{state:<8}", owned]
    if wide:
        generation = f"generation {member.generation}" if member.generation >= 0 else ""
        cells += [f"{generation:<13}", f"{member.processed:>9,} flights"]
    cells.append(f"{member.rate:>6,.0f}/s" if member.alive else "")
    return [Text(cell, style=style, no_wrap=True) for cell in cells]


def _share(count: int, total: int) -> str:
    return f"{100 * count // total:3d}%"


def _style(number: int) -> str:
    return _STYLES[(number - 1) % len(_STYLES)]
