from __future__ import annotations

import contextlib
import io
import struct
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from protocol_strategies import INT32, broken, subscriptions, topic_names, user_data

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.subscription import decode_subscription, decode_topics, encode_subscription
from kafka_coop.types import NO_GENERATION, NO_PARTITIONS, Generation, Partitions, Subscription

VERSIONS = (0, 1, 2, 3)

EXAMPLE = Subscription(
    topics=("a", "bc"),
    owned=Partitions({"a": [0, 7], "bc": [1]}),
    generation=Generation(5),
    user_data=b"\0\0\0\5",
    rack="r1",
)
EXAMPLE_BYTES = bytes.fromhex(
    "0003"  # version
    "00000002" "0001" "61" "0002" "6263"  # topics
    "00000004" "00000005"  # user data
    "00000002"  # owned: two topics
    "0001" "61" "00000002" "00000000" "00000007"
    "0002" "6263" "00000001" "00000001"
    "00000005"  # generation
    "0002" "7231"  # rack
)  # fmt: skip


def kio_class(version: int) -> Any:
    module = import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    return module.ConsumerProtocolSubscription


def kio_read(data: bytes) -> Any:
    (version,) = struct.unpack_from(">h", data)
    value, size = entity_reader(kio_class(version))(data, 2)
    assert 2 + size == len(data)
    return value


def kio_write(version: int, **values: Any) -> bytes:
    cls = kio_class(version)
    buffer = io.BytesIO()
    entity_writer(cls)(buffer, cls(**values))
    return struct.pack(">h", version) + buffer.getvalue()


def kio_owned(version: int, topics: list[tuple[str, list[int]]]) -> tuple[Any, ...]:
    module = import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    return tuple(module.TopicPartition(topic=t, partitions=tuple(p)) for t, p in topics)


def as_seen_in(version: int, subscription: Subscription) -> Subscription:
    return Subscription(
        topics=subscription.topics,
        owned=subscription.owned if version >= 1 else NO_PARTITIONS,
        generation=subscription.generation if version >= 2 else NO_GENERATION,
        user_data=subscription.user_data,
        rack=subscription.rack if version >= 3 else None,
    )


def test_golden_bytes() -> None:
    assert encode_subscription(EXAMPLE) == EXAMPLE_BYTES
    assert decode_subscription(EXAMPLE_BYTES) == EXAMPLE


@pytest.mark.parametrize("version", VERSIONS)
@given(subscription=subscriptions)
def test_what_is_written_is_read(version: int, subscription: Subscription) -> None:
    data = encode_subscription(subscription, version=version)
    assert decode_subscription(data) == as_seen_in(version, subscription)
    assert decode_topics(data) == subscription.topics


@pytest.mark.parametrize("version", VERSIONS)
@given(subscription=subscriptions)
def test_kio_reads_what_we_write(version: int, subscription: Subscription) -> None:
    seen = kio_read(encode_subscription(subscription, version=version))
    assert seen.topics == subscription.topics
    assert seen.user_data == subscription.user_data
    if version >= 1:
        owned = [(t.topic, p) for t in seen.owned_partitions for p in t.partitions]
        assert owned == list(subscription.owned)
    if version >= 2:
        assert seen.generation_id == subscription.generation
    if version >= 3:
        assert seen.rack_id == subscription.rack


@pytest.mark.parametrize("version", VERSIONS)
@given(
    topics=st.lists(topic_names, max_size=5),
    owned=st.lists(st.tuples(topic_names, st.lists(INT32, max_size=5)), max_size=5),
    rest=st.tuples(user_data, INT32, st.none() | st.text(max_size=5)),
)
def test_we_read_what_kio_writes(
    version: int,
    topics: list[str],
    owned: list[tuple[str, list[int]]],
    rest: tuple[bytes | None, int, str | None],
) -> None:
    """Repeats, negative partitions and disorder included: any peer may send them."""
    data, generation, rack = rest
    values: dict[str, Any] = {"topics": tuple(topics), "user_data": data}
    if version >= 1:
        values["owned_partitions"] = kio_owned(version, owned)
    if version >= 2:
        values["generation_id"] = generation
    if version >= 3:
        values["rack_id"] = rack
    everything = Subscription(
        topics=tuple(sorted(set(topics))),
        owned=Partitions.of((t, p) for t, ps in owned for p in ps if p >= 0),
        generation=Generation(max(generation, -1)),
        user_data=data,
        rack=rack or None,
    )
    assert decode_subscription(kio_write(version, **values)) == as_seen_in(version, everything)


@given(subscription=subscriptions, version=st.integers(4, 2**15 - 1), more=st.binary())
def test_newer_versions_parse_as_ours(
    subscription: Subscription, version: int, more: bytes
) -> None:
    data = struct.pack(">h", version) + encode_subscription(subscription)[2:] + more
    assert decode_subscription(data) == subscription


def test_topics_and_owned_are_written_sorted() -> None:
    shuffled = Subscription(topics=("b", "a", "b"), owned=Partitions.of([("b", 3), ("b", 1)]))
    assert kio_read(encode_subscription(shuffled)).topics == ("a", "b")
    assert kio_read(encode_subscription(shuffled)).owned_partitions[0].partitions == (1, 3)


def test_instance_id_is_not_in_the_bytes() -> None:
    named = Subscription(topics=("a",), instance_id="i")
    assert encode_subscription(named) == encode_subscription(Subscription(topics=("a",)))


def test_fields_of_version_0_alone_are_forgiven_under_a_higher_version() -> None:
    truncated = encode_subscription(EXAMPLE, version=0)
    as_v2 = struct.pack(">h", 2) + truncated[2:]
    assert decode_subscription(as_v2) == as_seen_in(0, EXAMPLE)


@pytest.mark.parametrize("array", ["topics", "owned", "partitions"])
def test_a_null_array_counts_as_empty(array: str) -> None:
    null, no_topics = b"\xff" * 4, b"\0\0\0\0"
    topics = null if array == "topics" else no_topics
    owned = {"owned": null, "partitions": b"\0\0\0\1\0\1a" + null}.get(array, no_topics)
    data = b"\0\1" + topics + null + owned
    assert decode_subscription(data) == Subscription()


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\3", b"\xff\xff\0\0\0\0\xff\xff\xff\xff"])
def test_what_is_no_subscription_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedDataError):
        decode_subscription(data)
    with pytest.raises(MalformedDataError):
        decode_topics(data[:5])


def test_an_unknown_version_is_not_written() -> None:
    with pytest.raises(ValueError, match="versions 0 to 3"):
        encode_subscription(EXAMPLE, version=4)


def test_a_string_beyond_kafkas_limit_is_not_written() -> None:
    with pytest.raises(ValueError, match="32767"):
        encode_subscription(Subscription(rack="r" * 40_000))


def decodes_or_is_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedDataError):
        decode_subscription(data)
    with contextlib.suppress(MalformedDataError):
        decode_topics(data)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_malformed(data: bytes) -> None:
    decodes_or_is_malformed(data)
    decodes_or_is_malformed(b"\0\3" + data)


@pytest.mark.parametrize("version", VERSIONS)
def test_broken_bytes_decode_or_are_malformed(version: int) -> None:
    for data in broken(encode_subscription(EXAMPLE, version=version), seed=version):
        decodes_or_is_malformed(data)
