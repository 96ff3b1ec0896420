"""Runs the benchmarks, one after the other: ``make bench``. More than three hours.

All but `benchmarks.versions`, which is to be told two versions.
The exit status is 1 where one failed, or says that a goal was missed.
"""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    ("consume",),
    ("idle",),
    ("beats",),
    ("leader",),
    ("leader", "growth"),
    ("rebalance",),
    ("rolling",),
    ("watchdog",),
    ("crowd", "members"),
    ("crowd", "partitions"),
    ("crowd", "turnover"),
    ("spark",),
    ("spark", "memory"),
    ("spark", "scaling"),
    ("metrics",),
)


def main() -> int:
    failed = []
    for name, *words in BENCHMARKS:
        print(f"\n## benchmarks.{name} {' '.join(words)}\n", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *words], check=False)
        if done.returncode:
            failed.append(" ".join((name, *words)))
    if failed:
        print(f"\nfailed, or missed a goal: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
