"""docs/TRAPS.md names tests that exist, and every test that names a trap."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "TRAPS.md").read_text(encoding="utf-8")
TRAP = re.compile(r"^\| (?P<number>\d+) \| .+ \|$", re.MULTILINE)
TEST = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?:(?P<group>\w+)::)?(?P<name>\w+)`")
MENTION = re.compile(r"\btrap (\d+)", re.IGNORECASE)

NUMBERS = [int(row["number"]) for row in TRAP.finditer(PAGE)]
TESTS = sorted({test.groups(default="") for test in TEST.finditer(PAGE)})
FILES = {
    int(row["number"]): {test["file"] for test in TEST.finditer(row[0])}
    for row in TRAP.finditer(PAGE)
}
MENTIONS = sorted(
    {
        (path.relative_to(ROOT).as_posix(), int(number))
        for path in (ROOT / "tests").rglob("*.py")
        for number in MENTION.findall(path.read_text(encoding="utf-8"))
    }
)


def test_there_are_43_each_once_and_in_order() -> None:
    assert tuple(NUMBERS) == tuple(range(1, 44))


@pytest.mark.parametrize(("file", "group", "name"), TESTS)
def test_a_test_that_is_named_exists(file: str, group: str, name: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    indent = "    " if group else ""
    assert not group or re.search(rf"^class {group}\b", text, re.MULTILINE)
    assert re.search(rf"^{indent}(?:async )?def {name}\(", text, re.MULTILINE)


def test_whoever_names_traps_was_found() -> None:
    assert len(MENTIONS) > 10


@pytest.mark.parametrize(("file", "number"), MENTIONS)
def test_whoever_names_a_trap_is_named_in_its_row(file: str, number: int) -> None:
    assert file in FILES.get(number, ())
