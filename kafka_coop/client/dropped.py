"""A consumer that was dropped, and not closed, leaves its group, as confluent's does.

A service that catches an error and makes itself a new consumer has one each time. The membership's
thread would go on beating in its name, and nobody read its partitions for
``max.poll.interval.ms``. So it is not to be kept by what runs, nor by what is global: these
know it weakly. Nothing is committed for it: that its user has done with the last record can't be
told.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from kafka_coop.backend.interface import Backend
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.metrics.scrape import MemberSnapshot

C = TypeVar("C")
T = TypeVar("T")


def leave_when_dropped(
    consumer: object, backend: Backend, metrics: MemberMetrics, log: logging.Logger
) -> weakref.finalize[Any, Any]:
    """To be detached when the consumer is closed. At the end of the interpreter nothing is done."""

    def ended() -> None:
        metrics.close()
        log.warning(
            "a consumer of group %s was dropped without close(): it has left, and what was "
            "delivered since its last commit is delivered again",
            metrics.labels.group,
        )

    finalizer = weakref.finalize(consumer, backend.abandon, ended)
    finalizer.atexit = False
    return finalizer


def asking_weakly(snapshot: Callable[[], MemberSnapshot]) -> Callable[[], MemberSnapshot]:
    """A consumer's method, for a registry, which may live for ever."""
    method = weakref.WeakMethod(snapshot)
    return lambda: MemberSnapshot() if (alive := method()) is None else alive()


def knowing_weakly(consumer: C, what: Callable[[C, T], None]) -> Callable[[T], None]:
    """``what`` with this consumer, whose own methods alone may call it."""
    me = weakref.ref(consumer)

    def called(argument: T) -> None:
        alive = me()
        assert alive is not None, "a method of it is running"
        what(alive, argument)

    return called
