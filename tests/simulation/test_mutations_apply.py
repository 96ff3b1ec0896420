"""Each seeded fault still has its place in the machine; `mutate.py` shows that each is noticed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from mutations.mutate import Fate, Mutation, catch, judge

import kafka_coop

HERE = Path(__file__).parent
PACKAGE = Path(kafka_coop.__file__).parent
FAULTS = tomllib.loads((HERE / "mutations" / "mutations.toml").read_text())["mutation"]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["name"] for fault in FAULTS])
def test_a_seeded_fault_can_be_applied(fault: dict[str, str]) -> None:
    assert (PACKAGE / fault["file"]).read_text().count(fault["before"]) == 1
    assert fault["before"] != fault["after"]


def test_a_fault_that_breaks_the_import_is_not_caught() -> None:
    broken = Mutation(
        name="a name that is not there",
        file="membership/steps.py",
        before="from dataclasses import dataclass",
        after="from dataclasses import dataclass, no_such_thing",
    )
    fate, by = catch(broken, seeds=1)
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
def test_only_a_violation_is_a_catch(status: int, said: str, fate: Fate) -> None:
    assert judge(status, said, "Traceback\nMemoryError", "seed ")[0] is fate


def test_only_a_failed_test_is_a_catch() -> None:
    failed = "F\nFAILED tests/membership/test_a.py::test_b - assert 1 == 2"
    assert judge(1, failed, "", "FAILED ")[0] is Fate.CAUGHT
    collecting = "E\nERROR tests/membership/test_a.py\n!!! Interrupted: 1 error"
    assert judge(2, collecting, "", "FAILED ")[0] is Fate.BROKEN
