"""The clock that backoff and sessions are measured with, so that tests can hold it."""

from __future__ import annotations

import asyncio
from typing import Protocol


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
