"""Blocking calls off the event loop.

The loop's executor is not used: both the loop's end and the interpreter's wait for its threads, so
that a resolver or a token callback that hangs would hang ``close()`` too. The threads here are
daemons.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from kafka_coop.errors import ConnectionFailedError

T = TypeVar("T")


async def run_blocking(function: Callable[[], T], *, name: str) -> T:
    """Runs a function that may block in a thread of its own.

    Cancelling the call abandons it, and its result is dropped.

    Args:
        function: What to call; it must be safe to run beside the loop.
        name: The thread's name, for stack dumps.

    Returns:
        What the function returned.

    Raises:
        ConnectionFailedError: No thread is to be had, which may pass.
        Exception: What the function raised; what would end the loop (`SystemExit`), or is none to
            await (`StopIteration`), comes as a `RuntimeError`.
    """
    return await asyncio.wrap_future(begin_blocking(function, name=name))


def begin_blocking(function: Callable[[], T], *, name: str) -> Future[T]:
    """The same, to be awaited by several, one after the other: who gives up ends it for nobody.

    Raises:
        ConnectionFailedError: As `run_blocking`.
    """
    call: Future[T] = Future()
    call.set_running_or_notify_cancel()  # who waits can't cancel it any more

    def work() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001  # it is raised where the call is awaited
            call.set_exception(_awaitable(error))
        else:
            call.set_result(result)

    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        # A full container. Whoever asked for a connection knows that these may fail.
        raise ConnectionFailedError(f"no thread could be started for {name}: {error}") from error
    return call


def _awaitable(error: BaseException) -> Exception:
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    told = RuntimeError(f"{type(error).__name__} was raised")
    told.__cause__ = error
    return told
