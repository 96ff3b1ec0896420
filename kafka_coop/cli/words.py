"""What all screens write alike."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from rich.console import Console

from kafka_coop.printable import shown
from kafka_coop.terminal import PipeConsole
from kafka_coop.types import Partitions

NARROW: Final = 72
"""Columns below which tables give way to lines."""
_BEHIND_LETTERS: Final = re.compile("[\x7f-\U0010ffff]")
"""What JSON leaves as it is, but for ASCII's letters and signs."""
_WHOLE: Final = 10_000
"""Columns of what is no terminal."""


def make_console(*, stderr: bool = False) -> Console:
    """A console that invents nothing: no emoji, no guessed colours. It honours NO_COLOR.

    In a pipe or file, lines are whole: what is folded can't be searched for.
    """
    # A width of 0 is none: terminals that do not know theirs have it.
    said = {k: v for k, v in os.environ.items() if k != "COLUMNS" or _is_width(v)}
    console = PipeConsole(stderr=stderr, highlight=False, emoji=False, markup=False, _environ=said)
    if not console.is_terminal and "COLUMNS" not in said:
        console.width = _WHOLE
    return console


def _is_width(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


def ranges(partitions: Partitions) -> str:
    """`orders 0-3 7, payments 2`."""
    return ", ".join(
        f"{shown(topic)} {' '.join(_runs(indices.tolist()))}"
        for topic, indices in partitions.items()
    )


def _runs(numbers: Iterable[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        yield str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def count(number: int | None) -> str:
    """`1,234`; a dash where it is not known."""
    return "-" if number is None else f"{number:,}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """`1 member`, `3 members`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def spread(counts: Iterable[int]) -> str:
    """`4 each`, or `3-5 each`."""
    found = list(counts)
    if not found:
        return ""
    least, most = min(found), max(found)
    return f"{least} each" if least == most else f"{least}-{most} each"


def to_json(value: Mapping[str, Any], *, indent: int | None = 2) -> str:
    """One document, its keys in the order given; in letters that the output has."""
    encoding = (sys.stdout.encoding or "").lower()
    text = json.dumps(value, indent=indent, ensure_ascii=not encoding.startswith("utf"))
    return _BEHIND_LETTERS.sub(_harmless, text)


def _harmless(found: re.Match[str]) -> str:
    """As JSON escapes it, where it is nothing to be seen: a terminal may heed it."""
    character = found[0]
    if character.isprintable():
        return character
    return json.dumps(character)[1:-1] if not character.isascii() else f"\\u{ord(character):04x}"
