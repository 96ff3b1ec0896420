"""Each seeded fault still has its place in the machine; `mutate.py` shows that each is noticed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import kafka_coop

HERE = Path(__file__).parent
PACKAGE = Path(kafka_coop.__file__).parent
FAULTS = tomllib.loads((HERE / "mutations" / "mutations.toml").read_text())["mutation"]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["name"] for fault in FAULTS])
def test_a_seeded_fault_can_be_applied(fault: dict[str, str]) -> None:
    assert (PACKAGE / fault["file"]).read_text().count(fault["before"]) == 1
    assert fault["before"] != fault["after"]
