"""Steps are carried out whole, wherever a Ctrl-C strikes: a real signal, at moments of chance."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest
from striking import handled

from kafka_coop.backend.interface import Backend
from kafka_coop.backend.mailbox import Mailbox, StartsFound, TopicErrors
from kafka_coop.client.commits import Commits
from kafka_coop.client.handover import Callbacks, Handover
from kafka_coop.client.ownership import Ownership
from kafka_coop.membership.effects import Step
from kafka_coop.membership.events import StepDone
from kafka_coop.membership.steps import gain, revoke
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.turns import TurnLock
from kafka_coop.types import Generation, Partitions, TopicPartition

A, B = (Partitions.of([TopicPartition(topic, n) for n in range(3)]) for topic in "ab")
GENERATION = Generation(2)
LONGEST = 0.0003
"""Seconds after which a signal may come: two steps take less."""


def starts(of: Partitions, generation: Generation) -> StartsFound:
    committed = dict.fromkeys(of, OffsetAndMetadata(offset=5))
    return StartsFound(generation=generation, committed=committed)


class Fetched:
    """A fetcher that remembers what it was told."""

    def __init__(self) -> None:
        self.fetching = Partitions.of([])

    def assignment(self) -> Partitions:
        return self.fetching

    def add(self, starts: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.fetching |= Partitions.of(starts)

    def remove(self, partitions: Partitions) -> None:
        self.fetching -= partitions


class Member:
    """A member that owns ``A``, and is to give it up and take ``B``."""

    def __init__(self) -> None:
        self.called: list[tuple[str, Partitions]] = []
        self.done: list[int] = []
        self.mailbox = Mailbox()
        self.fetched = Fetched()
        metrics = SimpleNamespace(assignment=lambda *_: None, callback=lambda *_, **__: None)
        self.ownership = Ownership(
            cast(Any, self.fetched), cast(MemberMetrics, metrics), TurnLock()
        )
        backend = SimpleNamespace(mailbox=self.mailbox, step_done=self._step_done)
        commits = SimpleNamespace(
            wait_for=lambda _: None,
            wait_longer=lambda _: None,
            commit_before_release=lambda of: self._call("commit", of),
        )
        self.handover = Handover(
            backend=cast(Backend, backend),
            ownership=self.ownership,
            commits=cast(Commits, commits),
            metrics=cast(MemberMetrics, metrics),
        )
        kinds = ("assigned", "revoked", "lost")
        self.handover.callbacks = Callbacks(*(partial(self._call, kind) for kind in kinds))
        self.ownership.own(A, Generation(1))
        self.ownership.take_starts(starts(A, Generation(1)))

    def _step_done(self, done: StepDone) -> None:
        self.done.append(done.step_id)

    def _call(self, kind: str, of: Partitions) -> None:
        self.called.append((kind, of))

    def round(self) -> None:
        """What a round leaves for it."""
        giving = revoke(A, auto_commit=True)
        self.mailbox.put(Step(step_id=1, actions=giving.actions, blocking=True))
        self.mailbox.put(starts(B, GENERATION))
        self.mailbox.put(Step(step_id=2, actions=gain(B, GENERATION)))


class Alarm:
    """A Ctrl-C by a timer."""

    def __init__(self) -> None:
        self._armed = False

    def strike(self, after: float, what: Callable[[], None]) -> None:
        """Does it, and is interrupted after so many seconds, unless it is over by then."""
        try:
            self._armed = True
            try:
                signal.setitimer(signal.ITIMER_REAL, max(after, 1e-6))
                what()
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass

    def interrupt(self, _: int, __: FrameType | None) -> None:
        """On a busy machine another thread may be given the signal, and have its time later."""
        if self._armed:
            raise KeyboardInterrupt


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    alarm = Alarm()
    with handled(signal.SIGALRM, alarm.interrupt):
        yield alarm


def test_what_cannot_be_told_of_is_raised_once_and_keeps_nobody_from_leaving() -> None:
    """`close` attends to the mailbox until it is empty."""
    member = Member()
    member.mailbox.put(TopicErrors(errors={"no\0name": 3, "orders": 3}))
    with pytest.raises(ValueError, match="null"):
        member.handover.attend()
    assert not member.mailbox.items
    member.handover.attend()
    assert not member.ownership.errors


def test_no_step_is_lost_wherever_a_ctrl_c_strikes(alarm: Alarm) -> None:
    """Some of these strike between the mailbox and the step, between two actions, at its end.

    Then the group would wait for a step that nobody carries out, and who joins anew for B.
    """
    chance, unfinished = random.Random(7), 0
    for _ in range(4000):
        member = Member()
        member.round()
        alarm.strike(chance.random() * LONGEST, member.handover.attend)
        unfinished += bool(member.mailbox.items)
        while member.mailbox.items:  # the next poll
            member.handover.attend()
        assert list(dict.fromkeys(member.done)) == [1, 2]
        assert member.ownership.owned == B
        member.ownership.begin_fetching()  # as each poll does
        assert member.fetched.assignment() == B
        assert len(set(member.called)) == len(member.called)  # none twice
    assert unfinished > 100
