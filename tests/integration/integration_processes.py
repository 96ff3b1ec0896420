"""Other processes, as the kernel tells of them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path


def is_running(pid: int) -> bool:
    """Alive, and no zombie."""
    try:
        return _state(pid)[0] != "Z"
    except OSError:
        return False


def is_asleep(pid: int) -> bool:
    """Its first thread waits for something."""
    return _state(pid)[0] == "S"


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal, by its mask in /proc."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def niceness(pid: int) -> set[int]:
    """Of its threads; of those that end meanwhile it may be left out."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found.add(int(_state(f"{pid}/task/{thread.name}")[16]))
    return found


def children(parents: Collection[int], word: bytes) -> set[int]:
    """Processes of theirs whose command has such a word: not those about to become one, or dead."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid for pid in pids if _parent(pid) in parents and word in _command(pid)}


def whole_lines(written: Path) -> list[str]:
    """What a process has written; of a line that it is about to write, a reader may see a part."""
    *lines, _under_way = written.read_text().split("\n")
    return lines


def _state(of: int | str) -> list[str]:
    """Of a process, or a thread: what follows the name: the state, the parent, …"""
    return Path(f"/proc/{of}/stat").read_text().rsplit(")", 1)[1].split()


def _parent(pid: int) -> int:
    try:
        return int(_state(pid)[1])
    except OSError:
        return 0  # it has ended


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
