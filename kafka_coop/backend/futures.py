"""Waiting for the membership thread, in a thread that is another."""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import Future
from datetime import timedelta
from typing import TypeVar

from kafka_coop.errors import RequestFailedError, RequestTimedOutError

T = TypeVar("T")

STOPPED = "the consumer is closed"


def refused() -> Future[T]:
    """The answer of a membership that has ended."""
    future: Future[T] = Future()
    future.set_exception(RequestFailedError(STOPPED))
    return future


def result_within(future: Future[T], timeout: timedelta) -> T:
    """Returns the future's result.

    Raises:
        RequestTimedOutError: Not done in time.
        RequestFailedError: The membership has ended.
    """
    try:
        return future.result(timeout.total_seconds())
    except concurrent.futures.TimeoutError:
        future.cancel()
        raise RequestTimedOutError(f"no answer within {timeout}") from None
    except concurrent.futures.CancelledError:
        raise RequestFailedError(STOPPED) from None
