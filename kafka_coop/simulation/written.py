"""A scenario as Python that makes it again: no defaults, and no line longer than it need be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass

from kafka_coop.simulation import faults
from kafka_coop.simulation.world import Scenario

_WIDTH = 100
_INDENT = "    "


def written(scenario: Scenario) -> str:
    """The scenario as a test would have it: `faults` are ``ft``."""
    return _text(scenario, "")


def _text(value: object, margin: str) -> str:
    """On one line where it fits, else one part on each."""
    opening, parts, closing = _parts(value)
    if not opening:
        return _word(value)
    comma = "," if opening == "(" and len(parts) == 1 else ""
    line = opening + ", ".join(_line(name, part) for name, part in parts) + comma + closing
    if len(margin) + len(line) <= _WIDTH:
        return line
    inner = margin + _INDENT
    lines = (f"{inner}{name}{_text(part, inner)},\n" for name, part in parts)
    return f"{opening}\n{''.join(lines)}{margin}{closing}"


def _line(name: str, value: object) -> str:
    opening, parts, closing = _parts(value)
    if not opening:
        return name + _word(value)
    comma = "," if opening == "(" and len(parts) == 1 else ""
    return f"{name}{opening}{', '.join(_line(n, p) for n, p in parts)}{comma}{closing}"


def _word(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _parts(value: object) -> tuple[str, list[tuple[str, object]], str]:
    """How it opens, what is in it, and how it closes; nothing for what is one word."""
    if isinstance(value, Mapping):
        return "{", [(f"{_word(key)}: ", part) for key, part in value.items()], "}"
    if isinstance(value, tuple):
        return "(", [("", part) for part in value], ")"
    if not is_dataclass(value) or isinstance(value, type):
        return "", [], ""
    kind = type(value)
    name = f"ft.{kind.__name__}" if kind.__module__ == faults.__name__ else kind.__name__
    said = [(f"{f.name}=", getattr(value, f.name)) for f in fields(value)]
    told = [part for part, f in zip(said, fields(value), strict=True) if part[1] != _default(f)]
    return f"{name}(", told, ")"


def _default(of: Field[object]) -> object:
    return of.default_factory() if of.default_factory is not MISSING else of.default
