"""A record as no producer in Python can write it: with a header whose name is any bytes."""

from __future__ import annotations

import io
import socket
import struct
from datetime import UTC, datetime, timedelta

from kio.records.schema import NewRecordBatch, Record, RecordHeader
from kio.records.writers import write_new_batch
from kio.schema.produce.v7.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import Records, TZAwareMicros, i8, i16, i32, i32Timedelta, i64

from kafka_coop.testing import EmbeddedKafka


def produce_with_header(kafka: EmbeddedKafka, topic: str, name: bytes) -> None:
    """One record to the first partition of a cluster of one broker."""
    request = ProduceRequest(
        acks=i16(-1),
        timeout=i32Timedelta.parse(timedelta(seconds=10)),
        topic_data=(
            TopicProduceData(
                name=TopicName(topic),
                partition_data=(PartitionProduceData(index=i32(0), records=_batch(name)),),
            ),
        ),
    )
    header = RequestHeader(
        request_api_key=ProduceRequest.__api_key__,
        request_api_version=ProduceRequest.__version__,
        correlation_id=i32(1),
        client_id="raw",
    )
    frame = io.BytesIO()
    entity_writer(RequestHeader)(frame, header)
    entity_writer(ProduceRequest)(frame, request)
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as broker:
        broker.sendall(struct.pack(">i", len(frame.getvalue())) + frame.getvalue())
        assert broker.recv(4), "acknowledged"


def _batch(name: bytes) -> Records:
    record = Record(
        attributes=i8(0),
        timestamp=TZAwareMicros.parse(datetime.now(UTC)),
        offset=i64(0),
        key=None,
        value=b"v",
        headers=(RecordHeader(key=name, value=b"1"),),
    )
    batch = io.BytesIO()
    write_new_batch(
        batch,
        NewRecordBatch(
            producer_id=i64(-1),
            producer_epoch=i16(-1),
            base_sequence=i32(-1),
            records=(record,),
            attributes=i16(0),
        ),
    )
    return Records(batch.getvalue())
