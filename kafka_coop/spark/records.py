"""Records to Arrow: column by column, with as little as can be done per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from kafka_coop.fetching.native import position_at
from kafka_coop.types import TopicPartition

_ROWS = 8192
_BYTES = 8 << 20
"""A batch is passed on when it has so many rows, or so many bytes."""


def record_batches(
    fetched: Iterable[tuple[TopicPartition, list[Message]]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Batches of a useful size, each of one partition's records, as they come.

    Args:
        fetched: Lists of records, none empty, and whose they are.
        schema: `kafka_coop.spark.schema.arrow_schema`, with the column headers or without.
    """
    for of, its in groupby(fetched, itemgetter(0)):
        waiting: list[Message] = []
        size = 0
        for _, records in its:
            waiting += records
            # One record stands for those fetched with it: measuring each would cost a call each.
            size += len(records) * (len(records[-1]) or 1)
            if len(waiting) >= _ROWS or size >= _BYTES:
                yield record_batch(waiting, of, schema)
                waiting, size = [], 0
        if waiting:
            yield record_batch(waiting, of, schema)


def record_batch(records: list[Message], of: TopicPartition, schema: pa.Schema) -> pa.RecordBatch:
    """One batch of one partition's records, of which there must be at least one."""
    count = len(records)
    kinds, times = zip(*map(Message.timestamp, records), strict=True)
    columns = [
        pa.array(list(map(Message.key, records)), pa.binary()),
        pa.array(list(map(Message.value, records)), pa.binary()),
        pa.repeat(pa.scalar(of.topic, pa.string()), count),
        pa.repeat(pa.scalar(of.partition, pa.int32()), count),
        _offsets(records),
        pa.array(np.array(times, np.int64) * 1000, pa.timestamp("us", tz="UTC")),
        _timestamp_types(kinds),
    ]
    if len(schema) > len(columns):
        headers = list(map(_headers, records))
        columns.append(pa.array(headers, schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _offsets(records: list[Message]) -> pa.Array:
    """Mostly without gaps: then two of them tell all."""
    first, last = position_at(records[0]), position_at(records[-1])
    if last - first + 1 == len(records):
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array(np.array(list(map(Message.offset, records)), np.int64))


def _timestamp_types(kinds: tuple[int, ...]) -> pa.Array:
    """Java's numbers: none -1, the producer's time 0, the broker's 1. confluent's are one more."""
    if kinds.count(kinds[0]) == len(kinds):
        return pa.repeat(pa.scalar(kinds[0] - 1, pa.int32()), len(kinds))
    return pa.array(np.array(kinds, np.int32) - 1)


def _headers(record: Message) -> list[dict[str, Any]] | None:
    given: Any = record.headers()  # a list of pairs, whatever its stubs say
    if not given:
        return None
    return [{"key": key, "value": _bytes(value)} for key, value in given]


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
