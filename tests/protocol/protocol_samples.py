"""One request of each kind, with every field set, and kio's classes for its messages."""

from __future__ import annotations

import io
import typing
import uuid
from dataclasses import fields
from datetime import timedelta
from importlib import import_module
from typing import Any

from kio.serial import entity_writer

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    FindCoordinator,
    GetApiVersions,
    GetMetadata,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListOffsets,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    Request,
    SaslAuthenticate,
    SaslHandshake,
    SyncGroup,
)
from kafka_coop.protocol.requests import OUR_VERSIONS
from kafka_coop.types import Generation, MemberId, Partitions, TopicPartition

SAMPLES: dict[str, Request] = {
    "list_offsets": ListOffsets(
        timestamps={
            TopicPartition("a", 0): -2,
            TopicPartition("b", 1): -1,
            TopicPartition("a", 1): 1_700_000_000_000,
        },
        read_committed=True,
    ),
    "metadata": GetMetadata(topics=("a", "b"), allow_auto_topic_creation=True),
    "offset_commit": OffsetCommit(
        group_id="g",
        generation=Generation(7),
        member_id=MemberId("m-1"),
        instance_id="i",
        offsets={
            TopicPartition("a", 0): OffsetAndMetadata(offset=5, leader_epoch=2, metadata="x"),
            TopicPartition("a", 3): OffsetAndMetadata(offset=6),
        },
    ),
    "offset_fetch": OffsetFetch(
        group_id="g", partitions=Partitions({"a": [0, 3], "b": [1]}), require_stable=True
    ),
    "find_coordinator": FindCoordinator(group_id="g"),
    "join_group": JoinGroup(
        group_id="g",
        session_timeout=timedelta(seconds=45),
        rebalance_timeout=timedelta(minutes=5),
        member_id=MemberId("m-1"),
        instance_id="i",
        protocols=(("cooperative-sticky", b"\0\3"), ("range", b"\0\1")),
        reason="r" * 300,
    ),
    "heartbeat": Heartbeat(
        group_id="g", generation=Generation(7), member_id=MemberId("m-1"), instance_id="i"
    ),
    "leave_group": LeaveGroup(
        group_id="g", member_id=MemberId("m-1"), instance_id="i", reason="r" * 300
    ),
    "sync_group": SyncGroup(
        group_id="g",
        generation=Generation(7),
        member_id=MemberId("m-1"),
        instance_id="i",
        protocol_name="range",
        assignments={"m-1": b"\0\0", "m-2": b""},
    ),
    "sasl_handshake": SaslHandshake(mechanism="PLAIN"),
    "api_versions": GetApiVersions(),
    "sasl_authenticate": SaslAuthenticate(auth_bytes=b"\0user\0secret"),
}

EVERY_VERSION = [
    (api, version)
    for api, request in SAMPLES.items()
    for version in range(OUR_VERSIONS[type(request)][0], OUR_VERSIONS[type(request)][1] + 1)
]


def kio_class(api: str, version: int, side: str) -> Any:
    module = import_module(f"kio.schema.{api}.v{version}.{side.lower()}")
    return getattr(module, "".join(w.capitalize() for w in api.split("_")) + side)


def kio_write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


_ONE: dict[str, Any] = {
    "bool": True,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "string": "g",
    "bytes": b"\0\xff",
    "error_code": ErrorCode.rebalance_in_progress,
    "timedelta_i32": timedelta(milliseconds=5),
    "timedelta_i64": timedelta(milliseconds=6),
    "uuid": uuid.UUID(int=7),
}


def one_of_everything(entity: Any) -> Any:
    """A message with every field set, tagged ones too, and one element in each array."""
    values: dict[str, Any] = {}
    for field in fields(entity):
        options = (field.type, *typing.get_args(field.type))
        arrays = [option for option in options if typing.get_origin(option) is tuple]
        kafka_type = field.metadata.get("kafka_type")
        if kafka_type is not None:
            value = _ONE[kafka_type]
        else:
            value = one_of_everything(typing.get_args(arrays[0])[0])
        values[field.name] = (value,) if arrays else value
    return entity(**values)


def answer_frame(entity: Any, correlation_id: int = 9) -> bytes:
    """What a broker would send, without the length before it."""
    tags = b"\0" if type(entity).__header_schema__.__flexible__ else b""
    return correlation_id.to_bytes(4, "big") + tags + kio_write(entity)
