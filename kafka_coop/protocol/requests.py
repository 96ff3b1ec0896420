"""Requests to bytes and answers from bytes, in the version that a broker speaks.

The oldest broker supported is Apache Kafka 1.0: the first with SaslAuthenticate (KIP-152) and
with every version below. Newer features switch themselves off on older brokers: no member id is
handed out before the join (KIP-394) below 2.2, no static members (KIP-345) below 2.3, no stable
offsets (KIP-447) below 2.5, no reasons (KIP-800) below 3.2.

The newest versions are those up to which nothing changes for a classic member:

- OffsetCommit stops at 8: from 9 on a group that is gone is answered with GROUP_ID_NOT_FOUND
  instead of ILLEGAL_GENERATION, and members' epochs (KIP-848) take the generation's place. The
  same for OffsetFetch.
- Metadata stops at 12, ListOffsets at 7, ApiVersions at 3: what comes later serves others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from kafka_coop.errors import MalformedDataError, VersionNotSupportedError
from kafka_coop.protocol import cluster_requests as cluster
from kafka_coop.protocol import group_requests as group
from kafka_coop.protocol import offset_requests as offsets
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    ApiVersionsAnswer,
    FindCoordinator,
    GetApiVersions,
    GetMetadata,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListOffsets,
    OffsetCommit,
    OffsetFetch,
    Request,
    Response,
    SaslAuthenticate,
    SaslHandshake,
    SyncGroup,
)
from kafka_coop.protocol.primitives import encode_string, read_int16, read_int32
from kafka_coop.protocol.response_reader import Values, skip_tagged_fields
from kafka_coop.protocol.schemas import RequestSchema, request_schema, response_schema

_HEADER = struct.Struct(">hhi")
_NO_TAGGED_FIELDS = b"\0"
_CORRELATION = 4
"""Bytes of an answer's correlation id, which comes first."""
_UNNUMBERED = bytes(_CORRELATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Api:
    """One kind of request.

    Attributes:
        key: Kafka's number for it.
        name: Kafka's name, as kio spells its modules.
        versions: The oldest and the newest that we speak.
        encode: Our value to bytes, the header excepted.
        decode: The request and the answer's fields to our value.
    """

    key: int
    name: str
    versions: tuple[int, int]
    encode: Callable[[Any, RequestSchema], bytes]
    decode: Callable[[Any, Values], Response]


def _api(
    key: int, name: str, versions: tuple[int, int], encode: Callable[..., bytes], decode: Any
) -> _Api:
    return _Api(key=key, name=name, versions=versions, encode=encode, decode=decode)


_APIS: Final[Mapping[type[Request], _Api]] = {
    ListOffsets: _api(
        2, "list_offsets", (2, 7), offsets.encode_list_offsets, offsets.decode_list_offsets
    ),
    GetMetadata: _api(3, "metadata", (4, 12), cluster.encode_metadata, cluster.decode_metadata),
    OffsetCommit: _api(
        8, "offset_commit", (3, 8), offsets.encode_offset_commit, offsets.decode_offset_commit
    ),
    OffsetFetch: _api(
        9, "offset_fetch", (3, 8), offsets.encode_offset_fetch, offsets.decode_offset_fetch
    ),
    FindCoordinator: _api(
        10, "find_coordinator", (1, 6), group.encode_find_coordinator, group.decode_find_coordinator
    ),
    JoinGroup: _api(11, "join_group", (2, 9), group.encode_join_group, group.decode_join_group),
    Heartbeat: _api(12, "heartbeat", (1, 4), group.encode_heartbeat, group.decode_heartbeat),
    LeaveGroup: _api(13, "leave_group", (1, 5), group.encode_leave_group, group.decode_leave_group),
    SyncGroup: _api(14, "sync_group", (1, 5), group.encode_sync_group, group.decode_sync_group),
    SaslHandshake: _api(
        17, "sasl_handshake", (1, 1), cluster.encode_sasl_handshake, cluster.decode_sasl_handshake
    ),
    GetApiVersions: _api(
        18, "api_versions", (0, 3), cluster.encode_api_versions, cluster.decode_api_versions
    ),
    SaslAuthenticate: _api(
        36,
        "sasl_authenticate",
        (0, 2),
        cluster.encode_sasl_authenticate,
        cluster.decode_sasl_authenticate,
    ),
}

OUR_VERSIONS: Final[Mapping[type[Request], tuple[int, int]]] = MappingProxyType(
    {request: api.versions for request, api in _APIS.items()}
)
"""The oldest and the newest version of each request that we speak."""


def api_key(request: Request) -> int:
    """Returns Kafka's number for this kind of request."""
    return _APIS[type(request)].key


def choose_version(request: Request, ranges: Mapping[int, tuple[int, int]]) -> int:
    """Returns the highest version of the request that both sides speak.

    Args:
        request: Of the kind in question.
        ranges: API key -> the broker's lowest and highest version (`ApiVersionsAnswer.ranges`).

    Raises:
        VersionNotSupportedError: There is none.
    """
    api = _APIS[type(request)]
    ours = api.versions
    kind = _camel(api.name)
    if api.key not in ranges:
        raise VersionNotSupportedError(
            f"the broker does not offer {kind}: Apache Kafka 1.0 or newer is needed"
        )
    theirs = ranges[api.key]
    version = min(ours[1], theirs[1])
    if version < max(ours[0], theirs[0]):
        remedy = "upgrade the broker" if theirs[1] < ours[0] else "upgrade kafka-coop"
        raise VersionNotSupportedError(
            f"{kind}: we speak versions {ours[0]} to {ours[1]}, "
            f"the broker {theirs[0]} to {theirs[1]}: {remedy}"
        )
    return version


def preload(ranges: Mapping[int, tuple[int, int]]) -> None:
    """Loads what the requests to such a broker take.

    kio makes its dataclasses on import, about 10 ms of CPU a message. Paid when each is first
    used, that falls into a member's first rebalance, while everybody waits for its answer.
    """
    for api in _APIS.values():
        oldest, newest = ranges.get(api.key, (0, -1))
        version = min(api.versions[1], newest)
        if version >= max(api.versions[0], oldest):
            request_schema(api.name, version)
            response_schema(api.name, version)


def encode_request(request: Request, *, version: int, correlation_id: int, client_id: str) -> bytes:
    """Returns the request's frame without the length that goes before it.

    Args:
        request: What to ask.
        version: One of `OUR_VERSIONS` that the broker speaks.
        correlation_id: Comes back with the answer; an int32.
        client_id: Names us in the broker's logs and quotas.

    Raises:
        ValueError: Not one of our versions, or a string that is longer than Kafka allows.
    """
    api = _checked(request, version)
    schema = request_schema(api.name, version)
    return b"".join(
        (
            _HEADER.pack(api.key, version, correlation_id),
            encode_string(client_id),  # never compact, not even where the header is flexible
            _NO_TAGGED_FIELDS if schema.flexible else b"",
            api.encode(request, schema),
        )
    )


def decode_response(request: Request, *, version: int, payload: bytes) -> tuple[int, Response]:
    """Reads the answer to a request.

    A broker that lacks our version of ApiVersions answers in version 0 with UNSUPPORTED_VERSION
    (KIP-511). Only the code is read: librdkafka's mock broker says it in the version asked, and
    the ranges behind it are asked for again anyway.

    Args:
        request: What was asked.
        version: In which version.
        payload: The answer's frame without the length before it. What follows the answer is
            ignored.

    Returns:
        The correlation id, and the answer.

    Raises:
        MalformedDataError: The bytes are no such answer.
        ValueError: Not one of our versions.
    """
    api = _checked(request, version)
    try:
        correlation_id, at = read_int32(payload, 0)
        if isinstance(request, GetMetadata):
            return correlation_id, _metadata(request, version, _UNNUMBERED + payload[at:])
        if isinstance(request, GetApiVersions):
            error, _ = read_int16(payload, at)
            if error == ErrorCode.unsupported_version:
                return correlation_id, ApiVersionsAnswer(error=ErrorCode.unsupported_version)
        return correlation_id, _read(api, request, version, payload)
    except MalformedDataError as error:
        raise MalformedDataError(f"{_camel(api.name)} v{version} answer: {error}") from error


@lru_cache(maxsize=2)
def _metadata(request: GetMetadata, version: int, payload: bytes) -> Response:
    """Reads metadata, unless the same bytes were among the last two answers.

    A leader asks in each round, which waits for it, and the answer is most often what it was: 13 µs
    a partition, 0.13 s of 10,000, in which this thread sends no heartbeat either. What is kept is
    the process': of two clusters, or of two members that ask for different topics.
    """
    return _read(_APIS[GetMetadata], request, version, payload)


def _read(api: _Api, request: Request, version: int, payload: bytes) -> Response:
    schema = response_schema(api.name, version)
    at = _CORRELATION
    if schema.flexible_header:
        at = skip_tagged_fields(payload, at)
    values, _ = schema.read(payload, at)
    return api.decode(request, values)


def _checked(request: Request, version: int) -> _Api:
    api = _APIS[type(request)]
    oldest, newest = api.versions
    if not oldest <= version <= newest:
        raise ValueError(f"{_camel(api.name)}: we speak {oldest} to {newest}, not {version}")
    return api


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
