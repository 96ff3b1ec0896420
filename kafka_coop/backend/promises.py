"""What another thread finds out, and this one waits for."""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from datetime import timedelta
from typing import Generic, TypeVar

from kafka_coop.backend.bell import Bell
from kafka_coop.errors import RequestFailedError, RequestTimedOutError

T = TypeVar("T")

STOPPED = "the consumer is closed"
NOT_HERE = (
    "a strategy's subscription_user_data and on_assignment can't ask the group's coordinator: the "
    "answer would come to the thread that waits for it. Ask where you poll, or in assign"
)


class _State(enum.Enum):
    PENDING = enum.auto()
    BEGUN = enum.auto()
    DONE = enum.auto()
    CANCELLED = enum.auto()


class Promise(Generic[T]):
    """A result to come. Any thread may ask, wait, or set it.

    `concurrent.futures.Future` would be one, but takes a `threading.Condition` even to tell whether
    it is done, and that is written in Python (`kafka_coop.backend.bell`): a Ctrl-C there left it
    taken, and whoever came with the result, the membership's thread, waited for it for ever. Here a
    lock guards changes alone, by a ``with`` of its own; who looks takes none, and who waits has a
    bell.
    """

    __slots__ = ("_bells", "_cancel", "_error", "_own", "_result", "_state")

    def __init__(self) -> None:
        self._own = threading.RLock()  # a signal handler may cancel in between
        self._state = _State.PENDING
        self._result: T
        self._error: BaseException | None = None
        self._cancel: Callable[[], object] | None = None
        self._bells: list[Bell] = []

    def done(self) -> bool:
        """Whether it has a result, has failed, or was cancelled."""
        return self._state is _State.DONE or self.cancelled()

    def cancelled(self) -> bool:
        """Whether nobody wants it any more."""
        return self._state is _State.CANCELLED

    def cancel(self) -> bool:
        """Gives it up, unless it has begun. Returns whether nobody will set it."""
        with self._own:
            if self._state is not _State.PENDING:
                return self.cancelled()
            self._state = _State.CANCELLED
            cancel = self._cancel
        self._ring()
        if cancel is not None:
            cancel()
        return True

    def when_cancelled(self, call: Callable[[], object]) -> None:
        """Has this called when it is given up; at once, if it was before."""
        with self._own:
            self._cancel = call
            late = self.cancelled()
        if late:
            call()

    def begin(self) -> bool:
        """Whether it is wanted still; from here on it can't be cancelled."""
        with self._own:
            if self._state is _State.PENDING:
                self._state = _State.BEGUN
            return self._state is _State.BEGUN

    def put_off(self) -> None:
        """It begins once more, later: until then it can be cancelled."""
        with self._own:
            if self._state is _State.BEGUN:
                self._state = _State.PENDING

    def set_result(self, result: T) -> None:
        """Does nothing where nobody wants it any more."""
        with self._own:
            if not self.done():
                self._result = result
                self._state = _State.DONE
        self._ring()

    def set_exception(self, error: BaseException) -> None:
        """What `result` is to raise. Does nothing where nobody wants it any more."""
        with self._own:
            if not self.done():
                self._error = error
                self._state = _State.DONE
        self._ring()

    def wait(self, seconds: float) -> bool:
        """Waits until it is done, for so long at most. Returns whether it is."""
        bell = Bell()
        try:
            self._bells.append(bell)
            if not self.done():  # since then it rings
                bell.wait(seconds)
        finally:
            if bell in self._bells:
                self._bells.remove(bell)
        return self.done()

    def result(self, seconds: float) -> T:
        """What was promised.

        Raises:
            TimeoutError: It is not done in so many seconds.
            CancelledError: It was cancelled.
            BaseException: What it failed with.
        """
        error = self.exception(seconds)
        if error is not None:
            raise error
        return self._result

    def exception(self, seconds: float) -> BaseException | None:
        """What it failed with, if it did. Raises as `result` does."""
        if not self.done() and not self.wait(seconds):
            raise TimeoutError(f"not done in {seconds:g} s")
        if self.cancelled():
            raise CancelledError
        return self._error

    def _ring(self) -> None:
        for bell in tuple(self._bells):
            bell.ring()


def wait_for_all(promises: Iterable[Promise[T]], seconds: float) -> None:
    """Until all are done, for so long at most."""
    ends = time.monotonic() + seconds
    for promise in promises:
        if not promise.done():
            promise.wait(max(0.0, ends - time.monotonic()))


def keep(promise: Promise[T], task: asyncio.Task[T]) -> None:
    """What a task has ended with is what was promised."""
    if task.cancelled():
        promise.cancel()
    elif (error := task.exception()) is not None:
        promise.set_exception(error)
    else:
        promise.set_result(task.result())


def refused(why: str = STOPPED) -> Promise[T]:
    """The answer of a membership that has ended, or can't give any."""
    promise: Promise[T] = Promise()
    promise.set_exception(RequestFailedError(why))
    return promise


def result_within(promise: Promise[T], timeout: timedelta) -> T:
    """Returns the result.

    Raises:
        RequestTimedOutError: Not done in time.
        RequestFailedError: The membership has ended.
    """
    try:
        return promise.result(timeout.total_seconds())
    except TimeoutError:
        promise.cancel()
        raise RequestTimedOutError(f"no answer within {timeout}") from None
    except CancelledError:
        raise RequestFailedError(STOPPED) from None
    except KeyboardInterrupt:
        promise.cancel()  # nobody waits for it any more
        raise
