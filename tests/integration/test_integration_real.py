"""What only a real coordinator does: static members, transactions, topics that change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from integration_support import (
    PATIENCE,
    Kind,
    Member,
    Pairs,
    code,
    members,
    publish,
    settings,
    shared,
    unique,
    until,
)
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.config import parse
from kafka_coop.kafka_errors import FencedException
from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.watchdog.supervisor import leave
from kafka_coop.watchdog.ward import Ward

pytestmark = pytest.mark.kafka

knows_static_members = pytest.mark.since("2.3", "static members (KIP-345)")
"""An older one takes them for others: a restart is a crash and a newcomer."""

fences_transactions = pytest.mark.since("2.5", "fencing of transactions by groups (KIP-447)")
"""An older one takes offsets from anybody, and tells those of before while they are pending."""


# --- topics that change ------------------------------------------------------------------------


@pytest.mark.verdict
def test_new_partitions_are_taken_up_from_their_first_record(kafka: KafkaCluster) -> None:
    """By a group whose leader need not be who reads them."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    refresh = {"topic_metadata_refresh_interval_ms": 200}
    first, second = Member(kafka, group, topic, **refresh), Member(kafka, group, topic, **refresh)
    with members(first, second):
        shared(topic, 2, first, second)
        had = [member.count("revoked") for member in (first, second)]
        kafka.add_partitions(topic, total=4)
        publish(kafka, topic, 3, 2, 3)
        shared(topic, 4, first, second)
        until(lambda: len(first.records) + len(second.records) == 6, first, second)
        # What they had they kept.
        assert [member.count("revoked") for member in (first, second)] == had


def test_the_leader_watches_topics_that_it_does_not_read_itself(kafka: KafkaCluster) -> None:
    """Trap 31 (librdkafka#4533)."""
    mine, theirs, group = unique("mine"), unique("theirs"), unique("g")
    for topic in (mine, theirs):
        kafka.create_topic(topic)
    refresh = {"topic_metadata_refresh_interval_ms": 200}
    leader = Member(kafka, group, mine, **refresh)
    with members(leader):
        shared(mine, 1, leader)
        other = Member(kafka, group, theirs, topic_metadata_refresh_interval_ms=300_000)
        with members(other):
            until(lambda: len(other.owned) == 1, leader, other)
            kafka.add_partitions(theirs, total=3)
            until(lambda: len(other.owned) == 3, leader, other)


def test_a_deleted_topic_is_lost_and_nothing_waits_for_it(kafka: KafkaCluster) -> None:
    """Trap 14 (KAFKA-16224): auto-commit is on, and the commit can't work any more."""
    kept, deleted, group = unique("kept"), unique("deleted"), unique("g")
    for topic in (kept, deleted):
        kafka.create_topic(topic, partitions=2)
        publish(kafka, topic, 2, 0, 1)
    member = Member(
        kafka,
        group,
        kept,
        deleted,
        topic_metadata_refresh_interval_ms=200,
        allow_auto_create_topics=False,
    )
    with members(member):
        until(lambda: len(member.records) == 8, member)
        kafka.delete_topic(deleted)
        until(lambda: member.owned == ((kept, 0), (kept, 1)), member)
        assert member.calls("lost") == [((deleted, 0), (deleted, 1))]
        assert not member.calls("revoked")
        publish(kafka, kept, 1, 0, 1)
        until(lambda: len(member.records) == 10, member)
        until(lambda: bool(member.errors), member)
        assert {(m.topic(), e.code()) for m in member.errors if (e := m.error())} == {
            (deleted, KafkaError.UNKNOWN_TOPIC_OR_PART)
        }


# --- static members ----------------------------------------------------------------------------


@knows_static_members
def test_a_static_member_that_restarts_starts_no_round(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    config = {"session_timeout_ms": 20_000}
    other = Member(kafka, group, topic, group_instance_id="other", **config)
    with members(other):
        restarting = Member(kafka, group, topic, group_instance_id="restarting", **config)
        with members(restarting):
            shared(topic, 4, other, restarting)
            before, changes = restarting.owned, _changes(other)
            generation = restarting.consumer._backend.metadata().generation
        publish(kafka, topic, 1, 0, 1, 2, 3)
        again = Member(kafka, group, topic, group_instance_id="restarting", **config)
        with members(again):
            until(lambda: len(again.records) == 2, again, other)
            assert again.owned == before
            assert again.consumer._backend.metadata().generation == generation
            assert _changes(other) == changes
            again.consumer.commit(asynchronous=False)


def _changes(member: Member) -> list[tuple[Kind, Pairs]]:
    """What changed hands. That a round brought nothing may be told late."""
    return [told for told in member.told if told[1]]


def test_a_static_leader_that_restarts_still_sees_new_partitions(kafka: KafkaCluster) -> None:
    """Trap 29 (KIP-814): told to skip the assignment, it watches the metadata all the same."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    config = {"session_timeout_ms": 20_000, "topic_metadata_refresh_interval_ms": 200}
    leader = Member(kafka, group, topic, group_instance_id="leader", **config)
    with members(leader):
        shared(topic, 2, leader)
    again = Member(kafka, group, topic, group_instance_id="leader", **config)
    with members(again):
        shared(topic, 2, again)
        kafka.add_partitions(topic, total=3)
        shared(topic, 3, again)


@knows_static_members
def test_two_with_one_instance_id_the_older_is_fenced(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    older = Member(kafka, group, topic, group_instance_id="one")
    with members(older):
        shared(topic, 2, older)
        newer = Member(kafka, group, topic, group_instance_id="one")
        with members(newer):
            shared(topic, 2, newer)
            until(lambda: bool(older.raised) and older.count("lost") == 1, older)
            assert isinstance(older.raised[0], FencedException)
            assert older.raised[0].args[0].fatal()
            assert older.owned == ()


@knows_static_members
@pytest.mark.verdict
def test_who_unsubscribes_and_subscribes_again_is_the_same_member(kafka: KafkaCluster) -> None:
    """And not another process that takes its place."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    config = {"session_timeout_ms": 20_000}
    other = Member(kafka, group, topic, group_instance_id="other", **config)
    again = Member(kafka, group, topic, group_instance_id="again", **config)
    with members(other, again):
        shared(topic, 4, other, again)
        who = again.consumer.memberid()
        again.consumer.unsubscribe()
        until(lambda: again.owned == (), again, other)
        again.subscribe(topic)
        shared(topic, 4, other, again)
        assert again.consumer.memberid() == who
        assert not again.raised + other.raised


# --- transactions ------------------------------------------------------------------------------


@contextmanager
def transaction(kafka: KafkaCluster) -> Iterator[Producer]:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("x")}
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    yield producer


@fences_transactions
@pytest.mark.verdict
def test_transactions_carry_the_generation_and_are_fenced_by_it(kafka: KafkaCluster) -> None:
    """KIP-447: accepted when fresh, refused after a rebalance."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    member = Member(kafka, group, topic, enable_auto_commit=False)
    with members(member):
        shared(topic, 2, member)
        fresh = member.consumer.consumer_group_metadata()
        with transaction(kafka) as producer:
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], fresh, PATIENCE)
            producer.commit_transaction(PATIENCE)
        (found,) = member.consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE)
        assert found.offset == 7

        rounds = member.count("assigned")
        member.consumer.enforce_rebalance("a new generation")
        until(lambda: member.count("assigned") > rounds, member)
        with transaction(kafka) as producer:
            with pytest.raises(KafkaException) as fenced:
                producer.send_offsets_to_transaction([TopicPartition(topic, 0, 8)], fresh, PATIENCE)
            assert code(fenced.value) == KafkaError.ILLEGAL_GENERATION
            producer.abort_transaction(PATIENCE)
        (found,) = member.consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE)
        assert found.offset == 7


@fences_transactions
@pytest.mark.verdict
def test_who_is_out_of_the_group_and_has_not_heard_of_it_can_send_no_offsets(
    kafka: KafkaCluster,
) -> None:
    """Without a generation the coordinator takes a transaction's offsets from anybody: those of
    whoever was stopped for a session's time would undo what its successor has committed."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic)
    member = Member(kafka, group, topic, enable_auto_commit=False)
    with members(member):
        shared(topic, 1, member)
        out = Ward(group_id=group, member_id=member.consumer.memberid())
        here = parse({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
        asyncio.run(leave(out, here.connection, say=pytest.fail))
        # It beats, and hears of it; its user does not poll.
        wait_until(lambda: not member.consumer.memberid(), "the member has not heard of it")
        assert member.consumer.assignment(), "its user has"
        sent_by = member.consumer.consumer_group_metadata()
        offsets = [TopicPartition(topic, 0, 8)]
        with transaction(kafka) as producer:
            with pytest.raises(KafkaException) as refused:
                producer.send_offsets_to_transaction(offsets, sent_by, PATIENCE)
            assert code(refused.value) == KafkaError.UNKNOWN_MEMBER_ID
            producer.abort_transaction(PATIENCE)


@fences_transactions
@pytest.mark.verdict
def test_starting_positions_wait_for_open_transactions(kafka: KafkaCluster) -> None:
    """KIP-447's other half: an offset that a transaction is about to commit is not overlooked."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic)
    publish(kafka, topic, 5, 0)
    member = Member(kafka, group, topic, enable_auto_commit=False)
    with members(member):
        shared(topic, 1, member)
        metadata = member.consumer.consumer_group_metadata()
        with transaction(kafka) as producer:
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], metadata, PATIENCE)
            member.consumer.close()
            heir = Member(kafka, group, topic)
            with members(heir):
                shared(topic, 1, heir)
                heir.step()
                assert not heir.records
                producer.commit_transaction(PATIENCE)
                until(lambda: len(heir.records) == 2, heir)
                assert heir.offsets == {(topic, 0): [3, 4]}


# --- the rest ----------------------------------------------------------------------------------


def test_assigned_by_hand_in_a_group_with_members_commits_are_refused(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    member, loner = Member(kafka, group, topic), Member(kafka, group, enable_auto_commit=False)
    with members(member, loner):
        shared(topic, 2, member)
        loner.consumer.assign([TopicPartition(topic, 0, 0)])
        with pytest.raises(KafkaException) as refused:
            loner.consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert code(refused.value) == KafkaError.UNKNOWN_MEMBER_ID


def test_a_session_timeout_that_the_broker_does_not_allow_is_named(kafka: KafkaCluster) -> None:
    topic = unique("t")
    kafka.create_topic(topic)
    member = Member(kafka, unique("g"), topic, session_timeout_ms=50, heartbeat_interval_ms=10)
    with members(member):
        until(lambda: bool(member.raised), member)
        assert code(member.raised[0]) == KafkaError.INVALID_SESSION_TIMEOUT
        assert "group.min.session.timeout.ms" in str(member.raised[0])


def test_a_group_without_a_strategy_in_common(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic)
    one = Member(kafka, group, topic, partition_assignment_strategy="range")
    with members(one):
        shared(topic, 1, one)
        other = Member(kafka, group, topic, partition_assignment_strategy="roundrobin")
        with members(other):
            until(lambda: bool(other.raised), one, other)
            assert code(other.raised[0]) == KafkaError.INCONSISTENT_GROUP_PROTOCOL
            assert one.owned == ((topic, 0),)


def test_eager_members_rebalance_too(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    first = Member(kafka, group, topic, partition_assignment_strategy="range")
    with members(first):
        shared(topic, 4, first)
        second = Member(kafka, group, topic, partition_assignment_strategy="range")
        with members(second):
            shared(topic, 4, first, second)
            everything = tuple((topic, p) for p in range(4))
            assert everything in first.calls("revoked")
            assert first.balance() == first.owned
        shared(topic, 4, first)
        assert not first.calls("lost")


def test_records_arrive_while_a_thread_only_iterates(kafka: KafkaCluster) -> None:
    topic = unique("t")
    kafka.create_topic(topic, partitions=2)
    consumer = CoopConsumer(settings(kafka, unique("g")), registry=CollectorRegistry())
    consumer.subscribe([topic])
    seen: list[int | None] = []

    def read() -> None:
        seen.extend(message.offset() for message in consumer)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        until(lambda: len(consumer.assignment()) == 2)
        publish(kafka, topic, 2, 0, 1)
        until(lambda: len(seen) == 4)
    finally:
        consumer.close()
        thread.join(PATIENCE)
    assert not thread.is_alive()
