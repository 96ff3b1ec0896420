"""How a trial or a benchmark ends that is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any


def end_in_order_at_sigterm() -> None:
    """SIGTERM (``timeout``, a CI job that is cancelled) ends as an exception does.

    Left to itself it ends one process at once: members would go on without end, and take the cores
    that the next benchmark measures with.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def wait_or_kill(process: subprocess.Popen[Any], seconds: float) -> int:
    """Waits for a process that was asked to end, and kills it where it does not in time.

    Returns:
        Its exit status.
    """
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
