"""The user data of the sticky strategies: what a member says it owned, and since when.

Three layouts are met, two of them under one name:

    sticky             v0  array of (topic, [partition])
                       v1  the same, then int32 generation          (KIP-341)
    cooperative-sticky     int32 generation                         (Java, and ours)

Under the name "cooperative-sticky" librdkafka and franz-go send sticky v1, and kafka-python
nothing; librdkafka and kafka-python never read it there, Java and franz-go only where the
Subscription carries no generation (before KIP-792). So `decode_claim` takes whatever comes.

The strategies that are ours alone speak the same two layouts: sticky v1 has been read by every
client since 2018, and what we may have to add goes into the versioned trailer behind it
(`kafka_coop.protocol.marks`), which is to be split off before anything here is called.

All of it is other members' word: nothing here raises for any bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.primitives import INT32
from kafka_coop.protocol.topic_partitions import decode_topic_partitions, encode_topic_partitions
from kafka_coop.types import NO_GENERATION, NO_PARTITIONS, Generation, Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a member says it owned.

    Attributes:
        owned: The partitions; empty where the layout carries none.
        generation: The generation they came with; `NO_GENERATION`: unknown.
    """

    owned: Partitions = NO_PARTITIONS
    generation: Generation = NO_GENERATION


def encode_generation(generation: Generation) -> bytes:
    """Returns the user data of cooperative-sticky: four bytes."""
    return INT32.pack(max(generation, NO_GENERATION))


def decode_generation(data: bytes | None) -> Generation:
    """Reads the user data of cooperative-sticky as Java does: four bytes, the rest ignored.

    Returns:
        The generation; `NO_GENERATION` where it is absent, negative or cut off.
    """
    if data is None or len(data) < INT32.size:
        return NO_GENERATION
    return Generation(max(INT32.unpack_from(data)[0], NO_GENERATION))


def encode_sticky(claim: Claim) -> bytes:
    """Returns the user data of sticky, version 1.

    Before its first assignment a member sends None instead.

    Raises:
        ValueError: A topic's name is longer than 32,767 bytes.
    """
    return encode_topic_partitions(claim.owned) + encode_generation(claim.generation)


def decode_sticky(data: bytes | None) -> Claim | None:
    """Reads the user data of sticky: version 1, else version 0.

    Returns:
        The claim, or None where the bytes are neither. What follows is ignored.
    """
    if data is None:
        return None
    try:
        owned, at = decode_topic_partitions(data)
    except MalformedDataError:
        return None
    return Claim(owned=owned, generation=decode_generation(data[at:]))


def decode_claim(data: bytes | None) -> Claim | None:
    """Reads whichever layout a peer chose.

    Four bytes are a generation without partitions (as sticky v0 they could only say "none",
    which a generation of 0 says as well); anything else is sticky, or nothing.

    Returns:
        The claim, or None where the bytes make none. Partitions sent as the Subscription's own
        (KIP-429) count before these.
    """
    if data is not None and len(data) == INT32.size:
        return Claim(generation=decode_generation(data))
    return decode_sticky(data)
