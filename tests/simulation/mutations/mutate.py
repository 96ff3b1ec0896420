"""Shows that the tests notice faults: applies seeded ones to a copy of the package.

    python tests/simulation/mutations/mutate.py [--only TEXT] [--jobs N] [--seeds N]

Each fault has to be caught: by the simulation of random schedules, or else by the tests of what
it has found before, or by the membership's own. The last line says `caught C of N`; the exit
status is 1 where one was not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SUITES = ("tests/simulation/test_world_regressions.py", "tests/membership", "tests/offsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A fault: ``before``, which occurs once in ``file``, becomes ``after``."""

    name: str
    file: str
    before: str
    after: str

    def apply(self, package: Path) -> None:
        path = package / self.file
        text = path.read_text()
        if text.count(self.before) != 1:
            raise ValueError(f"{self.name!r}: {self.file} has {self.before!r} not exactly once")
        path.write_text(text.replace(self.before, self.after))


def mutations() -> list[Mutation]:
    table = tomllib.loads((HERE / "mutations.toml").read_text())
    return [Mutation(**row) for row in table["mutation"]]


def catch(mutation: Mutation, seeds: int) -> str:
    """Returns what caught the fault; empty: nothing did."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as scratch:
        package = Path(scratch) / "kafka_coop"
        shutil.copytree(ROOT / "kafka_coop", package, ignore=shutil.ignore_patterns("__pycache__"))
        mutation.apply(package)
        environment = {**os.environ, "PYTHONPATH": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        check = [sys.executable, "-m", "kafka_coop.simulation.check", "--jobs", "1"]
        check += ["--seeds", str(seeds), "--fail-fast"]
        ran = subprocess.run(
            check, env=environment, cwd=scratch, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            lines = (ran.stdout + ran.stderr).strip().splitlines()
            return next((line for line in lines if line.startswith("seed")), lines[-1])
        suites = [str(ROOT / suite) for suite in SUITES]
        pytest = [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            *suites,
        ]
        ran = subprocess.run(
            pytest, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED")]
        return failed[0] if failed else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="mutations whose name has this in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=1500)
    args = parser.parse_args()
    chosen = [m for m in mutations() if args.only in m.name]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda m: catch(m, args.seeds), chosen)
        caught = 0
        for mutation, by in zip(chosen, results, strict=True):
            caught += bool(by)
            print(
                f"{'caught  ' if by else 'SURVIVED'}  {mutation.name}\n          {by}", flush=True
            )
    print(f"caught {caught} of {len(chosen)}")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
