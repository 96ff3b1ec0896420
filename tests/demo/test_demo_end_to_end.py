"""The play itself, on a few thousand flights, and its early ends."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from kafka_coop.demo.__main__ import main
from kafka_coop.demo.crew import Crew, Ended, News
from kafka_coop.demo.group import Group
from kafka_coop.demo.publisher import Publisher
from kafka_coop.demo.scenario import PlayFailedError, Scenario
from kafka_coop.demo.screen import Screen

DEMO = [sys.executable, "-m", "kafka_coop.demo", "--flights", "4000", "--seconds", "2"]
PATIENCE = 100.0

FULL = Path("/dev/full")


def started() -> subprocess.Popen[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def read_a_line(demo: subprocess.Popen[str]) -> None:
    """And no more: its reader goes away."""
    assert demo.stdout is not None
    demo.stdout.readline()
    demo.stdout.close()
    demo.stdout = None


def processes_of(pid: int) -> list[int]:
    """The live children of a process."""
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listing.read_text().split()]


def test_a_whole_run_passes() -> None:
    with started() as demo:
        output, errors = demo.communicate(timeout=PATIENCE)
    assert errors == ""
    assert demo.returncode == 0, output
    assert "4,000 flights published, 4,000 processed at least once, 0 lost" in output
    assert "is gone    signal 9" in output
    for shown in ("on_assign", "on_revoke", "join ", "kafka_coop_moved_partitions_total"):
        assert shown in output
    assert "PASSED" in output


@pytest.mark.skipif(sys.platform != "linux", reason="looks for child processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_behind(number: signal.Signals) -> None:
    with started() as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("  "):  # the first line of status: all three have been started
                break
        members = processes_of(demo.pid)
        demo.send_signal(number)
        output, errors = demo.communicate(timeout=PATIENCE)
    assert len(members) == 3
    assert errors == ""
    assert "Interrupted" in output
    assert demo.returncode == 130
    assert not any(Path(f"/proc/{pid}").exists() for pid in members)


def test_a_reader_that_has_seen_enough() -> None:
    with started() as demo:
        read_a_line(demo)
        _, errors = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, errors) == (141, "")


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_in_one_line() -> None:
    with FULL.open("wb") as full:
        ran = subprocess.run(
            DEMO,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert ran.returncode == 2
    assert ran.stderr == "FAILED: can't read or write: No space left on device\n"


def test_a_reader_that_ctrl_c_ends_too() -> None:
    """As in `make demo | tee log`: a terminal's Ctrl-C is for both."""
    with started() as demo:
        read_a_line(demo)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, errors) == (141, "")


def test_a_member_that_dies_says_why(tmp_path: Path) -> None:
    with Crew("", "flights", tmp_path) as crew:  # no broker to connect to: refused at once
        crew.start("member-1")
        deadline = time.monotonic() + PATIENCE
        news: list[tuple[str, News]] = []
        while not news and time.monotonic() < deadline:
            news = crew.hear(1.0)
    ((name, end),) = news
    assert name == "member-1"
    assert isinstance(end, Ended)
    assert (end.status, end.expected) == (1, False)
    assert "bootstrap.servers" in end.last_words


class DyingCrew(Crew):
    """Members that end as soon as they have been started."""

    def start(self, name: str) -> int:
        self.end = (name, Ended(status=-11, expected=False, last_words="oh"))
        return 1

    def hear(self, timeout: float) -> list[tuple[str, News]]:
        return [self.end]


def test_a_dead_member_ends_the_play(tmp_path: Path) -> None:
    publisher = Publisher("localhost:1", "flights", [b"x"], duration=timedelta(seconds=1))
    with Path(os.devnull).open("w") as nowhere, Screen(Console(file=nowhere)) as screen:
        play = Scenario(
            DyingCrew("", "", tmp_path), publisher, Group(12), screen, began=time.monotonic()
        )
        with pytest.raises(PlayFailedError, match=r"member-3 died unexpectedly \(signal 11\): oh"):
            play.play()


class SilentCrew(Crew):
    """Members that say nothing."""

    def start(self, name: str) -> int:
        return 1

    def hear(self, timeout: float) -> list[tuple[str, News]]:
        return []


def test_patience_begins_when_publishing_is_to_be_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0.0, 50.0).__next__
    monkeypatch.setattr("kafka_coop.demo.scenario.time", SimpleNamespace(monotonic=clock))
    publisher = Publisher("localhost:1", "flights", [b"x"], duration=timedelta(seconds=900))
    with Path(os.devnull).open("w") as nowhere, Screen(Console(file=nowhere)) as screen:
        play = Scenario(SilentCrew("", "", tmp_path), publisher, Group(12), screen, began=0.0)
        with pytest.raises(
            PlayFailedError, match="gave up after 1000 s, waiting for three members"
        ):
            play.play()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--flights", count) for count in ("0", "336777", "many")),
        *(("--seconds", seconds) for seconds in ("nan", "inf", "0", "-5", "1e9", "long")),
    ],
)
def test_impossible_numbers_are_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main([option, value])
    assert refused.value.code == 2
    assert f"argument {option}: between " in capsys.readouterr().err
