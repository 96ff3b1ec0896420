"""Runs what failed in the last run once more, in one process: what `make again` does.

By itself pytest's ``--last-failed`` forgets tests of an xdist group: it writes their ids with the
group's name behind them, and does not find them under their own.

A judge's verdict is final: chance decides whether a trial's faults meet the moment that matters, so
that a record that was lost, or a partition that had two owners, may well not show a second time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")

VERDICTS = ("tests/trial/test_trial_faults.py", "tests/mixed/")
"""Tests of real processes under random faults, or of several clients' timing: a judge has the last
word. What the other trials do to their members is the same each time."""


def without_group(node: str) -> str:
    """A test's own id: an xdist worker puts ``@`` and the group behind it."""
    return re.sub(r"@\w+$", "", node)


def main() -> int:
    nodes = sorted(map(without_group, json.loads(FAILED.read_text()))) if FAILED.exists() else []
    if not nodes:
        print("no test failed: what is wrong is not a test")
        return 1
    if final := [node for node in nodes if node.startswith(VERDICTS)]:
        print("not tried again, for what a trial finds once it has found:", *final, sep="\n  ")
        return 1
    return subprocess.run([sys.executable, "-m", "pytest", *nodes], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
