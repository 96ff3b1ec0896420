"""What one thread waits for another with, where a Ctrl-C may strike.

`threading.Event` and `threading.Condition` are written in Python. A signal's exception at the end
of their ``__enter__`` leaves the lock inside taken for good: whoever is to set the event, the
membership's thread, waits for it, and so does every later wait. A plain lock is C: it is taken
or it is not.
"""

from __future__ import annotations

import contextlib
import threading


class Bell:
    """Rung by any thread; one at a time waits. It stays rung until somebody has heard it."""

    __slots__ = ("_silent",)

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Ends a wait, or the next one. Twice is once."""
        with contextlib.suppress(RuntimeError):  # it has rung already
            self._silent.release()

    def hush(self) -> None:
        """It has not rung, whatever it has."""
        self._silent.acquire(blocking=False)

    def wait(self, timeout: float) -> None:
        """Until it rings, or for so many seconds."""
        self._silent.acquire(timeout=timeout)
