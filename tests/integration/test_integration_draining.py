"""Planned leaves: partitions change hands while their owner goes on, and none is lost."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from confluent_kafka import TopicPartition
from integration_support import (
    PATIENCE,
    Cluster,
    Member,
    classic,
    in_background,
    members,
    publish,
    shared,
    unique,
    until,
)

from kafka_coop.assignors import Range
from kafka_coop.membership.states import State
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import KafkaCluster

LONG = timedelta(seconds=PATIENCE)


@pytest.mark.verdict
def test_the_others_take_over_while_it_polls_on(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=4)
    leaving, staying = (Member(cluster, group, topic, session_timeout_ms=6000) for _ in range(2))
    with members(leaving, staying):
        shared(topic, 4, leaving, staying)
        before = staying.count("revoked")
        publish(cluster, topic, 50, 0, 1, 2, 3)
        until(lambda: bool(leaving.records), leaving)
        leaving.consumer.drain(LONG)
        until(lambda: leaving.consumer.drained, leaving, staying)
        assert not leaving.owned
        leaving.consumer.close()
        shared(topic, 4, staying)
        until(lambda: len(leaving.records) + len(staying.records) >= 200, staying)
        assert sorted(leaving.records + staying.records) == [
            (topic, partition, offset) for partition in range(4) for offset in range(50)
        ]
        assert (leaving.count("lost"), leaving.raised, staying.raised) == (0, [], [])
        assert staying.count("revoked") == before


@pytest.mark.verdict
def test_closing_may_hand_over_first(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=4)
    publish(cluster, topic, 5, 0, 1, 2, 3)
    leaving, staying = (Member(cluster, group, topic, session_timeout_ms=6000) for _ in range(2))
    with members(leaving, staying):
        shared(topic, 4, leaving, staying)
        states: list[State] = []
        leaving.hooks["revoked"] = lambda *_: states.append(classic(leaving)._member.state)
        with in_background(staying.step):
            leaving.consumer.close(drain=LONG)
        assert states == [State.ADOPTING], "taken by a round, not by the leave"
        shared(topic, 4, staying)
        until(lambda: len({*leaving.records, *staying.records}) == 20, staying)


def test_a_loop_over_records_ends_when_nothing_is_left_to_do(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=2)
    leaving, staying = (Member(cluster, group, topic, session_timeout_ms=6000) for _ in range(2))
    with members(leaving, staying):
        shared(topic, 2, leaving, staying)
        leaving.consumer.drain(LONG)
        with in_background(staying.step):
            assert list(leaving.consumer) == []
        assert not leaving.owned


def test_a_poll_that_waits_for_ever_ends_with_the_draining(embedded: EmbeddedKafka) -> None:
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=2)
    leaving, staying = (Member(embedded, group, topic, session_timeout_ms=6000) for _ in range(2))
    with members(leaving, staying):
        shared(topic, 2, leaving, staying)
        leaving.consumer.drain(LONG)
        polled = threading.Thread(target=leaving.consumer.poll, args=(-1,), daemon=True)
        with in_background(staying.step):
            polled.start()
            polled.join(PATIENCE)
        assert not polled.is_alive()
        assert leaving.consumer.drained
        shared(topic, 2, staying)


def test_nobody_relieves_a_group_of_which_all_drain_and_time_ends_it(
    embedded: EmbeddedKafka,
) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    alone = Member(embedded, unique("g"), topic)
    with members(alone):
        shared(topic, 2, alone)
        alone.consumer.drain(LONG)
        publish(embedded, topic, 1, 0, 1)
        until(lambda: len(alone.records) == 2, alone)
        assert not alone.consumer.drained, "it goes on while there is time"
        alone.consumer.drain(timedelta(0))
        until(lambda: alone.consumer.drained, alone)
        assert len(alone.owned) == 2


@pytest.mark.parametrize("how", ["eager", "by hand", "not subscribed"])
def test_where_nothing_is_gained_it_is_drained_at_once(embedded: EmbeddedKafka, how: str) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), assignors=[Range()] if how == "eager" else None)
    with members(member):
        if how == "eager":
            member.subscribe(topic)
            shared(topic, 1, member)
        elif how == "by hand":
            member.consumer.assign([TopicPartition(topic, 0)])
        member.consumer.drain(LONG)
        assert member.consumer.drained


def test_less_time_than_none_is_refused_and_the_consumer_stays_open(
    embedded: EmbeddedKafka,
) -> None:
    member = Member(embedded, unique("g"))
    with members(member):
        for refused in (member.consumer.drain, lambda d: member.consumer.close(drain=d)):
            with pytest.raises(ValueError, match="negative"):
                refused(timedelta(seconds=-1))
        assert member.consumer.poll(0) is None


def test_subscribing_again_undoes_it(embedded: EmbeddedKafka) -> None:
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=4)
    first, second = (Member(embedded, group, topic) for _ in range(2))
    with members(first, second):
        shared(topic, 4, first, second)
        first.consumer.drain(LONG)
        until(lambda: first.consumer.drained, first, second)
        first.subscribe(topic)
        shared(topic, 4, first, second)
        assert not first.consumer.drained


@pytest.mark.verdict
@pytest.mark.kafka
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_rolling_restart_loses_and_repeats_nothing(kafka: KafkaCluster, static: bool) -> None:
    """Each is relieved by those who are there, and then followed by a new one."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=6)

    def start(number: int) -> Member:
        name = {"group_instance_id": f"i{number}"} if static else {}
        return Member(kafka, group, topic, session_timeout_ms=6000, **name)

    crew = [start(number) for number in range(3)]
    gone: list[Member] = []
    with members(*crew):
        shared(topic, 6, *crew)
        for number in range(3):
            publish(kafka, topic, 20, *range(6))
            old = crew[number]
            old.consumer.drain(LONG)
            until(lambda old=old: old.consumer.drained, *crew)  # type: ignore[misc]
            assert not old.owned
            old.consumer.close()
            gone.append(old)
            crew[number] = start(number)
            shared(topic, 6, *crew)
        until(lambda: sum(len(m.records) for m in (*crew, *gone)) >= 360, *crew)
        for member in crew:
            member.consumer.close()
    delivered = sorted(record for m in (*crew, *gone) for record in m.records)
    assert delivered == [(topic, p, offset) for p in range(6) for offset in range(60)]
    assert not any(m.raised or m.count("lost") for m in (*crew, *gone))
