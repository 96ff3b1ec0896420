"""Single keys from a terminal, without waiting for Enter."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections import deque
from types import TracebackType
from typing import Any, Final, Self

_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[A-Za-z])")
"""What arrows and function keys send (ECMA-48's CSI and SS3)."""
_AT_ONCE: Final = 1024


class Keys:
    """While the ``with`` block runs, keys are read as they are pressed, and not shown.

    Where standard input is no terminal there are none; waiting still waits.
    """

    def __init__(self) -> None:
        self._fd: int | None = None
        self._before: list[Any] = []
        self._pressed: deque[str] = deque()

    def __enter__(self) -> Self:
        if sys.stdin is not None and sys.stdin.isatty():
            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)  # Ctrl-C stays a signal
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._fd is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        r"""Returns the next key, or ``""`` when the time is over.

        Escape is ``"\x1b"``; keys that send a sequence (arrows) count as nothing.
        """
        if self._pressed:  # several at once: typed while the caller was busy
            return self._pressed.popleft()
        if self._fd is None:
            time.sleep(max(seconds, 0))
            return ""
        ready, _, _ = select.select([self._fd], [], [], max(seconds, 0))
        if not ready:
            return ""
        got = os.read(self._fd, _AT_ONCE).decode(errors="ignore")
        self._pressed.extend(_SEQUENCE.sub("", got))
        return self._pressed.popleft() if self._pressed else ""
