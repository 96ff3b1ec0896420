"""Text of others, as terminals and logs may have it: names of members, topics, brokers' words."""

from __future__ import annotations


def shown(text: str) -> str:
    """The text without what would move a terminal's cursor, or begin a line of its own."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
