"""A test that no signal can interrupt does not hold up the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HANGS = """
import pytest, signal, threading
def hang():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as a call into C that waits
    threading.Event().wait()
{mark}
def test_it():
    hang()
"""
IN_TEARDOWN = HANGS.format(mark="@pytest.fixture\ndef f():\n    yield\n    hang()\n").replace(
    "def test_it():\n    hang()", "def test_it(f):\n    assert False"
)


@pytest.mark.parametrize(("mark", "limit"), [("", "0.1"), ("@pytest.mark.timeout(0.1)", "900")])
def test_its_process_ends_and_tells_where(tmp_path: Path, mark: str, limit: str) -> None:
    (tmp_path / "test_it.py").write_text(HANGS.format(mark=mark))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ntimeout = {limit}\n")
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_timeout", "-p", "hangs", "--grace", "1"],
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env=environment,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "in hang" in ended.stderr
