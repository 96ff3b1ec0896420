"""A lock that a polling thread gives up between slices, if somebody waits for it."""

from __future__ import annotations

import threading
import time
from types import TracebackType

_PAUSE = 0.0002


class TurnLock:
    """A reentrant lock for one thread that takes it again and again, and others now and then.

    Python's locks are not fair: a thread that releases one and takes it again at once nearly
    always gets it, and a `seek` from another thread would wait for as long as the polling one
    polls. So the polling thread uses `take_turn` between two slices.

    Attributes:
        raw: The lock itself, for the polling thread's fast path: this class's own methods are
            Python, and would cost more than the record.
    """

    def __init__(self) -> None:
        self.raw = threading.RLock()
        self._counting = threading.Lock()
        self._waiting = 0

    def __enter__(self) -> None:
        if self.raw.acquire(blocking=False):
            return
        with self._counting:
            self._waiting += 1
        try:
            self.raw.acquire()
        finally:
            with self._counting:
                self._waiting -= 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.raw.release()

    def try_within(self, seconds: float) -> bool:
        """Takes the lock, unless it can't be had in time. Undone by ``__exit__``'s release."""
        with self._counting:
            self._waiting += 1
        try:
            return self.raw.acquire(timeout=seconds)
        finally:
            with self._counting:
                self._waiting -= 1

    def release(self) -> None:
        """After a successful `try_within`."""
        self.raw.release()

    def take_turn(self) -> None:
        """Called without the lock: lets those who wait go first. Costs nothing if none does."""
        while self._waiting:
            time.sleep(_PAUSE)
