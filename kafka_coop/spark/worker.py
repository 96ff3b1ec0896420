"""The Python worker that runs tasks: what is done once in its life."""

from __future__ import annotations

import functools
import gc


@functools.cache
def spare_collections() -> None:
    """Takes what has been imported by now out of the garbage collector's sight.

    PySpark's daemon collects after each task, and walks every object of every module then: 60 ms,
    more than a task over some ten thousand records takes. Called at the end of a worker's first
    task, when all modules are there; what is garbage by then is collected before. Objects that
    are alive and become part of a cycle later stay until the worker ends, some kilobytes.
    """
    gc.collect()
    gc.freeze()
