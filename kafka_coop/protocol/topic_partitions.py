"""The array of (topic, [partition]) that subscriptions, assignments and user data share.

    int32 n, n * (int16 length + topic, int32 m, m * int32 partition)

This module reads and writes one at a time, about a microsecond a topic;
`kafka_coop.protocol.topic_partitions_batch` does a whole group's together.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kafka_coop.protocol.primitives import (
    INT32,
    decode_text,
    encode_string,
    lying,
    read_array_length,
    truncated,
)
from kafka_coop.types import (
    MAX_STRING_BYTES,
    NO_PARTITIONS,
    PartitionColumns,
    PartitionIndices,
    Partitions,
)

_SMALLEST_STRING = 2
_FEW = 64
"""Up to so many numbers a loop is faster than numpy."""
SMALLEST_RUN = 6
"""A topic without a name and without partitions: the two lengths."""


def decode_strings(data: bytes, at: int) -> tuple[list[str], int]:
    """Reads an array of strings.

    Returns:
        The strings in their order, and where the array ended.

    Raises:
        MalformedDataError: The bytes are no such array.
    """
    count, at = read_array_length(data, at, smallest=_SMALLEST_STRING)
    size = len(data)
    strings: list[str] = []
    try:
        for _ in range(count):
            length = data[at] << 8 | data[at + 1]
            begin = at + 2
            at = begin + length
            if at > size or length > MAX_STRING_BYTES:
                raise lying(data, begin - 2, length)
            strings.append(decode_text(data[begin:at], begin))
    except IndexError:
        raise truncated(data, at) from None
    return strings, at


def decode_topic_partitions(data: bytes, at: int = 0) -> tuple[Partitions, int]:
    """Reads an array of (topic, [partition]).

    Partitions named twice count once, topics named twice are united, negative partitions are
    dropped: none of them is worth losing the member's other claims for.

    Returns:
        The partitions, and where the array ended.

    Raises:
        MalformedDataError: The bytes are no such array.
    """
    runs, at = read_array_length(data, at, smallest=SMALLEST_RUN)
    size, unpack = len(data), INT32.unpack_from
    topics: list[str] = []
    starts: list[int] = []
    counts: list[int] = []
    try:
        for _ in range(runs):
            length = data[at] << 8 | data[at + 1]
            begin = at + 2
            end = begin + length
            (count,) = unpack(data, end)
            count = 0 if count == -1 else count  # null is empty, as in `read_array_length`
            start = end + 4
            at = start + 4 * count
            if count < 0 or at > size:
                raise lying(data, end, count)
            if length > MAX_STRING_BYTES:
                raise lying(data, begin - 2, length)
            topics.append(decode_text(data[begin:end], begin))
            starts.append(start)
            counts.append(count)
    except (IndexError, struct.error):
        raise truncated(data, at) from None
    total = sum(counts)
    if not total:
        return NO_PARTITIONS, at
    if total <= _FEW and (few := _few(data, topics, starts, counts)) is not None:
        return few, at
    return _gather(data, topics, np.array(starts, np.int64), np.array(counts, np.int64)), at


def encode_topic_partitions(partitions: Partitions) -> bytes:
    """Returns the array's bytes, topics and partitions ascending.

    Raises:
        ValueError: A topic's name is longer than 32,767 bytes.
    """
    columns = partitions.columns()
    numbers = columns.indices.astype(">i4").tobytes()
    parts = [INT32.pack(len(columns.topics))]
    at = 0
    for topic, count in zip(columns.topics, columns.counts.tolist(), strict=True):
        end = at + 4 * count
        parts += (encode_string(topic), INT32.pack(count), numbers[at:end])
        at = end
    return b"".join(parts)


def _few(
    data: bytes, topics: Sequence[str], starts: Sequence[int], counts: Sequence[int]
) -> Partitions | None:
    """Collects a few numbers, at a fraction of what `_gather` costs; None: not in order."""
    numbers: list[int] = []
    for start, count in zip(starts, counts, strict=True):
        run = struct.unpack_from(f">{count}i", data, start)
        if not run or run[0] < 0 or not all(map(operator.lt, run, run[1:])):
            return None
        numbers += run
    if not all(map(operator.lt, topics, topics[1:])):
        return None
    return Partitions.from_columns(
        PartitionColumns(tuple(topics), np.array(counts, np.int64), np.array(numbers, np.int32))
    )


def _gather(
    data: bytes, topics: Sequence[str], starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> Partitions:
    """Collects the numbers, given where each topic's start and how many they are."""
    indices = int32_at_every_byte(data)[number_offsets(starts, counts)].astype(np.int32)
    begins = np.zeros(indices.size, np.bool_)
    begins[(np.cumsum(counts) - counts)[counts > 0]] = True
    orderly = bool(
        counts.all()
        and all(map(operator.lt, topics, topics[1:]))
        and indices.min() >= 0
        and ((indices[1:] > indices[:-1]) | begins[1:]).all()
    )
    if orderly:
        return Partitions.from_columns(PartitionColumns(tuple(topics), counts, indices))
    by_topic: dict[str, list[PartitionIndices]] = {}
    for topic, numbers in zip(topics, np.split(indices, np.cumsum(counts)[:-1]), strict=True):
        by_topic.setdefault(topic, []).append(numbers[numbers >= 0])
    return Partitions({t: np.concatenate(runs) for t, runs in by_topic.items()})


def int32_at_every_byte(data: bytes) -> npt.NDArray[np.int32]:
    """The big-endian int32 that begins at each byte: a view that overlaps itself, no copy."""
    return np.ndarray((len(data) - 3,), np.dtype(">i4"), data, 0, (1,))


def number_offsets(
    starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The offset of every number, topic after topic, given where each topic's start."""
    if counts.size and counts.min() == 1 == counts.max():
        return starts
    firsts = np.cumsum(counts) - counts
    return np.repeat(starts - 4 * firsts, counts) + 4 * np.arange(int(counts.sum()))
