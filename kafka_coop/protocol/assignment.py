"""ConsumerProtocolAssignment, the bytes that the leader gives a member.

    int16 version; array of (topic, [partition]); nullable bytes user data

Versions 0 to 3 differ in the number alone; it was raised along with the subscription's. We
write 0, as librdkafka and franz-go do: readers before Kafka 2.4 know no other, later ones take
them all. Whatever version is read, trailing bytes are ignored. No user data are written as
absent, not as empty, which is what Java writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.primitives import INT16, encode_bytes, read_int16, read_nullable_bytes
from kafka_coop.protocol.topic_partitions import decode_topic_partitions, encode_topic_partitions
from kafka_coop.protocol.topic_partitions_batch import encode_batch
from kafka_coop.types import Assignment

NEWEST_VERSION = 3


def encode_assignment(assignment: Assignment, *, version: int = 0) -> bytes:
    """Returns the assignment's bytes, partitions ascending.

    Raises:
        ValueError: An unknown version, or a topic name longer than 32,767 bytes.
    """
    if not 0 <= version <= NEWEST_VERSION:
        raise ValueError(f"Assignment has versions 0 to {NEWEST_VERSION}, not {version}")
    partitions = encode_topic_partitions(assignment.partitions)
    return INT16.pack(version) + partitions + encode_bytes(assignment.user_data or None)


def encode_assignments(
    assignments: Mapping[str, Assignment], *, version: int = 0
) -> dict[str, bytes]:
    """Returns each member's bytes, all made together: a million partitions take tenths of a second.

    Raises:
        ValueError: As `encode_assignment`.
    """
    if not 0 <= version <= NEWEST_VERSION:
        raise ValueError(f"Assignment has versions 0 to {NEWEST_VERSION}, not {version}")
    head = INT16.pack(version)
    arrays = encode_batch([a.partitions for a in assignments.values()])
    return {
        member: b"".join((head, array, encode_bytes(assignment.user_data or None)))
        for (member, assignment), array in zip(assignments.items(), arrays, strict=True)
    }


def decode_assignment(data: bytes) -> Assignment:
    """Reads an assignment.

    Returns:
        It. Partitions named twice count once; negative ones are dropped. Absent user data and
        empty user data are the same.

    Raises:
        MalformedDataError: The bytes are none, or of a negative version. An empty assignment
            has bytes too: SyncGroup's b"" is for the caller to know.
    """
    version, at = read_int16(data, 0)
    if version < 0:
        raise MalformedDataError(f"Assignment of version {version}")
    partitions, at = decode_topic_partitions(data, at)
    user_data, _ = read_nullable_bytes(data, at)
    return Assignment(partitions=partitions, user_data=user_data or b"")
