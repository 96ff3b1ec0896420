"""What the terminal is like: its width and its colours."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_groups import settled

from kafka_coop.cli.app import run
from kafka_coop.cli.describing import print_description
from kafka_coop.cli.exits import Exit
from kafka_coop.cli.forecast import forecast
from kafka_coop.cli.keys import Keys
from kafka_coop.cli.words import make_console

_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:[34][0-8]|9[0-7])[;m]")
PLAN = ["plan", "--members", "3", "--topic", "orders=12", "--join", "newcomer"]


def spawn(arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    kept = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}}
    return subprocess.Popen(
        [sys.executable, "-m", "kafka_coop.cli.entry", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
    )


def test_colours_are_left_out_where_they_are_not_wanted() -> None:
    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    complaint = ["describe", "g", "-b", "127.0.0.1:1"]
    _, coloured = spawn(complaint, **forced).communicate(timeout=60)
    _, plain = spawn(complaint, **forced, NO_COLOR="1").communicate(timeout=60)
    assert _COLOUR.search(coloured)
    assert not _COLOUR.search(plain)


@pytest.mark.parametrize("width", [40, 72])
def test_a_plan_fits_into_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(PLAN) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert "the member is new" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("columns", [None, "", "0", "wide"])
def test_in_a_pipe_the_lines_of_a_plan_are_whole(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    assert run(PLAN) == Exit.OK
    moves = [line for line in capsys.readouterr().out.splitlines() if "the member is new" in line]
    assert [line.split()[:2] for line in moves] == [[f"member-{n}", "newcomer"] for n in range(3)]
    assert all(line.endswith("withheld until it is revoked") for line in moves)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_encoding_lacks_is_escaped(encoding: str) -> None:
    members = [*PLAN, "--members", "70", "--join", "Žofie"]  # … more rows than are shown
    text, complaint = spawn(members, PYTHONIOENCODING=encoding).communicate(timeout=60)
    assert (complaint, "\\u2026 11 more" in text, "\\u017dofie joins" in text) == ("", True, True)
    text, complaint = spawn([*members, "--json"], PYTHONIOENCODING=encoding).communicate(timeout=60)
    assert complaint == ""
    assert json.loads(text)["steps"][-1]["what"] == "Žofie joins"


def test_files_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    """The page says so of itself; and a password is the same bytes everywhere."""
    (tmp_path / "client.properties").write_text("bootstrap.servers=Žofie:1\n", encoding="utf-8")
    bare = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    page = tmp_path / "plan.html"
    _, complaint = spawn([*PLAN, "--picture", str(page)], **bare).communicate(timeout=60)
    assert complaint == ""
    assert "→" in page.read_text(encoding="utf-8")
    asked = ["groups", "--config-file", str(tmp_path / "client.properties")]
    _, complaint = spawn(asked, **bare).communicate(timeout=60)
    assert "can't reach" in complaint


def test_in_a_pipe_the_lines_of_a_description_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For grep."""
    monkeypatch.delenv("COLUMNS", raising=False)
    names = {f"a-service-with-a-long-name-7d9f8b6c4-{end}": ("t" * 80,) for end in "xyz"}
    seen = settled("range", {"t" * 80: 6}, names)
    print_description(make_console(), seen, forecast(seen), partitions=True)
    lines = capsys.readouterr().out.splitlines()
    for name in names:
        assert any(name in line and "t" * 80 in line for line in lines)


def test_no_key_is_lost_and_arrows_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at a group takes a second or two: what is typed meanwhile comes at once."""
    terminal, typed = pty.openpty()
    with os.fdopen(terminal, "wb", buffering=0) as fingers, os.fdopen(typed) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with Keys() as keys:
            fingers.write(b"/or\x1b[A\x1bOP\x1b[1;5Cq\x1b")
            assert [keys.wait(30) for _ in range(5)] == ["/", "o", "r", "q", "\x1b"]
            fingers.write(b"\x1b[B")
            assert keys.wait(30) == ""
            assert keys.wait(0) == ""
