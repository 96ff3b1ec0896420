"""The clock of leases and timeouts: it counts the time a machine was suspended."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

now: Callable[[], float] = (
    functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Seconds since some moment in the past. Called for every record: no Python in between.

Linux's CLOCK_MONOTONIC stands still while the machine is suspended, and a lease that was taken
before would look fresh after; CLOCK_BOOTTIME goes on. macOS's monotonic clock goes on by itself.
"""
