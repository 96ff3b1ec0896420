"""A worker that dies costs its test, not the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from inner_run import inner_run

TESTS = """
import os, pytest
@pytest.mark.parametrize("n", range(40))
def test_that_is_fine(n): pass
def test_that_dies(): os._exit(11)
@pytest.mark.xdist_group("group")
@pytest.mark.parametrize("n", range(6))
def test_of_a_group(n): assert n != 3 or os._exit(11)
"""


def test_the_others_run_and_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_it.py").write_text(TESTS)
    Path("pytest.ini").write_text("[pytest]\n")
    ended = inner_run("-p", "xdist", "-p", "crashes", "-n", "2", "--dist", "loadgroup")
    assert ended.returncode == 1
    assert "2 failed, 45 passed" in ended.stdout
    for died in ("test_that_dies", "test_of_a_group[3]"):
        assert f"FAILED test_it.py::{died}" in ended.stdout
