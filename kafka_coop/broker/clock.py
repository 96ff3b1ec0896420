"""The clocks that backoff, sessions and lives are measured with, so that tests can hold them.

None of them is the wall clock, which is set, and jumps.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Protocol

elapsed: Callable[[], float] = (
    functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Seconds since some moment in the past, those in which the machine was suspended among them.

Linux's CLOCK_MONOTONIC stands still then, and a lease or a token that was had before would look
fresh after; CLOCK_BOOTTIME goes on. macOS's monotonic clock goes on by itself.
"""


class Clock(Protocol):
    """Time that passes."""

    def now(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns once so many seconds have passed."""
        ...


class LoopClock:
    """The running event loop's own time."""

    __slots__ = ()

    def now(self) -> float:
        """The loop's monotonic time, in seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """`asyncio.sleep`."""
        await asyncio.sleep(seconds)
