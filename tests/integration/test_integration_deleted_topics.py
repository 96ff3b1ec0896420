"""A topic goes while a rebalance is under way: nobody waits for it (trap 14). Or it comes again."""

from __future__ import annotations

import pytest
from confluent_kafka import Message, TopicPartition
from integration_support import Member, members, publish, shared, since_kip_848, unique, until

from kafka_coop.testing.cluster import KafkaCluster

pytestmark = pytest.mark.kafka


@pytest.mark.verdict
def test_a_topic_deleted_while_a_member_gives_it_up(kafka: KafkaCluster) -> None:
    """Its owner is inside on_revoke, and commits afterwards what is no more."""
    kept, deleted, group = unique("kept"), unique("deleted"), unique("g")
    for topic in (kept, deleted):
        kafka.create_topic(topic, partitions=4)
        publish(kafka, topic, 3, *range(4))
    config = {"topic_metadata_refresh_interval_ms": 200, "session_timeout_ms": 6000}
    first = Member(kafka, group, kept, deleted, **config)
    gone: list[str] = []

    def delete(*_: object) -> None:
        if not gone:
            gone.append(deleted)
            kafka.delete_topic(deleted)

    with members(first):
        until(lambda: len(first.records) == 24, first)
        first.hooks["revoked"] = delete
        second = Member(kafka, group, kept, deleted, **config)
        with members(second):
            until(lambda: bool(gone), first, second)
            shared(kept, 4, first, second)
            publish(kafka, kept, 2, *range(4))
            until(
                lambda: (
                    {(p, o) for t, p, o in (*first.records, *second.records) if t == kept}
                    == {(p, o) for p in range(4) for o in range(5)}
                ),
                first,
                second,
            )
        for member in (first, second):
            assert not {topic for topic, _ in member.balance()} & {deleted}


@pytest.mark.verdict
def test_a_topic_that_grows_while_its_members_rebalance(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    config = {"topic_metadata_refresh_interval_ms": 200, "session_timeout_ms": 6000}
    first = Member(kafka, group, topic, **config)
    grown: list[int] = []

    def grow(*_: object) -> None:
        if not grown:
            grown.append(8)
            kafka.add_partitions(topic, total=8)

    with members(first):
        shared(topic, 4, first)
        first.hooks["revoked"] = grow
        second = Member(kafka, group, topic, **config)
        with members(second):
            until(lambda: bool(grown), first, second)
            shared(topic, 8, first, second)
            publish(kafka, topic, 1, *range(8))
            until(lambda: len({*first.records, *second.records}) == 8, first, second)


@pytest.mark.verdict
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=since_kip_848)])
def test_of_a_topic_made_anew_nothing_is_skipped(kafka: KafkaCluster, protocol: str) -> None:
    """Shorter than the one before, it is begun anew; librdkafka's position stays where it was.

    What is committed is the position: a pause, or the next owner, would go on at 1,000 and skip
    what the new one has before it, once it is as long.
    """
    topic, group = unique("t"), unique("g")
    config = {
        "group_protocol": protocol,
        "topic_metadata_refresh_interval_ms": 500,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    kafka.create_topic(topic)
    publish(kafka, topic, 1000, 0)
    first = Member(kafka, group, topic, **config)

    def read(count: int) -> None:
        """In batches: a poll of one record at a time would have its position set right."""
        came = list[Message]()

        def taken() -> bool:
            came.extend(first.consumer.consume(500, 0.5))
            return len(came) >= count

        until(taken)
        assert [m.offset() for m in came if m.error() is None] == list(range(count))

    with members(first):
        read(1000)
        kafka.delete_topic(topic)
        kafka.create_topic(topic)
        publish(kafka, topic, 600, 0)
        read(600)
        (stands,) = first.consumer.position([TopicPartition(topic, 0)])
        assert stands.offset == 600
        first.consumer.commit(asynchronous=False)
    publish(kafka, topic, 600, 0)
    second = Member(kafka, group, topic, **config)
    with members(second):
        until(lambda: len(second.records) == 600, second)
        assert second.offsets == {(topic, 0): list(range(600, 1200))}
