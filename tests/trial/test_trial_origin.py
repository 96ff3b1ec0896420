"""A result says which code it was taken from."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kafka_coop.testing.trial.origin import origin_now


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    code = tmp_path / "kafka_coop"
    code.mkdir()
    (code / "a.py").write_text("1\n")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_the_commit_the_brokers_and_the_date_are_told(clone: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    origin = origin_now("4.1.0", clone)
    assert origin.commit == git(clone, "rev-parse", "HEAD")
    assert origin.clean
    assert origin.kafka == "4.1.0"
    assert before <= datetime.fromisoformat(origin.date) <= datetime.now(UTC)


@pytest.mark.parametrize("file", ["kafka_coop/a.py", "kafka_coop/b.py"], ids=["changed", "added"])
def test_code_that_is_not_the_commits_is_told(clone: Path, file: str) -> None:
    (clone / file).write_text("2\n")
    assert not origin_now("4.1.0", clone).clean


def test_what_is_not_code_changes_no_result(clone: Path) -> None:
    (clone / "result.json").write_text("{}")
    assert origin_now("4.1.0", clone).clean


def test_code_in_no_clone_of_its_own_has_no_commit(clone: Path, tmp_path: Path) -> None:
    (within := clone / "site-packages").mkdir()
    assert origin_now("4.1.0", within).commit == "", "that commit is another project's"
    origin = origin_now("4.1.0", tmp_path / "nowhere")
    assert (origin.commit, origin.clean) == ("", False)
