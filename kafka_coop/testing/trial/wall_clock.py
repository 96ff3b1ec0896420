"""A wall clock of one process's own, that jumps: libfaketime's.

What a process reads as the time of day is then ours to set, while it runs. The clocks that
measure how long something takes are left alone, as they are where a machine's clock is set: by NTP,
by hand, by a virtual machine's host.
"""

from __future__ import annotations

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
        file: Where it looks at what time it is; is made.
    """

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.environment: Final[Mapping[str, str]] = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",  # it looks once a second
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.set(timedelta(0))

    def set(self, ahead: timedelta) -> None:
        """From now on the time of day is so much ahead of the true one; or behind it.

        Processes see it within a second.
        """
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{ahead.total_seconds():+.0f}\n")
        draft.rename(self._file)  # it reads all of it or none
