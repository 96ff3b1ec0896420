"""What Spark's processes use: CPU time, and memory by what they are for. Linux only.

this process (the driver's Python)
 └─ the driver's JVM
     ├─ Python: the source's reader, and what plans
     └─ the executors' JVMs, where they are processes of their own
         └─ Python: the workers that run tasks
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.cpu_time import cpu_time

_PSS = re.compile(r"^Pss: +(\d+) kB", re.MULTILINE)
_EXECUTOR = b"CoarseGrainedExecutorBackend"

DRIVER, READER, EXECUTORS, WORKERS = "driver_jvm", "reader", "executor_jvms", "workers"
KINDS = (DRIVER, READER, EXECUTORS, WORKERS)


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and all that descend from it."""
    try:
        own = cpu_time(Path(f"/proc/{pid}"))
    except OSError:
        return 0.0
    return own + sum(cpu_seconds(child) for child in _children(pid))


def memory_of(pid: int) -> Counter[str]:
    """Resident bytes of all that descend from a process, by kind.

    A page that several share counts in each as its part (PSS): workers are forks of one daemon.
    """
    total: Counter[str] = Counter()
    for kind, size in _sizes(pid, b"", ""):
        total[kind] += size
    return total


def _sizes(pid: int, command: bytes, above: str) -> Iterator[tuple[str, int]]:
    for child in _children(pid):
        try:
            its = Path(f"/proc/{child}/cmdline").read_bytes()
            rollup = Path(f"/proc/{child}/smaps_rollup").read_text()
        except OSError:
            continue  # it has ended meanwhile
        is_java = Path(os.fsdecode(its.partition(b"\0")[0])).name == "java"
        if is_java and its == command:
            continue  # a JVM that is about to start something: its pages are its parent's
        kind = _kind(its, above, is_java=is_java)
        if kind:
            yield kind, sum(int(kib) * 1024 for kib in _PSS.findall(rollup))
        yield from _sizes(child, its, kind)


def _kind(command: bytes, above: str, *, is_java: bool) -> str:
    if is_java:
        return EXECUTORS if _EXECUTOR in command else DRIVER
    return {DRIVER: READER, EXECUTORS: WORKERS}.get(above, above)


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


class MemoryWatch:
    """The largest sums of resident memory, by kind, while the block runs.

    Args:
        seconds: Between two looks. What lives shorter may be missed.
    """

    def __init__(self, seconds: float = 0.2) -> None:
        self.peaks: Counter[str] = Counter()
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peaks |= memory_of(os.getpid())
            if self._over.wait(self._seconds):
                return
