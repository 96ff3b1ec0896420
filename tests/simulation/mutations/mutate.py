"""Shows that the tests notice faults: applies seeded ones to a copy of the package.

    python tests/simulation/mutations/mutate.py [--only TEXT] [--jobs N] [--seeds N]

Each fault has to be caught: by the simulation of random schedules, or else by the tests of what
it has found before, or by the membership's own. Caught is what violates an invariant or fails a
test, and nothing else: a fault that can't be imported, or a process that is killed, is broken. So
the package as it is has to pass all of it first. The last line says `caught C of N`; the exit
status is 1 where one was not, 2 where the package itself does not pass.
"""

from __future__ import annotations

import argparse
import enum
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

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


class Fate(enum.Enum):
    """What became of a fault."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"


Verdict: TypeAlias = tuple[Fate, str]
"""And the line that says so."""


def judge(status: int, said: str, errors: str, finding: str) -> Verdict:
    """Of a command's end: 0 and 1 are its answers, 1 with a line that begins with the finding."""
    lines = said.splitlines()
    found = next((line for line in lines if line.startswith(finding)), "")
    if status == 0:
        return Fate.SURVIVED, ""
    if status == 1 and found:
        return Fate.CAUGHT, found
    last = (said + errors).strip().splitlines()[-1:]
    return Fate.BROKEN, f"exit status {status}: {''.join(last)}"


def catch(mutation: Mutation | None, seeds: int) -> Verdict:
    """Runs all that may catch the fault; None: there is none."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as scratch:
        package = Path(scratch) / "kafka_coop"
        shutil.copytree(ROOT / "kafka_coop", package, ignore=shutil.ignore_patterns("__pycache__"))
        if mutation is not None:
            mutation.apply(package)
        schedules = ("kafka_coop.cli.entry", "simulate", "check", "--jobs", "1", "--fail-fast")
        seeded = (*schedules, "--seeds", str(seeds))
        verdict = _run(Path(scratch), seeded, cwd=scratch, finding="seed ")
        if verdict[0] is not Fate.SURVIVED:
            return verdict
        suites = ("pytest", "-q", "-x", "-p", "no:cacheprovider", *(str(ROOT / s) for s in SUITES))
        return _run(Path(scratch), suites, cwd=str(ROOT), finding="FAILED ")


def _run(copy: Path, module: Sequence[str], *, cwd: str, finding: str) -> Verdict:
    """``python -m``, with this copy of the package."""
    ran = subprocess.run(
        [sys.executable, "-P", "-m", *module],
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    return judge(ran.returncode, ran.stdout, ran.stderr, finding)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="mutations whose name has this in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=1500)
    args = parser.parse_args()
    chosen = [m for m in mutations() if args.only in m.name]
    fate, by = catch(None, args.seeds)
    if fate is not Fate.SURVIVED:
        print(f"without any fault: {by}")
        return 2
    caught = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda m: catch(m, args.seeds), chosen)
        for mutation, (fate, by) in zip(chosen, results, strict=True):
            caught += fate is Fate.CAUGHT
            print(f"{fate.value:8}  {mutation.name}\n          {by}", flush=True)
    print(f"caught {caught} of {len(chosen)}")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
