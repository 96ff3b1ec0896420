"""The bytes that producers take, against the installed librdkafka."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import hypothesis.strategies as st
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from fetching_support import PATIENCE, SLICE, Topic, until
from hypothesis import HealthCheck, given, settings

from kafka_coop.fetching.group_metadata import decode_group_metadata, encode_group_metadata
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import Generation, GroupMetadata, MemberId

printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1)


configurable = st.from_regex(r"[!-~]([ -~]*[!-~])?", fullmatch=True)
"""librdkafka strips blanks around values, and a blank group.id ends the process (2.16)."""


@given(group=configurable, instance=st.none() | configurable)
@settings(max_examples=15, deadline=None)
def test_a_consumer_outside_any_group_writes_the_same(group: str, instance: str | None) -> None:
    config: dict[str, str | int] = {"group.id": group, "log_level": 0}
    if instance is not None:
        config["group.instance.id"] = instance
    consumer = Consumer(config)
    try:
        theirs = consumer.consumer_group_metadata()
    finally:
        consumer.close()
    assert encode_group_metadata(GroupMetadata(group_id=group, instance_id=instance)) == theirs
    assert decode_group_metadata(theirs) == GroupMetadata(group_id=group, instance_id=instance)


def test_a_member_of_a_group_writes_the_same(kafka: EmbeddedKafka) -> None:
    topic = Topic(kafka, records=1)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "joined",
            "session.timeout.ms": 1100,
            "heartbeat.interval.ms": 100,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic.name])
        until(lambda: bool(consumer.assignment()), lambda: consumer.poll(SLICE))
        theirs = consumer.consumer_group_metadata()
        member_id = consumer.memberid()
    finally:
        consumer.close()
    (generation,) = struct.unpack_from("=i", theirs, len(b"CGMDv2:"))
    assert generation >= 0
    assert theirs == encode_group_metadata(
        GroupMetadata(
            group_id="joined", generation=Generation(generation), member_id=MemberId(member_id)
        )
    )


@pytest.fixture(scope="module")
def producer(kafka: EmbeddedKafka) -> Iterator[Producer]:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": "producer",
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    yield producer
    producer.abort_transaction(PATIENCE)


@given(
    metadata=st.builds(
        GroupMetadata,
        group_id=printable,
        generation=st.integers(-1, 2**31 - 1).map(Generation),
        member_id=st.just(MemberId("")) | printable.map(MemberId),
        instance_id=st.none() | printable,
    )
)
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_producer_reads_it(producer: Producer, metadata: GroupMetadata) -> None:
    # Without offsets nothing is sent: librdkafka parses the metadata and is done.
    producer.send_offsets_to_transaction([], encode_group_metadata(metadata), PATIENCE)


def test_a_producer_commits_offsets_with_it(kafka: EmbeddedKafka) -> None:
    topic = Topic(kafka, records=1)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "commits"}
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    metadata = encode_group_metadata(GroupMetadata(group_id="of-transactions"))
    producer.send_offsets_to_transaction([TopicPartition(topic.name, 0, 1)], metadata, PATIENCE)
    producer.commit_transaction(PATIENCE)


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"CGMDv1:" + b[7:]]
)
def test_a_producer_would_notice_a_wrong_layout(
    producer: Producer, spoil: Callable[[bytes], bytes]
) -> None:
    good = encode_group_metadata(GroupMetadata(group_id="g", instance_id="i"))
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([], spoil(good), PATIENCE)
    assert refused.value.args[0].code() == KafkaError._BAD_MSG


@pytest.mark.parametrize(
    "metadata",
    [
        GroupMetadata(group_id="g\0"),
        GroupMetadata(group_id="g", member_id=MemberId("\0m")),
        GroupMetadata(group_id="g", instance_id="i\0i"),
    ],
)
def test_ids_with_nul_are_refused(metadata: GroupMetadata) -> None:
    with pytest.raises(ValueError, match="NUL"):
        encode_group_metadata(metadata)
