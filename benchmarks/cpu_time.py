"""The CPU time of processes and threads. Linux only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_time(entry: Path) -> float:
    """Seconds of CPU time that a process or a thread has used: user and system time (proc(5)).

    Args:
        entry: ``/proc/PID``, or a thread's ``/proc/PID/task/TID``.

    Raises:
        OSError: It has ended.
    """
    figures = (entry / "stat").read_text().rpartition(")")[2].split()
    return (int(figures[11]) + int(figures[12])) / _TICKS
