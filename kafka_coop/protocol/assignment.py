"""ConsumerProtocolAssignment, the bytes that the leader gives a member.

    int16 version; array of (topic, [partition]); nullable bytes user data

Versions 0 to 3 differ in the number alone; it was raised along with the subscription's. We
write 0, as librdkafka and franz-go do: readers before Kafka 2.4 know no other, later ones take
them all. Whatever version is read, trailing bytes are ignored. No user data are written as
absent, not as empty, which is what Java writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.partition_sets import PartitionSets
from kafka_coop.protocol.primitives import INT16, encode_bytes, read_int16, read_nullable_bytes
from kafka_coop.protocol.topic_partitions import decode_topic_partitions, encode_topic_partitions
from kafka_coop.protocol.topic_partitions_batch import write_sets
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


def encode_assignments(sets: PartitionSets, user_data: Sequence[bytes]) -> list[bytes]:
    """Returns many members' bytes, version 0: a million partitions take tenths of a second.

    Args:
        sets: Per member its partitions.
        user_data: Per member what its assignment carries besides.

    Raises:
        ValueError: A topic's name is longer than 32,767 bytes.
    """
    runs, begins = write_sets(sets)
    heads = np.zeros(begins.size - 1, np.dtype([("version", ">i2"), ("topics", ">i4")]))
    heads["topics"] = np.diff(sets.begins)
    head = heads.tobytes()
    size = heads.dtype.itemsize
    ends = begins.tolist()
    tails = {data: encode_bytes(data or None) for data in set(user_data)}
    return [
        b"".join((head[at : at + size], runs[a:b], tails[data]))
        for at, a, b, data in zip(
            range(0, len(head), size), ends, ends[1:], user_data, strict=False
        )
    ]


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
