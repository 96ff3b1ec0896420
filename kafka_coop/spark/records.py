"""Records to Arrow: column by column, with as little as can be done per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from kafka_coop.fetching.native import position_at
from kafka_coop.spark.errors import RecordError
from kafka_coop.types import TopicPartition

_ROWS = 4000
_BYTES = 8 << 20
"""A batch is passed on when it has so many rows, or so many bytes. Twice as many rows no longer fit
the processor's second cache as messages, and take longer each."""

_FARTHEST = (2**63 - 1) // 1000
"""Milliseconds, before 1970 or after, that are microseconds in 64 bits."""

_GIVEN = methodcaller("headers")
"""A record's headers. Where a name is no UTF-8, confluent-kafka returns pairs without a name, and
the error set besides. The interpreter looks at that, and raises SystemError, until the calling code
has run often: then it calls what is written in C without a look (PEP 659), goes on with what it was
given, and crashes. A call from C, such as this one, is looked at always."""


def record_batches(
    fetched: Iterable[tuple[TopicPartition, list[Message]]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Batches of a useful size, each of one partition's records, as they come.

    Args:
        fetched: Lists of records, none empty, and whose they are. They are emptied: no message
            is left when a batch is passed on, else the first garbage collection of whoever takes it
            would walk thousands, and keep them.
        schema: `kafka_coop.spark.schema.arrow_schema`, with the column headers or without.
    """
    headers = "headers" in schema.names
    for of, its in groupby(fetched, itemgetter(0)):
        waiting: list[Message] = []
        size = 0
        for _, records in its:
            waiting += records
            # One record stands for those fetched with it: measuring each would cost a call each.
            size += len(records) * _size(records[-1], headers=headers)
            records.clear()
            if len(waiting) >= _ROWS or size >= _BYTES:
                yield _emptying(waiting, of, schema)
                size = 0
        if waiting:
            yield _emptying(waiting, of, schema)


def _emptying(waiting: list[Message], of: TopicPartition, schema: pa.Schema) -> pa.RecordBatch:
    batch = record_batch(waiting, of, schema)
    waiting.clear()
    return batch


def record_batch(records: list[Message], of: TopicPartition, schema: pa.Schema) -> pa.RecordBatch:
    """One batch of one partition's records, of which there must be at least one.

    Raises:
        RecordError: A timestamp is beyond what Spark can hold, or a header's name is.
    """
    count = len(records)
    stamps, kinds = _timestamps(records, of)
    columns = [
        pa.array(list(map(Message.key, records)), pa.binary()),
        pa.array(list(map(Message.value, records)), pa.binary()),
        pa.repeat(pa.scalar(of.topic, pa.string()), count),
        pa.repeat(pa.scalar(of.partition, pa.int32()), count),
        _offsets(records),
        stamps,
        kinds,
    ]
    if len(schema) > len(columns):
        headers = list(map(_headers, records))
        columns.append(pa.array(headers, schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _size(record: Message, *, headers: bool) -> int:
    """In bytes, about. A tombstone may be all key, or all headers."""
    size = len(record) + len(record.key() or b"")
    given = _headers(record) if headers else None
    for one in given or ():
        size += len(one["key"]) + len(one["value"] or b"")
    return size or 1


def _timestamps(records: list[Message], of: TopicPartition) -> tuple[pa.Array, pa.Array]:
    """And their types, which are Java's numbers: the producer's time 0, the broker's 1, none -1.

    confluent's are one more. Mostly all are of one type, and the pair that each record gives is
    gone when the next one does: that takes half the time of pairs that are kept.
    """
    kind, _ = records[0].timestamp()
    times = [time for its, time in map(Message.timestamp, records) if its == kind]
    kinds = pa.repeat(pa.scalar(kind - 1, pa.int32()), len(records))
    if len(times) < len(records):
        times = [time for _, time in map(Message.timestamp, records)]
        kinds = pa.array([its - 1 for its, _ in map(Message.timestamp, records)], pa.int32())
    stamps = pa.array(np.array(times, np.int64), pa.timestamp("ms", tz="UTC"))
    try:
        return stamps.cast(pa.timestamp("us", tz="UTC")), kinds  # of milliseconds there are more
    except pa.ArrowInvalid:
        raise _unfit(times, records, of) from None


def _unfit(times: list[int], records: list[Message], of: TopicPartition) -> RecordError:
    """What to say of the first record whose timestamp is too far away."""
    n = next(n for n, time in enumerate(times) if abs(time) > _FARTHEST)
    offset = records[n].offset() or 0
    return RecordError(
        f"{of.topic}:{of.partition} has at offset {offset} a timestamp that Spark can't hold, "
        f"{times[n]} ms since 1970: have its producer write milliseconds (these may be "
        f"nanoseconds). {_behind(offset)}"
    )


def _behind(offset: int) -> str:
    """How to go on without a record."""
    return (
        "To go on behind the record, reset the group's offset of the partition to "
        f"{offset + 1} while the query is stopped; for spark.read, set startingOffsets"
    )


def _offsets(records: list[Message]) -> pa.Array:
    """Mostly without gaps: then two of them tell all."""
    first, last = position_at(records[0]), position_at(records[-1])
    if last - first + 1 == len(records):
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array(np.array(list(map(Message.offset, records)), np.int64))


def _headers(record: Message) -> list[dict[str, Any]] | None:
    """A record's, which come undecoded from the brokers: names are decoded here.

    Raises:
        RecordError: A name is no UTF-8.
    """
    try:
        given = _GIVEN(record)  # a list of pairs, whatever its stubs say
    except SystemError:
        offset = record.offset() or 0
        raise RecordError(
            f"{record.topic()}:{record.partition()} has at offset {offset} a header whose name is "
            "no UTF-8, which Spark's column headers can't hold: leave includeHeaders out, or have "
            f"its producer write UTF-8. {_behind(offset)}"
        ) from None
    if not given:
        return None
    return [{"key": key, "value": _bytes(value)} for key, value in given]


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
