"""JSON that somebody else wrote, and may have broken."""

from __future__ import annotations

import json
from typing import Any


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """Reads an object; None: it is no JSON, or something else.

    A thousand brackets are no JSON either: Python's reader gives up on them in a way of its own.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None
