"""A test that no signal can interrupt does not hold up the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from inner_run import inner_run

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


@pytest.mark.parametrize(
    ("test", "limit"),
    [
        (HANGS.format(mark=""), "1"),
        (HANGS.format(mark="@pytest.mark.timeout(1)"), "900"),
        (IN_TEARDOWN, "1"),
    ],
    ids=["limit", "limit of its own", "in its teardown, after a failure"],
)
def test_its_process_ends_and_tells_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: str, limit: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_it.py").write_text(test)
    Path("pytest.ini").write_text(f"[pytest]\ntimeout = {limit}\n")
    ended = inner_run("-p", "pytest_timeout", "-p", "hangs", "--grace", "1")
    assert ended.returncode == 1
    assert "in hang" in ended.stderr
