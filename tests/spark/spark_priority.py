"""Spark's processes before the other tests': it has a patience that can't be configured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def first_in_line() -> Iterator[None]:
    """What is started inside goes before the other tests' processes, where that is allowed.

    Spark gives a Python worker ten seconds, not configurable, to start and to connect back.
    """
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, usual - 10)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)
