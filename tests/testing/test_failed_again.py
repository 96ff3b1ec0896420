"""What CI tries a second time, and what not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import failed_again

SHAKY = "import pathlib\ndef test_it():\n    pathlib.Path('ran').touch()\n    assert {}\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to load


def again(*failed: str) -> int:
    """The status of the second run, after these failed in the first."""
    failed_again.FAILED.parent.mkdir(parents=True)
    failed_again.FAILED.write_text(json.dumps(dict.fromkeys(failed, True)))
    return failed_again.main()


def written(name: str, result: str) -> str:
    """A test with that result, which leaves a mark when it runs."""
    file = Path(name)
    file.parent.mkdir(parents=True)
    file.write_text(SHAKY.format(result))
    return f"{name}::test_it"


@pytest.mark.parametrize(("result", "status"), [("True", 0), ("False", 1)])
def test_what_failed_runs_once_more(result: str, status: int) -> None:
    node = written("tests/broker/test_shaky.py", result)
    assert again(f"{node}@java") == status
    assert Path("ran").exists()


@pytest.mark.parametrize("file", ["trial/test_trial_faults.py", "mixed/test_shaky.py"])
def test_a_verdict_is_final(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    node = written(f"tests/{file}", "True")
    other = written("tests/broker/test_shaky.py", "True")
    assert again(f"{node}@trial", other) == 1
    said = capsys.readouterr().out
    assert node in said
    assert other not in said
    assert not Path("ran").exists()


def test_a_failure_that_is_no_tests_stays_one() -> None:
    assert again() == 1
