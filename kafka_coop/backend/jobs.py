"""Commits and queries that wait for their turn with librdkafka, and for the group's coordinator.

librdkafka's commit waits for a coordinator for 45 s, whatever its caller says, and whoever is
inside librdkafka keeps all others out: the polls, the close. So the coordinator is asked something
first, which has a time limit, and nothing is sent while it does not answer. A thread of our own
asks again and again, and gives the lock back in between; a thread that has the lock itself (in a
rebalance, in a callback inside librdkafka) does so, too, for as long as the job may take.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from kafka_coop.backend.promises import Promise, refused

T = TypeVar("T")

LOOK = 0.5
LONGEST_LOOK = 2.0
"""Seconds for one question while others wait for the lock, polls among them: more each time, or a
coordinator that takes longer than the first, far away or overloaded, would never be heard."""

_A_TURN = 0.5
"""Seconds for which the worker does jobs that go well, before others have the lock: thousands of
commits, asked for one a record, would keep polls out for longer than max.poll.interval.ms."""

_PAUSE = 2
"""The time that others have then, in the question's own."""

_SOON = 0.05
"""Seconds until the next attempt where the coordinator is there, or nobody else can use them."""

_CLOSING = 5.0
"""Seconds for the last question, of a consumer that is being closed."""


class Lock(Protocol):
    """What lets one thread at a time into librdkafka, as often as that thread likes."""

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @property
    def mine(self) -> bool:
        """Whether this thread holds it."""


@dataclass(frozen=True, slots=True)
class Later(Generic[T]):
    """What work returns that is worth another attempt, soon.

    Attributes:
        otherwise: Makes the result where there is no time for one.
    """

    otherwise: Callable[[], T]


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    topic: str
    work: Callable[[bool], Any]
    ends: float
    promise: Promise[Any]
    yields: bool
    inside: int
    """The thread that had the lock when it asked, and will until it is done; 0: none."""

    @property
    def waits_elsewhere(self) -> bool:
        """Whether nobody in this thread has to have it done."""
        return self.yields and self.inside != threading.get_ident()


class Jobs:
    """One consumer's. They are done in the order asked for, but for those that yield.

    Args:
        lock: Of librdkafka.
        hears: Whether the coordinator answers a question about a topic, within so many seconds;
            called with the lock held.
        name: Of the thread.
    """

    def __init__(self, lock: Lock, hears: Callable[[str, float], bool], name: str) -> None:
        self._lock = lock
        self._hears = hears
        self._line: deque[_Job] = deque()
        # Entered by itself, and not by its condition's __enter__: see `kafka_coop.backend.bell`.
        self._own = threading.RLock()  # a signal handler may ask for a job, too
        self._changed = threading.Condition(self._own)
        self._heard = True
        self._look = LOOK
        self._known: bool | None = None
        self._stopped = False
        self._worker = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Begins to do them."""
        self._worker.start()

    def submit(
        self,
        topic: str,
        work: Callable[[bool], T | Later[T]],
        within: timedelta,
        *,
        yields: bool = False,
    ) -> Promise[T]:
        """Has it done when its turn comes, at once where this thread has the lock.

        Args:
            topic: What it is about.
            work: Is told whether the coordinator answers, and makes the promise's result.
            within: How long that is waited for.
            yields: A question whose answer may take long: while it is put off (`Later`) those
                behind it go first, and a rebalance does not wait for what another thread asks.
        """
        with self._own:
            if self._stopped:
                return refused()
            promise: Promise[T] = Promise()
            ends = time.monotonic() + within.total_seconds()
            inside = threading.get_ident() if self._lock.mine else 0
            self._line.append(_Job(topic, work, ends, promise, yields, inside))
            self._changed.notify_all()
        self.let_in()
        return promise

    def let_in(self) -> None:
        """Where this thread has the lock: the worker would wait for us, and we for it."""
        if self._lock.mine:
            self.run()

    def run(self) -> None:
        """Does all that are in line now, but what yields and waits elsewhere; with the lock held.

        Not what comes meanwhile: others may go on asking, and a rebalance waits for us. A Ctrl-C
        is heeded between two questions, and a slow coordinator needs a long one. So each is as long
        as all before it.
        """
        look, heard = LOOK, True
        these = frozenset([job for job in self._in_line() if not job.waits_elsewhere])
        while (done := self._attempt_first(look, these, in_its_time=not heard)) is not None:
            if not done:
                self._pause(_SOON)  # librdkafka may say at once that nobody is there
            heard = self._heard
            look = LOOK if heard else 2 * look

    def close(self, topic: str | None) -> None:
        """Does them all, and asks for the last time; with the lock held.

        librdkafka's close answers no question. So those that come while it runs go by this answer.
        Who was not heard just now has had its time.

        Args:
            topic: One that is owned; None: nothing is.
        """
        if topic is not None or self._line:
            within = _CLOSING if self._heard else LOOK
            try:
                self._known = self._hears(topic or self._line[0].topic, within)
            except BaseException:  # a Ctrl-C: as it was the last time
                self._known = self._heard
                raise
        these = self._in_line()
        while self._attempt_first(0.0, these):  # each for the last time
            pass

    def stop(self, timeout: timedelta) -> None:
        """Does what is left, and ends the thread."""
        with self._own:
            self._stopped = True
            self._changed.notify_all()
        if self._worker.is_alive():
            self._worker.join(timeout.total_seconds())

    def _work(self) -> None:
        while True:
            with self._own:
                self._changed.wait_for(lambda: self._line or self._stopped)
                if not self._line:
                    return
            if self._go_on():
                continue
            if self._heard:
                self._pause(_SOON)
            else:
                self._pause(_PAUSE * self._look)
                self._look = min(2 * self._look, LONGEST_LOOK)

    def _go_on(self) -> bool:
        """Does what can be done in one turn. Returns whether to go on at once, if there is more."""
        within = self._look
        with self._lock:
            ends = time.monotonic() + _A_TURN
            while (done := self._attempt_first(within)) is not None:
                if not done:
                    return False
                if time.monotonic() >= ends:
                    break  # the lock is fair
                within = self._look if self._heard else 0.0  # the others whose time is up, too
        self._look = LOOK
        return True

    def _pause(self, seconds: float) -> None:
        with self._own:
            self._changed.wait_for(lambda: self._stopped, seconds)

    def _attempt_first(
        self,
        within: float,
        these: Container[_Job] | None = None,
        *,
        in_its_time: bool = False,
    ) -> bool | None:
        """Does the first; it stays the first where nobody was heard and there is time for more.

        So it does while it is done. Whatever strikes, a Ctrl-C between two of these lines too, the
        job is in the line, or ends: who waits for it would wait without end. And what a signal's
        handler asks for meanwhile, while the coordinator is waited for, comes after it: a commit
        would else be undone by the older one that it has overtaken.

        Args:
            within: Seconds for the question.
            these: None but these; None: any.
            in_its_time: But for no longer than the job may take.

        Returns:
            Whether it is done; None: there is none.
        """
        with self._own:
            job = self._first(these)
        if job is None:
            return None
        try:
            if in_its_time:
                within = min(within, job.ends - time.monotonic())
            if not (job.promise.done() or self._attempt(job, within)):
                return False
        except BaseException as error:
            done = job.promise.done()
            job.promise.set_exception(error)  # raised where the result is awaited, if there is none
            if done and not isinstance(error, Exception):
                raise
        self._take_out(job)
        return True

    def _in_line(self) -> frozenset[_Job]:
        with self._own:
            return frozenset(self._line)

    def _first(self, these: Container[_Job] | None) -> _Job | None:
        """No generator: one that a Ctrl-C strikes in its end says nothing of it."""
        for job in self._line:
            if these is None or job in these:
                return job
        return None

    def _take_out(self, job: _Job, *, to_the_end: bool = False) -> None:
        with self._own, contextlib.suppress(ValueError):  # a handler may have had it done
            self._line.remove(job)
            if to_the_end:
                self._line.append(job)

    def _attempt(self, job: _Job, within: float) -> bool:
        """Returns whether it is done."""
        self._heard = self._is_heard(job.topic, within)
        return (self._heard or self._is_last(job)) and self._try(job)

    def _try(self, job: _Job) -> bool:
        """Returns: Whether that was the last time."""
        if not job.promise.begin():
            return True
        result = job.work(self._heard)
        if isinstance(result, Later):
            if not self._is_last(job):
                job.promise.put_off()
                if job.yields:
                    self._take_out(job, to_the_end=True)
                return False
            result = result.otherwise()
        job.promise.set_result(result)
        return True

    def _is_last(self, job: _Job) -> bool:
        return self._stopped or self._known is not None or time.monotonic() >= job.ends

    def _is_heard(self, topic: str, within: float) -> bool:
        """Asks; not where there is no time for it, or the answer is known."""
        if self._known is not None:
            return self._known
        return within > 0 and self._hears(topic, within)
