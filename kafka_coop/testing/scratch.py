"""Where a test's broker keeps its data: in memory, where there is room."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a new folder of ours in it, that only we may read
ENOUGH: Final = 4 << 30
"""Bytes. A container often gives its tests 64 MB; a broker's records may want more."""


def holds_libraries(folder: Path) -> bool:
    """Whether a process may load what it unpacks there: not on a mount that is ``noexec``."""
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC


def scratch_folder(prefix: str, memory: Path = MEMORY) -> Path:
    """A new folder for data that nobody misses.

    Kafka forces what its quorum decides to the disk, and elects anew when that takes seconds, as
    it does beside a build on a busy disk. In memory it takes no time. Whoever sets TMPDIR decides.
    """
    roomy = "TMPDIR" not in os.environ and memory.is_dir() and os.access(memory, os.W_OK)
    if roomy and shutil.disk_usage(memory).free >= ENOUGH:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=memory))
    return Path(tempfile.mkdtemp(prefix=prefix))
