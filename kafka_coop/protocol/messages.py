"""Requests and responses as plain values, free of versions and wire types.

The state machines decide in these; `kafka_coop.protocol.requests` turns them into bytes of
the version that a broker speaks, and back. A field that an older version lacks is left out
when writing and takes its default when reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.types import (
    NO_GENERATION,
    NO_MEMBER_ID,
    Generation,
    MemberId,
    Partitions,
    TopicPartition,
)

CONSUMER_PROTOCOL_TYPE = "consumer"

OFFSET_EARLIEST = -2
"""ListOffsets: the timestamp that asks for the log's start."""
OFFSET_LATEST = -1
"""ListOffsets: the timestamp that asks for the log's end (the last stable offset under
``isolation.level=read_committed``)."""


def address(host: str, port: int) -> str:
    """As ``bootstrap.servers`` has it: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker's address."""

    node_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """As `address`."""
        return address(self.host, self.port)


# --- the group -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorFound:
    error: ErrorCode
    node: Node | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    group_id: str
    session_timeout: timedelta
    rebalance_timeout: timedelta
    member_id: MemberId
    instance_id: str | None
    protocols: tuple[tuple[str, bytes], ...]
    """Assignor name -> subscription bytes, most preferred first."""
    reason: str | None = None
    """KIP-800; cut at 255 characters when written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    member_id: MemberId
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJoined:
    error: ErrorCode
    generation: Generation = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId = NO_MEMBER_ID
    skip_assignment: bool = False
    """KIP-814: the leader sends an empty plan, yet watches metadata."""
    member_id: MemberId = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    """Everyone's subscription: the leader's answer alone carries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    group_id: str
    generation: Generation
    member_id: MemberId
    instance_id: str | None
    protocol_name: str
    protocol_type: str = CONSUMER_PROTOCOL_TYPE
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSynced:
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    group_id: str
    generation: Generation
    member_id: MemberId
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAcked:
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    group_id: str
    member_id: MemberId
    instance_id: str | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLeft:
    error: ErrorCode
    """The first error of the answer: the request's own, else the member's."""


# --- offsets -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    """A position to commit: the offset of the *next* record to process."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    group_id: str
    generation: Generation
    member_id: MemberId
    instance_id: str | None
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    group_id: str
    partitions: Partitions
    require_stable: bool = True
    """KIP-447: an offset with an open transaction on it is answered with
    UNSTABLE_OFFSET_COMMIT instead of its old value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """``offset`` is -1 where the group has committed none."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsFetched:
    error: ErrorCode
    offsets: Mapping[TopicPartition, FetchedOffset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsets:
    """To be sent to the leader of every partition in it."""

    timestamps: Mapping[TopicPartition, int]
    """`OFFSET_EARLIEST`, `OFFSET_LATEST`, or milliseconds since the epoch."""
    read_committed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    offset: int
    leader_epoch: int = -1
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsListed:
    offsets: Mapping[TopicPartition, ListedOffset]


# --- the cluster ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetadata:
    """``topics=None`` asks for every topic (regex subscriptions); ``()`` for brokers alone."""

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    partition: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    name: str
    error: ErrorCode = ErrorCode.none
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()
    """Sorted by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    brokers: Mapping[int, Node]
    racks: Mapping[int, str | None]
    """Broker id -> rack."""
    topics: Mapping[str, TopicMetadata]
    cluster_id: str | None = None
    controller_id: int = -1


# --- connections ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GetApiVersions:
    """The first request on every connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsAnswer:
    error: ErrorCode
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """API key -> the lowest and highest version that the broker speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshake:
    mechanism: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeAnswer:
    error: ErrorCode
    mechanisms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticate:
    auth_bytes: bytes

    def __repr__(self) -> str:
        return f"SaslAuthenticate(<{len(self.auth_bytes)} secret bytes>)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateAnswer:
    error: ErrorCode
    message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime: timedelta = timedelta(0)
    """Zero: the session does not expire (KIP-368)."""

    def __repr__(self) -> str:
        return f"SaslAuthenticateAnswer({self.error!r}, {self.message!r}, <secret>)"


Request: TypeAlias = (
    FindCoordinator
    | JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | ListOffsets
    | GetMetadata
    | GetApiVersions
    | SaslHandshake
    | SaslAuthenticate
)

Response: TypeAlias = (
    CoordinatorFound
    | GroupJoined
    | GroupSynced
    | HeartbeatAcked
    | GroupLeft
    | OffsetsCommitted
    | OffsetsFetched
    | OffsetsListed
    | ClusterMetadata
    | ApiVersionsAnswer
    | SaslHandshakeAnswer
    | SaslAuthenticateAnswer
)
