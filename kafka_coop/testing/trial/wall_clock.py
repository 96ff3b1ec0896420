"""A wall clock of one process's own, that jumps: libfaketime's.

What a process reads as the time of day is then ours to set, while it runs. The clocks that
measure how long something takes are left alone, as they are where a machine's clock is set: by NTP,
by hand, by a virtual machine's host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

_PLACES: Final = (
    ("/usr/lib", "*/faketime/libfaketimeMT.so.1"),  # Debian's
    ("/usr/lib64", "faketime/libfaketimeMT.so.1"),
    ("/usr/lib", "faketime/libfaketimeMT.so.1"),
    ("/usr/local/lib", "faketime/libfaketimeMT.so.1"),
)

_SITE: Final = '''\
"""Python sleeps until a moment of the monotonic clock, and libfaketime 0.9.10 takes that for one of
the clock that it sets: EINVAL. A lock's wait it leaves alone."""

import threading
import time


def sleep(seconds):
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    threading.Event().wait(seconds)


time.sleep = sleep
'''


def find_library() -> Path | None:
    """Where libfaketime is installed: the variant for processes with threads. None: nowhere."""
    for folder, pattern in _PLACES:
        if found := sorted(Path(folder).glob(pattern)):
            return found[0]
    return None


class WallClock:
    """The clock of processes that are started with its `environment`.

    Args:
        library: libfaketime's.
        file: Where it looks at what time it is; is made, and a folder for Python beside it.
    """

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        site = file.parent / "python"
        site.mkdir(exist_ok=True)
        custom = site / "sitecustomize.py"
        if not custom.exists():  # somebody may be about to read it
            custom.write_text(_SITE)
        before = os.environ.get("PYTHONPATH")
        self.environment: Final[Mapping[str, str]] = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",  # it looks once a second
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": f"{site}{os.pathsep}{before}" if before else str(site),
        }
        self.set(timedelta(0))

    def set(self, ahead: timedelta) -> None:
        """From now on the time of day is so much ahead of the true one; or behind it.

        Processes see it within a second.
        """
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{ahead.total_seconds():+.0f}\n")
        draft.rename(self._file)  # it reads all of it or none
