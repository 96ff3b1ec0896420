"""A result to come: who sets it, who waits, who gives it up, and a Ctrl-C in between."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from datetime import timedelta
from functools import partial

import pytest
from striking import striking

from kafka_coop.backend import bell, promises
from kafka_coop.backend.promises import Promise, refused, result_within, wait_for_all
from kafka_coop.errors import RequestFailedError, RequestTimedOutError

PATIENCE = 10.0


def in_another_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"


def test_what_another_thread_sets_is_had() -> None:
    promise: Promise[int] = Promise()
    assert not promise.done()
    threading.Timer(0.01, lambda: promise.set_result(7)).start()
    assert promise.result(PATIENCE) == 7
    assert promise.done()
    assert promise.exception(0) is None
    promise.set_exception(ValueError("too late"))
    assert promise.result(0) == 7


def test_what_fails_raises_each_time() -> None:
    promise: Promise[int] = Promise()
    promise.set_exception(ValueError("why"))
    for _ in range(2):
        with pytest.raises(ValueError, match="why"):
            promise.result(0)
    with pytest.raises(RequestFailedError, match="closed"):
        result_within(refused(), timedelta(0))


def test_who_waits_in_vain_gives_it_up() -> None:
    promise: Promise[int] = Promise()
    given_up: list[bool] = []
    promise.when_cancelled(lambda: given_up.append(True))
    with pytest.raises(RequestTimedOutError):
        result_within(promise, timedelta(0))
    assert given_up == [True]
    assert promise.cancelled()
    promise.set_result(1)
    with pytest.raises(CancelledError):
        promise.result(0)
    promise.when_cancelled(lambda: given_up.append(False))
    assert given_up == [True, False], "at once, for it was before"


def test_what_has_begun_is_not_given_up() -> None:
    promise: Promise[int] = Promise()
    assert promise.begin()
    assert promise.begin(), "another attempt"
    assert not promise.cancel()
    promise.set_result(1)
    assert not promise.begin()
    assert promise.result(0) == 1
    other: Promise[int] = Promise()
    assert other.cancel()
    assert not other.begin()


def test_several_wait_for_one_and_one_for_several() -> None:
    both: list[Promise[int]] = [Promise(), Promise()]
    heard: list[int] = []
    waiting = [
        threading.Thread(target=lambda: heard.append(both[0].result(PATIENCE)), daemon=True)
        for _ in range(3)
    ]
    for thread in waiting:
        thread.start()
    wait_for_all(both, 0)
    for promise in both:
        threading.Timer(0.01, promise.set_result, (1,)).start()
    wait_for_all(both, PATIENCE)
    assert all(promise.done() for promise in both)
    for thread in waiting:
        thread.join(PATIENCE)
    assert heard == [1, 1, 1]


@pytest.mark.parametrize("ask", ["done", "wait", "cancel", "begin", "set_result"])
def test_wherever_it_strikes_whoever_asks_the_result_can_be_set(ask: str) -> None:
    """The membership's thread would wait for a lock that nobody gives back."""
    files = {promises.__file__, bell.__file__, threading.__file__}
    for place in itertools.count(1):
        promise: Promise[int] = Promise()
        try:
            with striking(place, files, KeyboardInterrupt):
                getattr(promise, ask)(*{"wait": (0,), "set_result": (2,)}.get(ask, ()))
        except KeyboardInterrupt:
            in_another_thread(partial(promise.set_result, 1))
            assert promise.done()
        else:
            break
    assert place > 1
