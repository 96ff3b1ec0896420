"""What a member is told while it runs: lines on its standard input, whose end tells it to leave.

``drain``: it is to hand over first, when it leaves. ``slow <seconds>``: its user is to take so long
in the next on_revoke that takes anything; 0: not.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import Final

DRAIN: Final = b"drain\n"
_MOST: Final = 1024


def slow(lasting: timedelta) -> bytes:
    """The line that says so."""
    return f"slow {lasting.total_seconds()}\n".encode()


class Orders:
    """What this member was told so far.

    Attributes:
        leave: Is set when it is to leave.
        drain: Whether it hands over first.
    """

    def __init__(self) -> None:
        self.leave: Final = threading.Event()
        self.drain = False
        self._slow = 0.0

    def follow(self, source: int) -> None:
        """Reads a descriptor to its end. A buffered file would have a lock at exit."""
        text = b""
        while read := os.read(source, _MOST):
            *lines, text = (text + read).split(b"\n")
            for line in lines:
                self._heed(line.decode())
        self.leave.set()

    def _heed(self, line: str) -> None:
        match line.split():
            case ["drain"]:
                self.drain = True
            case ["slow", seconds]:
                self._slow = float(seconds)
            case _:
                raise ValueError(f"not an order: {line!r}")

    @property
    def is_slow(self) -> bool:
        """Whether the user takes long in the next on_revoke."""
        return self._slow > 0

    def dawdle(self) -> None:
        """Takes that long, once."""
        lasting, self._slow = self._slow, 0.0
        time.sleep(lasting)
