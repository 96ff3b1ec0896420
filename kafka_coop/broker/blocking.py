"""Blocking calls off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from kafka_coop.errors import ConnectionFailedError

T = TypeVar("T")


async def run_blocking(function: Callable[[], T], *, name: str) -> T:
    """Runs a function that may block in a thread of its own.

    The loop's executor is not used: both the loop's end and the interpreter's wait for its
    threads, so that a resolver or a token callback that hangs would hang ``close()`` too.
    The thread here is a daemon; cancelling the call abandons it, and its result is dropped.

    Args:
        function: What to call; it must be safe to run beside the loop.
        name: The thread's name, for stack dumps.

    Returns:
        What the function returned.

    Raises:
        ConnectionFailedError: No thread is to be had, which may pass.
        Exception: What the function raised; a `BaseException` that is none (`SystemExit`)
            comes as a `RuntimeError`, since it must not end the loop.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Callable[[], T]] = loop.create_future()

    def deliver(outcome: Callable[[], T]) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        outcome = _outcome_of(function)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, outcome)

    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        # A full container. Whoever asked for a connection knows that these may fail.
        raise ConnectionFailedError(f"no thread could be started for {name}: {error}") from error
    return (await done)()


def _outcome_of(function: Callable[[], T]) -> Callable[[], T]:
    # Not Future.set_exception: it refuses StopIteration, which a user's callback may raise.
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001  # it is raised where the call is awaited
        caught = error

        def fail() -> T:
            if isinstance(caught, Exception):
                raise caught
            raise RuntimeError(f"{type(caught).__name__} was raised") from caught

        return fail
    return lambda: result
