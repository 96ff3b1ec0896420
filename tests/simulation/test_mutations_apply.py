"""Each seeded fault still has its place in the machine; `mutate.py` shows that each is noticed."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

import kafka_coop

mutate: Any = importlib.import_module("mutations.mutate")  # a command, with no place in a package
Fate = mutate.Fate

HERE = Path(__file__).parent
PACKAGE = Path(kafka_coop.__file__).parent
FAULTS = tomllib.loads((HERE / "mutations" / "mutations.toml").read_text())["mutation"]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["name"] for fault in FAULTS])
def test_a_seeded_fault_can_be_applied(fault: dict[str, str]) -> None:
    text = (PACKAGE / fault["file"]).read_text()
    assert text.count(fault["before"]) == 1
    assert fault["before"] != fault["after"]
    # Else nothing is shown: what is no Python is broken, not caught.
    compile(text.replace(fault["before"], fault["after"]), fault["file"], "exec")


def test_a_fault_that_breaks_the_import_is_not_caught() -> None:
    broken = mutate.Mutation(
        name="a name that is not there",
        file="membership/steps.py",
        before="from dataclasses import dataclass",
        after="from dataclasses import dataclass, no_such_thing",
    )
    fate, by = mutate.catch(broken, seeds=1)
    assert fate is Fate.BROKEN
    assert "ImportError" in by


@pytest.mark.parametrize(
    ("status", "said", "fate"),
    [
        (0, "1500 schedules, 0 violations", Fate.SURVIVED),
        (1, "seed 3: at 1.2 s: invariant 1: two\n1 schedules, 1 violations", Fate.CAUGHT),
        (1, "", Fate.BROKEN),
        (2, "usage: check", Fate.BROKEN),
        (-9, "seed 3: at 1.2 s: invariant 1: two", Fate.BROKEN),
    ],
)
def test_only_a_violation_is_a_catch(status: int, said: str, fate: object) -> None:
    assert mutate.judge(status, said, "Traceback\nMemoryError", "seed ")[0] is fate


def test_only_a_failed_test_is_a_catch() -> None:
    failed = "F\nFAILED tests/membership/test_a.py::test_b - assert 1 == 2"
    assert mutate.judge(1, failed, "", "FAILED ")[0] is Fate.CAUGHT
    collecting = "E\nERROR tests/membership/test_a.py\n!!! Interrupted: 1 error"
    assert mutate.judge(2, collecting, "", "FAILED ")[0] is Fate.BROKEN
