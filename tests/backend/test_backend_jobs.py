"""Jobs that wait for their turn with librdkafka: a Ctrl-C while one is asked for."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta

import pytest
from striking import striking

from kafka_coop.backend import jobs as module
from kafka_coop.backend import promises
from kafka_coop.backend.jobs import Jobs
from kafka_coop.testing.cluster import wait_until
from kafka_coop.turns import TurnLock


class Strike(KeyboardInterrupt):
    """Which are counted."""

    count = 0

    def __init__(self) -> None:
        super().__init__()
        Strike.count += 1


PLACES = 20
"""More than there are in `Jobs.submit` at which a signal's handler may run."""


@pytest.mark.parametrize("place", range(1, PLACES))
def test_a_ctrl_c_in_the_middle_of_asking_keeps_nobody_else_waiting(place: int) -> None:
    jobs = Jobs(TurnLock(), lambda *_: True, "jobs")
    jobs.start()
    files = {module.__file__, threading.__file__}
    within = timedelta(seconds=10)
    with contextlib.suppress(KeyboardInterrupt), striking(place, files, KeyboardInterrupt):
        jobs.submit("t", lambda _: 1, within)
    done: list[int] = []
    other = threading.Thread(
        target=lambda: done.append(jobs.submit("t", lambda _: 2, within).result(10)), daemon=True
    )
    other.start()
    other.join(10)
    assert done == [2]
    jobs.stop(within)
    assert not jobs._worker.is_alive()


@pytest.mark.parametrize("place", range(1, 4 * PLACES))
def test_a_job_that_a_ctrl_c_strikes_ends_or_stays_in_the_line(place: int) -> None:
    """Taken out of it and not done, it would be waited for without end."""
    lock, heard = TurnLock(), iter([False])
    jobs = Jobs(lock, lambda *_: next(heard, True), "jobs")
    promise = jobs.submit("t", lambda _: 1, timedelta(seconds=10))
    before, raised = Strike.count, 0
    with lock:
        try:
            with striking(place, {module.__file__, promises.__file__}, Strike):
                jobs.run()
        except Strike:
            raised = 1
        struck = Strike.count - before
        jobs.run()
    assert promise.done()
    assert struck == raised or isinstance(promise.exception(0), Strike), "it is heard of"


def test_what_a_signals_handler_asks_for_comes_after_what_it_interrupts() -> None:
    """The later of two commits would be undone by the earlier one."""
    lock, done, interrupted = TurnLock(), list[int](), iter([True])
    within = timedelta(seconds=10)

    def hears(*_: object) -> bool:
        if next(interrupted, False):
            jobs.submit("t", lambda _: done.append(2), within)
        return True

    jobs = Jobs(lock, hears, "jobs")
    with lock:
        jobs.submit("t", lambda _: done.append(1), within)
    assert done == [1, 2]
    assert not jobs._line


def test_others_have_the_lock_before_a_long_line_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user who commits each record: polls would be kept out until the last."""
    monkeypatch.setattr(module, "_A_TURN", 0.0)
    lock, within, done = TurnLock(), timedelta(seconds=30), list[int]()
    jobs = Jobs(lock, lambda *_: True, "jobs")
    begun, go_on = threading.Event(), threading.Event()

    def first(_: bool) -> None:  # as `Jobs` calls it
        begun.set()
        assert go_on.wait(30)

    def look() -> None:
        with lock:
            seen.append(len(done))

    jobs.submit("t", first, within)
    last = [jobs.submit("t", lambda _: done.append(1), within) for _ in range(1000)][-1]
    seen: list[int] = []
    jobs.start()
    assert begun.wait(30)
    other = threading.Thread(target=look)
    other.start()
    wait_until(lambda: bool(lock._waiting), "nobody waits for the lock")
    go_on.set()
    other.join(30)
    last.result(30)
    jobs.stop(within)
    assert seen[0] < 1000


def test_who_has_the_lock_does_what_was_asked_for_before_and_no_more() -> None:
    """A rebalance waits for it; others may go on asking for as long as it lasts."""
    lock, within, done = TurnLock(), timedelta(seconds=30), list[str]()

    def hears(*_: object) -> bool:
        asks = threading.Thread(
            target=lambda: jobs.submit("t", lambda _: done.append("later"), within)
        )
        asks.start()
        asks.join(30)
        return True

    jobs = Jobs(lock, hears, "jobs")
    jobs.submit("t", lambda _: done.append("before"), within)
    with lock:
        jobs.run()
    assert done == ["before"]
