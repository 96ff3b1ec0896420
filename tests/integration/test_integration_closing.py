"""close() leaves, promptly, whatever the member is doing (trap 26)."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeAlias

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from integration_support import (
    PATIENCE,
    Cluster,
    Member,
    UserError,
    classic,
    in_background,
    members,
    publish,
    settings,
    shared,
    unique,
    until,
)
from prometheus_client import REGISTRY, generate_latest

from kafka_coop import CoopConsumer
from kafka_coop.backend.classic import ClassicBackend
from kafka_coop.client import closing
from kafka_coop.membership.states import State
from kafka_coop.testing import EmbeddedKafka

PROMPTLY = 3.0
"""Seconds; the mock's own rounds take 0.1, LeaveGroup's time-out is 3."""


@contextmanager
def promptly(within: float = PROMPTLY) -> Iterator[None]:
    """A bound rather than a measurement: what hangs takes far longer."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < within, "close() hung"


def sent(kafka: EmbeddedKafka, api: str) -> int:
    return sum(1 for request in kafka.requests() if request.api == api)


def test_right_after_construction(embedded: EmbeddedKafka) -> None:
    embedded.track_requests()
    member = Member(embedded, unique("g"))
    with promptly():
        member.consumer.close()
    assert not member.told
    assert sent(embedded, "LeaveGroup") == 0
    member.consumer.close()  # a second call does nothing


def test_right_after_subscribing(embedded: EmbeddedKafka) -> None:
    embedded.create_topic("t")
    for _ in range(5):  # it meets another moment of the join each time
        embedded.track_requests()
        member = Member(embedded, unique("g"), "t")
        with promptly():
            member.consumer.close()
        assert sent(embedded, "LeaveGroup") == (sent(embedded, "JoinGroup") > 0)


def is_parked(member: Member) -> bool:
    """Its JoinGroup is out, with the id that the coordinator gave it."""
    backend = classic(member)
    return bool(backend._member.member_id) and backend._member.state is State.JOINING


def test_while_the_join_is_parked(embedded: EmbeddedKafka) -> None:
    """The mock waits five seconds for members here; LeaveGroup goes out all the same.

    Unlike Kafka it takes no commits meanwhile, and close would try until its patience ends.
    """
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=2)
    first = Member(embedded, group, topic, session_timeout_ms=6000, enable_auto_commit=False)
    shared(topic, 2, first)
    second = Member(embedded, group, topic, session_timeout_ms=6000)
    until(lambda: is_parked(first), first, second)
    embedded.track_requests()
    with promptly():
        first.consumer.close()
    assert sent(embedded, "LeaveGroup") == 1
    with promptly():  # the mock has not told it its id: there is nobody to take leave of
        second.consumer.close()
    assert second.told == []


def test_while_the_join_is_parked_on_a_real_broker(kafka: Cluster) -> None:
    """The coordinator waits for a member whose callback takes its time, not for who left."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=3)
    slow = Member(kafka, group, topic)
    shared(topic, 3, slow)
    entered, go_on = threading.Event(), threading.Event()

    def wait(_: CoopConsumer, __: list[TopicPartition]) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    slow.hooks["revoked"] = wait
    second, third = Member(kafka, group, topic), Member(kafka, group)
    with members(slow), in_background(slow.step):
        try:
            until(entered.is_set, second)
            third.subscribe(topic)
            until(lambda: is_parked(third), second, third)
            for member in (third, second):
                with promptly():
                    member.consumer.close()
        finally:
            go_on.set()
        # Neither is waited for until its session expires.
        until(lambda: len(slow.owned) == 3)


def test_in_a_group_at_rest(kafka: Cluster) -> None:
    """Were LeaveGroup not sent, the others would wait until the session expires."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    long = int(2 * PATIENCE * 1000)
    first, second = (Member(kafka, group, topic, session_timeout_ms=long) for _ in range(2))
    with members(first, second):
        shared(topic, 2, first, second)
        with promptly():
            second.consumer.close()
        assert second.told[-1][0] == "revoked"
        shared(topic, 2, first)


def test_a_member_at_rest_takes_leave_once(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic)
    shared(topic, 1, member)
    embedded.track_requests()
    with promptly():
        member.consumer.close()
    assert sent(embedded, "LeaveGroup") == 1


def test_with_work_for_callbacks_pending(embedded: EmbeddedKafka) -> None:
    """The step that waits for the next poll is done, or withdrawn; told in order either way."""
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=4)
    for _ in range(3):
        first = Member(embedded, group, topic)
        with members(first):
            shared(topic, 4, first)
            second = Member(embedded, group, topic)
            until(lambda: bool(second.consumer.memberid()), second)  # noqa: B023  # called before the next turn
            with promptly():
                first.consumer.close()
            assert first.balance() == ()
            shared(topic, 4, second)
            with promptly():
                second.consumer.close()
            assert second.balance() == ()


def test_callbacks_that_raise_do_not_stop_it(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic)
    shared(topic, 1, member)

    def fail(_: CoopConsumer, __: list[TopicPartition]) -> None:
        raise UserError("on_revoke")

    member.hooks["revoked"] = fail
    embedded.track_requests()
    with promptly(), pytest.raises(UserError, match="on_revoke"):
        member.consumer.close()
    assert sent(embedded, "LeaveGroup") == 1
    with pytest.raises(RuntimeError, match="closed"):
        member.consumer.poll(0)


def test_an_on_commit_that_raises_does_not_stop_it(embedded: EmbeddedKafka) -> None:
    """Each commit is reported all the same, and the member leaves."""
    reported: list[int] = []

    def fail(_: KafkaError | None, offsets: list[TopicPartition]) -> None:
        reported.append(offsets[0].offset)
        raise UserError(f"on_commit {len(reported)}")

    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic, on_commit=fail, enable_auto_commit=False)
    shared(topic, 1, member)
    embedded.track_requests()
    for offset in (1, 2):
        member.consumer.commit(offsets=[TopicPartition(topic, 0, offset)])
    with promptly(), pytest.raises(UserError, match="on_commit 1"):
        member.consumer.close()
    assert reported == [1, 2]
    assert member.told[-1][0] == "revoked"
    assert sent(embedded, "LeaveGroup") == 1


def test_what_fails_in_on_revoke_is_raised_in_the_end(embedded: EmbeddedKafka) -> None:
    """Also where it is an error of ours: only what the membership says by itself is logged."""
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic, enable_auto_commit=False)
    shared(topic, 1, member)

    def commit(consumer: CoopConsumer, _: list[TopicPartition]) -> None:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)

    member.hooks["revoked"] = commit
    embedded.track_requests()
    embedded.fail("OffsetCommit", int(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with promptly(), pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        member.consumer.close()
    assert sent(embedded, "LeaveGroup") == 1


@pytest.mark.parametrize("drain", [timedelta(seconds=60), None])
def test_ctrl_c_ends_the_draining_not_the_leave(
    drain: timedelta | None, embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first wait of either. Nobody would relieve it: it is alone."""
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic)
    shared(topic, 1, member)
    mailbox = classic(member).mailbox
    wait = mailbox.wait

    def interrupted(_: float) -> None:
        monkeypatch.setattr(mailbox, "wait", wait)
        raise KeyboardInterrupt

    monkeypatch.setattr(mailbox, "wait", interrupted)
    embedded.track_requests()
    with promptly(15), pytest.raises(KeyboardInterrupt):  # the join is under way, at the mock
        member.consumer.close(drain=drain)
    assert member.told[-1][0] == "revoked"
    assert sent(embedded, "LeaveGroup") == 1


def test_with_every_broker_down(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    publish(embedded, topic, 3, 0)
    member = Member(embedded, unique("g"), topic)
    until(lambda: len(member.records) == 3, member)
    embedded.broker_down(1)
    with promptly(15):  # five seconds are the commit's
        member.consumer.close()
    assert member.told[-1][0] in ("revoked", "lost")


def test_without_a_broker_from_the_start() -> None:
    class Nowhere:
        bootstrap_servers = "127.0.0.1:9"

        def create_topic(self, name: str, *, partitions: int = 1) -> None:
            raise AssertionError

    member = Member(Nowhere(), unique("g"), "t")
    assert member.step() is None
    with promptly():
        member.consumer.close()


def test_after_the_group_went_on_without_it(embedded: EmbeddedKafka) -> None:
    """Trap 22 (KAFKA-8972): lost, not revoked, and no commit."""
    topic = unique("t")
    embedded.create_topic(topic)
    publish(embedded, topic, 3, 0)
    member = Member(embedded, unique("g"), topic)
    until(lambda: len(member.records) == 3, member)
    embedded.fail("Heartbeat", int(KafkaError.UNKNOWN_MEMBER_ID))
    until(lambda: member.consumer.memberid() == "")
    embedded.track_requests()
    with promptly():
        member.consumer.close()
    assert [kind for kind, _ in member.told] == ["assigned", "lost"]
    assert sent(embedded, "OffsetCommit") == 0


@pytest.mark.parametrize(
    "blocked",
    [
        pytest.param(lambda c: c.poll(), id="poll"),
        pytest.param(lambda c: c.poll(60), id="poll with a time-out"),
        pytest.param(lambda c: c.consume(10), id="consume"),
    ],
)
@pytest.mark.parametrize("joined", [True, False], ids=["in the group", "in none"])
def test_from_another_thread_it_wakes_a_blocked_poll(
    embedded: EmbeddedKafka, blocked: Callable[[CoopConsumer], object], joined: bool
) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"))
    if joined:
        member.subscribe(topic)
        shared(topic, 1, member)
    raised: list[BaseException] = []
    mailbox = member.consumer._mailbox
    before = mailbox.last_poll

    def poll() -> None:
        try:
            blocked(member.consumer)
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    until(lambda: mailbox.last_poll > before)
    with promptly():
        member.consumer.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [str(error) for error in raised] == ["Consumer closed"]


def test_everything_after_close_is_refused(embedded: EmbeddedKafka) -> None:
    member = Member(embedded, unique("g"))
    consumer = member.consumer
    consumer.close()
    there = [TopicPartition("t", 0, 0)]
    for call in (
        lambda: consumer.subscribe(["t"]),
        consumer.unsubscribe,
        consumer.subscription,
        consumer.poll,
        consumer.consume,
        consumer.commit,
        lambda: consumer.commit(offsets=there),
        lambda: consumer.store_offsets(offsets=there),
        lambda: consumer.committed(there),
        lambda: consumer.position(there),
        lambda: consumer.seek(there[0]),
        lambda: consumer.pause(there),
        lambda: consumer.resume(there),
        consumer.assignment,
        lambda: consumer.assign(there),
        consumer.unassign,
        lambda: consumer.incremental_assign(there),
        lambda: consumer.incremental_unassign(there),
        lambda: consumer.get_watermark_offsets(there[0]),
        lambda: consumer.offsets_for_times(there),
        consumer.list_topics,
        consumer.cluster_id,
        consumer.memberid,
        consumer.consumer_group_metadata,
        lambda: consumer.set_sasl_credentials("a", "b"),
        consumer.enforce_rebalance,
    ):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            call()


Reports: TypeAlias = list[tuple[KafkaError | None, list[int]]]


def reporting(kafka: EmbeddedKafka, *, auto_commit: bool) -> tuple[Member, Reports]:
    """A member with four records to read, and what its on_commit is told."""
    topic, reports = unique("t"), Reports()
    kafka.create_topic(topic)
    publish(kafka, topic, 4, 0)
    member = Member(
        kafka,
        unique("g"),
        topic,
        enable_auto_commit=auto_commit,
        on_commit=lambda error, ps: reports.append((error, [p.offset for p in ps])),
    )
    return member, reports


def test_what_on_revoke_commits_in_the_background_is_reported(embedded: EmbeddedKafka) -> None:
    """Nothing polls any more: nobody else would call on_commit."""
    member, reports = reporting(embedded, auto_commit=False)
    member.hooks["revoked"] = lambda consumer, _: consumer.commit()
    until(lambda: len(member.records) == 4, member)
    member.consumer.close()
    assert reports == [(None, [4])]


def test_commits_that_closing_does_not_wait_for_are_reported_as_failed(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "PATIENCE", timedelta(seconds=0.5))
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic)
    reports: list[int | None] = []
    member = Member(
        embedded,
        group,
        topic,
        enable_auto_commit=False,
        on_commit=lambda error, _: reports.append(None if error is None else error.code()),
    )
    shared(topic, 1, member)
    embedded.broker_down(1)
    member.consumer.commit(offsets=[TopicPartition(topic, 0, 0)])
    member.consumer.close()
    assert reports == [KafkaError.REQUEST_TIMED_OUT]


def test_an_on_revoke_of_longer_than_closing_waits_for_commits_costs_none(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user's code takes is not the coordinator's slowness."""
    monkeypatch.setattr(closing, "PATIENCE", timedelta(seconds=1))
    member, reports = reporting(embedded, auto_commit=True)
    member.hooks["revoked"] = lambda *_: time.sleep(0.7)
    until(lambda: len(member.records) == 4, member)
    member.consumer.close()
    assert reports == [(None, [4])]


# --- without close() -----------------------------------------------------------------------------


class Service:
    """Its callbacks are methods of it, so that it and its consumer hold one another."""

    def __init__(self, kafka: EmbeddedKafka, group: str, topic: str) -> None:
        self.consumer = CoopConsumer(
            settings(kafka, group),
            registry=REGISTRY,
            on_commit=self.on_commit,
            stats_cb=self.on_statistics,
        )
        self.consumer.subscribe([topic], on_assign=self.on_assign)

    def on_commit(self, *_: object) -> None: ...

    def on_statistics(self, _: str) -> None: ...

    def on_assign(self, *_: object) -> None: ...


def alone(kafka: EmbeddedKafka, group: str, topic: str) -> CoopConsumer:
    """Nothing but the caller holds it: it needs no garbage collector."""
    consumer = CoopConsumer(settings(kafka, group), registry=REGISTRY)
    consumer.subscribe([topic], on_assign=lambda *_: None)
    return consumer


def in_a_service(kafka: EmbeddedKafka, group: str, topic: str) -> CoopConsumer:
    return Service(kafka, group, topic).consumer


def join(consumer: CoopConsumer, *, partitions: int) -> None:
    until(lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == partitions)


@pytest.mark.parametrize("made", [alone, in_a_service])
def test_dropped_without_it_a_consumer_leaves_the_group_and_ends(
    embedded: EmbeddedKafka,
    made: Callable[[EmbeddedKafka, str, str], CoopConsumer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As confluent's. Its partitions would stay unread for max.poll.interval.ms."""
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=2)
    first = made(embedded, group, topic)
    join(first, partitions=2)
    backend = first._backend
    assert isinstance(backend, ClassicBackend)
    embedded.track_requests()
    del first
    if made is in_a_service:
        gc.collect()
    second = Member(embedded, group, topic)
    with members(second):
        shared(topic, 2, second)
        assert sent(embedded, "LeaveGroup") == 1
    backend._thread.join(PATIENCE)
    assert not backend._thread.is_alive()
    assert f'group="{group}"' not in generate_latest(REGISTRY).decode()
    assert f"a consumer of group {group} was dropped without close()" in caplog.text
