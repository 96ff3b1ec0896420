"""What this process is made of. Linux only."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessSize:
    rss_kib: int
    threads: int
    descriptors: int
    sockets: int

    @classmethod
    def now(cls) -> ProcessSize:
        targets = []
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the listing's own is gone again
                targets.append(str(entry.readlink()))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            rss_kib=pages * os.sysconf("SC_PAGE_SIZE") // 1024,
            threads=len(list(Path("/proc/self/task").iterdir())),
            descriptors=len(targets),
            sockets=sum(target.startswith("socket:") for target in targets),
        )
