"""The loop inside poll and consume: work for the membership first, then records.

A wait inside librdkafka can't be woken, so it is cut into slices, and between two of them the
mailbox is looked into. A slice of 20 ms in which nothing comes costs 70 µs of CPU. While a
rebalance is under way it is the other way round: the wait is for the mailbox, and between two
slices of it records are looked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from confluent_kafka import Message

from kafka_coop.backend import clock
from kafka_coop.backend.mailbox import Mailbox
from kafka_coop.client.closing import Draining
from kafka_coop.client.commits import Commits
from kafka_coop.client.handover import Handover
from kafka_coop.client.measuring import Measuring
from kafka_coop.client.ownership import Ownership
from kafka_coop.fetching.interface import Fetching
from kafka_coop.fetching.native import partition_of, position_at
from kafka_coop.metrics.polls import PollClock
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.shutdown import signals_noted
from kafka_coop.turns import Turn
from kafka_coop.types import TopicPartition

CLOSED = "Consumer closed"

FOREVER = float("inf")
"""Of time-outs."""

NEVER = float("-inf")

_CALM_SLICE = 0.050
"""Seconds of one wait inside librdkafka, at most: nothing of ours can wake it, a record does."""

_BUSY_SLICE = 0.002
"""The same for a wait for the mailbox while a rebalance is under way: a record does not end it."""

_PATIENCE = 0.05
"""Seconds of one wait for other threads' calls, one of which may ask a broker, and be long."""

_INTRODUCTION = 0.1
"""Seconds for librdkafka to hear of a topic, while nothing is fetched."""

_SHORT_WAY = 1.0
"""Seconds for which polls may take their short way, on which the time between them is not
looked at: a longer gap always ends in a poll that does."""


def slice_of_a_wait(*, busy: bool, news_every: float) -> float:
    """How long to wait, in seconds, before the mailbox, or what it is not waited for, is looked at.

    No longer than news can wait: a small group's round is over in 20 ms. Who had begun to wait
    before it was heard of would come to its new partitions, or to those that it has to give up,
    when the others had long gone on.

    Args:
        busy: A rebalance is under way.
        news_every: Seconds between two moments at which one may be heard of.
    """
    return _BUSY_SLICE if busy else min(max(news_every / 2, _BUSY_SLICE), _CALM_SLICE)


_Take: TypeAlias = Callable[[int, float], list[Message]]


class Polling:
    """One consumer's polls. One thread at a time polls, others wait for their turn.

    Attributes:
        turn: Of the thread that polls, or closes.
        closing: Nothing is delivered any more.
        close: What a callback or a signal handler has asked of the poll in which it runs: to
            close the consumer in the end. None: nobody has. That thread's poll alone does it.
        calm_until: On `backend.clock`: until then, and while the mailbox is empty, there is
            nothing to do but to deliver records.
    """

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        ownership: Ownership,
        commits: Commits,
        handover: Handover,
        fetcher: Fetching,
        times: PollClock,
        measuring: Measuring,
        draining: Draining,
    ) -> None:
        self.turn = Turn()
        self.closing = False
        self.close: Callable[[], None] | None = None
        self._closer = 0
        self.calm_until = NEVER
        self._never_calm = False
        self._signals_seen = signals_noted()
        self._mailbox = mailbox
        self._ownership = ownership
        self._commits = commits
        self._handover = handover
        self._fetcher = fetcher
        self._times = times
        self._measuring = measuring
        self._draining = draining
        times.last_seen = lambda: mailbox.last_poll

    def one(self, timeout: float) -> Message | None:
        """The next message, or None after ``timeout`` seconds."""
        fetched = self._messages(1, timeout, self._next)
        return fetched[0] if fetched else None

    def many(self, n: int, timeout: float) -> list[Message]:
        """Up to ``n`` messages."""
        return self._messages(n, timeout, self._fetcher.take)

    def may_deliver(self, now: float) -> bool:
        """The lease guards what the group assigned; what the user did is the user's."""
        return now < self._mailbox.lease_until or self._ownership.by_hand_alone

    def disturb(self, *, for_good: bool = False) -> None:
        """There is something to do: the next poll must not take its short way."""
        self._never_calm = self._never_calm or for_good
        self.calm_until = NEVER

    def _next(self, _n: int, timeout: float) -> list[Message]:
        message = self._fetcher.next(timeout)
        return [] if message is None else [message]

    def _messages(self, n: int, timeout: float, take: _Take) -> list[Message]:
        got: list[Message] = []
        try:
            self._in_turn(got, n, timeout, take)
            self._heed_the_last_signal()
        except BaseException as ended:
            self._take_back(got)
            self.close_if_asked(ended)
            raise
        # Nothing is called from here on: at the end of a call a signal handler may raise, and
        # what was gathered would be neither the user's nor put back.
        return got

    def _in_turn(self, got: list[Message], n: int, timeout: float, take: _Take) -> None:
        deadline = time.monotonic() + timeout
        try:
            if not self.turn.take(-1 if timeout == FOREVER else max(timeout, 0)):
                return  # another thread polls: what comes is its to have
            if self._may_go_on(deadline):
                self._timed(got, n, deadline, take)
            else:
                self._require_open()
        except BaseException:
            self._take_back(got)
            raise
        finally:
            self.turn.give_back()

    def close_later(self, close: Callable[[], None]) -> None:
        """Has the poll in which this thread is close the consumer in the end."""
        self._closer = threading.get_ident()
        self.close = close

    @property
    def _close_of_ours(self) -> Callable[[], None] | None:
        """`close`, where it is this thread's poll that is to do it."""
        return self.close if self._closer == threading.get_ident() else None

    def _heed_the_last_signal(self) -> None:
        """A handler that found us in our turn, after the last look, has left the close to us."""
        if self._close_of_ours is not None:
            raise RuntimeError(CLOSED)

    def _require_open(self) -> None:
        if self.closing:
            raise RuntimeError(CLOSED)

    def _take_back(self, got: list[Message]) -> None:
        """The user does not get these, for an exception ends the poll.

        Before `Ownership.gathered` has forgotten them, and before another thread has its turn: one
        that waits to close would take them for delivered, and commit them.
        """
        self.disturb()  # what was cut short comes before the next record
        if got:
            with self._ownership.lock:  # another thread's seek may take some of these out
                self.give_back(got)
                got.clear()

    def _timed(self, got: list[Message], n: int, deadline: float, take: _Take) -> None:
        try:
            with self._ownership.lock:  # another thread's poll that is on its short way ends first
                self.calm_until = NEVER
                self._ownership.gathered = got
            self._times.entered(clock.now())
            self._gather(got, n, deadline, take)
            self._may_go_on(FOREVER)
            self._require_open()  # since the last wait: what it brought would come too late
        except BaseException:
            self._take_back(got)
            raise
        finally:
            self._may_go_on(FOREVER)
            with self._ownership.lock:
                self._ownership.gathered = []
            self._times.left(clock.now())
            self.calm_until = self._calm_for_now()

    def _may_go_on(self, deadline: float) -> bool:
        """Lets other threads' calls go first. False: the consumer closes, or time is up, meanwhile.

        Whoever waits for them polls, and is not to be taken for somebody who does not.
        """
        while not self._ownership.lock.take_turn(_PATIENCE):
            self._mailbox.last_poll = clock.now()
            if self.closing or time.monotonic() >= deadline:
                return False
        return True

    def close_if_asked(self, ended: BaseException) -> None:
        """The end of a poll inside which the consumer was closed; ``ended`` is what it raises.

        Raises:
            Exception: The first that a callback raised. Not where it would hide a SystemExit or
                a Ctrl-C.
        """
        if (close := self._close_of_ours) is None:
            return
        self.close = None
        try:
            close()
        except Exception:
            if isinstance(ended, Exception):
                raise

    def _gather(self, got: list[Message], n: int, deadline: float, take: _Take) -> None:
        ownership = self._ownership
        while True:
            self._require_open()
            now = clock.now()
            self._mailbox.last_poll = now
            if not got:
                self._attend(now, deadline)
            elif self._mailbox.items:
                return  # processed before the next call, which may take partitions away
            self._handover.require_usable()
            if ownership.errors and self._take_an_error(got):
                return
            if self._draining.news() or self._is_told_to_end():
                return
            if not self._may_go_on(deadline):
                return
            remaining = deadline - time.monotonic()
            # Nothing comes any more of a membership that has ended, and no wait for it lasts.
            going_on = self._mailbox.expecting or not ownership.settled
            busy = going_on and not self._mailbox.left
            at_most = slice_of_a_wait(busy=busy, news_every=self._mailbox.news_every)
            wait = max(0.0, min(remaining, at_most))
            more = self._fetch(got, n, wait, take, busy=busy)
            if got:
                self._mailbox.last_delivery = now
            # The fetcher comes back early with a part of what there is, beside a backlog.
            early = more and time.monotonic() < deadline
            if len(got) >= n or (remaining <= wait and not early):
                return

    def _take_an_error(self, got: list[Message]) -> bool:
        """Another thread may drop what it unassigns meanwhile: then there is none."""
        with self._ownership.lock:
            errors = self._ownership.errors
            got += list(errors)[:1]
            if errors:
                errors.popleft()
        return bool(got)

    def _is_told_to_end(self) -> bool:
        """Whether a `Shutdown` has noted a signal, once for each: the user's loop looks there.

        Once: whoever polls on, to drain, would else be kept busy by polls that wait for nothing.
        """
        seen, self._signals_seen = self._signals_seen, signals_noted()
        return self._signals_seen != seen

    def _fetch(self, got: list[Message], n: int, wait: float, take: _Take, *, busy: bool) -> bool:
        """Adds to what was gathered; returns whether there is more of it."""
        had = len(got)
        with self._ownership.lock:
            self._fetcher.hold(not self.may_deliver(clock.now()))
            got += take(n - had, 0.0 if busy else wait)
        if busy and len(got) == had:
            self._mailbox.wait(wait)  # which what comes of the rebalance ends, at once
        self._handover.require_usable()
        if got and not self.may_deliver(clock.now()):
            # Stopped or starved in the wait: what came in the end is not ours any more.
            with self._ownership.lock:
                self.put_back(got)
                got[:] = [message for message in got if message.error() is not None]
        return len(got) > had

    def _attend(self, now: float, deadline: float) -> None:
        """Does what is due before any record."""
        if self._mailbox.items:
            self._handover.attend()
        if not self._ownership.settled:
            self._ownership.begin_fetching()
        self._commits.attend(now)
        if now >= self._measuring.due:
            self._measuring.attend()
        self._introduce(deadline - time.monotonic())

    def _introduce(self, left: float) -> None:
        """The fetcher hears of the topics to come, while none is there that it would keep waiting.

        `Fetcher.add` would wait for the same, when a partition has no owner meanwhile.
        """
        topics = self._mailbox.topics
        if left > 0 and topics and not self._ownership.owned:
            with self._ownership.lock:
                self._fetcher.expect(topics, min(left, _INTRODUCTION))

    def give_back(self, messages: list[Message]) -> None:
        """`put_back`, and errors come with the next poll: one that ends a membership comes once."""
        self.put_back(messages)
        errors = [message for message in messages if message.error() is not None]
        with self._ownership.lock:
            self._ownership.errors.extendleft(reversed(errors))

    def put_back(self, messages: list[Message]) -> None:
        """The user does not get these: a Ctrl-C, or a callback's exception, comes in between.

        They would count as delivered, and be committed.
        """
        first: dict[TopicPartition, OffsetAndMetadata] = {}
        for message in messages:
            if message.error() is None:
                at = OffsetAndMetadata(offset=position_at(message))
                first.setdefault(partition_of(message), at)
        with self._ownership.lock:
            for of, at in first.items():
                if of in self._ownership.owned:
                    self._fetcher.seek(of, at.offset, at.leader_epoch)

    def _calm_for_now(self) -> float:
        if self._never_calm or self._ownership.errors or self._commits.pending:
            return NEVER
        return min(self._commits.auto_commit_due, clock.now() + _SHORT_WAY)
