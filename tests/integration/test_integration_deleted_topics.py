"""A topic goes while a rebalance is under way: nobody waits for it (trap 14)."""

from __future__ import annotations

import pytest
from integration_support import Member, members, publish, shared, unique, until

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
