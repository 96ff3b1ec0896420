"""Why a member with transactions may end by itself, and what its process says of it.

Its exit status, one for each reason, none of which Python, a signal or a shell ever gives: a
traceback of ours, or a crash, is never taken for one of them.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

OUTCOME_UNKNOWN: Final = 80
NOT_ROLLED_BACK: Final = 81
HANGS: Final = 82
NOT_PLACED: Final = 83

REASONS: Final = {
    OUTCOME_UNKNOWN: "a transaction's outcome could not be learned",
    NOT_ROLLED_BACK: "a transaction failed, and what became of it could not be learned",
    HANGS: "librdkafka hung while it sent offsets (librdkafka#5456)",
    NOT_PLACED: "after a rollback the committed offsets could not be gone back to",
}
"""Each in words, by its exit status."""


def end(status: int, words: str) -> NoReturn:
    """Ends the process: in order, for a reason.

    Raises:
        SystemExit: Always.
    """
    sys.stderr.write(f"{words}\n")
    raise SystemExit(status)


@contextmanager
def ends_if_it_hangs(seconds: float) -> Iterator[None]:
    """What runs in it for so long is ended, with the whole process and its threads' last words.

    faulthandler has such a watchdog, which ends the process as an exception does, with 1. For this
    one the call that hangs must let other threads run, as confluent's do: who holds Python's lock
    for ever is evicted, and hangs at its close, where its crew finds it.
    """
    timer = threading.Timer(seconds, _end_at_once)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end_at_once() -> None:
    faulthandler.dump_traceback()
    os._exit(HANGS)
