"""The end of a membership: handed over first, if there is time, and then left for good.

A plain leave ends what is under way, gives everything up and sends LeaveGroup. Its partitions
have no owner from on_revoke until the others have heard of it and held a round. *Draining* turns
that round: this member joins again with a mark that asks the leader to give what it owns to
others, goes on owning it meanwhile, is relieved by cooperative rounds, and leaves when it owns
nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from kafka_coop.backend import clock
from kafka_coop.backend.interface import Backend
from kafka_coop.client.commits import Commits
from kafka_coop.client.handover import Handover
from kafka_coop.client.ownership import Ownership

PATIENCE = timedelta(seconds=10)
"""For what closing waits for on the network; the user's callbacks take what they take."""

TOO_LATE = (
    "the interpreter has begun to end, which stops the threads of this consumer: close it before "
    "(one in a generator that is not exhausted: by the generator's close())"
)

_SLICE = 0.02
"""Seconds between two looks at commits and callbacks while draining without polls."""


class Draining:
    """A wish to hand over, and the time that it has.

    A leader of another client, or a group all of whose members drain, relieves nobody. Then
    time ends it.
    """

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._ends = float("inf")
        self._told = False
        self.begun = False

    def begin(self, backend: Backend, within: timedelta, *, worth_it: bool) -> None:
        """Asks the group, unless it was asked; a later call can only shorten the time.

        Not ``worth_it`` where the group assigned nothing: then it is over at once.
        """
        if not isinstance(within, timedelta):
            raise TypeError(f"a time to drain is a timedelta, not {within!r}: timedelta(seconds=…)")
        if within < timedelta(0):
            raise ValueError(f"a time to drain can't be negative: {within}")
        possible = self.begun or (worth_it and backend.drain())
        self.begun = True
        ends = clock.now() + within.total_seconds()
        self._ends = min(self._ends, ends) if possible else float("-inf")

    def stop(self) -> None:
        """The consumer begins anew."""
        self.begun, self._told, self._ends = False, False, float("inf")

    @property
    def over(self) -> bool:
        """Whether it was begun, and has reached its end."""
        return self.begun and (not self._ownership.owned or clock.now() >= self._ends)

    def news(self) -> bool:
        """Whether it is over, the first time that it is: a poll has nothing more to wait for.

        What was given up waits for this member to leave, or to join once more. Were the user to
        learn of the end when a timeout is up, nobody would have it until then.
        """
        first = not self._told and self.over
        self._told |= first
        return first


class Closing:
    """Leads a member out of its group, in the thread that closes."""

    def __init__(
        self, backend: Backend, handover: Handover, commits: Commits, logger: logging.Logger
    ) -> None:
        self._backend = backend
        self._mailbox = backend.mailbox
        self._handover = handover
        self._commits = commits
        self._log = logger
        self._first: BaseException | None = None

    def hand_over(self, draining: Draining) -> None:
        """Waits until the draining is over. Callbacks and commits go on, records do not come.

        Ctrl-C ends it, and what comes then is `leave`.
        """
        while not (draining.over or self._mailbox.left or self._is_interrupted):
            self._handover.require_usable()  # on_revoke may fork, and the child comes back here
            now = clock.now()
            self._mailbox.last_poll = now
            self._attempt(self._handover.attend)
            self._attempt(lambda: self._commits.attend(now))  # noqa: B023  # called at once
            self._attempt(lambda: self._mailbox.wait(_SLICE))

    def leave(self, *, commit_first: bool) -> None:
        """Gives everything up, in order, and leaves.

        ``commit_first`` auto-commits what was assigned by hand, of which no step will tell.

        Raises:
            Exception: The first that a callback raised, once all is done.
        """
        if commit_first:
            self._attempt(self._commits.commit_owned)
        self._attempt(lambda: self._commits.finish(PATIENCE / 2))
        self._attempt(self._backend.begin_close)
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while not self._mailbox.left or self._mailbox.items:
            self._handover.require_usable()
            if self._mailbox.items:
                self._attempt(self._handover.attend)
                deadline = time.monotonic() + PATIENCE.total_seconds()
            if time.monotonic() >= deadline:
                break
            self._attempt(lambda: self._mailbox.wait(0.1))
        self._attempt(lambda: self._commits.settle(for_good=True))
        if self._first is not None:
            raise self._first

    @property
    def _is_interrupted(self) -> bool:
        return self._first is not None and not isinstance(self._first, Exception)

    def _attempt(self, what: Callable[[], None]) -> None:
        """Leave first, then raise. What the membership has to say is only logged by now."""
        try:
            what()
        except BaseException as error:  # noqa: BLE001  # raised once we are out
            if error is self._handover.told:
                self._log.warning("while closing: %s", error)
            elif self._first is None or not isinstance(error, Exception):
                self._first = error
