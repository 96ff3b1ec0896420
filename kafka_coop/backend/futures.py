"""Waiting for the membership thread, in a thread that is another."""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import Future
from datetime import timedelta
from typing import TypeVar

from kafka_coop.errors import RequestFailedError, RequestTimedOutError

T = TypeVar("T")

STOPPED = "the consumer is closed"
NOT_HERE = (
    "a strategy's subscription_user_data and on_assignment can't ask the group's coordinator: the "
    "answer would come to the thread that waits for it. Ask where you poll, or in assign"
)


def refused(why: str = STOPPED) -> Future[T]:
    """The answer of a membership that has ended, or can't give any."""
    future: Future[T] = Future()
    future.set_exception(RequestFailedError(why))
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
