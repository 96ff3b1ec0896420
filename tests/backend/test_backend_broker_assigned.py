"""KIP-848's jobs: commits and queries that wait for their turn with librdkafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import pytest

from kafka_coop.backend.broker_assigned import BrokerAssignedBackend
from kafka_coop.backend.futures import result_within
from kafka_coop.backend.interface import Observer
from kafka_coop.config import parse
from kafka_coop.errors import RequestTimedOutError
from kafka_coop.fetching.group_fetcher import GroupFetcher, Told
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.turns import TurnLock
from kafka_coop.types import (
    NO_GENERATION,
    Generation,
    GroupMetadata,
    MemberId,
    Partitions,
    TopicPartition,
)

PATIENCE = timedelta(seconds=30)
THERE = TopicPartition("t", 0)
ALL = Partitions.of([THERE])


class Librdkafka:
    """Stands in for `GroupFetcher`: it takes every commit, once there is a coordinator.

    Attributes:
        coordinator: Whether there is one.
        asked: For how long it was asked for, each time.
        takes: Seconds that it takes to answer.
        missed: It was asked for, and was not there.
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
        if not self.coordinator.is_set():
            self.missed.set()
        return self.coordinator.is_set() and within >= self.takes and not self.left

    def leave(self, _owns: Callable[[], bool]) -> None:
        self.left = True
        self.while_leaving()

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[Any, ErrorCode]:
        self.coordinator.wait(PATIENCE.total_seconds())
        self.committed_ += [at.offset for at in offsets.values()]
        return dict.fromkeys(offsets, ErrorCode.none)


class Group:
    """A member, and the lock under which a poll of its user's would be inside librdkafka.

    Attributes:
        attended: How often the mailbox was seen to.
        attending: What the user does then.
    """

    def __init__(self) -> None:
        self.librdkafka = Librdkafka()
        self.lock = TurnLock()
        self.attended = 0
        self.attending: Callable[[], object] = lambda: None
        self.backend = BrokerAssignedBackend(
            parse(
                {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "group.protocol": "consumer"}
            ),
            cast(GroupFetcher, self.librdkafka),
            lock=self.lock,
            observer=Observer(),
            logger=logging.getLogger("kafka_coop"),
        )
        self.backend.start(self._attend)
        self.backend.subscribe(("t",), ())

    def _attend(self) -> None:
        self.attended += 1
        self.attending()

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


def test_closing_waits_for_no_commit_that_nobody_takes(group: Group) -> None:
    native = group.librdkafka
    native.coordinator.clear()
    waiting = [group.backend.commit({THERE: OffsetAndMetadata(offset=1)}, PATIENCE)]
    assert native.missed.wait(PATIENCE.total_seconds())
    native.asked.clear()
    with group.lock:
        waiting += [group.backend.commit({THERE: OffsetAndMetadata(offset=2)}, timedelta(0))]
        group.backend.begin_close()
    assert [commit.result(0) for commit in waiting] == [TIMED_OUT] * 2
    assert native.left
    assert native.committed_ == []
    assert sum(native.asked) < 45


def test_what_is_revoked_by_closing_is_committed(group: Group) -> None:
    """librdkafka is asked before: from then on it says nothing."""
    taken: list[Mapping[Any, ErrorCode]] = []
    group.librdkafka.while_leaving = lambda: taken.append(group.commit(1))
    with group.lock:
        group.librdkafka.assigned(ALL)
    group.backend.begin_close()
    assert taken == [{THERE: ErrorCode.none}]


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
    """Others can't go on meanwhile: neither can the rebalance."""
    group.librdkafka.coordinator.clear()
    with group.lock:
        assert group.commit(1, within=timedelta(seconds=7)) == TIMED_OUT
    (asked,) = group.librdkafka.asked
    assert 0 < asked <= 7


def test_so_does_a_query(group: Group) -> None:
    group.librdkafka.coordinator.clear()
    with group.lock:
        query = group.backend.committed(ALL, timedelta(seconds=7))
    with pytest.raises(RequestTimedOutError, match="no coordinator answered"):
        query.result(0)
