"""A signal handler's exception, at a place of one's choice."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
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
