"""ConsumerProtocolSubscription, the bytes with which a member joins.

    int16 version
    v0  int32 n, n * string topic; nullable bytes user data
    v1  owned partitions, an array of (topic, [partition])          KIP-429
    v2  int32 generation, negative: none                            KIP-792
    v3  nullable string rack                                        KIP-881

Older readers stop where their version ends and newer versions only append, so everyone can
write their newest: we write v3, read newer ones as v3 and ignore what follows.

Every byte of this comes from other members, so every byte is hostile: whatever arrives, the
answer is a Subscription or a MalformedDataError.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.primitives import (
    INT16,
    INT32,
    encode_bytes,
    encode_string,
    read_int16,
    read_int32,
    read_nullable_bytes,
    read_nullable_string,
)
from kafka_coop.protocol.topic_partitions import (
    decode_strings,
    decode_topic_partitions,
    encode_topic_partitions,
)
from kafka_coop.types import NO_GENERATION, NO_PARTITIONS, Generation, Subscription

NEWEST_VERSION = 3

_WITH_OWNED = 1
_WITH_GENERATION = 2
_WITH_RACK = 3


def encode_subscription(subscription: Subscription, *, version: int = NEWEST_VERSION) -> bytes:
    """Returns the subscription's bytes, topics and owned partitions ascending (KAFKA-12898).

    ``instance_id`` is not among them: it travels in JoinGroup.

    Raises:
        ValueError: An unknown version, or a string longer than 32,767 bytes.
    """
    if not 0 <= version <= NEWEST_VERSION:
        raise ValueError(f"Subscription has versions 0 to {NEWEST_VERSION}, not {version}")
    topics = sorted(set(subscription.topics))
    parts = [INT16.pack(version), INT32.pack(len(topics)), *map(encode_string, topics)]
    parts.append(encode_bytes(subscription.user_data))
    if version >= _WITH_OWNED:
        parts.append(encode_topic_partitions(subscription.owned))
    if version >= _WITH_GENERATION:
        parts.append(INT32.pack(max(subscription.generation, NO_GENERATION)))
    if version >= _WITH_RACK:
        parts.append(encode_string(subscription.rack))
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    """Reads one member's subscription.

    Returns:
        It, with a negative generation as `NO_GENERATION`, an empty rack as None, and owned
        partitions without repeats and negative ones.

    Raises:
        MalformedDataError: The bytes are none, or of a negative version.
    """
    return _read_tail(data, _read_head(data))


def decode_topics(data: bytes) -> tuple[str, ...]:
    """Reads a subscription's topics alone, sorted.

    Raises:
        MalformedDataError: The bytes up to the end of the topics are no subscription's.
    """
    _, at = _read_version(data)
    return _read_topics(data, at)[0]


def _read_topics(data: bytes, at: int) -> tuple[tuple[str, ...], int]:
    """Reads an array of topics. Returns them sorted, each once, and where the array ended."""
    strings, end = decode_strings(data, at)
    if not all(map(operator.lt, strings, strings[1:])):
        strings = sorted(set(strings))
    return tuple(strings), end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The fields of version 0, and where they end."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    end: int
    has_owned: bool


def _read_version(data: bytes) -> tuple[int, int]:
    version, at = read_int16(data, 0)
    if version < 0:
        raise MalformedDataError(f"Subscription of version {version}")
    return version, at


def _read_head(data: bytes) -> _Head:
    version, at = _read_version(data)
    topics, at = _read_topics(data, at)
    user_data, at = read_nullable_bytes(data, at)
    return _Head(
        version=version,
        topics=topics,
        user_data=user_data,
        end=at,
        # Some clients claim version 1 and write version 0, which Sarama, too, forgives.
        has_owned=version >= _WITH_OWNED and at < len(data),
    )


def _read_tail(data: bytes, head: _Head) -> Subscription:
    owned, generation, rack = NO_PARTITIONS, NO_GENERATION, None
    if head.has_owned:
        owned, at = decode_topic_partitions(data, head.end)
        if head.version >= _WITH_GENERATION:
            number, at = read_int32(data, at)
            generation = Generation(max(number, NO_GENERATION))
        if head.version >= _WITH_RACK:
            rack, at = read_nullable_string(data, at)
    return Subscription(
        topics=head.topics,
        owned=owned,
        generation=generation,
        user_data=head.user_data,
        rack=rack or None,
    )
