"""The clock of leases and timeouts: it counts the time a machine was suspended."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def _boottime() -> float:
    return time.clock_gettime(_CLOCK)  # type: ignore[arg-type]  # chosen below only if it exists


now = _boottime if _CLOCK is not None else time.monotonic
"""Seconds since some moment in the past.

Linux's CLOCK_MONOTONIC stands still while the machine is suspended, and a lease that was taken
before would look fresh after; CLOCK_BOOTTIME goes on. macOS's monotonic clock goes on by itself.
"""
