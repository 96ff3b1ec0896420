"""Runs all benchmarks, one after the other: ``make bench``. About two hours."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    "consume",
    "idle",
    "leader",
    "rebalance",
    "rolling",
    "watchdog",
    "crowd",
    "spark",
    "metrics",
)


def main() -> int:
    for name in BENCHMARKS:
        print(f"\n## benchmarks.{name}\n", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
