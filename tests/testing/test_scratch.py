from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_coop.testing.scratch import ENOUGH, scratch_folder


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


def test_in_memory_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    with_free(monkeypatch, ENOUGH)
    assert scratch_folder("x-", tmp_path).parent == tmp_path


@pytest.mark.parametrize("why", ["no room", "told otherwise", "no such place"])
def test_elsewhere_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    with_free(monkeypatch, ENOUGH - (why == "no room"))
    if why == "told otherwise":
        monkeypatch.setenv("TMPDIR", "/tmp")
    memory = tmp_path / "none" if why == "no such place" else tmp_path
    folder = scratch_folder("x-", memory)
    folder.rmdir()
    assert folder.parent != memory
