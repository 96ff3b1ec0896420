"""A signal handler's exception, at a place of one's choice, or of chance."""

from __future__ import annotations

import gc
import itertools
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def striking(number: int, files: Collection[str], error: type[BaseException]) -> Iterator[None]:
    """Raises the error once, in this thread, where the interpreter may run a signal's handler.

    It looks for one where a function begins, and behind a call of one that is written in C.

    Args:
        number: Of the place, counted in the order in which they are come by, from 1 on.
        files: Whose places count.
        error: What is raised.
    """
    left = number

    def strike(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename in files:
            left -= 1
            if left == 0:
                raise error

    before = sys.getprofile()
    sys.setprofile(strike)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextmanager
def calling_at(file: str, function: str, event: str, call: Callable[[], object]) -> Iterator[None]:
    """Calls something once, in this thread, where a function begins or ends: ``call``, ``return``.

    Args:
        file: What its file's name ends with.
    """

    def look(frame: FrameType, happens: str, _: Any) -> None:
        code = frame.f_code
        if (happens, code.co_name) == (event, function) and code.co_filename.endswith(file):
            sys.setprofile(None)
            call()

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextmanager
def handled(number: int, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Has a signal's handler for a while. Whoever sends the signal has ended that before.

    What strikes in a finalizer is printed, and raised nowhere: no garbage is collected meanwhile.
    """
    before = signal.signal(number, handler)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        # One that another thread has yet to take would end the process under its default action:
        # what is pending is dropped by whoever ignores it.
        signal.signal(number, signal.SIG_IGN)
        signal.signal(number, before)


def wherever_it_strikes(what: Callable[[], object]) -> Iterator[None]:
    """Does it again and again, struck one step later each time, until it comes to its end."""
    for step in itertools.count(1):
        before, left = sys.gettrace(), step

        def strike(_: FrameType, __: str, ___: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return strike

        try:
            sys.settrace(strike)
            what()
        except KeyboardInterrupt:
            yield
        else:
            return
        finally:
            sys.settrace(before)
