"""Locks of a polling thread: one that it gives up between slices, and the right to poll at all.

A signal handler, or a callback, may call anything in the middle of a call that holds them, and in
the same thread. So each can tell whether it is this thread that holds it.
"""

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
        self._counting = threading.RLock()  # a signal handler may count in between
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

    @property
    def mine(self) -> bool:
        """Whether this thread holds it."""
        return _is_mine(self.raw)

    def take_turn(self) -> None:
        """Called without the lock: lets those who wait go first. Costs nothing if none does."""
        while self._waiting:
            time.sleep(_PAUSE)


class Turn:
    """The right to poll, or to close: one thread's at a time, until it gives it back.

    Nobody takes it twice: who has it asks `mine` first. It is had from the moment on at which
    the wait ends, so that a signal handler that runs then finds it so.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @property
    def mine(self) -> bool:
        """Whether this thread has it."""
        return _is_mine(self._lock)

    def take(self, timeout: float = -1) -> bool:
        """Waits for it, so many seconds; negative: without end. Returns whether it was had."""
        return self._lock.acquire(timeout=timeout)

    def give_back(self) -> None:
        """Undoes `take`, if it was had: an exception may have come from there, or from the wait."""
        if self.mine:
            self._lock.release()


def _is_mine(lock: threading.RLock) -> bool:
    return lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # noqa: SLF001  # as Condition
