"""Where reading starts, what is committed, and that nothing is lost in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from integration_support import (
    PATIENCE,
    Cluster,
    Member,
    at,
    classic,
    code,
    in_background,
    members,
    pairs,
    publish,
    shared,
    unique,
    until,
    where,
)

from kafka_coop import CoopConsumer
from kafka_coop.backend.errands import Errands
from kafka_coop.kafka_errors import CommitFailedException
from kafka_coop.leader import LeaderOutcome, lead
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import Partitions


def committed(member: Member, topic: str, *partitions: int) -> list[int]:
    found = member.consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=10)
    return [p.offset for p in found]


def read(member: Member, count: int) -> None:
    until(lambda: len(member.records) >= count, member)


# --- commits -------------------------------------------------------------------------------


def test_commit_in_every_form(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic, partitions=1)
    publish(cluster, topic, 6, 0)
    member = Member(cluster, unique("g"), topic, enable_auto_commit=False, coop_poll_prefetch=1)
    with members(member):
        read(member, 3)
        consumer = member.consumer
        assert committed(member, topic, 0) == [OFFSET_INVALID]
        done = consumer.commit(offsets=[at(topic, 0, 1)], asynchronous=False)
        assert done is not None
        assert [(p.topic, p.partition, p.offset, p.error) for p in done] == [(topic, 0, 1, None)]
        assert committed(member, topic, 0) == [1]
        consumer.commit(message=member.messages[1], asynchronous=False)
        assert committed(member, topic, 0) == [2]
        (done_,) = consumer.commit(asynchronous=False) or []
        assert committed(member, topic, 0) == [done_.offset] == [len(member.records)]
        with pytest.raises(KafkaException) as nothing:
            consumer.commit(asynchronous=False)
        assert code(nothing.value) == KafkaError._NO_OFFSET
        with pytest.raises(ValueError, match="exclusive"):
            consumer.commit(message=member.messages[0], offsets=[at(topic, 0, 1)])


def test_an_asynchronous_commit_reports_through_on_commit(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 3, 0, 1)
    reports: list[tuple[KafkaError | None, list[Any]]] = []
    member = Member(
        cluster,
        unique("g"),
        enable_auto_commit=False,
        on_commit=lambda error, partitions: reports.append((error, partitions)),
    )
    member.subscribe(topic)
    with members(member):
        read(member, 6)
        assert member.consumer.commit() is None
        until(lambda: bool(reports), member)
        error, partitions = reports[0]
        assert error is None
        assert {(p.topic, p.partition, p.offset) for p in partitions} == {
            (topic, 0, 3),
            (topic, 1, 3),
        }
        assert committed(member, topic, 0, 1) == [3, 3]


def test_metadata_of_a_commit_comes_back(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic)
    member = Member(cluster, unique("g"), topic, enable_auto_commit=False)
    with members(member):
        shared(topic, 1, member)
        member.consumer.commit(
            offsets=[TopicPartition(topic, 0, 0, metadata="state")], asynchronous=False
        )
        (found,) = member.consumer.committed([TopicPartition(topic, 0)], timeout=10)
        assert (found.offset, found.metadata) == (0, "state")


@pytest.mark.verdict
def test_auto_commit_on_close_takes_what_was_delivered_and_no_more(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic)
    publish(cluster, topic, 10, 0)
    first = Member(cluster, group, topic)
    with members(first):
        read(first, 4)  # the other six are prefetched, and not the user's
    second = Member(cluster, group, topic)
    with members(second):
        read(second, 6)
        assert second.offsets == {(topic, 0): [4, 5, 6, 7, 8, 9]}


def test_auto_commit_by_interval(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic)
    publish(cluster, topic, 3, 0)
    member = Member(cluster, group, topic, auto_commit_interval_ms=50)
    with members(member):
        read(member, 3)
        until(lambda: committed(member, topic, 0) == [3], member)


@pytest.mark.verdict
def test_auto_commit_never_takes_what_consume_has_not_returned(embedded: EmbeddedKafka) -> None:
    """A batch that fills slowly is not the user's before consume returns it."""
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic, auto_commit_interval_ms=20)
    with members(member):
        until(lambda: committed(member, topic, 0) == [0], member)  # its start
        publish(embedded, topic, 3, 0)
        batch = member.consumer.consume(4, timeout=0.5)  # 25 intervals long
        assert len(batch) == 3
        assert committed(member, topic, 0) == [0]
        until(lambda: committed(member, topic, 0) == [3], member)


def test_stored_offsets_alone_are_committed(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 5, 0, 1)
    member = Member(cluster, group, enable_auto_offset_store=False, auto_commit_interval_ms=50)
    member.subscribe(topic)
    with members(member):
        read(member, 10)
        with pytest.raises(KafkaException) as nothing:
            member.consumer.commit(asynchronous=False)
        assert code(nothing.value) == KafkaError._NO_OFFSET
        third = next(m for m in member.messages if where(m) == (topic, 0, 2))
        member.consumer.store_offsets(message=third)
        member.consumer.store_offsets(offsets=[at(topic, 1, 1)])
        with pytest.raises(KafkaException) as foreign:
            member.consumer.store_offsets(offsets=[at(topic, 7, 1)])
        assert code(foreign.value) == KafkaError._STATE
        until(lambda: committed(member, topic, 0, 1) == [3, 1], member)
    again = Member(cluster, group, topic)
    with members(again):
        read(again, 6)
        assert again.offsets == {(topic, 0): [3, 4], (topic, 1): [1, 2, 3, 4]}


def test_store_offsets_needs_its_setting(embedded: EmbeddedKafka) -> None:
    member = Member(embedded, unique("g"))
    with members(member):
        with pytest.raises(KafkaException) as refused:
            member.consumer.store_offsets(offsets=[at("t", 0, 1)])
        assert code(refused.value) == KafkaError._INVALID_ARG
        with pytest.raises(ValueError, match="either"):
            member.consumer.store_offsets()


def test_a_commit_of_lost_partitions_fails_at_home(embedded: EmbeddedKafka) -> None:
    """Invariant 5: it never reaches the broker."""
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    publish(embedded, topic, 2, 0, 1)
    member = Member(embedded, unique("g"), enable_auto_commit=False)
    refused: list[BaseException] = []

    def commit(consumer: CoopConsumer, partitions: list[TopicPartition]) -> None:
        embedded.track_requests()
        with pytest.raises(CommitFailedException) as caught:
            consumer.commit(
                offsets=[TopicPartition(p.topic, p.partition, 2) for p in partitions],
                asynchronous=False,
            )
        refused.append(caught.value)
        assert not [r for r in embedded.requests() if r.api == "OffsetCommit"]

    member.hooks["lost"] = commit
    member.subscribe(topic)
    with members(member):
        read(member, 4)
        embedded.fail("Heartbeat", int(KafkaError.UNKNOWN_MEMBER_ID))
        until(lambda: bool(refused), member)
        assert code(refused[0]) == KafkaError.ILLEGAL_GENERATION
        assert member.told[-1] == ("lost", ((topic, 0), (topic, 1)))
        shared(topic, 2, member)


@pytest.mark.verdict
def test_a_commit_inside_on_revoke_is_taken(cluster: Cluster) -> None:
    """Each time on Kafka. The mock cluster refuses a follower that syncs after the leader.

    That one joins again, and while members join the mock takes no commit. On a busy machine it
    comes to that once in twenty times, and says nothing of us: another group tells.
    """
    tries = 3 if isinstance(cluster, EmbeddedKafka) else 1
    assert any(not _refused_while_revoking(cluster) for _ in range(tries))


def _refused_while_revoking(cluster: Cluster) -> bool:
    """Whether the coordinator refused the commit as members joined. Were it taken, it must hold."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 4, 0, 1)
    first = Member(cluster, group, enable_auto_commit=False)
    first.hooks["revoked"] = lambda c, _: c.commit(asynchronous=False)
    first.subscribe(topic)
    with members(first):
        read(first, 8)
        second = Member(cluster, group, topic)
        with members(second):
            shared(topic, 2, first, second)
            if [code(e) for e in first.raised] == [KafkaError.REBALANCE_IN_PROGRESS]:
                return True
            ((_, moved),) = second.owned
            publish(cluster, topic, 1, moved)
            until(lambda: bool(second.records), first, second)
            assert second.records == [(topic, moved, 4)]
        assert not first.raised
    return False


def test_nobody_goes_ahead_where_no_commit_would_be_taken_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is to give something up would find the others joined, and could not commit it."""
    told: list[bool] = []

    def spy(*args: Any, commits_while_joining: bool, **more: Any) -> LeaderOutcome:
        told.append(commits_while_joining)
        return lead(*args, commits_while_joining=commits_while_joining, **more)

    monkeypatch.setattr("kafka_coop.backend.classic.lead", spy)
    topic = unique("t")
    cluster.create_topic(topic, partitions=2)
    member = Member(cluster, unique("g"), topic)
    with members(member):
        shared(topic, 2, member)
    assert told[0] is not isinstance(cluster, EmbeddedKafka)


def test_a_topic_that_is_dropped_while_a_round_is_under_way_is_committed(cluster: Cluster) -> None:
    """Its on_revoke comes before the join: the commit waited in vain for a round behind that."""
    kept, dropped, group = unique("t"), unique("t"), unique("g")
    for topic in (kept, dropped):
        cluster.create_topic(topic, partitions=1)
        publish(cluster, topic, 1, 0)
    member = Member(cluster, group, kept, dropped, auto_commit_interval_ms=0)
    with members(member):
        read(member, 2)
        member.consumer.enforce_rebalance("a round that plans with both")
        member.subscribe(kept)
        until(lambda: member.owned == ((kept, 0),), member)
        assert member.calls("revoked") == [((dropped, 0),)]
        assert committed(member, dropped, 0) == [1]
        assert not member.raised


@pytest.mark.verdict
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_commit_loop_under_churn_sees_no_error_and_loses_nothing(
    kafka: Cluster, asynchronous: bool
) -> None:
    """Trap 12 (librdkafka#4059): commits meet every phase of several rebalances.

    The mock takes no commits while it waits for members, and goes on without who is late.
    """
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    failed: list[Any] = []
    config: dict[str, Any] = {
        "enable_auto_commit": False,
        "on_commit": lambda error, partitions: failed.extend(
            [(error, partitions)] if error else []
        ),
    }

    def commit_all(member: Member) -> None:
        message = member.step()
        if message is not None:
            member.consumer.commit(message=message, asynchronous=asynchronous)

    def share(each: int, *those: Member) -> bool:
        return all(len(member.owned) == each for member in those)

    def has_more_than(count: int, member: Member) -> bool:
        return len(member.records) > count

    def go_on_until(ready: Callable[[], bool]) -> None:
        def published_and_ready() -> bool:
            publish(kafka, topic, 1, *range(4))
            return ready()

        until(published_and_ready)

    stayer = Member(kafka, group, topic, **config)
    everyone = [stayer]
    with members(stayer), in_background(lambda: commit_all(stayer)):
        for _ in range(2):
            comer = Member(kafka, group, topic, **config)
            everyone.append(comer)
            with members(comer), in_background(partial(commit_all, comer)):
                go_on_until(partial(share, 2, stayer, comer))
                go_on_until(partial(has_more_than, len(comer.records), comer))
            go_on_until(partial(share, 4, stayer))
        ends = {
            p: stayer.consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1]
            for p in range(4)
        }
        everything = {(p, o) for p, end in ends.items() for o in range(end)}
        until(lambda: {(p, o) for m in everyone for _, p, o in list(m.records)} >= everything)
    assert not failed
    assert not any(m.raised for m in everyone)
    assert not any(m.calls("lost") for m in everyone)


# --- positions -----------------------------------------------------------------------------


def test_position_seek_and_pause(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 5, 0)
    member = Member(cluster, unique("g"), topic)
    with members(member):
        shared(topic, 2, member)
        read(member, 5)
        consumer = member.consumer
        assert [p.offset for p in consumer.position([TopicPartition(topic, 0)])] == [5]
        consumer.seek(at(topic, 0, 2))
        assert [p.offset for p in consumer.position([TopicPartition(topic, 0)])] == [2]
        read(member, 8)
        assert member.offsets == {(topic, 0): [0, 1, 2, 3, 4, 2, 3, 4]}
        elsewhere = TopicPartition(topic, 9, 0)
        with pytest.raises(KafkaException) as caught:
            consumer.seek(elsewhere)
        assert code(caught.value) == KafkaError._STATE
        assert [p.offset for p in consumer.position([TopicPartition(topic, 9)])] == [OFFSET_INVALID]


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("smallest", 0), ("latest", 5), ("end", 5)]
)
def test_where_auto_offset_reset_starts(cluster: Cluster, reset: str, first: int) -> None:
    topic = unique("t")
    cluster.create_topic(topic)
    publish(cluster, topic, 5, 0)
    member = Member(cluster, unique("g"), topic, auto_offset_reset=reset)
    with members(member):
        until(lambda: bool(member.consumer.position([at(topic, 0, 0)])[0].offset >= 0), member)
        publish(cluster, topic, 1, 0)
        read(member, 6 - first)
        assert member.offsets == {(topic, 0): list(range(first, 6))}


def test_auto_offset_reset_error_is_a_message(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic)
    publish(cluster, topic, 2, 0)
    member = Member(cluster, unique("g"), topic, auto_offset_reset="error")
    with members(member):
        until(lambda: bool(member.errors), member)
        (message,) = member.errors
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
        assert (message.topic(), message.partition()) == (topic, 0)
        member.consumer.seek(at(topic, 0, 1))
        read(member, 1)
        assert member.records == [(topic, 0, 1)]


@pytest.mark.verdict
def test_latest_loses_nothing_of_a_partition_that_moves_before_its_first_record(
    cluster: Cluster,
) -> None:
    """Its start is committed, so that the next owner does not look for the end again."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic)
    publish(cluster, topic, 5, 0)
    first = Member(cluster, group, topic, auto_offset_reset="latest")
    with members(first):
        until(lambda: first.consumer.position([at(topic, 0, 0)])[0].offset == 5, first)
    publish(cluster, topic, 3, 0)  # while nobody owns it
    second = Member(cluster, group, topic, auto_offset_reset="latest")
    with members(second):
        read(second, 3)
        assert second.offsets == {(topic, 0): [5, 6, 7]}


def test_what_comes_back_has_its_offsets_behind_sync_and_they_are_the_newest(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is asked for once more, and nothing that the last owner has read is read."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=4)
    asked: list[Partitions] = []
    ask = Errands._fetch_offsets

    def noted(self: Errands, partitions: Partitions) -> Any:
        asked.append(partitions)
        return ask(self, partitions)

    first, second = Member(cluster, group, topic), Member(cluster, group, topic)
    with members(first, second):
        until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
        for of in range(4):
            publish(cluster, topic, 5, of)
        until(lambda: len(first.records) + len(second.records) == 20, first, second)
        monkeypatch.setattr(Errands, "_fetch_offsets", noted)
        second.consumer.close()
        until(lambda: len(first.owned) == 4, first)
        for of in range(4):
            publish(cluster, topic, 1, of)
        until(lambda: len(first.records) + len(second.records) == 24, first)
        offsets = first.offsets
        assert all(offsets[topic, of][-1] == 5 for of in range(4)), "the last one, once"
    assert sorted(first.records + second.records) == [
        (topic, of, n) for of in range(4) for n in range(6)
    ]
    assert not asked


def test_partition_eof(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic)
    publish(cluster, topic, 2, 0)
    member = Member(cluster, unique("g"), topic, enable_partition_eof=True)
    with members(member):
        until(lambda: bool(member.errors), member)
        error = member.errors[0].error()
        assert error is not None
        assert error.code() == KafkaError._PARTITION_EOF
        assert len(member.records) == 2


def test_watermarks_times_topics_and_cluster(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 4, 1)
    member = Member(cluster, unique("g"))
    with members(member):
        consumer = member.consumer
        assert consumer.get_watermark_offsets(TopicPartition(topic, 1), timeout=10) == (0, 4)
        (time_,) = consumer.offsets_for_times([at(topic, 1, 0)], timeout=10)
        assert time_.offset in (0, OFFSET_END)  # the mock knows no times
        assert set(consumer.list_topics(topic, timeout=10).topics) == {topic}
        assert consumer.cluster_id(timeout=10)
        assert consumer.memberid() == ""


# --- by hand -------------------------------------------------------------------------------


def test_assigned_by_hand_with_commits(cluster: Cluster) -> None:
    """Trap 17 (confluent-kafka-python#1004), in the group without members."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=3)
    publish(cluster, topic, 4, 0, 1, 2)
    member = Member(cluster, group, enable_auto_commit=False)
    with members(member):
        consumer = member.consumer
        consumer.assign([at(topic, 0, 2), TopicPartition(topic, 1)])
        assert pairs(consumer.assignment()) == ((topic, 0), (topic, 1))
        read(member, 6)
        consumer.commit(asynchronous=False)
        assert committed(member, topic, 0, 1) == [4, 4]
        consumer.incremental_assign([at(topic, 2, OFFSET_BEGINNING)])
        read(member, 10)
        with pytest.raises(KafkaException) as twice:
            consumer.incremental_assign([TopicPartition(topic, 2)])
        assert code(twice.value) == KafkaError._CONFLICT
        consumer.incremental_unassign([TopicPartition(topic, 2)])
        with pytest.raises(KafkaException) as unknown:
            consumer.incremental_unassign([TopicPartition(topic, 2)])
        assert code(unknown.value) == KafkaError._INVALID_ARG
        consumer.unassign()
        assert consumer.assignment() == []
        publish(cluster, topic, 1, 0)
        consumer.assign([TopicPartition(topic, 0)])
        read(member, 11)
        assert member.records[-1] == (topic, 0, 4)  # as committed
        assert not member.told


def test_assigning_again_and_again_starts_in_the_end(embedded: EmbeddedKafka) -> None:
    """Answers for an earlier assignment of the same partition do not stand in the way."""
    topic = unique("t")
    embedded.create_topic(topic)
    publish(embedded, topic, 2, 0)
    member = Member(embedded, unique("g"))
    with members(member):
        for _ in range(20):
            member.consumer.assign([TopicPartition(topic, 0)])
        read(member, 2)


def test_a_topic_that_never_comes_ends_in_an_error(cluster: Cluster) -> None:
    """By hand there is no leader who would take it back: the search has to end by itself."""
    member = Member(cluster, unique("g"), retry_backoff_max_ms=20)
    missing = unique("t")
    with members(member):
        member.consumer.assign([TopicPartition(missing, 0)])
        until(lambda: bool(member.errors), member)
        (message,) = member.errors
        assert (message.topic(), message.partition()) == (missing, 0)
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_by_hand_or_by_the_group_but_not_both(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic)
    with members(member):
        with pytest.raises(KafkaException) as subscribed:
            member.consumer.assign([TopicPartition(topic, 0)])
        assert code(subscribed.value) == KafkaError._INVALID_ARG
    other = Member(embedded, unique("g"))
    with members(other):
        other.consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(KafkaException) as assigned:
            other.subscribe(topic)
        assert code(assigned.value) == KafkaError._INVALID_ARG
        other.consumer.unassign()
        other.subscribe(topic)
        shared(topic, 1, other)


def test_from_the_group_to_by_hand(embedded: EmbeddedKafka) -> None:
    """Leaving ends the lease and revokes: neither may touch what was assigned by hand since."""
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    member = Member(embedded, unique("g"), topic)
    with members(member):
        shared(topic, 2, member)
        member.consumer.unsubscribe()
        member.consumer.assign([at(topic, 1, 0)])
        until(lambda: member.count("revoked") == 1, member)
        publish(embedded, topic, 3, 0, 1)
        read(member, 3)
        assert member.offsets == {(topic, 1): [0, 1, 2]}
        assert member.owned == ((topic, 1),)


def test_another_thread_assigns_by_hand_while_a_callback_runs(embedded: EmbeddedKafka) -> None:
    """In the callback itself it would be ignored: there the group's partitions are ours to do."""
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    member = Member(embedded, unique("g"), topic)
    with members(member):
        shared(topic, 2, member)
        inside, go_on = threading.Event(), threading.Event()

        def wait(_consumer: CoopConsumer, _: list[TopicPartition]) -> None:
            inside.set()
            assert go_on.wait(PATIENCE)

        member.hooks["revoked"] = wait
        member.consumer.unsubscribe()
        with in_background(lambda: member.step(0.1)):
            assert inside.wait(PATIENCE)
            member.consumer.assign([at(topic, 1, 0)])
            go_on.set()
        assert member.owned == ((topic, 1),)
        publish(embedded, topic, 3, 0, 1)
        read(member, 3)
        assert member.offsets == {(topic, 1): [0, 1, 2]}


def test_unsubscribing_inside_on_revoke_lets_go_of_what_was_assigned_by_hand(
    embedded: EmbeddedKafka,
) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    member = Member(embedded, unique("g"), topic)
    with members(member):
        shared(topic, 2, member)
        owned: list[int] = []

        def unsubscribe(consumer: CoopConsumer, _: list[TopicPartition]) -> None:
            consumer.unsubscribe()
            owned.extend(p.partition for p in consumer.assignment())

        member.hooks["revoked"] = unsubscribe
        member.consumer.unsubscribe()
        member.consumer.incremental_unassign([TopicPartition(topic, 1)])
        member.consumer.incremental_assign([at(topic, 1, 0)])
        until(lambda: member.count("revoked") == 1, member)
        assert owned == [0], "the group's is to be committed yet"
        assert member.owned == ()
        member.subscribe(topic)
        shared(topic, 2, member)


def test_beside_what_was_assigned_by_hand_the_groups_partitions_keep_their_lease(
    embedded: EmbeddedKafka,
) -> None:
    topic, other = unique("t"), unique("t")
    for name in (topic, other):
        embedded.create_topic(name)
    member = Member(embedded, unique("g"), topic)
    with members(member):
        shared(topic, 1, member)
        consumer = member.consumer
        consumer.unsubscribe()
        consumer.incremental_assign([at(other, 0, 0)])
        lease = consumer._mailbox.lease_until
        assert not consumer._polling.may_deliver(lease + 1), "another may own it by then"
        until(lambda: member.count("revoked") == 1, member)
        assert consumer._polling.may_deliver(lease + 1)
        publish(embedded, other, 1, 0)
        read(member, 1)


def test_what_is_not_assigned_by_hand_any_more_is_not_looked_up_any_more(
    embedded: EmbeddedKafka,
) -> None:
    """Each assign() of an outage went on looking, without end where a partition has no leader."""
    topic = unique("t")
    embedded.create_topic(topic)
    embedded.set_leader(topic, 0, None)
    member = Member(embedded, unique("g"), retry_backoff_max_ms=20)
    tasks: list[int] = []

    def look() -> None:
        names = [repr(task.get_coro()) for task in asyncio.all_tasks()]
        tasks.append(sum("_run_errand" in name for name in names))

    def looking() -> int:
        classic(member)._call(look)
        until(lambda: bool(tasks), member)
        return tasks.pop()

    with members(member):
        for _ in range(10):
            member.consumer.assign([TopicPartition(topic, 0)])
        until(lambda: looking() == 1, member, within=10)
        member.consumer.unassign()
        until(lambda: looking() == 0, member, within=10)
        embedded.broker_down(1)
        for _ in range(10):
            member.consumer.assign([TopicPartition(topic, 0)])
        until(lambda: classic(member)._standing.coordinator is None, member, within=10)
        member.consumer.unassign()
        until(lambda: looking() == 0, member, within=10)


# --- other ways to read ----------------------------------------------------------------------


def test_iteration_and_with(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 5, 0, 1)
    member = Member(cluster, unique("g"), topic)
    with member.consumer as consumer:
        seen = []
        for message in consumer:
            seen.append(where(message))
            if len(seen) == 10:
                break
        assert sorted(seen) == [(topic, p, o) for p in range(2) for o in range(5)]
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)
    assert list(consumer) == []


def test_consume(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic)
    publish(cluster, topic, 10, 0)
    member = Member(cluster, unique("g"), topic)
    with members(member):
        got: list[int] = []

        def consumed() -> bool:
            got.extend(where(message)[2] for message in member.consumer.consume(4, 0.05))
            return len(got) >= 10

        until(consumed)
        assert got == list(range(10))
        assert member.consumer.consume(0, 0) == []
        for wrong in (-1, 1_000_001):
            with pytest.raises(ValueError, match="num_messages"):
                member.consumer.consume(wrong, 0)
