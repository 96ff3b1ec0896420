"""The members' processes: started, heard, killed, and never left behind."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

from kafka_coop.demo.reports import Report, Warned, decode

_PATIENCE: Final = 5.0
"""Seconds that members have to leave the group at the end, before they are killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A member's process is over, and everything it said has been heard.

    Attributes:
        status: Its exit status; negative: the signal that ended it.
        expected: It was killed or told to leave.
        last_words: The end of its standard error.
    """

    status: int
    expected: bool
    last_words: str = ""


News: TypeAlias = Report | Ended


class _Process:
    """A member's process, and the thread that listens to it."""

    def __init__(
        self, name: str, command: list[str], errors: Path, heard: queue.Queue[tuple[str, News]]
    ) -> None:
        self.name = name
        self.dismissed = False
        self._errors = errors
        self._heard = heard
        with errors.open("wb") as stderr:
            # A process group of its own: Ctrl-C is the demo's to answer, and members then leave
            # the group like at any other end.
            self.popen = subprocess.Popen(  # noqa: S603  # this interpreter, our own module
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                process_group=0,
            )
        self.listener = threading.Thread(target=self._listen, name=f"hearing {name}")
        self.listener.start()

    def kill(self) -> None:
        self.dismissed = True
        self.popen.kill()

    def dismiss(self) -> None:
        """The end of its input tells a member to leave."""
        self.dismissed = True
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()

    def _listen(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as lines:
            for line in lines:
                if not line.endswith("\n"):
                    break  # a kill cut it short
                try:
                    report = decode(line)
                except ValueError as error:
                    report = Warned(text=str(error))
                self._heard.put((self.name, report))
        status = self.popen.wait()
        words = self._errors.read_text(errors="replace").strip().splitlines()
        last = words[-1] if words else ""
        self._heard.put((self.name, Ended(status=status, expected=self.dismissed, last_words=last)))


class Crew:
    """Starts members and hears them. Leaving its ``with`` block ends them all.

    Args:
        bootstrap: The broker.
        topic: What they read.
        folder: Where they journal.
    """

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._folder = folder
        self._processes: dict[str, _Process] = {}
        self._heard: queue.Queue[tuple[str, News]] = queue.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        deadline = time.monotonic() + _PATIENCE
        try:
            self.dismiss()
            for process in self._processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.popen.wait(max(0.0, deadline - time.monotonic()))
        finally:  # a second Ctrl-C while they leave: they are killed
            for process in self._processes.values():
                process.popen.kill()
                process.listener.join()

    def start(self, name: str) -> int:
        """Starts a member. Returns its process id."""
        command = [sys.executable, "-m", "kafka_coop.demo.member", "--name", name]
        command += ["--bootstrap", self._bootstrap, "--topic", self._topic]
        command += ["--journal", str(self.journal(name))]
        errors = self._folder / f"{name}.stderr"
        self._processes[name] = _Process(name, command, errors, self._heard)
        return self._processes[name].popen.pid

    def journal(self, name: str) -> Path:
        """Where the member journals what it processes."""
        return self._folder / f"{name}.journal"

    def kill(self, name: str) -> None:
        """SIGKILL: the member can't leave the group, commit, or say goodbye."""
        self._processes[name].kill()

    def dismiss(self) -> None:
        """Tells all members to leave."""
        for process in self._processes.values():
            process.dismiss()

    def hear(self, timeout: float) -> list[tuple[str, News]]:
        """What members told since the last call; waits for something up to so many seconds."""
        news = []
        with contextlib.suppress(queue.Empty):
            news.append(self._heard.get(timeout=timeout))
            while True:
                news.append(self._heard.get_nowait())
        return news
