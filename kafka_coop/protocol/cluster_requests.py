"""Metadata and what opens a connection: our values to kio's fields and back."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from kafka_coop.protocol.messages import (
    ApiVersionsAnswer,
    ClusterMetadata,
    GetApiVersions,
    GetMetadata,
    Node,
    PartitionMetadata,
    SaslAuthenticate,
    SaslAuthenticateAnswer,
    SaslHandshake,
    SaslHandshakeAnswer,
    TopicMetadata,
)
from kafka_coop.protocol.response_reader import Values
from kafka_coop.protocol.schemas import RequestSchema

_SOFTWARE = "kafka-coop"
_NO_EPOCH = -1
_NO_CONTROLLER = -1


def encode_metadata(request: GetMetadata, schema: RequestSchema) -> bytes:
    """Version 10 could ask by topic id; we ask by name."""
    topics = None
    if request.topics is not None:
        topics = tuple(
            schema.nested("MetadataRequestTopic", name=name, topic_id=None)
            for name in request.topics
        )
    return schema.encode(
        topics=topics,
        allow_auto_topic_creation=request.allow_auto_topic_creation,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def decode_metadata(_request: GetMetadata, values: Values) -> ClusterMetadata:
    """Version 7 tells leader epochs (KIP-320)."""
    return ClusterMetadata(
        brokers={
            broker["node_id"]: Node(
                node_id=broker["node_id"], host=broker["host"], port=broker["port"]
            )
            for broker in values["brokers"]
        },
        racks={broker["node_id"]: broker["rack"] for broker in values["brokers"]},
        topics={
            topic["name"]: _topic(topic)
            for topic in values["topics"]
            if topic["name"] is not None  # asked for by id, which we never do
        },
        cluster_id=values["cluster_id"],
        controller_id=values.get("controller_id", _NO_CONTROLLER),
    )


def _topic(values: Values) -> TopicMetadata:
    partitions = [
        PartitionMetadata(
            partition=partition["partition_index"],
            leader_id=partition["leader_id"],
            leader_epoch=partition.get("leader_epoch", _NO_EPOCH),
            replica_nodes=partition["replica_nodes"],
            error=partition["error_code"],
        )
        for partition in values["partitions"]
    ]
    return TopicMetadata(
        name=values["name"],
        error=values["error_code"],
        is_internal=values["is_internal"],
        partitions=tuple(sorted(partitions, key=lambda p: p.partition)),
    )


def encode_api_versions(_request: GetApiVersions, schema: RequestSchema) -> bytes:
    """Version 3 tells the broker who we are (KIP-511)."""
    return schema.encode(
        client_software_name=_SOFTWARE, client_software_version=_software_version()
    )


@cache
def _software_version() -> str:
    try:
        return version(_SOFTWARE)
    except PackageNotFoundError:  # run from a source tree
        return "0"


def decode_api_versions(_request: GetApiVersions, values: Values) -> ApiVersionsAnswer:
    """Which versions the broker speaks."""
    return ApiVersionsAnswer(
        error=values["error_code"],
        ranges={
            api["api_key"]: (api["min_version"], api["max_version"]) for api in values["api_keys"]
        },
    )


def encode_sasl_handshake(request: SaslHandshake, schema: RequestSchema) -> bytes:
    """Version 1 makes SaslAuthenticate follow (KIP-152); before, the tokens were unframed."""
    return schema.encode(mechanism=request.mechanism)


def decode_sasl_handshake(_request: SaslHandshake, values: Values) -> SaslHandshakeAnswer:
    """The mechanisms are those that the broker has."""
    return SaslHandshakeAnswer(error=values["error_code"], mechanisms=values["mechanisms"])


def encode_sasl_authenticate(request: SaslAuthenticate, schema: RequestSchema) -> bytes:
    """The mechanism's own bytes."""
    return schema.encode(auth_bytes=request.auth_bytes)


def decode_sasl_authenticate(_request: SaslAuthenticate, values: Values) -> SaslAuthenticateAnswer:
    """Version 1 tells how long the session lives (KIP-368)."""
    return SaslAuthenticateAnswer(
        error=values["error_code"],
        message=values["error_message"],
        auth_bytes=values["auth_bytes"],
        session_lifetime=values.get("session_lifetime", timedelta(0)),
    )
