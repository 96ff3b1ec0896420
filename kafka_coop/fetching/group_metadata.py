"""A member's identity in the form that transactional producers take (KIP-447).

librdkafka serialises `rd_kafka_consumer_group_metadata_t` as

    "CGMDv2:"  int32 generation, native byte order  group id NUL  member id NUL
    int8: 1 without an instance id, else 0          [instance id NUL]

and confluent-kafka passes these bytes through as its opaque group metadata. A member that
joined over its own connection can therefore be fenced like any other: the broker refuses a
transaction's offsets with ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID. Offsets sent *without*
member and generation would be accepted unfenced.
"""

from __future__ import annotations

import struct

from kafka_coop.types import Generation, GroupMetadata, MemberId

_MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("=i")
_WITHOUT_INSTANCE = b"\x01"
_WITH_INSTANCE = b"\x00"


def encode_group_metadata(metadata: GroupMetadata) -> bytes:
    """Builds what `confluent_kafka.Producer.send_offsets_to_transaction` accepts.

    The result belongs to one generation: fetch it anew after every rebalance. The producer
    refuses ids with characters outside printable ASCII (``_BAD_MSG``).

    Raises:
        ValueError: An id contains a NUL, which ends strings in this format.
    """
    parts = [
        _MAGIC,
        _GENERATION.pack(metadata.generation),
        _terminated(metadata.group_id),
        _terminated(metadata.member_id),
    ]
    if metadata.instance_id is None:
        parts.append(_WITHOUT_INSTANCE)
    else:
        parts += (_WITH_INSTANCE, _terminated(metadata.instance_id))
    return b"".join(parts)


def decode_group_metadata(data: bytes) -> GroupMetadata:
    """Reads what `confluent_kafka.Consumer.consumer_group_metadata` returns.

    Raises:
        ValueError: Bytes of another layout.
    """
    start = len(_MAGIC) + _GENERATION.size
    if not data.startswith(_MAGIC) or len(data) < start:
        raise ValueError(f"group metadata of a layout that is not known: {data[:16]!r}")
    (generation,) = _GENERATION.unpack_from(data, len(_MAGIC))
    group_id, member_id, rest = data[start:].split(b"\0", 2)
    return GroupMetadata(
        group_id=group_id.decode(),
        generation=Generation(generation),
        member_id=MemberId(member_id.decode()),
        instance_id=None if rest == _WITHOUT_INSTANCE else rest[1:-1].decode(),
    )


def _terminated(text: str) -> bytes:
    if "\0" in text:
        raise ValueError(f"an id in group metadata can't contain NUL: {text!r}")
    return text.encode() + b"\0"
