from __future__ import annotations

import gc
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message

from kafka_coop.spark import records
from kafka_coop.spark.errors import RecordError
from kafka_coop.spark.records import record_batch, record_batches
from kafka_coop.spark.schema import arrow_schema
from kafka_coop.types import TopicPartition

OF = TopicPartition("orders", 3)
PLAIN = arrow_schema(headers=False)
WITH_HEADERS = arrow_schema(headers=True)
FARTHEST = (2**63 - 1) // 1000


def stamped(*times: int) -> list[Message]:
    """Records with these timestamps, from offset 10; below 0, with none."""
    return [
        Message(topic="orders", partition=3, offset=10 + n, timestamp=(int(time >= 0), time))
        for n, time in enumerate(times)
    ]


@pytest.mark.parametrize("time", [FARTHEST + 1, 1_700_000_000_000_000_000, 2**63 - 1, -(2**63)])
def test_a_timestamp_that_spark_cant_hold_is_told_with_its_place(time: int) -> None:
    told = rf"orders:3 has at offset 11 a timestamp .*, {time} ms since 1970.* to 12 while"
    with pytest.raises(RecordError, match=told):
        record_batch(stamped(1_700_000_000_000, time, time), OF, PLAIN)


def test_a_timestamp_is_milliseconds_made_microseconds() -> None:
    """To the last one that fits. None at all is -1."""
    times = [-1, 0, 1_700_000_000_123, FARTHEST]
    batch = record_batch(stamped(*times), OF, PLAIN)
    micros = np.array(times, np.int64) * 1000
    assert batch.column("timestamp").cast("int64").to_pylist() == micros.tolist()
    assert batch.column("timestampType").to_pylist() == [-1, 0, 0, 0]


Headers = Sequence[tuple[str, bytes | None]]


def tombstones(key: bytes | None, headers: Headers = ()) -> list[Message]:
    return [
        Message(
            topic="orders",
            partition=3,
            offset=n,
            timestamp=(1, 0),
            key=key,
            headers=list(headers) or None,
        )
        for n in range(10)
    ]


def test_no_message_is_left_when_a_batch_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_ROWS", 20)
    before = sum(isinstance(one, Message) for one in gc.get_objects())
    fetched = ((OF, stamped(*range(10))) for _ in range(5))
    left = []
    for batch in record_batches(fetched, PLAIN):
        alive = sum(isinstance(one, Message) for one in gc.get_objects())
        left.append((batch.num_rows, alive - before))
    assert left == [(20, 0), (20, 0), (10, 0)]


LARGE = b"x" * 100


@pytest.mark.parametrize(
    ("fetched", "schema", "rows"),
    [
        (tombstones(LARGE), PLAIN, [20, 10]),
        (tombstones(None, [("h", LARGE), ("empty", None)]), WITH_HEADERS, [20, 10]),
        (tombstones(None, [("h" * 100, None)]), WITH_HEADERS, [20, 10]),
        (tombstones(None, [("h", LARGE)]), PLAIN, [30]),
        (tombstones(None), WITH_HEADERS, [30]),
    ],
    ids=["keys", "values of headers", "names of headers", "headers that are left out", "nothing"],
)
def test_a_batch_is_passed_on_by_all_that_its_records_hold(
    monkeypatch: pytest.MonkeyPatch, fetched: list[Message], schema: pa.Schema, rows: list[int]
) -> None:
    monkeypatch.setattr(records, "_BYTES", 1500)
    batches = record_batches([(OF, list(fetched)) for _ in range(3)], schema)
    assert [batch.num_rows for batch in batches] == rows
