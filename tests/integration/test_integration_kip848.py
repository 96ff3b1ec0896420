"""group.protocol=consumer: librdkafka is the member, and the user's side stays as it is.

What another release's coordinator may do otherwise runs on the newest one as well.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]  # its stubs hide them
from integration_support import (
    PATIENCE,
    Member,
    UserError,
    code,
    group_description,
    in_background,
    members,
    publish,
    shared,
    since_kip_848,
    unique,
    until,
)
from prometheus_client import CollectorRegistry
from test_integration_processes import child
from test_integration_versions import NEWEST

from kafka_coop import CoopConsumer
from kafka_coop.assignors import Range
from kafka_coop.fetching.native import plain_partitions
from kafka_coop.kafka_errors import CommitException, ConfigurationException
from kafka_coop.testing import LocalKafka
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.local import DEFAULT_VERSION
from kafka_coop.types import Partitions

pytestmark = [pytest.mark.kafka, since_kip_848]

_THE_RUNS = "the run's"

on_the_newest_too = pytest.mark.parametrize(
    "kafka",
    # One worker runs the latter, so that there is one such broker.
    [_THE_RUNS, pytest.param(NEWEST, marks=pytest.mark.xdist_group("newest"))],
    indirect=True,
)


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest, kafka: KafkaCluster) -> Iterator[KafkaCluster]:
    """The broker of the whole run, or one of another release."""
    release = getattr(request, "param", _THE_RUNS)
    if release == _THE_RUNS:
        yield kafka
    elif (
        request.config.getoption("--kafka-version")
        or request.config.getoption("--kafka") != "local"
    ):
        pytest.skip("the run is of another broker, and has these tests there")
    else:
        with LocalKafka(release) as other:
            yield other


class NextGeneration(Member):
    """A member of the new protocol, which leaves timing to the broker."""

    def __init__(self, cluster: KafkaCluster, group: str, *topics: str, **config: Any) -> None:
        super().__init__(cluster, group, *topics, group_protocol="consumer", **config)


@on_the_newest_too
def test_callbacks_records_and_commits_are_as_ever(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    publish(kafka, topic, 10, 0, 1, 2, 3)
    first = NextGeneration(kafka, group, topic)
    with members(first):
        shared(topic, 4, first)
        until(lambda: len(first.records) == 40, first)
        second = NextGeneration(kafka, group, topic)
        with members(second):
            shared(topic, 4, first, second)
            assert first.count("revoked") >= 1
            assert first.balance() == first.owned
            assert second.balance() == second.owned
            publish(kafka, topic, 10, 0, 1, 2, 3)
            until(lambda: len(first.records) + len(second.records) >= 80, first, second)
        shared(topic, 4, first)
    delivered = sorted(first.records + second.records)
    assert delivered == [(topic, p, o) for p in range(4) for o in range(20)]
    assert not first.raised + second.raised
    assert first.count("lost") == second.count("lost") == 0


@pytest.mark.verdict
@on_the_newest_too
def test_what_is_revoked_is_committed_while_it_is_owned(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    publish(kafka, topic, 3, 0, 1)
    told: list[Any] = []
    first = NextGeneration(
        kafka, group, topic, enable_auto_commit=False, on_commit=lambda e, ps: told.append((e, ps))
    )
    first.hooks["revoked"] = lambda consumer, _: consumer.commit(asynchronous=False)
    with members(first):
        until(lambda: len(first.records) == 6, first)
        first.consumer.commit(message=first.messages[0])  # asynchronous, reported inside poll
        until(lambda: bool(told), first)
        assert told[0][0] is None
    reader = NextGeneration(kafka, group)
    with members(reader):
        wanted = [TopicPartition(topic, p) for p in range(2)]
        assert [p.offset for p in reader.consumer.committed(wanted, PATIENCE)] == [3, 3]
    assert not first.raised


def test_a_callbacks_exception_comes_out_of_poll(kafka: KafkaCluster) -> None:
    topic = unique("t")
    kafka.create_topic(topic)
    member = NextGeneration(kafka, unique("g"))

    def fail(_: CoopConsumer, __: list[TopicPartition]) -> None:
        raise UserError("assigned")

    member.hooks["assigned"] = fail
    with members(member):
        member.subscribe(topic)
        until(lambda: bool(member.raised), member)
        member.hooks.clear()
        publish(kafka, topic, 1, 0)
        until(lambda: bool(member.records), member)
    assert [str(e) for e in member.raised] == ["assigned"]


@pytest.mark.verdict
@on_the_newest_too
def test_what_came_before_a_partitions_first_record_was_taken_is_the_next_owners(
    kafka: KafkaCluster,
) -> None:
    """With ``latest`` and nothing committed: its start is known, and committed as it goes."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    publish(kafka, topic, 3, 0, 1)
    first = NextGeneration(kafka, group, auto_offset_reset="latest")
    with members(first):
        first.hooks["assigned"] = lambda consumer, ps: consumer.pause(ps)
        first.subscribe(topic)
        shared(topic, 2, first)
        there = first.consumer.assignment()
        until(lambda: all(p.offset == 3 for p in first.consumer.position(there)), first)
        publish(kafka, topic, 2, 0, 1)
    second = NextGeneration(kafka, group, topic, auto_offset_reset="latest")
    with members(second):
        until(lambda: len(second.records) == 4, second)
    assert sorted(second.records) == [(topic, p, o) for p in range(2) for o in (3, 4)]


def test_a_seek_right_behind_on_assign_goes(kafka: KafkaCluster) -> None:
    """librdkafka refuses one while it looks up where to start."""
    topic = unique("t")
    kafka.create_topic(topic)
    publish(kafka, topic, 3, 0)
    member = NextGeneration(kafka, unique("g"), topic)
    with members(member):
        until(lambda: bool(member.owned), member)
        member.records.clear()
        member.consumer.seek(TopicPartition(topic, 0, 1))
        until(lambda: len(member.records) >= 2, member)
    assert member.records[:2] == [(topic, 0, 1), (topic, 0, 2)]


@pytest.mark.verdict
@on_the_newest_too
def test_a_start_that_is_told_late_is_known_from_then_on(kafka: KafkaCluster) -> None:
    """A transaction holds its offset back; with ``latest`` what comes before it was told is not
    ours, and all that comes after is: the next owner's, where we have not polled it."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("x")}
    )
    producer.init_transactions(PATIENCE)
    before = NextGeneration(kafka, group, topic, enable_auto_commit=False)
    with members(before):
        shared(topic, 2, before)
        producer.begin_transaction()
        metadata = before.consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 0)], metadata, PATIENCE)
    first = NextGeneration(kafka, group, topic, auto_offset_reset="latest")
    with members(first):
        shared(topic, 2, first)
        there = [TopicPartition(topic, p) for p in range(2)]
        assert [p.offset for p in first.consumer.position(there)] == [OFFSET_INVALID, 0]
        publish(kafka, topic, 3, 0, 1)
        until(lambda: len(first.records) == 3, first)
        assert {p for _, p, _ in first.records} == {1}, "nothing of the other is delivered"
        producer.abort_transaction(PATIENCE)
        until(lambda: first.consumer.position(there)[0].offset == 3, first)
        first.consumer.pause(there)
        publish(kafka, topic, 2, 0)
    second = NextGeneration(kafka, group, topic, auto_offset_reset="latest")
    with members(second):
        until(lambda: len(second.records) == 2, second)
        publish(kafka, topic, 1, 0)
        until(lambda: len(second.records) == 3, second)
    assert second.records == [(topic, 0, offset) for offset in (3, 4, 5)]
    assert not first.raised + second.raised


@pytest.mark.verdict
@on_the_newest_too
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_ctrl_c_upon_librdkafkas_callback_hides_no_partition(
    kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch, reset: str
) -> None:
    """It strikes before the first line of ours, and confluent-kafka assigns in our place."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    publish(kafka, topic, 5, 0, 1)
    strikes = 1

    def struck(natives: list[TopicPartition]) -> Partitions:
        nonlocal strikes
        strikes -= 1
        if strikes == 0:
            raise KeyboardInterrupt
        return plain_partitions(natives)

    monkeypatch.setattr("kafka_coop.fetching.group_fetcher.plain_partitions", struck)
    first = NextGeneration(kafka, group, topic, auto_offset_reset=reset)
    first_told = 0 if reset == "earliest" else 5
    with members(first):
        with pytest.raises(KeyboardInterrupt):
            until(lambda: strikes < 1, first)
        assert not first.owned
        shared(topic, 2, first)
        there = first.consumer.assignment()
        until(lambda: all(p.offset >= 0 for p in first.consumer.position(there)), first)
        publish(kafka, topic, 5, 0, 1)
        expected = sorted((topic, p, o) for p in range(2) for o in range(first_told, 10))
        until(lambda: len(first.records) >= len(expected), first)
        assert sorted(first.records) == expected
        second = NextGeneration(kafka, group, topic, auto_offset_reset=reset)
        with members(second):
            strikes = 1
            with pytest.raises(KeyboardInterrupt):
                until(lambda: strikes < 1, first, second)
            assert len(first.owned) == 2, "it is not told yet"
            shared(topic, 2, first, second)
            assert first.count("lost") == 1
            assert first.balance() == first.owned
            publish(kafka, topic, 5, 0, 1)
            until(
                lambda: len(first.records) + len(second.records) >= len(expected) + 10,
                first,
                second,
            )
    first.consumer.close()
    assert not first.raised + second.raised


def test_on_assign_says_where_to_start_and_pausing_holds(kafka: KafkaCluster) -> None:
    topic = unique("t")
    kafka.create_topic(topic)
    publish(kafka, topic, 10, 0)
    member = NextGeneration(kafka, unique("g"))
    member.hooks["assigned"] = lambda consumer, ps: consumer.incremental_assign(
        [TopicPartition(p.topic, p.partition, 7) for p in ps]
    )
    with members(member):
        member.subscribe(topic)
        until(lambda: len(member.records) == 3, member)
        assert [offset for _, _, offset in member.records] == [7, 8, 9]
        there = [TopicPartition(topic, 0)]
        assert member.consumer.position(there)[0].offset == 10
        member.consumer.pause(there)
        publish(kafka, topic, 1, 0)
        member.consumer.seek(TopicPartition(topic, 0, 0))
        assert not any(member.step(0.05) for _ in range(10))
        member.consumer.resume(there)
        until(lambda: (topic, 0, 10) in member.records, member)


@on_the_newest_too
def test_callbacks_may_ask_of_the_cluster(kafka: KafkaCluster) -> None:
    """Asked of the consumer that calls it, the next callback, a log line, ends the process."""
    topic = unique("t")
    kafka.create_topic(topic)
    publish(kafka, topic, 3, 0)
    logger = logging.getLogger(topic)
    logger.addHandler(heard := Lines())
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    member = NextGeneration(kafka, unique("g"), logger=logger, debug="cgrp")
    answers: list[Any] = []

    def ask(consumer: CoopConsumer, _: list[TopicPartition]) -> None:
        answers.append(topic in consumer.list_topics(timeout=PATIENCE).topics)
        answers.append(consumer.cluster_id(PATIENCE))
        before.append(heard.lines)

    before: list[int] = []
    member.hooks |= {"assigned": ask, "revoked": ask}
    with members(member):
        member.subscribe(topic)
        until(lambda: len(member.records) == 3, member)
        assert heard.lines > before[0], "librdkafka called back again"
    assert answers == [True, kafka.admin().list_topics(timeout=PATIENCE).cluster_id] * 2
    assert not member.raised


class Lines(logging.Handler):
    """Counts what is logged."""

    lines = 0

    def emit(self, _: logging.LogRecord) -> None:
        self.lines += 1


def test_calls_from_other_threads_have_their_turn(kafka: KafkaCluster) -> None:
    topic = unique("t")
    kafka.create_topic(topic)
    publish(kafka, topic, 100, 0)
    member = NextGeneration(kafka, unique("g"), topic, enable_auto_commit=False)
    with members(member):
        until(lambda: len(member.records) == 100, member)
        with in_background(lambda: member.step(1.0)):
            for offset in range(1, 20):
                there = TopicPartition(topic, 0, offset)
                member.consumer.commit(offsets=[there], asynchronous=False)
                assert member.consumer.committed([there], PATIENCE)[0].offset == offset


@pytest.mark.verdict
@on_the_newest_too
def test_who_asks_what_a_transaction_keeps_back_keeps_nobody_from_polling(
    kafka: KafkaCluster,
) -> None:
    topic = unique("t")
    kafka.create_topic(topic)
    member = NextGeneration(kafka, unique("g"), topic, enable_auto_commit=False)
    with members(member):
        publish(kafka, topic, 1, 0)
        until(lambda: bool(member.records), member)
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("x")}
        )
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        metadata = member.consumer.consumer_group_metadata()
        there = TopicPartition(topic, 0, 1)
        producer.send_offsets_to_transaction([there], metadata, PATIENCE)
        with ThreadPoolExecutor(1) as other:
            query = other.submit(member.consumer.committed, [there])
            for _ in range(3):
                before = len(member.records)
                publish(kafka, topic, 1, 0)
                until(lambda had=before: len(member.records) > had, member)  # type: ignore[misc]  # no default's type
            assert not query.done()
            producer.commit_transaction(PATIENCE)
            assert query.result(PATIENCE)[0].offset == 1


@pytest.mark.verdict
@on_the_newest_too
def test_the_epoch_fences_transactions(kafka: KafkaCluster) -> None:
    topic = unique("t")
    kafka.create_topic(topic)
    member = NextGeneration(kafka, unique("g"), topic)
    with members(member):
        shared(topic, 1, member)
        metadata = member.consumer.consumer_group_metadata()
        assert member.consumer.memberid()
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("x")}
        )
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, PATIENCE)
        producer.commit_transaction(PATIENCE)
    producer.begin_transaction()
    with pytest.raises(KafkaException):
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], metadata, PATIENCE)
    producer.abort_transaction(PATIENCE)


_SENDS_OFFSETS_UNTOLD = """
import json, os, signal
from confluent_kafka import KafkaException, Producer, TopicPartition

while not consumer.assignment():
    consumer.poll(0.1)
producer = Producer({"bootstrap.servers": BROKERS, "transactional.id": ID})
producer.init_transactions(30)
print(json.dumps(["assigned", [[p.topic, p.partition] for p in consumer.assignment()]]), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
for _ in range(20):
    producer.begin_transaction()
    offset = TopicPartition(consumer.assignment()[0].topic, 0, 8)
    try:
        sent_by = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([offset], sent_by, 30)
        print(json.dumps(["sent", "accepted"]), flush=True)
    except KafkaException as error:
        print(json.dumps(["sent", error.args[0].name()]), flush=True)
    producer.abort_transaction(30)
"""
"""Its user hears nothing of what became of its membership while it was stopped: it does not poll.
librdkafka's own thread does, within the heartbeats' intervals that twenty transactions take."""


@pytest.mark.verdict
@on_the_newest_too
def test_who_is_out_of_the_group_and_has_not_heard_of_it_can_send_no_offsets(
    kafka: KafkaCluster,
) -> None:
    """What librdkafka vouches for is who it was, until its user has been told: the coordinator
    takes a transaction's offsets from anybody who names no member."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    set_pace(kafka, group, session_ms=2000, heartbeat_ms=200)
    program = f"BROKERS, ID = {kafka.bootstrap_servers!r}, {unique('x')!r}{_SENDS_OFFSETS_UNTOLD}"
    with child(kafka, group, topic, program=program, group_protocol="consumer") as zombie:
        until(lambda: bool(zombie.heard("assigned")))
        heir = NextGeneration(kafka, group)
        with members(heir):
            heir.subscribe(topic)
            shared(topic, 2, heir)
            zombie.send(signal.SIGCONT)
            until(lambda: bool(zombie.heard("closed")), heir)
    assert zombie.heard("sent") == [["sent", "UNKNOWN_MEMBER_ID"]] * 20


@pytest.mark.verdict
@on_the_newest_too
def test_a_fenced_member_is_told_of_its_loss(kafka: KafkaCluster) -> None:
    """Stopped for longer than its session: what it owned went to another meanwhile."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    set_pace(kafka, group, session_ms=2000, heartbeat_ms=200)
    with child(kafka, group, topic, group_protocol="consumer") as zombie:
        until(lambda: len(zombie.owned) == 2)
        heir = NextGeneration(kafka, group)
        with members(heir):
            zombie.send(signal.SIGSTOP)
            try:
                heir.subscribe(topic)
                shared(topic, 2, heir)
            finally:
                zombie.send(signal.SIGCONT)
            until(lambda: len(zombie.owned) == 1 == len(heir.owned), heir)
            told = [said for _, said in zombie.said if said[0] != "started"]
            everything = [[topic, 0], [topic, 1]]
            assert told[:2] == [["assigned", everything], ["lost", everything]]
            assert [kind for kind, *_ in told[2:]] == ["assigned"]


@on_the_newest_too
def test_who_restarts_a_static_member_that_crashed_is_told_that_it_comes_too_soon(
    kafka: KafkaCluster,
) -> None:
    """The classic protocol gives it the place at once; here the dead one has it for a session."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic)
    static: dict[str, Any] = {"group_protocol": "consumer", "group_instance_id": "one"}
    with child(kafka, group, topic, **static) as crashed:
        until(lambda: bool(crashed.owned))
        crashed.send(signal.SIGKILL)
    successor = Member(kafka, group, topic, **static)
    with members(successor):
        until(lambda: bool(successor.errors), successor)
        error = successor.errors[0].error()
        assert error is not None
        assert error.fatal()
        assert "group.consumer.session.timeout.ms" in error.str()
        health = successor.consumer.health()
        assert health.problems == ("over for good", "not in the group")
        assert not health.live


@on_the_newest_too
def test_who_is_out_for_good_is_told_of_its_loss_and_why(kafka: KafkaCluster) -> None:
    """librdkafka and Python take the pattern, and the broker does not."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    publish(kafka, topic, 3, 0, 1)
    member = NextGeneration(kafka, group, topic, auto_commit_interval_ms=60_000)
    with members(member):
        until(lambda: len(member.records) == 6, member)
        member.subscribe(topic, rf"^({topic})-a\1")
        until(lambda: bool(member.errors), member)
        error = member.errors[0].error()
        assert error is not None
        assert error.fatal()
        assert rf"correct '^({topic})-a\1'" in error.str()
        assert member.told == [(kind, ((topic, 0), (topic, 1))) for kind in ("assigned", "lost")]
        assert member.owned == ()
        assert _sample(member.registry, "kafka_coop_assigned_partitions") == 0
        member.consumer.unsubscribe()
        with pytest.raises(KafkaException, match="make another one"):
            member.subscribe(topic)
        heir = NextGeneration(kafka, group)
        there = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        with members(heir):
            assert [p.offset for p in heir.consumer.committed(there, PATIENCE)] == [
                OFFSET_INVALID
            ] * 2


@pytest.mark.verdict
@on_the_newest_too
def test_what_is_unsubscribed_from_is_not_committed(kafka: KafkaCluster) -> None:
    """As with the classic protocol. confluent's member does commit."""
    topic, other, group = unique("t"), unique("t"), unique("g")
    for name in (topic, other):
        kafka.create_topic(name)
        publish(kafka, name, 3, 0)
    there = [TopicPartition(name, 0) for name in (topic, other)]
    member = NextGeneration(kafka, group, topic, auto_commit_interval_ms=60_000)
    with members(member):
        until(lambda: len(member.records) == 3, member)
        member.consumer._commits.auto_commit_due = 0.0  # as if that took the user so long
        member.consumer.unsubscribe()
        until(lambda: member.owned == (), member)
        member.subscribe(other)
        until(lambda: len(member.records) == 6, member)
        assert member.consumer.committed(there, PATIENCE)[0].offset == OFFSET_INVALID
    reader = NextGeneration(kafka, group)
    with members(reader):
        offsets = [p.offset for p in reader.consumer.committed(there, PATIENCE)]
    assert offsets == [OFFSET_INVALID, 3]


@pytest.mark.verdict
@on_the_newest_too
def test_of_a_commit_each_partition_has_its_own_result(kafka: KafkaCluster) -> None:
    topic, nowhere = unique("t"), unique("t")
    kafka.create_topic(topic, partitions=3)
    member = NextGeneration(kafka, unique("g"), topic, enable_auto_commit=False)
    with members(member):
        shared(topic, 3, member)
        wanted = [TopicPartition(topic, partition, 5) for partition in range(3)]
        with pytest.raises(CommitException) as raised:
            member.consumer.commit(
                offsets=[*wanted, TopicPartition(nowhere, 0, 7)], asynchronous=False
            )
        failed = {(p.topic, p.partition) for p in raised.value.partitions if p.error}
        assert failed == {(nowhere, 0)}
        assert [p.offset for p in member.consumer.committed(wanted, PATIENCE)] == [5, 5, 5]


def set_pace(kafka: KafkaCluster, group: str, *, session_ms: int, heartbeat_ms: int) -> None:
    """What a group's members are told by the broker: they may not choose."""
    pace = {"session.timeout.ms": session_ms, "heartbeat.interval.ms": heartbeat_ms}
    resource = ConfigResource(ResourceType.GROUP, group)
    for key, value in pace.items():
        resource.add_incremental_config(
            ConfigEntry(f"consumer.{key}", str(value), incremental_operation=AlterConfigOpType.SET)
        )
    admin = kafka.admin()
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE)


@on_the_newest_too
def test_the_broker_matches_patterns_and_its_assignor_is_chosen(kafka: KafkaCluster) -> None:
    stem = unique("p")
    for name in ("a", "b"):
        kafka.create_topic(f"{stem}-{name}")
    member = NextGeneration(kafka, unique("g"), f"^{stem}-.*", group_remote_assignor="range")
    with members(member):
        until(lambda: len(member.owned) == 2, member)
        assert member.consumer.subscription() == [f"^{stem}-.*"]


def test_rebalances_are_counted(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic)
    member = NextGeneration(kafka, group, topic)
    with members(member):
        shared(topic, 1, member)
        assert _sample(member.registry, "kafka_coop_assigned_partitions") == 1
        assert (_sample(member.registry, "kafka_coop_rebalance_latency_seconds_count") or 0) >= 1
        assert not _sample(member.registry, "kafka_coop_join_latency_seconds_count"), "not known"
    assert not member.raised


def test_by_hand(kafka: KafkaCluster) -> None:
    topic = unique("t")
    kafka.create_topic(topic)
    publish(kafka, topic, 2, 0)
    member = NextGeneration(kafka, unique("g"))
    with members(member):
        member.consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        until(lambda: len(member.records) == 2, member)


@pytest.mark.parametrize("start", [OFFSET_INVALID, 1])
def test_what_is_assigned_by_hand_while_the_group_has_it_to_take_stays(
    kafka: KafkaCluster, start: int
) -> None:
    """It has unsubscribed, and on_revoke comes with the next poll."""
    topic = unique("t")
    kafka.create_topic(topic, partitions=2)
    publish(kafka, topic, 2, 0, 1)
    member = NextGeneration(kafka, unique("g"), topic)
    with members(member):
        until(lambda: len(member.records) == 4, member)
        member.records.clear()
        member.consumer.unsubscribe()
        member.consumer.assign([TopicPartition(topic, 0, start)])
        publish(kafka, topic, 2, 0, 1)
        expected = [(topic, 0, o) for o in range(max(start, 0), 4)]  # it has committed nothing
        until(lambda: len(member.records) >= len(expected), member)
    assert member.records == expected
    assert [told for told, _ in member.told][-1] == "revoked"


def test_what_was_assigned_by_hand_may_be_closed_before_it_was_polled(kafka: KafkaCluster) -> None:
    member = NextGeneration(kafka, unique("g"))
    member.consumer.assign([TopicPartition(unique("t"), 0)])
    member.consumer.close()


@pytest.mark.parametrize("key", ["coop.poll.prefetch", "session.timeout.ms"])
def test_keys_of_the_classic_member_are_refused(kafka: KafkaCluster, key: str) -> None:
    with pytest.raises(ConfigurationException, match=rf"{key}.*group\.protocol=classic"):
        _made(kafka, {key: 500})


def test_our_assignors_are_refused(kafka: KafkaCluster) -> None:
    with pytest.raises(ConfigurationException, match=r"group\.remote\.assignor"):
        _made(kafka, {}, assignors=[Range()])


def _made(kafka: KafkaCluster, config: dict[str, Any], **more: Any) -> CoopConsumer:
    required = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"}
    return CoopConsumer(
        {**required, "group.protocol": "consumer", **config}, registry=CollectorRegistry(), **more
    )


# --- from one protocol to the other ---------------------------------------------------------------


@on_the_newest_too
def test_a_classic_member_is_told_when_its_group_is_upgraded_under_it(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    # The one strategy of ours that leaves no marks: those Kafka will not lose.
    eager = {"session_timeout_ms": 6000, "partition_assignment_strategy": "sticky"}
    classic = Member(kafka, group, topic, **eager)
    with members(classic):
        shared(topic, 4, classic)
        modern = NextGeneration(kafka, group, topic)
        with members(modern):
            shared(topic, 4, classic, modern)
            until(lambda: bool(classic.raised), classic, modern)
            assert "group.protocol=consumer" in str(classic.raised[0])
            publish(kafka, topic, 5, 0, 1, 2, 3)
            until(lambda: len(classic.records) + len(modern.records) >= 20, classic, modern)
            assert len(classic.raised) == 1, "once"


@on_the_newest_too
def test_a_group_that_ours_lead_is_not_upgraded_and_the_newcomer_learns_why(
    kafka: KafkaCluster,
) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    classic = Member(kafka, group, topic, session_timeout_ms=6000)
    with members(classic):
        shared(topic, 2, classic)
        modern = NextGeneration(kafka, group, topic)
        with members(modern):
            until(lambda: bool(modern.errors), classic, modern)
            error = modern.errors[0].error()
            assert error is not None
            assert error.fatal()
            assert "docs/MIGRATION.md" in error.str()
        assert classic.calls("assigned") == [((topic, 0), (topic, 1))]
        assert not classic.raised


@on_the_newest_too
def test_and_back(kafka: KafkaCluster) -> None:
    """When the last member of the new protocol has gone, our strategies assign again."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    modern = NextGeneration(kafka, group, topic)
    with members(modern):
        shared(topic, 4, modern)
        classic = Member(kafka, group, topic, session_timeout_ms=6000)
        with members(classic):
            shared(topic, 4, classic, modern)
            with in_background(classic.step):
                modern.consumer.close()
            shared(topic, 4, classic)
            assert classic.consumer.memberid()


@on_the_newest_too
def test_who_takes_a_static_members_place_notices_new_partitions(kafka: KafkaCluster) -> None:
    """The broker holds no round for it, so that nobody is told to lead."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    modern = NextGeneration(kafka, group, topic, group_instance_id="one")
    with members(modern):
        shared(topic, 2, modern)
    classic = Member(
        kafka,
        group,
        topic,
        group_instance_id="one",
        session_timeout_ms=6000,
        topic_metadata_refresh_interval_ms=200,
    )
    with members(classic):
        shared(topic, 2, classic)
        kafka.add_partitions(topic, total=4)
        shared(topic, 4, classic)


def _sample(registry: CollectorRegistry, name: str) -> float | None:
    values = [s.value for f in registry.collect() for s in f.samples if s.name == name]
    return values[0] if values else None


# --- classic members that come to a group of this protocol, by the broker's policy --------------


@pytest.fixture
def of_policy(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], KafkaCluster]]:
    """Starts a broker of a release with this ``group.consumer.migration.policy``."""
    if (
        request.config.getoption("--kafka-version")
        or request.config.getoption("--kafka") != "local"
    ):
        pytest.skip("brokers of these releases are started beside the run's, from their jars")
    with contextlib.ExitStack() as stack:

        def started(release: str, policy: str) -> KafkaCluster:
            properties = {"group.consumer.migration.policy": policy}
            return stack.enter_context(LocalKafka(release, properties=properties))

        yield started


def type_of(kafka: KafkaCluster, group: str) -> ConsumerGroupType:
    found: ConsumerGroupType = group_description(kafka, group).type
    return found


@pytest.mark.parametrize(
    ("release", "policy"),
    [
        (DEFAULT_VERSION, "bidirectional"),
        (DEFAULT_VERSION, "downgrade"),
        (DEFAULT_VERSION, "upgrade"),
        (DEFAULT_VERSION, "disabled"),
        (NEWEST, "downgrade"),
        (NEWEST, "upgrade"),
    ],
)
def test_what_becomes_of_the_group_when_its_last_member_has_gone_the_policy_says(
    of_policy: Callable[[str, str], KafkaCluster], release: str, policy: str
) -> None:
    """docs/MIGRATION.md: it becomes a classic one, or stays the broker's.

    With the newest release what is the broker's to assign may then be nobody's.
    """
    kafka = of_policy(release, policy)
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    last = NextGeneration(kafka, group, topic)
    with members(last):
        shared(topic, 4, last)
        ours = Member(kafka, group, topic, session_timeout_ms=6000)
        with members(ours):
            shared(topic, 4, last, ours)
            assert [code(e) for e in ours.raised] == [KafkaError.INCONSISTENT_GROUP_PROTOCOL]
            assert type_of(kafka, group) is ConsumerGroupType.CONSUMER
            with in_background(ours.step):
                last.consumer.close()
            if (release, policy) == (NEWEST, "upgrade"):
                told, owned = list(ours.told), ours.owned
                begun = time.monotonic()
                until(lambda: time.monotonic() > begun + 3, ours)  # many heartbeats of 50 ms
                assert (ours.told, ours.owned) == (told, owned), "the other half is nobody's"
                ours.consumer.enforce_rebalance()
            shared(topic, 4, ours)
            stays = policy in ("upgrade", "disabled")
            expected = ConsumerGroupType.CONSUMER if stays else ConsumerGroupType.CLASSIC
            assert type_of(kafka, group) is expected
            assert len(ours.raised) == 1
            assert not ours.calls("lost")


def test_where_the_policy_is_disabled_a_classic_member_is_refused_until_the_group_is_empty(
    of_policy: Callable[[str, str], KafkaCluster],
) -> None:
    """With the newest release; an older one takes it in, as the test above has it."""
    kafka = of_policy(NEWEST, "disabled")
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    last = NextGeneration(kafka, group, topic)
    with members(last):
        shared(topic, 4, last)
        told = list(last.told)
        as_by_default = {"retry_backoff_ms": 100, "session_timeout_ms": 6000}
        ours = Member(kafka, group, topic, **as_by_default)
        with members(ours):
            until(lambda: len(ours.raised) == 6, last, ours)
            begun = time.monotonic()
            until(lambda: len(ours.raised) == 8, last, ours)
            assert time.monotonic() - begun > 1, "about once a second"
            assert {code(e) for e in ours.raised} == {KafkaError.INCONSISTENT_GROUP_PROTOCOL}
            assert not ours.owned
            assert last.told == told
            with in_background(ours.step):
                last.consumer.close()
            shared(topic, 4, ours)
            assert type_of(kafka, group) is ConsumerGroupType.CLASSIC
