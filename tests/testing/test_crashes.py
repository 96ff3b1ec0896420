"""A worker that dies costs its test, not the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os, pytest
@pytest.mark.parametrize("n", range(40))
def test_that_is_fine(n): pass
def test_that_dies(): os._exit(11)
@pytest.mark.xdist_group("group")
@pytest.mark.parametrize("n", range(6))
def test_of_a_group(n): assert n != 3 or os._exit(11)
"""


def test_the_others_run_and_the_run_ends(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    words = ["-p", "xdist", "-p", "crashes", "-n", "2", "--dist", "loadgroup"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env=environment,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    assert "2 failed, 45 passed" in ended.stdout
    for died in ("test_that_dies", "test_of_a_group[3]"):
        assert f"FAILED test_it.py::{died}" in ended.stdout
