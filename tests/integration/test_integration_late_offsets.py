"""Offsets of a failed transaction that reach the coordinator when its producer is in the next one.

What KIP-890 closed for clients that speak its protocol; librdkafka, as of 2.16, does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from integration_support import PATIENCE, Member, members, shared, unique

from kafka_coop.testing import LocalKafka

_TXN_OFFSET_COMMIT = 28


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka(proxied=True) as made:
        yield made


def _producer(kafka: LocalKafka, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": transactional_id,
            "socket.timeout.ms": 1000,  # what is late is sent again after it
        }
    )
    producer.init_transactions(PATIENCE)
    return producer


@pytest.mark.verdict
@pytest.mark.parametrize("anew", [True, False], ids=["new producer", "same producer"])
def test_a_new_producer_fences_what_is_late_of_a_failed_transaction(
    kafka: LocalKafka, *, anew: bool
) -> None:
    """Offsets 100, whose records were rolled back; then 80, and the 100 arrive before the commit.

    With the same producer the coordinator can't tell the two transactions apart: 80 to 99 are
    passed over by whoever begins at what is committed. Should that half of the test fail, a
    client has learned what KIP-890 offers, and the advice in docs/CALLBACKS.md can go.
    """
    topic, group, who = unique("t"), unique("g"), unique("x")
    kafka.create_topic(topic)
    member = Member(kafka, group, topic, enable_auto_commit=False)
    with members(member):
        shared(topic, 1, member)
        producer = _producer(kafka, who)

        def send(offset: int) -> None:
            metadata = member.consumer.consumer_group_metadata()
            where = [TopicPartition(topic, 0, offset)]
            producer.send_offsets_to_transaction(where, metadata, PATIENCE)

        late = kafka.proxy(1).hold_back(_TXN_OFFSET_COMMIT)
        producer.begin_transaction()
        send(100)  # librdkafka sends it again, when the first has got no answer
        late.wait_until_held()
        producer.abort_transaction(PATIENCE)
        if anew:
            producer = _producer(kafka, who)
        producer.begin_transaction()
        send(80)
        late.release()
        producer.commit_transaction(PATIENCE)
        (found,) = member.consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE)
        assert found.offset == (80 if anew else 100)
