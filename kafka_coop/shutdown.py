"""Ends a consumer in order when the process is told to go: SIGTERM, or Ctrl-C.

    with Shutdown() as shutdown, consumer:
        while not shutdown:
            message = consumer.poll(1.0)
            …

A signal handler may run anywhere, inside `poll` too, or between a record and what becomes of it;
so it leaves a note only. A `CoopConsumer` that waits for a record comes back for it with none, as
Java's does for a wakeup, whatever its timeout. The loop ends at its next turn, and ``with`` closes
the consumer: callbacks run, what is due is committed, and the group is left at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

M_co = TypeVar("M_co", covariant=True)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Polled(Protocol[M_co]):
    """What can be polled."""

    def poll(self, timeout: float | None = ...) -> M_co | None:
        """The next message, or None."""


class Shutdown:
    """While its ``with`` block runs, signals are noted instead of ending the process.

    It is true once one came. The second one does what it did before: whoever is impatient, or
    finds the application stuck, gets a KeyboardInterrupt, or ends the process. A forked child has
    the handlers that there were before: one that is to end in order enters another of these.

    Args:
        signals: Which; SIGTERM and SIGINT if not given.

    Raises:
        ValueError: On entering, in a thread other than the main one: Python's signals are its.
        OSError: On entering: one of them can't be caught (SIGKILL). Nothing is changed then.
    """

    def __init__(self, signals: tuple[signal.Signals, ...] = _SIGNALS) -> None:
        self.signal: signal.Signals | None = None
        self._signals = signals
        self._before: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> Self:
        try:
            for one in self._signals:
                self._before[one] = signal.signal(one, self._note)
        except BaseException:  # one that can't be caught: no __exit__ comes
            self._restore()
            raise
        _entered.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def messages(self, consumer: Polled[M_co], *, within: float = 0.5) -> Iterator[M_co]:
        """Yields a consumer's messages until a signal came.

        Args:
            consumer: It is polled, not closed.
            within: Seconds of one poll: the longest that a signal waits while nothing comes. A
                `CoopConsumer` comes back for it, most often within 0.05.
        """
        while not self:
            message = consumer.poll(within)
            if message is not None:
                yield message

    def _note(self, number: int, _frame: FrameType | None) -> None:
        global _noted  # noqa: PLW0603  # a signal is the whole process'
        self.signal = signal.Signals(number)
        _noted += 1
        self._restore()

    def _restore(self) -> None:
        for one, handler in self._before.items():
            # None: it was not installed from Python, which can't put it back.
            signal.signal(one, signal.SIG_DFL if handler is None else handler)
        self._before.clear()
        if self in _entered:
            _entered.remove(self)


_noted = 0


def signals_noted() -> int:
    """How many there have been: whoever waits and sees one more is to let its user look."""
    return _noted


_entered: list[Shutdown] = []
"""Those whose handlers are installed; the last one's are in force."""


def _restore_in_child() -> None:
    """Else SIGTERM would end no child of the process: `multiprocessing` waits for that at exit."""
    for shutdown in reversed(_entered.copy()):
        shutdown._restore()  # noqa: SLF001  # of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_in_child)
