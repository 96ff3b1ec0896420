"""Output whose reader may go away before the end: ``kafka-coop … | head``."""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn

from rich.console import Console

PIPE_CLOSED: Final = 141
"""The exit status then: what a shell says of SIGPIPE."""


class PipeConsole(Console):
    """A console that leaves the rest to its caller."""

    def on_broken_pipe(self) -> NoReturn:
        """Raises BrokenPipeError: rich's own would end the process with status 1."""
        raise BrokenPipeError


def write_no_more() -> None:
    """Ends standard output. Else the interpreter's own flush at its end would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
