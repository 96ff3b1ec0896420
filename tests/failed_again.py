"""Runs what failed in the last run once more, in one process: what `make again` does.

By itself pytest's ``--last-failed`` forgets tests of an xdist group: it writes their ids with the
group's name behind them, and does not find them under their own.

A verdict is final (pytest's marker ``verdict``, tests/verdicts.py): chance decides whether a fault
meets the moment that matters, so that a record that was lost or read twice, or a partition that had
two owners, may well not show a second time. With ``--ask`` nothing runs: the status says whether a
second run may decide (`make forgivable`), for who repeats a run as a whole. Nor does one decide
where the first was killed, or stopped: what it did not come to, nobody has seen pass.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from verdicts import KEY, UNFINISHED

FAILED = Path(".pytest_cache/v/cache/lastfailed")
FINAL = Path(".pytest_cache/v") / KEY
STOPPED = Path(".pytest_cache/v") / UNFINISHED


def without_group(node: str) -> str:
    """A test's own id: an xdist worker puts ``@`` and the group behind it."""
    return re.sub(r"@\w+$", "", node)


def are_final(nodes: list[str]) -> bool:
    """Whether there is a verdict among them, which is printed."""
    final = sorted({*nodes}.intersection(map(without_group, _cached(FINAL))))
    if final:
        print(
            "not tried again, for what failed found a loss that need not show again:",
            *final,
            sep="\n",
        )
    return bool(final)


def were_stopped() -> bool:
    """Whether a run did not come to its end, which is printed."""
    stopped = _cached(STOPPED)
    if stopped:
        print(
            "no second run can tell what these would have found, as they did not come to their end,"
            " or are under way (start them again, or remove .pytest_cache):",
            *stopped,
            sep="\n",
        )
    return bool(stopped)


def _cached(file: Path) -> list[str]:
    return list(json.loads(file.read_text())) if file.exists() else []


def main(*, ask: bool = False) -> int:
    nodes = sorted(map(without_group, _cached(FAILED)))
    if were_stopped() or are_final(nodes):
        return 1
    if ask:
        return 0
    if not nodes:
        print("no test failed: what is wrong is not a test")
        return 1
    return subprocess.run([sys.executable, "-m", "pytest", *nodes], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(ask="--ask" in sys.argv))
