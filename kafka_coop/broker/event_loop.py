"""The event loop of a thread of ours: asyncio's own, whatever loop the application has chosen.

`asyncio.run` makes the loop that the process' policy says. A service on uvloop has set that
(`uvloop.install`), and a membership in it failed with its first connection, for uvloop's transports
are none of `asyncio.Transport`. How its TLS ends is another matter again: connections run on what
they are tested on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop to run in this thread or another."""
    return asyncio.SelectorEventLoop()


def run_in_own_loop(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on such a loop, in a thread that has none running.

    Raises:
        BaseException: What the coroutine raises.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
