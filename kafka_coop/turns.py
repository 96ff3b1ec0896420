"""Locks of a polling thread: one that it gives up between slices, and the right to poll at all.

A signal handler, or a callback, may call anything in the middle of a call that holds them, and in
the same thread. So each can tell whether it is this thread that holds it.

What a handler raises, a Ctrl-C say, may also strike between two lines of theirs, when a lock is
taken and the ``with`` that is to give it back has not begun. Then this thread has it for good, and
nobody is inside. So whoever finds a lock its own asks `is_called_from`, too, before it believes it.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType, TracebackType

_PAUSE = 0.0002

_LOOK = 0.05
"""Seconds of one wait, at most."""


class TurnLock:
    """A reentrant lock for one thread that takes it again and again, and others now and then.

    Python's locks are not fair: a thread that releases one and takes it again at once nearly
    always gets it, and a `seek` from another thread would wait for as long as the polling one
    polls. So the polling thread uses `take_turn` between two slices; and whoever finds others
    waiting lets them go first, for several threads that keep asking, of a pool of workers, say,
    would keep the polling one waiting in their turn.

    Attributes:
        raw: The lock itself, for the polling thread's fast path: this class's own methods are
            Python, and would cost more than the record.
        held: How many times it is taken, that way aside: whoever finds it so may have long to wait.
    """

    def __init__(self) -> None:
        self.raw = threading.RLock()
        self._waiting: set[int] = set()  # threads: one that was struck is not counted twice
        self.held = 0
        self._turns = 0

    def __enter__(self) -> None:
        if not self._waiting or self.mine:
            if self.raw.acquire(blocking=False):
                self.held += 1
                return
        else:
            time.sleep(_PAUSE)
        while not self.try_within(_LOOK):
            pass  # announced anew: a signal handler that waited in between has taken it back

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.held -= 1
        self._turns += not self.held
        self.raw.release()

    def try_within(self, seconds: float) -> bool:
        """Takes the lock, unless it can't be had in time. Undone by ``__exit__``'s release."""
        me = threading.get_ident()
        try:
            self._waiting.add(me)
            if not self.raw.acquire(timeout=seconds):
                return False
            self.held += 1
            return True
        finally:
            self._waiting.discard(me)

    def release(self) -> None:
        """After a successful `try_within`."""
        self.__exit__(None, None, None)

    @property
    def mine(self) -> bool:
        """Whether this thread holds it."""
        return _is_mine(self.raw)

    def take_turn(self, within: float) -> bool:
        """Called without the lock: lets those who have it, or wait for it, go first.

        As many as these are, not all who come meanwhile: others that keep asking would have it
        for ever. Costs nothing if there is nobody. In a signal handler it may be the very call that
        this interrupts that has the lock, or waits for it, and goes on afterwards only.

        Args:
            within: Seconds to wait for them at most.

        Returns:
            False where another thread has it still.
        """
        ahead = len(self._waiting) + bool(self.held)
        if not ahead or self.mine:
            return True
        until, ends = self._turns + ahead, time.monotonic() + within
        while self._turns < until and (self._waiting or self.held):
            if time.monotonic() >= ends:
                return not self.held
            time.sleep(_PAUSE)
        return True

    def forsake(self) -> None:
        """Gives it back, however often this thread has taken it; nobody is inside any more."""
        self._waiting.discard(threading.get_ident())
        if self.mine:
            self.held = 0
            self._turns += 1
        while self.mine:
            self.raw.release()


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
        while self.mine:
            self._lock.release()


def is_called_from(modules: tuple[str, ...]) -> bool:
    """Whether this thread is inside a call of one of these, which called us back or is interrupted.

    The calls of the asking module that are right around us do not count: one method that uses
    another. Nor does an iteration, which calls what a class of the user's may override.

    Args:
        modules: Their names, or what these begin with.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # there is no other way up
    asking = _module(frame)
    while frame is not None and _module(frame) == asking:
        frame = frame.f_back
    while frame is not None and not (_module(frame).startswith(modules) and _holds(frame)):
        frame = frame.f_back
    return frame is not None


def _holds(frame: FrameType) -> bool:
    return frame.f_code.co_name not in {"__iter__", "__next__"}


def _module(frame: FrameType | None) -> str:
    return "" if frame is None else frame.f_globals.get("__name__", "")


def _is_mine(lock: threading.RLock) -> bool:
    return lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # noqa: SLF001  # as Condition
