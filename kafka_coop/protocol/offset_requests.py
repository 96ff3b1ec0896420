"""The requests about offsets: our values to kio's fields and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    FetchedOffset,
    ListedOffset,
    ListOffsets,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetsListed,
)
from kafka_coop.protocol.response_reader import Values
from kafka_coop.protocol.schemas import RequestSchema
from kafka_coop.types import TopicPartition

_T = TypeVar("_T")

_CONSUMER = -1
"""ListOffsets: asked by no replica."""
_NO_EPOCH = -1


def _by_topic(values: Mapping[TopicPartition, _T]) -> dict[str, list[tuple[int, _T]]]:
    topics: dict[str, list[tuple[int, _T]]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


def _partitions(topics: Iterable[Values]) -> Iterable[tuple[TopicPartition, Values]]:
    return (
        (TopicPartition(topic["name"], partition["partition_index"]), partition)
        for topic in topics
        for partition in topic["partitions"]
    )


def encode_offset_commit(request: OffsetCommit, schema: RequestSchema) -> bytes:
    """Version 6 knows leader epochs (KIP-320), 7 static members."""
    return schema.encode(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation,
        member_id=request.member_id,
        group_instance_id=request.instance_id,
        topics=tuple(
            schema.nested(
                "OffsetCommitRequestTopic",
                name=topic,
                partitions=tuple(
                    schema.nested(
                        "OffsetCommitRequestPartition",
                        partition_index=partition,
                        committed_offset=position.offset,
                        committed_leader_epoch=position.leader_epoch,
                        committed_metadata=position.metadata,
                    )
                    for partition, position in positions
                ),
            )
            for topic, positions in _by_topic(request.offsets).items()
        ),
    )


def decode_offset_commit(_request: OffsetCommit, values: Values) -> OffsetsCommitted:
    """One error code a partition."""
    return OffsetsCommitted(
        errors={key: answer["error_code"] for key, answer in _partitions(values["topics"])}
    )


def encode_offset_fetch(request: OffsetFetch, schema: RequestSchema) -> bytes:
    """Version 7 can demand stable offsets (KIP-447), 8 asks for many groups (KIP-709).

    Before version 7 an offset with an open transaction on it is answered with its old value.
    """
    many = schema.version >= 8  # noqa: PLR2004  # as the docstring says
    topics = tuple(
        schema.nested(
            "OffsetFetchRequestTopics" if many else "OffsetFetchRequestTopic",
            name=topic,
            partition_indexes=tuple(indices.tolist()),
        )
        for topic, indices in request.partitions.items()
    )
    groups: tuple[Any, ...] = ()
    if many:
        groups = (
            schema.nested("OffsetFetchRequestGroup", group_id=request.group_id, topics=topics),
        )
    return schema.encode(
        group_id=request.group_id,
        topics=topics,
        groups=groups,
        require_stable=request.require_stable,
    )


def decode_offset_fetch(request: OffsetFetch, values: Values) -> OffsetsFetched:
    """An answer that leaves our group out is UNKNOWN_SERVER_ERROR."""
    if "groups" in values:
        ours = (group for group in values["groups"] if group["group_id"] == request.group_id)
        group = next(ours, None)
        if group is None:
            return OffsetsFetched(error=ErrorCode.unknown_server_error)
        values = group
    return OffsetsFetched(
        error=values["error_code"],
        offsets={
            key: FetchedOffset(
                offset=answer["committed_offset"],
                leader_epoch=answer.get("committed_leader_epoch", _NO_EPOCH),
                metadata=answer["metadata"] or "",
                error=answer["error_code"],
            )
            for key, answer in _partitions(values["topics"])
        },
    )


def encode_list_offsets(request: ListOffsets, schema: RequestSchema) -> bytes:
    """Version 2 knows isolation levels (KIP-98)."""
    return schema.encode(
        replica_id=_CONSUMER,
        isolation_level=int(request.read_committed),
        topics=tuple(
            schema.nested(
                "ListOffsetsTopic",
                name=topic,
                partitions=tuple(
                    schema.nested(
                        "ListOffsetsPartition", partition_index=partition, timestamp=timestamp
                    )
                    for partition, timestamp in timestamps
                ),
            )
            for topic, timestamps in _by_topic(request.timestamps).items()
        ),
    )


def decode_list_offsets(_request: ListOffsets, values: Values) -> OffsetsListed:
    """Version 4 tells leader epochs (KIP-320). An offset of -1: no record that late."""
    return OffsetsListed(
        offsets={
            key: ListedOffset(
                offset=answer["offset"],
                leader_epoch=answer.get("leader_epoch", _NO_EPOCH),
                error=answer["error_code"],
            )
            for key, answer in _partitions(values["topics"])
        }
    )
