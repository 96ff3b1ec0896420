"""The audit by a checkout, with a database of our own making."""

from __future__ import annotations

from pathlib import Path

import pytest
from advisories import LOCKS, main, pins
from packaging.version import Version

LOCK = """\
made-up==1.10 ; python_full_version < '3.12' \\
    --hash=sha256:00 \\
    --hash=sha256:01
    # via something==9.9
made-up==2.5
other[extra]==3.0.0  # the last
"""


def advisory(
    affected: str, *, name: str = "made-up", ecosystem: str = "PyPI", more: str = ""
) -> str:
    return f"""\
id: PYSEC-1
details: 'It has: a fault.'
modified: "2024-05-06T07:08:09.123456Z"
{more}
affected:
- package: {{name: {name}, ecosystem: {ecosystem}}}
  {affected}
"""


def ranges(*events: str, kind: str = "ECOSYSTEM") -> str:
    return f"ranges: [{{type: {kind}, events: [{', '.join(f'{{{e}}}' for e in events)}]}}]"


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    folder = tmp_path / "locks"
    folder.mkdir()
    (folder / "dev.txt").write_text(LOCK)
    return folder


def audit(locks: Path, *texts: str) -> int:
    """Of a database of these."""
    folder = locks.parent / "vulns" / "a-package"
    folder.mkdir(parents=True)
    for number, text in enumerate(texts):
        (folder / f"PYSEC-{number}.yaml").write_text(text)
    return main([str(locks.parent), "--locks", str(locks)])


HITS = {
    "a version that is listed": (advisory('versions: ["1.9", "1.10.0"]'), "1.10, no version"),
    "a version that nobody has quoted": (advisory("versions: [1.10]"), "1.10, no version"),
    "a range": (advisory(ranges('introduced: "0"', "fixed: 1.11")), "1.10, fixed in 1.11"),
    "the nearest that has it fixed": (
        advisory(ranges('introduced: "0"', "fixed: 1.11", "introduced: 2.0", "fixed: 2.1")),
        "1.10, fixed in 1.11",
    ),
    "a name in another form": (
        advisory(ranges("introduced: 2.5"), name="Made_Up"),
        "2.5, no version",
    ),
    "the last that is affected": (
        advisory(ranges("introduced: 2.0", "last_affected: 2.5")),
        "2.5, no version",
    ),
    "a release before the one that has it fixed": (
        advisory(ranges("introduced: 2.0", "fixed: 2.6rc1")),
        "2.5, fixed in 2.6rc1",
    ),
    "events in any order, and a second fault": (
        advisory(ranges("fixed: 1.9", "introduced: 2.5", "fixed: 2.6", 'introduced: "0"')),
        "2.5, fixed in 2.6",
    ),
    "a version that is none": (advisory(ranges("introduced: 0.1dev-r1", "fixed: 2.0")), "1.10, "),
}


@pytest.mark.parametrize("kind", HITS)
def test_what_is_affected_is_told(
    locks: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    text, told = HITS[kind]
    assert audit(locks, text) == 1
    _, _, *found = capsys.readouterr().out.splitlines()
    assert len(found) == 1
    assert found[0].startswith(f"PYSEC-1: made-up {told}")


MISSES = {
    "the version that has it fixed": advisory(ranges("introduced: 2.0", "fixed: 2.5.0")),
    "a version before it came": advisory(ranges("introduced: 2.5.1")),
    "between two faults": advisory(
        ranges("introduced: 1.11", "fixed: 2.4", "introduced: 2.6", "fixed: 2.7")
    ),
    "behind the last that is affected": advisory(ranges("introduced: 2.0", "last_affected: 2.4.9")),
    "a pre-release of it": advisory("versions: [2.5rc1, 1.1]"),
    "a package whose name begins so": advisory(ranges('introduced: "0"'), name="made-up-too"),
    "another ecosystem's": advisory(ranges('introduced: "0"'), ecosystem="npm"),
    "commits": advisory(ranges('introduced: "0"', kind="GIT")),
    "one that was withdrawn": advisory(
        ranges('introduced: "0"'), more='withdrawn: "2024-05-07T00:00:00Z"'
    ),
}


@pytest.mark.parametrize("kind", MISSES)
def test_what_is_not_affected_is_passed_over(
    locks: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    assert audit(locks, MISSES[kind]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "No version in use is affected by any of them."
    ]


def test_it_says_what_it_has_looked_at(locks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = advisory("versions: [9.9]", name="nobodys").replace("2024-05-06", "2024-07-08")
    assert audit(locks, HITS["a range"][0], MISSES["one that was withdrawn"], late) == 1
    assert (
        capsys.readouterr().out
        == """\
2 packages in 3 versions, of dev.txt
3 advisories, 1 of them withdrawn; 2 are about one of these packages; the newest is of 2024-07-08
PYSEC-1: made-up 1.10, fixed in 1.11
"""
    )


def test_what_has_looked_at_nothing_is_no_audit(locks: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        audit(locks)
    assert ended.value.code == 2


def test_what_is_no_pin_is_an_error() -> None:
    for wanted in ("made-up>=1.0", "made-up==1.*", "made-up"):
        with pytest.raises(ValueError, match="is no pin"):
            list(pins(wanted))


def test_every_pin_of_ours_is_read() -> None:
    assert list(pins(LOCK))[2] == ("other", Version("3.0.0"))
    for lock in LOCKS.glob("*.txt"):
        text = lock.read_text()
        assert len(list(pins(text))) == sum(line[0].isalnum() for line in text.splitlines())
