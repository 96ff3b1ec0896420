"""The live screen of `kafka-coop watch`, as a function of what was seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kafka_coop.cli.group import GroupLook, MemberLook
from kafka_coop.cli.timeline import Happened
from kafka_coop.cli.words import NARROW, count, plural, ranges, spread
from kafka_coop.printable import shown

_ESCAPE: Final = "\x1b"
_ENTER: Final = ("\n", "\r")
_BACKSPACE: Final = ("\x7f", "\b")
_SORTS: Final = {"n": "name", "c": "count", "l": "lag"}
_HELP: Final = "n c l sort by name, count, lag · r reverse · / filter · p pause · q quit"
_SHORT_HELP: Final = "n c l r sort · / filter · p · q"
_TIMELINE_ROWS: Final = 8
_KIND_STYLES: Final = {
    "joined": "green",
    "returned": "green",
    "left": "red",
    "rebalance": "cyan",
    "unowned": "red",
    "trouble": "red",
}


@dataclass(slots=True)
class View:
    """What the user chose.

    Attributes:
        sort: ``name``, ``count`` or ``lag``.
        pattern: Shows members and topics with this in their names.
        typing: The pattern is being typed: keys belong to it.
    """

    sort: str = "name"
    reverse: bool = False
    pattern: str = ""
    typing: bool = False
    paused: bool = False

    def press(self, key: str) -> bool:
        """Takes a key. Returns whether to go on."""
        if self.typing:
            self._type(key)
        elif key == "q":
            return False
        elif key in _SORTS:
            self.sort = _SORTS[key]
        elif key == "r":
            self.reverse = not self.reverse
        elif key == "p":
            self.paused = not self.paused
        elif key == "/":
            self.typing = True
        elif key == _ESCAPE:
            self.pattern = ""
        return True

    def _type(self, key: str) -> None:
        if key in _ENTER:
            self.typing = False
        elif key == _ESCAPE:
            self.typing, self.pattern = False, ""
        elif key in _BACKSPACE:
            self.pattern = self.pattern[:-1]
        elif key.isprintable():
            self.pattern += key


def chosen(look: GroupLook, view: View) -> list[MemberLook]:
    """The members to show, in the order wanted."""
    found = [
        m
        for m in look.members
        if view.pattern in m.name or any(view.pattern in t for t in m.assigned.topics())
    ]
    if view.sort == "count":
        found.sort(key=lambda m: -len(m.assigned))
    elif view.sort == "lag":
        found.sort(key=lambda m: -(look.lag_of(m) or 0))
    return found[::-1] if view.reverse else found


def status_line(look: GroupLook) -> str:
    """The group in one line."""
    parts = [look.state, plural(len(look.members), "member")]
    if look.members:
        parts.append(
            f"{plural(len(look.owners), 'partition')}, "
            f"{spread(len(m.assigned) for m in look.members)}"
        )
    if look.unowned and look.members:
        parts.append(f"{len(look.unowned)} unowned")
    if look.generation is not None:
        parts.append(f"generation {look.generation}")
    if look.unread is not None:
        parts.append(f"lag not known: {shown(look.unread)}")
    elif look.total_lag is not None:
        parts.append(f"lag {look.total_lag:,}")
    return " · ".join(parts)


def picture(
    look: GroupLook,
    happened: Iterable[tuple[str, Happened]],
    view: View,
    size: ConsoleDimensions,
    trouble: str = "",
) -> RenderableType:
    """The whole screen, no larger than the terminal."""
    width, height = size
    narrow = width < NARROW
    top: list[RenderableType] = [
        _fit(Text.assemble((shown(look.id), "bold"), f"  {shown(look.assignor)}"), width),
        _fit(Text(status_line(look)), width),
    ]
    if trouble:
        top.append(_fit(Text(shown(trouble), style="red"), width))
    bottom = [
        Text(),
        *_timeline(list(happened), width, min(_TIMELINE_ROWS, max((height - 9) // 3, 1))),
    ]
    bottom.append(_fit(_prompt(view, narrow=narrow), width))
    room = max(height - len(top) - len(bottom) - 3, 1)
    return Group(*top, Text(), _members(look, chosen(look, view), room, width), *bottom)


def _members(
    look: GroupLook, members: Sequence[MemberLook], room: int, width: int
) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False, width=width)
    table.add_column("member", no_wrap=True, overflow="ellipsis", max_width=max(width // 3, 8))
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("lag", justify="right", no_wrap=True)
    if width >= NARROW:
        table.add_column("partitions", no_wrap=True, overflow="ellipsis", ratio=1)
    fits = members if len(members) <= room else members[: room - 1]
    for member in fits:
        name = Text(member.name, style="cyan" if look.leader is member else "")
        cells: list[RenderableType] = [name, str(len(member.assigned)), count(look.lag_of(member))]
        table.add_row(*cells, *([ranges(member.assigned)] if width >= NARROW else []))
    if len(fits) < len(members):
        table.add_row(f"and {len(members) - len(fits)} more")
    return table


def _timeline(happened: Sequence[tuple[str, Happened]], width: int, rows: int) -> list[Text]:
    shown = happened[-rows:]
    lines = [
        _fit(Text.assemble((f"{at} ", "dim"), (h.text, _KIND_STYLES.get(h.kind, ""))), width)
        for at, h in shown
    ]
    return lines or [Text("nothing happened yet", style="dim")]


def _prompt(view: View, *, narrow: bool) -> Text:
    if view.typing:
        return Text(f"filter: {view.pattern}▏(Enter keeps it, Esc clears it)")
    text = Text(_SHORT_HELP if narrow else _HELP, style="dim")
    if view.pattern:
        text = Text(f"[{view.pattern}] ", style="yellow") + text
    if view.paused:
        text = Text("PAUSED ", style="yellow") + text
    return text


def _fit(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text
