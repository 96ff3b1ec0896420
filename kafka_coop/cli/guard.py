"""What stands around every command: no traceback reaches whoever typed it."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec

import typer
from rich.text import Text

from kafka_coop.cli.exits import CommandError, Exit
from kafka_coop.cli.words import make_console
from kafka_coop.printable import shown
from kafka_coop.terminal import write_no_more

P = ParamSpec("P")


def guarded(command: Callable[P, int | None]) -> Callable[P, None]:
    """Turns what a command returns or raises into an exit status, and errors into one line."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        # SIGTERM ends a command as Ctrl-C does: screens are put back, brokers are stopped.
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            raise typer.Exit(_status(command, *args, **kwargs))
        finally:
            signal.signal(signal.SIGTERM, before)

    return run


def _status(command: Callable[P, int | None], *args: P.args, **kwargs: P.kwargs) -> int:
    if sys.stdout is None:
        complain("there is no standard output to write to: it is closed")
        return int(Exit.USAGE)
    try:
        status = command(*args, **kwargs) or Exit.OK
        sys.stdout.flush()
    except CommandError as error:
        complain(str(error))
        return int(error.status)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        write_no_more()
        return int(Exit.PIPE_CLOSED)
    except OSError as error:
        return out_of_order(error)
    return int(status)


def out_of_order(error: OSError) -> int:
    """Says that the output, or whatever else, can't be written or read: a full disk, as a rule.

    Returns:
        The exit status.
    """
    try:
        sys.stdout.flush()
    except OSError:
        write_no_more()
    where = f" {error.filename}" if error.filename else ""
    complain(f"can't read or write{where}: {error.strerror or error}")
    return int(Exit.USAGE)


def complain(text: str) -> None:
    """One line on stderr."""
    line = Text.assemble(("kafka-coop: ", "bold red"), shown(text))
    make_console(stderr=True).print(line, soft_wrap=True)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
