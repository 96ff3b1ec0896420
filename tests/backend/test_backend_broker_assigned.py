"""KIP-848's jobs: commits and queries that wait for their turn with librdkafka."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from native_answers import answered
from striking import striking

from kafka_coop.backend import broker_assigned, late_starts, mailbox
from kafka_coop.backend.broker_assigned import BrokerAssignedBackend
from kafka_coop.backend.interface import Observer
from kafka_coop.backend.mailbox import StartsFound
from kafka_coop.backend.promises import result_within
from kafka_coop.config import parse
from kafka_coop.errors import RequestTimedOutError
from kafka_coop.fetching.group_fetcher import GroupFetcher, Told
from kafka_coop.fetching.group_starts import look_up
from kafka_coop.membership.effects import CommitPositions, Step
from kafka_coop.membership.events import StepDone
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.offsets import starts
from kafka_coop.offsets.starts import Starts
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, OffsetAndMetadata
from kafka_coop.testing.cluster import wait_until
from kafka_coop.turns import TurnLock
from kafka_coop.types import (
    NO_GENERATION,
    NO_PARTITIONS,
    Generation,
    GroupMetadata,
    MemberId,
    Partitions,
    TopicPartition,
)

NATIVE: TypeAlias = list[confluent_kafka.TopicPartition]

PATIENCE = timedelta(seconds=30)
THERE = TopicPartition("t", 0)
ALL = Partitions.of([THERE])
TOLD_7 = FetchedOffset(offset=7)


class Answered:
    """A consumer who is told where the group stands in some partitions, and of no others."""

    def __init__(self, committed: Mapping[TopicPartition, int]) -> None:
        self._committed = committed

    def committed(self, partitions: NATIVE, timeout: float) -> list[SimpleNamespace]:
        of = [TopicPartition(p.topic, p.partition) for p in partitions]
        if set(of) - self._committed.keys():
            time.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [answered(p, self._committed[own]) for p, own in zip(partitions, of, strict=True)]

    def offsets_for_times(self, partitions: NATIVE, _timeout: float) -> list[SimpleNamespace]:
        """All logs have nine records."""
        return [answered(p, 9) for p in partitions]


class Beside(Answered):
    """The consumer beside the member's.

    Attributes:
        logs: What it is told.
        asked: A question was put to it.
        fails: How often it can't be opened.
        refuses: How often it is refused an answer.
        open: How many there are.
        closing: Closing one takes as long as this is not set.
        closes: It has begun.
    """

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, int] = {}
        super().__init__(self.logs)
        self.asked = threading.Event()
        self.fails = 0
        self.refuses = 0
        self.open = 0
        self.closing = threading.Event()
        self.closing.set()
        self.closes = threading.Event()
        self._asks = threading.Lock()

    def opened(self) -> contextlib.closing[Any]:
        if self.fails:
            self.fails -= 1
            raise KafkaException(KafkaError(KafkaError._FAIL))
        self.open += 1
        return contextlib.closing(self)

    def committed(self, partitions: NATIVE, timeout: float) -> list[SimpleNamespace]:
        self.asked.set()
        assert self._asks.acquire(blocking=False), "two threads ask"
        try:
            if self.refuses:
                self.refuses -= 1
                raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
            return super().committed(partitions, min(timeout, 0.01))
        finally:
            self._asks.release()

    def close(self) -> None:
        self.closes.set()
        assert self.closing.wait(PATIENCE.total_seconds())
        self.open -= 1


class Librdkafka:
    """Stands in for `GroupFetcher`: it takes every commit, once there is a coordinator.

    Attributes:
        coordinator: Whether there is one.
        asked: For how long it was asked for, each time.
        takes: Seconds that it takes to answer.
        missed: It was asked for, and was not there; or for what a transaction keeps back.
        kept_back: A transaction keeps back what is committed.
        absent: How often it is not, before it is.
        stale: How often it takes no commit, for the member's epoch is not the newest.
        logs: Where partitions start, as it tells.
        strikes: Asking whether it is there: a Ctrl-C does, once.
        interrupts: Asking for that: a Ctrl-C does.
        beside: The consumer that is asked for what it does not tell.
        left: The consumer leaves the group, or has left: no question is answered any more.
        while_leaving: What the user does in on_revoke then.
        committed_: The offsets, in order.
        epoch: The member's.
    """

    def __init__(self) -> None:
        self.epoch = Generation(1)
        self.coordinator = threading.Event()
        self.coordinator.set()
        self.asked: list[float] = []
        self.takes = 0.0
        self.missed = threading.Event()
        self.kept_back = False
        self.absent = 0
        self.stale = 0
        self.logs = {THERE: 0}
        self.strikes = False
        self.interrupts = False
        self.beside = Beside()
        self.left = False
        self.while_leaving: Callable[[], object] = lambda: None
        self.committed_: list[int] = []
        self.assigned: Told
        self.revoked: Told
        self.lost: Told

    def subscribe(self, _: list[str], *, assigned: Told, revoked: Told, lost: Told) -> None:
        self.assigned, self.revoked, self.lost = assigned, revoked, lost

    def identity(self) -> GroupMetadata:
        return GroupMetadata(group_id="g", member_id=MemberId("m"), generation=self.epoch)

    def hears(self, topic: str, within: float) -> bool:
        assert topic == THERE.topic
        self.asked.append(within)
        if self.strikes:
            self.strikes = False
            raise KeyboardInterrupt
        if not self.coordinator.is_set():
            self.missed.set()
        if self.absent:
            self.absent -= 1
            return False
        return self.coordinator.is_set() and within >= self.takes and not self.left

    def unsubscribe(self) -> None:
        """What is owned goes with a later poll."""

    def leave(self, _owns: Callable[[], bool]) -> None:
        self.left = True
        self.while_leaving()

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[Any, ErrorCode]:
        self.coordinator.wait(PATIENCE.total_seconds())
        if self.stale:
            self.stale -= 1
            return dict.fromkeys(offsets, ErrorCode.illegal_generation)
        self.committed_ += [at.offset for at in offsets.values()]
        return dict.fromkeys(offsets, ErrorCode.none)

    def committed(self, partitions: Partitions, _timeout: float) -> dict[Any, FetchedOffset]:
        if self.kept_back:
            self.missed.set()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return dict.fromkeys(partitions, TOLD_7)

    def look_up(self, search: Starts, _within: timedelta) -> None:
        """In the middle of which a Ctrl-C may strike."""
        look_up(cast(confluent_kafka.Consumer, Answered(self.logs)), search, timedelta(seconds=0.1))
        if self.interrupts:
            raise KeyboardInterrupt

    def aside(self) -> contextlib.closing[Any]:
        return self.beside.opened()


class Watching(Observer):
    """Attributes:
    commits: The results of each.
    rebalances: All of them.
    """

    def __init__(self) -> None:
        self.commits: list[Mapping[TopicPartition, ErrorCode]] = []
        self.rebalances: list[RebalanceRecord] = []

    def rebalance(self, record: RebalanceRecord) -> None:
        self.rebalances.append(record)

    def commit(self, _: timedelta, results: Mapping[TopicPartition, ErrorCode]) -> None:
        self.commits.append(results)


class Group:
    """A member, and the lock under which a poll of its user's would be inside librdkafka.

    Attributes:
        attended: How often the mailbox was seen to.
        attending: What the user does then.
        seen: What was told of its work.
    """

    def __init__(self) -> None:
        self.librdkafka = Librdkafka()
        self.lock = TurnLock()
        self.attended = 0
        self.attending: Callable[[], object] = lambda: None
        self.seen = Watching()
        self.backend = BrokerAssignedBackend(
            parse(
                {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "group.protocol": "consumer"}
            ),
            cast(GroupFetcher, self.librdkafka),
            lock=self.lock,
            observer=self.seen,
            logger=logging.getLogger("kafka_coop"),
        )
        self.backend.start(self._attend)
        self.backend.subscribe(("t",), ())

    def _attend(self) -> None:
        """Carries out what there is, and leaves it to be looked at."""
        self.attended += 1
        self.attending()
        for item in self.backend.mailbox.items:
            if isinstance(item, Step):
                self.backend.step_done(StepDone(step_id=item.step_id))

    def commit(self, offset: int, within: timedelta = PATIENCE) -> Mapping[Any, ErrorCode]:
        offsets = {THERE: OffsetAndMetadata(offset=offset)}
        return result_within(self.backend.commit(offsets, within), within)

    def commit_in_vain(self, offset: int) -> None:
        """Another thread gives up while the poll goes on."""
        with ThreadPoolExecutor(1) as other, pytest.raises(RequestTimedOutError):
            other.submit(self.commit, offset, timedelta(0)).result()


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    made.backend.stop(PATIENCE)


def test_who_gives_up_on_a_commit_does_not_stop_those_to_come(group: Group) -> None:
    with group.lock:
        group.commit_in_vain(1)
    assert group.commit(2) == {THERE: ErrorCode.none}
    assert group.commit(3) == {THERE: ErrorCode.none}
    assert group.librdkafka.committed_ == [2, 3], "nobody waits for the first any more"


def test_a_commit_given_up_does_not_keep_the_user_from_hearing_of_a_rebalance(
    group: Group,
) -> None:
    with group.lock:
        group.librdkafka.assigned(ALL)
        group.commit_in_vain(1)
        group.librdkafka.revoked(ALL)
    assert group.attended == 2
    assert group.librdkafka.committed_ == []


def test_a_callback_inside_librdkafka_commits_and_waits_for_it(group: Group) -> None:
    """As ``stats_cb`` may, or a signal handler that interrupts a poll: its thread has the lock."""
    with group.lock:
        assert group.commit(1, within=timedelta(seconds=1)) == {THERE: ErrorCode.none}
    assert group.librdkafka.committed_ == [1]


def test_who_is_no_member_yet_or_was_refused_or_has_left_has_no_generation(group: Group) -> None:
    """Its epoch is 0 then, and a transaction's offsets are sent with it: they are refused so."""
    backend = group.backend
    assert backend.metadata().generation == 1
    group.librdkafka.epoch = Generation(0)
    assert backend.metadata().generation == NO_GENERATION
    assert backend.last_known().generation == NO_GENERATION
    assert backend.vouched().generation == 0


# --- a coordinator that is away -------------------------------------------------------------------

TIMED_OUT = {THERE: ErrorCode.request_timed_out}


def test_a_commit_that_waits_for_a_coordinator_lets_others_into_librdkafka(group: Group) -> None:
    """Or nobody would poll, nor close, for as long as librdkafka's commit waits: 45 s."""
    native = group.librdkafka
    native.coordinator.clear()
    with ThreadPoolExecutor(1) as other:
        commit = other.submit(group.commit, 1)
        assert native.missed.wait(PATIENCE.total_seconds())
        with group.lock:
            native.coordinator.set()
        assert commit.result() == {THERE: ErrorCode.none}
    assert native.committed_ == [1]


def test_a_coordinator_that_takes_long_is_given_the_time(group: Group) -> None:
    native = group.librdkafka
    native.takes = 0.9
    assert group.commit(1) == {THERE: ErrorCode.none}
    assert native.committed_ == [1]
    assert native.asked == sorted(native.asked)


def test_so_does_a_query_of_what_a_transaction_keeps_back(group: Group) -> None:
    native = group.librdkafka
    native.kept_back = True
    query = group.backend.committed(ALL, PATIENCE)
    assert native.missed.wait(PATIENCE.total_seconds())
    with group.lock:
        native.kept_back = False
    assert query.result(PATIENCE.total_seconds()) == {THERE: TOLD_7}


def test_a_query_that_is_kept_back_keeps_back_no_commit_and_no_rebalance(group: Group) -> None:
    native = group.librdkafka
    native.kept_back = True
    with ThreadPoolExecutor(1) as other:
        query = other.submit(group.backend.committed, ALL, PATIENCE).result()
    assert native.missed.wait(PATIENCE.total_seconds())
    assert group.commit(1) == {THERE: ErrorCode.none}
    with group.lock:
        native.assigned(ALL)
        assert group.commit(2) == {THERE: ErrorCode.none}, "in a callback"
    assert not query.done()
    native.kept_back = False
    assert query.result(PATIENCE.total_seconds()) == {THERE: TOLD_7}


def test_a_query_that_nobody_waits_for_any_more_is_not_asked_again(group: Group) -> None:
    """After a Ctrl-C, say: it would hold up the polls for as long as the transaction is open."""
    native = group.librdkafka
    native.kept_back = True
    query = group.backend.committed(ALL, PATIENCE)
    assert native.missed.wait(PATIENCE.total_seconds())
    wait_until(query.cancel, "it can't be cancelled")
    wait_until(lambda: not group.backend._jobs._line, "it is in the line still")


@pytest.mark.parametrize("inside", [True, False])
def test_and_ends_when_its_time_is_over(group: Group, *, inside: bool) -> None:
    group.librdkafka.kept_back = True
    with group.lock if inside else contextlib.nullcontext():
        query = group.backend.committed(ALL, timedelta(seconds=0.2))
    with pytest.raises(RequestTimedOutError, match="is a transaction open"):
        query.result(PATIENCE.total_seconds())


def test_closing_waits_for_no_commit_that_nobody_takes(group: Group) -> None:
    native = group.librdkafka
    native.coordinator.clear()
    within = timedelta(seconds=1)
    waiting = [group.backend.commit({THERE: OffsetAndMetadata(offset=1)}, within)]
    assert native.missed.wait(PATIENCE.total_seconds())
    with group.lock:
        waiting += [group.backend.commit({THERE: OffsetAndMetadata(offset=2)}, timedelta(0))]
        native.asked.clear()
        group.backend.begin_close()
    assert [commit.result(0) for commit in waiting] == [TIMED_OUT] * 2
    assert native.left
    assert native.committed_ == []
    assert sum(native.asked) < 1, "it has had its time"


def test_a_ctrl_c_while_it_closes_costs_no_commit(group: Group) -> None:
    """It strikes in the last question; on_revoke comes all the same, and may commit."""
    native = group.librdkafka
    with group.lock:
        native.assigned(ALL)
    native.strikes = True
    native.while_leaving = lambda: group.commit(1)
    with pytest.raises(KeyboardInterrupt):
        group.backend.begin_close()
    assert native.left
    assert group.backend.mailbox.left
    assert native.committed_ == [1]


def test_what_is_revoked_by_closing_is_committed(group: Group) -> None:
    """librdkafka is asked before: from then on it says nothing."""
    taken: list[Mapping[Any, ErrorCode]] = []
    group.librdkafka.while_leaving = lambda: taken.append(group.commit(1))
    with group.lock:
        group.librdkafka.assigned(ALL)
    group.backend.begin_close()
    assert taken == [{THERE: ErrorCode.none}]


@pytest.mark.parametrize(("on_its_way", "at_once"), [(False, False), (False, True), (True, False)])
def test_what_is_unsubscribed_from_is_not_auto_committed_and_what_comes_after_it_is(
    group: Group, on_its_way: bool, at_once: bool
) -> None:
    """Also where the user has yet to hear of it, or subscribes again before it is revoked."""
    steps: list[Step] = []
    group.attending = lambda: steps.extend(
        item for item in group.backend.mailbox.items if isinstance(item, Step)
    )
    if not on_its_way:
        with group.lock:
            group.librdkafka.assigned(ALL)
    group.backend.unsubscribe()
    if at_once:
        group.backend.subscribe(("u",), ())
    with group.lock:
        if on_its_way:
            group.librdkafka.assigned(ALL)
        group.librdkafka.revoked(ALL)
    group.backend.subscribe(("u",), ())
    with group.lock:
        group.librdkafka.assigned(ALL)
        group.librdkafka.revoked(ALL)
    assert list(dict.fromkeys(_commits(steps))) == [(2, False), (4, True)]


def _commits(steps: list[Step]) -> list[tuple[int, bool]]:
    """Each revocation's number, and whether it has something auto-committed."""
    return [
        (step.step_id, any(isinstance(action, CommitPositions) for action in step.actions))
        for step in steps
        if step.blocking
    ]


def test_what_is_another_members_is_not_committed(group: Group) -> None:
    """The broker would take it, by the epoch alone, and its owner be rewound."""
    refused = {THERE: ErrorCode.illegal_generation}
    taken: list[Mapping[Any, ErrorCode]] = []
    group.attending = lambda: taken.append(group.commit(1))
    with group.lock:
        group.librdkafka.assigned(ALL)
        group.librdkafka.revoked(ALL)
        group.librdkafka.assigned(ALL)
        group.librdkafka.lost(ALL)
    fine = {THERE: ErrorCode.none}
    assert taken == [fine, fine, fine, refused], "in on_assign, on_revoke and on_lost"
    assert group.commit(2) == refused, "a worker that is late"
    group.librdkafka.epoch = NO_GENERATION
    assert group.commit(3) == fine, "of a topic assigned by hand since the member left"
    assert group.librdkafka.committed_ == [1, 1, 1, 3]


def test_who_commits_inside_a_rebalance_waits_as_long_as_was_said(group: Group) -> None:
    """Others can't go on meanwhile: neither can the rebalance. A Ctrl-C comes in between."""
    group.librdkafka.coordinator.clear()
    with group.lock:
        assert group.commit(1, within=timedelta(seconds=1)) == TIMED_OUT
    assert len(group.librdkafka.asked) > 2
    assert max(group.librdkafka.asked) < 1, "what is left of it"


def test_and_asks_again_where_librdkafka_gives_up_before(group: Group) -> None:
    group.librdkafka.absent = 3
    with group.lock:
        assert group.commit(1) == {THERE: ErrorCode.none}
    assert len(group.librdkafka.asked) == 4


def test_so_does_a_query(group: Group) -> None:
    group.librdkafka.coordinator.clear()
    with group.lock:
        query = group.backend.committed(ALL, timedelta(seconds=1))
    with pytest.raises(RequestTimedOutError, match="no coordinator answered"):
        query.result(0)


# --- an epoch that has just begun ----------------------------------------------------------------


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside librdkafka"])
def test_a_commit_that_meets_a_new_epoch_is_made_again(group: Group, *, inside: bool) -> None:
    """The next heartbeat's answer tells librdkafka of it. The partition has stayed."""
    native = group.librdkafka
    with group.lock:
        native.assigned(ALL)
    native.stale = 3
    with group.lock if inside else contextlib.nullcontext():
        assert group.commit(1) == {THERE: ErrorCode.none}
    assert native.committed_ == [1]
    assert group.seen.commits == [{THERE: ErrorCode.none}]


def test_not_for_ever(group: Group) -> None:
    group.librdkafka.stale = 1_000_000
    refused = {THERE: ErrorCode.illegal_generation}
    offsets = {THERE: OffsetAndMetadata(offset=1)}
    commit = group.backend.commit(offsets, timedelta(seconds=0.5))
    assert commit.result(PATIENCE.total_seconds()) == refused
    assert group.seen.commits == [refused]


def test_nor_where_its_partition_is_lost_meanwhile(group: Group) -> None:
    native = group.librdkafka
    with group.lock:
        native.assigned(ALL)
    native.stale = stale = 1_000_000
    commit = group.backend.commit({THERE: OffsetAndMetadata(offset=1)}, PATIENCE)
    wait_until(lambda: native.stale < stale, "it is not tried")
    with group.lock:
        native.lost(ALL)
        assert commit.result(0) == {THERE: ErrorCode.illegal_generation}


# --- where to start ------------------------------------------------------------------------------

HERE = [TopicPartition("t", p) for p in range(3)]
AT_7 = OffsetAndMetadata(offset=7)


class Searching:
    """What the group's mailbox has told of starts.

    Attributes:
        committed: By generation.
        refused: Why there was none, each time that it was told.
    """

    def __init__(self, group: Group) -> None:
        self.committed: dict[int, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.refused: list[ErrorCode] = []
        self.steps = 0
        self._group = group

    def begun(self) -> Librdkafka:
        """A partition is given, and its start is asked for in vain."""
        native = self._group.librdkafka
        with self._group.lock:
            native.assigned(ALL)
        assert native.beside.asked.wait(PATIENCE.total_seconds())
        return native

    def look(self) -> None:
        mailbox = self._group.backend.mailbox
        while (item := mailbox.begin()) is not None:
            mailbox.done()
            if isinstance(item, StartsFound):
                self.committed.setdefault(item.generation, {}).update(item.committed)
                self.refused += item.failed.values()
            else:
                assert isinstance(item, Step)
                self.steps += 1

    def wait_for(self, generation: int, *partitions: TopicPartition) -> None:
        def told() -> bool:
            self.look()
            return self.committed.get(generation, {}).keys() >= set(partitions)

        wait_until(told, f"no start of {partitions}")


@pytest.fixture
def searching(group: Group, monkeypatch: pytest.MonkeyPatch) -> Searching:
    """Of a group that tells nothing in time."""
    monkeypatch.setattr("kafka_coop.backend.late_starts._LOOK", timedelta(seconds=0.1))
    group.librdkafka.logs.clear()
    return Searching(group)


def test_where_to_start_is_known_before_the_user_is_told(group: Group) -> None:
    group.librdkafka.logs = {HERE[0]: 7, HERE[1]: OFFSET_INVALID}
    with group.lock:
        group.librdkafka.assigned(Partitions.of(HERE[:2]))
    starts, step = group.backend.mailbox.items
    assert isinstance(step, Step)
    assert starts == StartsFound(
        generation=Generation(1),
        committed={HERE[0]: AT_7},
        reset={HERE[1]: OffsetAndMetadata(offset=9)},
    )
    assert not group.librdkafka.beside.asked.is_set(), "nothing is left"


def test_what_is_not_told_in_time_comes_later(group: Group, searching: Searching) -> None:
    """A transaction has to decide first, for as long as it takes."""
    native = group.librdkafka
    native.logs = {HERE[0]: 7}
    with group.lock:
        native.assigned(Partitions.of(HERE))
    assert native.beside.asked.wait(PATIENCE.total_seconds())
    searching.look()
    assert searching.committed == {1: {HERE[0]: AT_7}}
    native.beside.logs |= {HERE[2]: 7}
    searching.wait_for(1, HERE[2])
    native.beside.logs |= {HERE[1]: 7}
    searching.wait_for(1, *HERE)
    wait_until(lambda: not native.beside.open, "the other consumer stays")


def test_what_is_refused_is_told_and_asked_for_again(
    group: Group, searching: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_coop.backend.late_starts._REFUSED", 0.01)
    native = group.librdkafka
    native.beside.refuses = 3
    native.beside.logs[THERE] = 7
    with group.lock:
        native.assigned(ALL)
    searching.wait_for(1, THERE)
    assert searching.refused == [ErrorCode.group_authorization_failed], "once"
    wait_until(lambda: not native.beside.open, "the other consumer stays")


def test_what_is_taken_meanwhile_is_not_searched_for(group: Group, searching: Searching) -> None:
    native = searching.begun()
    with group.lock:
        native.revoked(ALL)
    wait_until(lambda: not native.beside.open, "somebody is asked still")


def test_what_comes_again_is_of_the_new_generation(group: Group, searching: Searching) -> None:
    native = group.librdkafka
    with group.lock:
        native.assigned(ALL)
        native.revoked(ALL)
        native.assigned(ALL)
    native.beside.logs[THERE] = 7
    searching.wait_for(3, THERE)


def test_what_comes_while_the_other_consumer_is_closed_is_searched_for_by_one_thread(
    group: Group, searching: Searching
) -> None:
    native = group.librdkafka
    native.beside.logs[HERE[0]] = 7
    native.beside.closing.clear()
    with group.lock:
        native.assigned(ALL)
    searching.wait_for(1, THERE)
    assert native.beside.closes.wait(PATIENCE.total_seconds())
    with group.lock:
        native.assigned(Partitions.of(HERE))
    names = [thread.name for thread in threading.enumerate()]
    assert sum(name.endswith("-starts") for name in names) == 1
    native.beside.asked.clear()
    native.beside.closing.set()
    assert native.beside.asked.wait(PATIENCE.total_seconds())
    native.beside.logs |= dict.fromkeys(HERE, 7)
    searching.wait_for(2, *HERE[1:])


def test_who_closes_waits_for_no_start(group: Group, searching: Searching) -> None:
    native = searching.begun()
    group.backend.stop(PATIENCE)
    assert not native.beside.open
    with group.lock:
        native.assigned(Partitions.of(HERE))
    assert not native.beside.open, "nor does anybody begin to ask"


def test_a_failure_of_the_other_consumer_passes(
    group: Group, searching: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_coop.backend.late_starts._AFTER_A_FAILURE", timedelta(0))
    native = group.librdkafka
    native.beside.fails = 3
    native.beside.logs[THERE] = 7
    with group.lock:
        native.assigned(ALL)
    searching.wait_for(1, THERE)
    assert not native.beside.fails


def test_a_ctrl_c_while_it_is_asked_for_loses_no_start(group: Group, searching: Searching) -> None:
    native = group.librdkafka
    native.interrupts = True
    native.logs = {HERE[0]: 7}
    native.beside.logs[HERE[1]] = 7
    with group.lock, pytest.raises(KeyboardInterrupt):
        native.assigned(Partitions.of(HERE[:2]))
    assert group.attended == 1
    searching.wait_for(1, *HERE[:2])
    assert searching.steps == 1


HANDLED = [broker_assigned.__file__, late_starts.__file__, mailbox.__file__, starts.__file__]


@pytest.mark.parametrize("place", range(1, 110))
def test_wherever_it_strikes_the_user_is_told_once_and_all_begins(
    group: Group, searching: Searching, place: int
) -> None:
    """The fetcher tells again, in the same callback."""
    native = group.librdkafka
    native.logs = {HERE[0]: 7}
    native.beside.logs |= dict.fromkeys(HERE, 7)
    all_of_it = Partitions.of(HERE)

    def tell_through(how: Callable[[Partitions], None]) -> None:
        for _ in range(3):
            with contextlib.suppress(KeyboardInterrupt):
                how(all_of_it)

    with group.lock, striking(place, HANDLED, KeyboardInterrupt):
        tell_through(native.assigned)
    searching.wait_for(1, *HERE)
    assert searching.steps == 1
    with group.lock, striking(place, HANDLED, KeyboardInterrupt):
        tell_through(native.revoked)
    searching.look()
    assert searching.steps == 2
    moved = [(r.assigned, r.revoked, r.lost) for r in group.seen.rebalances]
    assert moved == [
        (all_of_it, NO_PARTITIONS, NO_PARTITIONS),
        (NO_PARTITIONS, all_of_it, NO_PARTITIONS),
    ]


def test_what_was_told_twice_is_told_once(group: Group, searching: Searching) -> None:
    """A Ctrl-C struck, and the fetcher does not know how far it came."""
    native = group.librdkafka
    native.logs = dict.fromkeys(HERE, 7)
    with group.lock:
        native.assigned(ALL)
        native.assigned(Partitions.of(HERE))
        native.assigned(ALL)
        searching.look()
        assert searching.committed == {1: {HERE[0]: AT_7}, 2: {HERE[1]: AT_7, HERE[2]: AT_7}}
        native.lost(ALL)
        native.revoked(ALL)
        native.lost(ALL)
    searching.look()
    assert searching.steps == 3
    *gains, loss = (record.reason for record in group.seen.rebalances)
    assert set(gains) == {"the broker assigned"}
    assert loss == "the membership was lost"


@pytest.mark.parametrize("there", [True, False])
def test_so_it_is_of_what_is_assigned_by_hand(
    group: Group, searching: Searching, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    monkeypatch.setattr("kafka_coop.backend.broker_assigned._LOOK_UP", timedelta(seconds=0.1))
    native = group.librdkafka
    native.absent = 0 if there else 100
    native.logs = {THERE: 7}
    wanted = [ALL]
    group.backend.find_starts(ALL, Generation(-1), lambda some: some & wanted[0])
    if not there:
        assert native.beside.asked.wait(PATIENCE.total_seconds())
        native.beside.logs[THERE] = 7
    searching.wait_for(-1, THERE)
    native.logs.clear()
    native.beside.logs.clear()
    native.beside.asked.clear()
    group.backend.find_starts(ALL, Generation(-2), lambda some: some & wanted[0])
    assert native.beside.asked.wait(PATIENCE.total_seconds())
    wanted[0] = NO_PARTITIONS
    wait_until(lambda: not native.beside.open, "nobody wants it any more")
