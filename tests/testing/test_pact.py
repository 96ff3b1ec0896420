"""Processes that die with the one that started them: nothing of them is left, whatever happens."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.pact import DeathPact

PATIENCE = 30.0


def test_a_close_waits_for_nobody_else_who_has_the_pipes_end(tmp_path: Path) -> None:
    """A forked child has: `LocalKafka.close` hung where a worker of multiprocessing lived on."""
    folder = tmp_path / "data"
    folder.mkdir()
    pact = DeathPact(folder)
    assert pact._shell.stdin is not None
    as_a_child_has_it = os.dup(pact._shell.stdin.fileno())
    closing = threading.Thread(target=pact.close)
    closing.start()
    try:
        closing.join(PATIENCE)
        assert not closing.is_alive(), "it waits for the child"
        assert not folder.exists()
        pact.close()
    finally:
        os.close(as_a_child_has_it)


def test_a_folder_goes_wherever_programs_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    DeathPact(folder).close()
    assert not folder.exists()


def test_nothing_is_left_of_a_folder_that_a_member_writes_to_until_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(2000):  # so that removing takes a while
        folder.joinpath(f"old-{number}").touch()
    pact = DeathPact(folder)
    writes = 'n=0; while :; do n=$((n + 1)); : >"$1/new-$n"; done'
    member = subprocess.Popen(
        ["/bin/sh", "-c", writes, "sh", str(folder)],
        stderr=subprocess.DEVNULL,
        process_group=pact.group,
    )
    wait_until(folder.joinpath("new-9").exists, "the member does not write")
    pact.close()
    assert member.wait(PATIENCE) < 0
    assert not folder.exists()
