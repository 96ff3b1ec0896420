"""A Ctrl-C that strikes while partitions are taken or given up leaves nothing half done.

It is tried at every call into librdkafka, before that has done its work and after.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import Message
from fetching_stand_in import InterruptionError, Striking
from fetching_support import in_turn, offsets

from kafka_coop.backend.mailbox import Mailbox, StartsFound
from kafka_coop.client.handover import Handover
from kafka_coop.client.ownership import Ownership
from kafka_coop.client.polling import Polling
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.fetching.group_fetcher import GroupFetcher
from kafka_coop.fetching.native import partition_of
from kafka_coop.membership.effects import CallAssigned, Own, Release, Step
from kafka_coop.membership.events import StepDone
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.turns import TurnLock
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
JUST_A, JUST_B, BOTH = Partitions.of([A]), Partitions.of([B]), Partitions.of([A, B])
STARTS = {A: OffsetAndMetadata(offset=0), B: OffsetAndMetadata(offset=50)}

EVERY_CALL = pytest.mark.parametrize("call", range(1, 9))
BEFORE_OR_AFTER = pytest.mark.parametrize("too_late", [False, True], ids=["before", "after"])


class Bench:
    """A fetcher of both partitions that has records of both in its buffer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(confluent_kafka, "Consumer", Striking)
        self.fetcher = Fetcher({}, prefetch=8)
        self.native = cast(Striking, self.fetcher._consumer)

    def strike(self, call: int, *, too_late: bool) -> None:
        self.native.calls_left, self.native.too_late = call, too_late

    def running(self) -> Partitions:
        """What librdkafka fetches; a partition left paused would never deliver again."""
        return Partitions({"t": self.native.inner.upcoming.keys() - self.native.inner.paused})

    def read(self, count: int) -> list[Message]:
        found = [self.fetcher.next(0) for _ in range(count)]
        return [message for message in found if message is not None]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def remove(fetcher: Fetcher) -> None:
    fetcher.remove(JUST_A & fetcher.assignment())


def add(fetcher: Fetcher) -> None:
    fetcher.add({B: STARTS[B]} if B not in fetcher.assignment() else {})


CHANGES: dict[str, tuple[Callable[[Fetcher], object], Callable[[Fetcher], object]]] = {
    "add": (lambda f: f.remove(JUST_B), add),
    "remove": (lambda _: None, remove),
    "remove what is paused": (lambda f: f.pause(JUST_A), remove),
    "pause": (lambda _: None, lambda f: f.pause(JUST_A)),
    "resume": (lambda f: f.pause(JUST_A), lambda f: f.resume(JUST_A)),
    "hold": (lambda _: None, lambda f: f.hold(True)),
    "let go": (lambda f: f.hold(True), lambda f: f.hold(False)),
}
"""What is done before, and the change itself."""


@EVERY_CALL
@BEFORE_OR_AFTER
@pytest.mark.parametrize("again", [False, True], ids=["left", "again"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_interrupted_costs_no_record_and_is_finished_by_the_next_call(
    bench: Bench, change: str, again: bool, too_late: bool, call: int
) -> None:
    prepare, act = CHANGES[change]
    fetcher = bench.fetcher
    fetcher.add(STARTS)
    got = bench.read(2)
    prepare(fetcher)
    bench.strike(call, too_late=too_late)
    try:
        act(fetcher)
    except InterruptionError:
        if again:
            act(fetcher)
    bench.strike(0, too_late=False)
    allowed = fetcher._running()
    later = [*bench.read(40), *fetcher.take(4, 0)]
    assert bench.running() == allowed
    assert Partitions.of(offsets(later)) == allowed
    fetcher.hold(False)
    fetcher.resume(BOTH)
    later += bench.read(40)
    assert bench.running() == Partitions.of(offsets(later)) == fetcher.assignment()
    if change == "add":  # anew, from its start
        got = [message for message in got if partition_of(message) == A]
    in_turn(got + later, {A: 0, B: 50})


@EVERY_CALL
@BEFORE_OR_AFTER
@pytest.mark.parametrize("change", CHANGES)
def test_so_it_is_while_one_partition_has_to_catch_up(
    bench: Bench, change: str, too_late: bool, call: int
) -> None:
    prepare, act = CHANGES[change]
    fetcher = bench.fetcher
    fetcher.add({A: STARTS[A]})
    fetcher.add({B: STARTS[B]})
    got = bench.read(12)
    prepare(fetcher)
    before = len(got)
    bench.strike(call, too_late=too_late)
    with suppress(InterruptionError):
        act(fetcher)
        for _ in range(12):
            got += bench.read(1)
        got += fetcher.take(4, 0)
    bench.strike(0, too_late=False)
    fetcher.hold(False)
    fetcher.resume(BOTH)
    got += bench.read(60)
    assert bench.running() == Partitions.of(offsets(got[before:])) | fetcher.assignment()
    if change == "add":  # anew, from its start
        got = [message for message in got if partition_of(message) == A]
    in_turn(got, {A: 0, B: 50})


@EVERY_CALL
@BEFORE_OR_AFTER
def test_what_is_added_again_after_an_interrupted_removal_begins_where_it_is_told_to(
    bench: Bench, too_late: bool, call: int
) -> None:
    bench.fetcher.add(STARTS)
    bench.read(2)
    bench.strike(call, too_late=too_late)
    with suppress(InterruptionError):
        bench.fetcher.remove(JUST_A)
    bench.strike(0, too_late=False)
    bench.fetcher.add({A: OffsetAndMetadata(offset=30)})
    assert bench.fetcher.positions(JUST_A)[A].offset == 30
    assert offsets(bench.read(20))[A][0] == 30


class Member:
    """A consumer's polls over that fetcher, and what it tells the group."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.mailbox = Mailbox()
        self.mailbox.lease_until = float("inf")
        self.interrupted = 0
        self.got: list[Message] = []
        self.fetched_when_told: list[Partitions] = []
        idle: Any = SimpleNamespace(
            assignment=lambda *_: None,
            attend=lambda *_: None,
            auto_commit_due=float("inf"),
            due=float("inf"),
            entered=lambda _: None,
            left=lambda _: None,
            news=lambda: False,
            pending=False,
        )
        self.ownership = Ownership(bench.fetcher, idle, TurnLock())
        backend: Any = SimpleNamespace(mailbox=self.mailbox, step_done=self.told)
        self.polling = Polling(
            mailbox=self.mailbox,
            ownership=self.ownership,
            commits=idle,
            handover=Handover(
                backend=backend, ownership=self.ownership, commits=idle, metrics=idle
            ),
            fetcher=bench.fetcher,
            times=idle,
            measuring=idle,
            draining=idle,
        )

    def told(self, _: StepDone) -> None:
        """The group may give away now what was released."""
        self.fetched_when_told.append(self.bench.running())

    def poll(self, times: int = 1) -> None:
        for _ in range(times):
            try:
                message = self.polling.one(0)
            except InterruptionError:
                self.interrupted += 1
            else:
                self.got += [] if message is None else [message]

    def gain(self, generation: int, starts: dict[TopicPartition, OffsetAndMetadata]) -> None:
        gained, now = Partitions.of(starts), Generation(generation)
        actions = (Own(partitions=gained, generation=now), CallAssigned(partitions=gained))
        self.mailbox.put(Step(step_id=generation, actions=actions))
        self.mailbox.put(StartsFound(generation=now, committed=starts))

    def give_up(self, partitions: Partitions) -> None:
        actions = (Release(partitions=partitions),)
        self.mailbox.put(Step(step_id=0, actions=actions, blocking=True))


@pytest.fixture
def member(bench: Bench) -> Member:
    return Member(bench)


@EVERY_CALL
@BEFORE_OR_AFTER
class TestInPoll:
    def test_what_is_gained_is_fetched_although_its_beginning_was_interrupted(
        self, member: Member, call: int, too_late: bool
    ) -> None:
        member.bench.strike(call, too_late=too_late)
        member.gain(2, STARTS)
        member.poll(40)
        assert member.interrupted == 1
        assert member.ownership.owned == member.bench.running() == BOTH
        assert member.ownership.settled
        assert Partitions.of(offsets(member.got)) == BOTH
        in_turn(member.got, {A: 0, B: 50})

    def test_what_was_gained_is_sought_although_its_beginning_was_interrupted(
        self, member: Member, call: int, too_late: bool
    ) -> None:
        member.bench.strike(call, too_late=too_late)
        member.gain(2, STARTS)
        member.poll()
        member.bench.strike(0, too_late=False)
        member.got.clear()
        member.ownership.seek(A, OffsetAndMetadata(offset=30))
        member.poll(40)
        assert Partitions.of(offsets(member.got)) == BOTH
        assert offsets(member.got)[A][0] == 30

    def test_what_is_given_up_is_let_go_of_before_the_group_is_told(
        self, member: Member, call: int, too_late: bool
    ) -> None:
        member.gain(2, STARTS)
        member.poll(2)
        before = len(member.got)
        member.bench.strike(call, too_late=too_late)
        member.give_up(JUST_A)
        member.poll(40)
        assert member.interrupted == 1
        assert member.fetched_when_told == [NO_PARTITIONS, JUST_B]
        assert member.ownership.owned == member.bench.running() == JUST_B
        assert Partitions.of(offsets(member.got[before:])) == JUST_B
        in_turn(member.got, {A: 0, B: 50})
        back = OffsetAndMetadata(offset=90)
        member.got.clear()
        member.gain(3, {A: back})
        member.poll(40)
        assert member.ownership.owned == member.bench.running() == BOTH
        assert offsets(member.got)[A][0] == 90


@pytest.mark.parametrize("call", [1, 2, 3])
@BEFORE_OR_AFTER
def test_so_it_is_where_librdkafka_is_the_member(
    monkeypatch: pytest.MonkeyPatch, call: int, too_late: bool
) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", Striking)
    fetcher = GroupFetcher({})
    native = cast(Striking, fetcher._consumer)
    native.calls_left, native.too_late = call, too_late
    with suppress(InterruptionError):
        fetcher.add(STARTS)
    if fetcher.assignment() != BOTH:
        fetcher.add(STARTS)  # as `Ownership` does
    with suppress(InterruptionError):
        fetcher.take(8, 0)
    assert native.inner.upcoming.keys() == {0, 1}
    native.calls_left = call
    with suppress(InterruptionError):
        fetcher.remove(JUST_A)
    with suppress(InterruptionError):
        assert Partitions.of(offsets(fetcher.take(8, 0))) == JUST_B
    assert native.inner.upcoming.keys() == {1}
    assert fetcher.assignment() == JUST_B


def test_the_group_hears_of_the_end_although_librdkafka_has_failed_for_good(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(_: Partitions) -> None:
        raise RuntimeError

    member.gain(2, STARTS)
    member.poll()
    monkeypatch.setattr(member.bench.fetcher, "remove", failed)
    member.give_up(BOTH)
    with pytest.raises(RuntimeError):
        member.poll()
    assert len(member.fetched_when_told) == 2
    assert member.ownership.owned == NO_PARTITIONS


def test_a_seek_to_no_offset_is_refused_once(member: Member) -> None:
    member.ownership.own(JUST_A, Generation(2))
    with pytest.raises(confluent_kafka.KafkaException):
        member.ownership.seek(A, OffsetAndMetadata(offset=confluent_kafka.OFFSET_INVALID))
    member.poll()
    member.ownership.seek(A, STARTS[A])
    member.poll()
    in_turn(member.got, {A: 0})
    assert member.got


def test_a_seek_to_no_offset_in_on_assign_is_refused_and_changes_nothing(member: Member) -> None:
    """For instance to what `committed` says of a partition of which nothing is."""
    ownership = member.ownership
    ownership.take_starts(StartsFound(generation=Generation(2), committed=STARTS))
    ownership.own(BOTH, Generation(2))
    ownership.starts_may_change = True
    with pytest.raises(confluent_kafka.KafkaException, match=rf"{A.topic}\[{A.partition}\]: -1001"):
        ownership.seek(A, OffsetAndMetadata(offset=confluent_kafka.OFFSET_INVALID))
    ownership.starts_may_change = False
    ownership.begin_fetching()
    for _ in range(20):
        member.poll()
    in_turn(member.got, {A: 0, B: 50})
    assert Partitions.of(offsets(member.got)) == BOTH
