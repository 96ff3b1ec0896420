"""A broker that speaks no more than Apache Kafka 1.0 did: the oldest we support."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from integration_support import Member, code, members, publish, shared, unique, until

from kafka_coop.testing.embedded import Api, EmbeddedKafka

KAFKA_1_0: dict[Api, int] = {
    "ListOffsets": 2,
    "Metadata": 5,
    "OffsetCommit": 3,
    "OffsetFetch": 3,
    "FindCoordinator": 1,
    "JoinGroup": 2,
    "Heartbeat": 1,
    "LeaveGroup": 1,
    "SyncGroup": 1,
    "ApiVersions": 1,
}


def test_a_group_lives_on_the_versions_of_kafka_1_0(embedded: EmbeddedKafka) -> None:
    for api, newest in KAFKA_1_0.items():
        embedded.set_api_version(api, 0, newest)
    embedded.create_topic("old", partitions=4)
    publish(embedded, "old", 10, 0, 1, 2, 3)
    first, second = Member(embedded, "old", "old"), Member(embedded, "old", "old")
    with members(second):
        with members(first):
            shared("old", 4, first, second)
            until(lambda: len(first.records) + len(second.records) >= 40, first, second)
        shared("old", 4, second)  # during a round the mock takes no commits
    for raised in (*first.raised, *second.raised):
        # The mock's own trait: it refuses a follower that syncs after the group is up.
        assert code(raised) == KafkaError.INVALID_REQUEST
    third = Member(embedded, "old", "old")
    with members(third):
        shared("old", 4, third)
        publish(embedded, "old", 1, 0, 1, 2, 3)
        until(lambda: len(third.records) >= 4, third)
    offsets = sorted(offset for _, _, offset in third.records)
    assert offsets == [10] * 4, "what was processed was committed when the others closed"


@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat"])
def test_a_broker_that_is_older_still_is_told(embedded: EmbeddedKafka, api: Api) -> None:
    """A member that does not join, and polls in vain, would be all that its user sees."""
    topic = unique("t")
    embedded.create_topic(topic)
    embedded.set_api_version(api, 0, KAFKA_1_0[api] - 1)
    member = Member(embedded, unique("g"), topic)
    with members(member):
        until(lambda: bool(member.raised), member)
        assert code(member.raised[0]) == KafkaError._UNSUPPORTED_FEATURE
        assert f"{api}: we speak" in str(member.raised[0])
        assert "upgrade the broker" in str(member.raised[0])
