"""The releases of Apache Kafka that we stand by: on each a group joins, commits and shrinks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration_support import PATIENCE, Member, members, publish, shared, unique, until

from kafka_coop.testing import LocalKafka

OLDEST = "1.0.2"
NEWEST = "4.4.0"
RELEASES = [
    pytest.param(OLDEST, marks=pytest.mark.slow),
    pytest.param("2.8.2", marks=pytest.mark.slow),  # before reasons; its ZooKeeper runs on Java 17
    "3.9.1",
    pytest.param("4.1.0", marks=pytest.mark.slow),  # that of the other tests
    pytest.param(NEWEST, marks=pytest.mark.slow),
]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    with LocalKafka(request.param) as kafka:
        yield kafka


@pytest.mark.verdict
def test_a_group_joins_scales_and_commits(release: LocalKafka) -> None:
    topic, group = unique("t"), unique("g")
    release.create_topic(topic, partitions=4)
    publish(release, topic, 5, *range(4))
    first, second = Member(release, group, topic), Member(release, group, topic)
    with members(first):
        with members(second):
            shared(topic, 4, first, second)
            until(lambda: len({*first.records, *second.records}) == 20, first, second)
            for member in (first, second):
                member.consumer.commit(asynchronous=False)
        shared(topic, 4, first)
        asked = first.consumer.assignment()
        committed = first.consumer.committed(asked, timeout=PATIENCE)
        assert {p.partition: p.offset for p in committed} == dict.fromkeys(range(4), 5)
        assert not first.raised
        assert not first.calls("lost")
    heir = Member(release, group, topic)
    with members(heir):
        shared(topic, 4, heir)
        publish(release, topic, 1, *range(4))
        until(lambda: len(heir.records) == 4, heir)
        assert {offset for _, _, offset in heir.records} == {5}, "what was committed was read again"
