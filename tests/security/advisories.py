"""Matches what `locks/` pins with a checkout of PyPA's advisory database: no service is asked.

    git clone https://github.com/pypa/advisory-database
    python tests/security/advisories.py advisory-database

Every pin counts, whatever its environment marker says. A version is affected where an advisory
lists it, or one of its ranges has it (OSV's ``ECOSYSTEM``, in PEP 440's order); what was withdrawn
is counted and left out. Ends with status 1 where something is affected, and 2 where there is
nothing to look at. What was published after the checkout's day nobody has looked for.
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel

LOCKS = Path(__file__).parents[2] / "locks"

# Scalars stay text: the 1.10 of a version that nobody has quoted is not 1.1.
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class Package(BaseModel):
    name: str
    ecosystem: str


class Range(BaseModel):
    type: str
    events: list[dict[str, str]] = []


class Affected(BaseModel):
    package: Package
    ranges: list[Range] = []
    versions: list[str] = []


class Advisory(BaseModel):
    id: str
    modified: dt.datetime
    published: dt.datetime | None = None
    withdrawn: dt.datetime | None = None
    affected: list[Affected] = []


_NONE = Version("0")

Pin: TypeAlias = tuple[str, Version]
"""A package's canonical name, and its version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An advisory that a pin is affected by. `fixed`: in which version; empty: in none."""

    advisory: str
    name: str
    version: Version
    fixed: str

    def __str__(self) -> str:
        remedy = f"fixed in {self.fixed}" if self.fixed else "no version has it fixed"
        return f"{self.advisory}: {self.name} {self.version}, {remedy}"


def pins(lock: str) -> Iterator[Pin]:
    """Those of a lock file.

    Raises:
        ValueError: It has a requirement that is no pin.
    """
    for line in re.sub(r"\\\n", " ", lock).splitlines():
        wanted = re.sub(r"(^|\s)#.*|\s--hash=\S+", "", line).strip()
        if not wanted:
            continue
        requirement = Requirement(wanted)
        specifiers = list(requirement.specifier)
        if [s.operator for s in specifiers] != ["=="] or "*" in specifiers[0].version:
            raise ValueError(f"{wanted!r} is no pin")
        yield canonicalize_name(requirement.name), Version(specifiers[0].version)


def advisories(folder: Path) -> Iterator[Advisory]:
    """All of a checkout's."""
    for file in sorted((folder / "vulns").rglob("*.yaml")):
        yield Advisory.model_validate(yaml.load(file.read_text(encoding="utf-8"), _Loader))


def hits(found: Sequence[Advisory], pinned: Sequence[Pin]) -> list[Hit]:
    """Each advisory that holds, with each pin that it is about, in order."""
    return [
        Hit(advisory=one.id, name=name, version=version, fixed=_fixed(affected, version))
        for one in found
        if one.withdrawn is None
        for affected in one.affected
        for name, version in pinned
        if is_about(affected, name) and _is_affected(affected, version)
    ]


def is_about(affected: Affected, name: str) -> bool:
    package = affected.package
    return package.ecosystem == "PyPI" and canonicalize_name(package.name) == name


def _is_affected(affected: Affected, version: Version) -> bool:
    listed = any(_order(text) == _order(str(version)) for text in affected.versions)
    return listed or any(_has(one, version) for one in _ranges(affected))


def _ranges(affected: Affected) -> list[Range]:
    """GIT's are about commits."""
    return [one for one in affected.ranges if one.type == "ECOSYSTEM"]


def _has(one: Range, version: Version) -> bool:
    """By the last event that the version has reached: OSV lists them in any order."""
    inside = False
    here = _order(str(version))
    for event, text in sorted(_events(one), key=lambda event: _order(event[1])):
        there = _order(text)
        if event == "introduced" and here >= there:
            inside = True
        elif (event == "fixed" and here >= there) or (event == "last_affected" and here > there):
            inside = False
    return inside


def _events(one: Range) -> list[tuple[str, str]]:
    return [pair for event in one.events for pair in event.items()]


def _order(text: str) -> tuple[bool, Version, str]:
    """What PEP 440 does not know as a version comes before all that it does, and 0 before that."""
    try:
        return (True, Version(text), "") if text != "0" else (False, _NONE, "")
    except InvalidVersion:
        return (False, _NONE, text)


def _fixed(affected: Affected, version: Version) -> str:
    """The nearest version above that has it fixed."""
    fixes = [text for r in _ranges(affected) for event, text in _events(r) if event == "fixed"]
    return min((t for t in fixes if _order(t) > _order(str(version))), key=_order, default="")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a checkout of PyPA's advisory database")
    parser.add_argument("--locks", type=Path, default=LOCKS, help="where the lock files are")
    options = parser.parse_args(arguments)
    locks = sorted(options.locks.glob("*.txt"))
    pinned = sorted({pin for lock in locks for pin in pins(lock.read_text(encoding="utf-8"))})
    found = list(advisories(options.folder))
    if not pinned or not found:
        parser.error(f"{len(pinned)} pins, {len(found)} advisories: that is no audit")
    names = {name for name, _ in pinned}
    ours = [a for a in found if any(is_about(one, name) for one in a.affected for name in names)]
    print(f"{len(names)} packages in {len(pinned)} versions, of {', '.join(x.name for x in locks)}")
    withdrawn = sum(one.withdrawn is not None for one in found)
    newest = max(one.modified for one in found)
    print(
        f"{len(found):,} advisories, {withdrawn} of them withdrawn; {len(ours)} are about one of "
        f"these packages; the newest is of {newest:%Y-%m-%d}"
    )
    affected = hits(ours, pinned)
    for hit in affected:
        print(hit)
    if not affected:
        print("No version in use is affected by any of them.")
    return int(bool(affected))


if __name__ == "__main__":
    sys.exit(main())
