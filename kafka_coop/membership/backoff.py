"""How long to wait before the next attempt (KIP-580)."""

from __future__ import annotations

import zlib
from datetime import timedelta

_SPREAD = 0.2


def backoff(attempt: int, *, base: timedelta, cap: timedelta, seed: int) -> float:
    """Seconds before attempt number ``attempt`` (0: the first retry): doubling, capped, spread.

    The spread of ±20 % keeps members that failed together from returning together. It comes
    from ``seed`` and ``attempt`` alone, so that the machine stays a function of its inputs.
    """
    doubled = min(base.total_seconds() * 2.0 ** min(attempt, 30), cap.total_seconds())
    unit = zlib.crc32(f"{seed}:{attempt}".encode()) / 0xFFFFFFFF
    return doubled * (1 - _SPREAD + 2 * _SPREAD * unit)
