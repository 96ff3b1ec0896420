"""A consumer does not survive a fork: its threads stay behind, its sockets are shared.

Both processes would speak on one connection as one member. The child's copy is made unusable:
every method raises, and nothing of it is closed or sent.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

_consumers: weakref.WeakSet[Any] = weakref.WeakSet()
_kept: list[Any] = []

_TEXT = (
    "this consumer was made before a fork and belongs to the parent process: "
    "make one in the child (multiprocessing: use the 'spawn' start method)"
)


def register(consumer: Any) -> None:
    """From now on a fork makes the child's copy of this consumer unusable."""
    _consumers.add(consumer)


def forget(consumer: Any) -> None:
    """The consumer is closed."""
    _consumers.discard(consumer)


def _keep_for_ever(consumer: Any) -> None:
    """Not even the end of the interpreter frees it, as it frees what modules hold.

    librdkafka's handle has no threads left in a child, and to free one that was assigned partitions
    ends the process by an assertion in C: so it is with a confluent consumer at `sys.exit`.
    """
    try:
        import ctypes  # noqa: PLC0415  # in forked children alone
    except ImportError:  # some builds of Python lack it
        _kept.append(consumer)
    else:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))


def _disable_in_child() -> None:
    for consumer in list(_consumers):
        consumer._unusable = _TEXT  # noqa: SLF001  # the one who may
        consumer._handover.unusable = _TEXT  # noqa: SLF001  # the same
        consumer._polling.disturb(for_good=True)  # noqa: SLF001  # the same
        _keep_for_ever(consumer)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disable_in_child)
