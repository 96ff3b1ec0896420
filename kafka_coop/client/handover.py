"""The membership's steps, carried out in the user's thread: action by action, in their order.

Callbacks, commits, the end of ownership and its beginning: the order in which a step lists
them is the contract of KIP-429 (`kafka_coop.membership.steps`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, assert_never

from kafka_coop.backend.interface import Backend
from kafka_coop.backend.mailbox import StartsFound, TopicErrors
from kafka_coop.client.commits import Commits
from kafka_coop.client.ownership import Ownership
from kafka_coop.kafka_errors import exception_of
from kafka_coop.membership.effects import (
    CallAssigned,
    CallLost,
    CallRevoked,
    CommitPositions,
    Own,
    RaiseError,
    Release,
    Step,
)
from kafka_coop.membership.events import StepDone
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.types import Partitions

UserCallback = Callable[[Partitions], None]


class Callbacks:
    """The user's three rebalance callbacks, already bound to their consumer."""

    def __init__(self, assigned: UserCallback, revoked: UserCallback, lost: UserCallback) -> None:
        self.assigned = assigned
        self.revoked = revoked
        self.lost = lost


class Handover:
    """Carries out what the mailbox brings. One thread at a time: whoever polls or closes.

    Attributes:
        callbacks: What the user is told with; None before the first `subscribe`.
        calling: Which callback is running: assigned, revoked, lost; None outside of them. See
            `calls`.
        unusable: Why this process may not go on: a callback has forked, and this is the child.
        told: The failure of the membership itself, no callback's, that `attend` has raised.
    """

    def __init__(
        self,
        *,
        backend: Backend,
        ownership: Ownership,
        commits: Commits,
        metrics: MemberMetrics,
    ) -> None:
        self.callbacks: Callbacks | None = None
        self.calling: str | None = None
        self._caller = 0
        self.unusable: str | None = None
        self.told: BaseException | None = None
        self._backend = backend
        self._ownership = ownership
        self._commits = commits
        self._metrics = metrics
        self._under_way: _UnderWay | None = None

    @property
    def calls(self) -> str | None:
        """`calling`, where it is this thread that is inside it."""
        return self.calling if self._caller == threading.get_ident() else None

    def attend(self) -> None:
        """Takes everything out of the mailbox and carries it out.

        Raises:
            Exception: The first that a callback of a step raised, after the whole step; what
                is left in the mailbox waits for the next call.
        """
        self.told = None  # it holds on to the frames that it went through
        mailbox = self._backend.mailbox
        while (item := mailbox.begin()) is not None:
            struck: BaseException | None = None
            match item:
                case Step():
                    struck = self._carry_out(item)
                case StartsFound():
                    # It won't come again, and polls try on with what was learned of it.
                    struck = _tried(partial(self._ownership.take_starts, item), _TRIES)
                case TopicErrors(errors=errors):
                    struck = _tried(partial(self._ownership.report_topics, errors), _TRIES)
                case _:
                    assert_never(item)
            mailbox.done()
            self._under_way = None
            if struck is not None:
                raise struck

    def _carry_out(self, step: Step) -> BaseException | None:
        """Whatever a callback raises, the step is carried out whole, and reported.

        Were it left half-way, a partition would stay owned that the group believes revoked. The
        end of ownership and its beginning are tried again where a Ctrl-C has struck in them: who
        is told that a partition was let go of gives it to another, and both would deliver it.
        Where one strikes between two actions, it is raised, and the next call goes on from there.

        Returns:
            The first exception that a callback raised.
        """
        if self._under_way is None or self._under_way.step is not step:
            self._under_way = _UnderWay(step)
        at = self._under_way
        while at.next < len(step.actions):
            self._do_next(at)
            self.require_usable()
        self._backend.step_done(StepDone(step_id=step.step_id, **at.spent))
        return at.first

    def require_usable(self) -> None:
        """Raises RuntimeError in a child that was forked inside a callback."""
        if self.unusable is not None:
            raise RuntimeError(self.unusable)

    def _do_next(self, at: _UnderWay) -> None:
        action = at.step.actions[at.next]
        again = isinstance(action, _AGAIN)
        started = time.perf_counter()
        if not again:
            at.next += 1  # no callback is called twice
        error = _tried(partial(self._act, action), _TRIES if again else 1)
        at.first = at.first or error
        kind = _KINDS[type(action)]
        if kind is not None:
            at.spent[kind] = timedelta(seconds=time.perf_counter() - started)
        if again:
            at.next += 1

    def _act(self, action: Any) -> None:
        match action:
            case CallRevoked(partitions=partitions):
                try:
                    self._call("revoked", partitions)
                finally:
                    if self.unusable is None:
                        self._commits.wait_for(partitions)
            case CallLost(partitions=partitions):
                self._call("lost", partitions)
            case CommitPositions(partitions=partitions):
                self._commits.commit_before_release(partitions)
            case Release(partitions=partitions):
                self._ownership.release_the_groups(partitions)
            case Own(partitions=partitions, generation=generation):
                self._ownership.own(partitions, generation)
            case CallAssigned(partitions=partitions):
                self._call_assigned(partitions)
            case RaiseError(failure=failure):
                self.told = exception_of(failure)
                raise self.told
            case _:
                raise AssertionError(f"an action without a case: {action!r}")

    def _call_assigned(self, added: Partitions) -> None:
        self._ownership.starts_may_change = True
        try:
            self._call("assigned", added)
        finally:
            self._ownership.starts_may_change = False
            if self.unusable is None:
                self._ownership.begin_fetching()

    def _call(self, kind: str, partitions: Partitions) -> None:
        if self.callbacks is None:
            return
        callback: UserCallback = getattr(self.callbacks, kind)
        started = time.perf_counter()
        failed = True
        self._caller, self.calling = threading.get_ident(), kind
        try:
            callback(partitions)
            failed = False
        finally:
            self.calling = None
            latency = timedelta(seconds=time.perf_counter() - started)
            self._commits.wait_longer(latency)
            self._metrics.callback(kind, latency, failed=failed)  # type: ignore[arg-type]  # one of its three


@dataclass(slots=True)
class _UnderWay:
    """How far a step has come."""

    step: Step
    next: int = 0
    """The number of the action to do next."""
    spent: dict[str, timedelta] = field(default_factory=dict)
    first: BaseException | None = None


_AGAIN = (Own, Release)
"""Doing these twice is doing them once."""

_TRIES = 20
"""For many a Ctrl-C, not without end: should librdkafka itself fail, trying does not help, and the
group waits."""


def _tried(what: Callable[[], None], times: int) -> BaseException | None:
    """Does it, again where an exception strikes in there; returns the first that did."""
    first: BaseException | None = None
    for _ in range(times):
        try:
            what()
            break
        except BaseException as error:  # noqa: BLE001  # Ctrl-C included
            first = first or error
    return first


_KINDS: dict[type, str | None] = {
    CallRevoked: "revoke_callback",
    CallLost: "lost_callback",
    CommitPositions: "commit",
    CallAssigned: "assigned_callback",
    Own: None,
    Release: None,
    RaiseError: None,
}
