from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_reader
from protocol_samples import EVERY_VERSION, SAMPLES, answer_frame, kio_class, one_of_everything
from protocol_strategies import broken

from kafka_coop.errors import MalformedDataError, VersionNotSupportedError
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    ApiVersionsAnswer,
    ClusterMetadata,
    CoordinatorFound,
    FetchedOffset,
    FindCoordinator,
    GetApiVersions,
    GetMetadata,
    GroupJoined,
    GroupLeft,
    GroupSynced,
    Heartbeat,
    HeartbeatAcked,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    ListedOffset,
    ListOffsets,
    Node,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetsListed,
    PartitionMetadata,
    Request,
    Response,
    SaslAuthenticate,
    SaslAuthenticateAnswer,
    SaslHandshake,
    SaslHandshakeAnswer,
    SyncGroup,
    TopicMetadata,
)
from kafka_coop.protocol.requests import (
    OUR_VERSIONS,
    api_key,
    choose_version,
    decode_response,
    encode_request,
)
from kafka_coop.types import Generation, MemberId, Partitions, TopicPartition

every_version = pytest.mark.parametrize(("api", "version"), EVERY_VERSION)


def read_request(api: str, version: int, data: bytes) -> tuple[Any, Any]:
    """Header and body as kio reads them."""
    entity = kio_class(api, version, "Request")
    header, at = entity_reader(HeaderV2 if entity.__flexible__ else HeaderV1)(data, 0)
    body, size = entity_reader(entity)(data, at)
    assert at + size == len(data)
    return header, body


def asked(api: str, version: int, request: Request | None = None) -> Any:
    request = SAMPLES[api] if request is None else request
    data = encode_request(request, version=version, correlation_id=77, client_id="me")
    return read_request(api, version, data)[1]


# --- versions ------------------------------------------------------------------------------


def test_our_versions_are_pinned() -> None:
    assert {
        ListOffsets: (2, 7),
        GetMetadata: (4, 12),
        OffsetCommit: (3, 8),
        OffsetFetch: (3, 8),
        FindCoordinator: (1, 6),
        JoinGroup: (2, 9),
        Heartbeat: (1, 4),
        LeaveGroup: (1, 5),
        SyncGroup: (1, 5),
        SaslHandshake: (1, 1),
        GetApiVersions: (0, 3),
        SaslAuthenticate: (0, 2),
    } == OUR_VERSIONS


def test_every_request_has_versions_and_a_sample() -> None:
    assert set(get_args(Request)) == set(OUR_VERSIONS) == {type(s) for s in SAMPLES.values()}


def test_kafka_1_0_is_new_enough() -> None:
    """What `kafka-broker-api-versions.sh` of 1.0 reports, and nothing newer."""
    kafka_1_0 = {
        2: (0, 2), 3: (0, 5), 8: (0, 3), 9: (0, 3), 10: (0, 1), 11: (0, 2), 12: (0, 1),
        13: (0, 1), 14: (0, 1), 17: (0, 1), 18: (0, 1), 36: (0, 0),
    }  # fmt: skip
    for request in SAMPLES.values():
        assert choose_version(request, kafka_1_0) == kafka_1_0[api_key(request)][1]


@pytest.mark.parametrize(
    ("theirs", "version"), [((0, 9), 4), ((0, 3), 3), ((1, 1), 1), ((4, 9), 4), ((2, 2), 2)]
)
def test_the_highest_common_version_is_chosen(theirs: tuple[int, int], version: int) -> None:
    assert choose_version(SAMPLES["heartbeat"], {12: theirs}) == version


def test_a_broker_too_old_is_named() -> None:
    with pytest.raises(VersionNotSupportedError, match=r"Heartbeat.* 1 to 4.* 0 to 0.*broker"):
        choose_version(SAMPLES["heartbeat"], {12: (0, 0)})


def test_a_broker_too_new_is_named() -> None:
    with pytest.raises(VersionNotSupportedError, match=r"Heartbeat.* 1 to 4.* 5 to 6.*kafka-coop"):
        choose_version(SAMPLES["heartbeat"], {12: (5, 6)})


def test_a_broker_without_the_request_is_named() -> None:
    with pytest.raises(VersionNotSupportedError, match="SaslAuthenticate"):
        choose_version(SAMPLES["sasl_authenticate"], {12: (0, 4)})


@pytest.mark.parametrize("api", SAMPLES)
def test_versions_beyond_ours_are_neither_written_nor_read(api: str) -> None:
    request = SAMPLES[api]
    oldest, newest = OUR_VERSIONS[type(request)]
    for version in (oldest - 1, newest + 1):
        with pytest.raises(ValueError, match="not"):
            encode_request(request, version=version, correlation_id=1, client_id="")
        with pytest.raises(ValueError, match="not"):
            decode_response(request, version=version, payload=b"")


# --- requests ------------------------------------------------------------------------------


@every_version
def test_headers(api: str, version: int) -> None:
    data = encode_request(SAMPLES[api], version=version, correlation_id=77, client_id="mé")
    header, body = read_request(api, version, data)
    assert header.request_api_key == type(body).__api_key__ == api_key(SAMPLES[api])
    assert header.request_api_version == version
    assert header.correlation_id == 77
    assert header.client_id == "mé"


def test_golden_heartbeat_v4() -> None:
    data = encode_request(SAMPLES["heartbeat"], version=4, correlation_id=77, client_id="me")
    assert data == bytes.fromhex(
        "000c" "0004" "0000004d" "0002" "6d65" "00"  # header with tagged fields
        "02" "67" "00000007" "04" "6d2d31" "02" "69" "00"
    )  # fmt: skip


def test_golden_heartbeat_v1() -> None:
    data = encode_request(SAMPLES["heartbeat"], version=1, correlation_id=77, client_id="me")
    assert data == bytes.fromhex(
        "000c" "0001" "0000004d" "0002" "6d65"
        "0001" "67" "00000007" "0003" "6d2d31"
    )  # fmt: skip


@pytest.mark.parametrize("version", range(2, 10))
def test_join_group(version: int) -> None:
    body = asked("join_group", version)
    assert (body.group_id, body.member_id, body.protocol_type) == ("g", "m-1", "consumer")
    assert body.session_timeout == timedelta(seconds=45)
    assert body.rebalance_timeout == timedelta(minutes=5)
    assert [(p.name, p.metadata) for p in body.protocols] == [
        ("cooperative-sticky", b"\0\3"),
        ("range", b"\0\1"),
    ]
    assert getattr(body, "group_instance_id", None) == ("i" if version >= 5 else None)
    assert getattr(body, "reason", None) == ("r" * 255 if version >= 8 else None)


@pytest.mark.parametrize("version", range(1, 6))
def test_sync_group(version: int) -> None:
    body = asked("sync_group", version)
    assert (body.group_id, body.generation_id, body.member_id) == ("g", 7, "m-1")
    assert [(a.member_id, a.assignment) for a in body.assignments] == [
        ("m-1", b"\0\0"),
        ("m-2", b""),
    ]
    assert getattr(body, "group_instance_id", None) == ("i" if version >= 3 else None)
    assert getattr(body, "protocol_type", None) == ("consumer" if version >= 5 else None)
    assert getattr(body, "protocol_name", None) == ("range" if version >= 5 else None)


@pytest.mark.parametrize("version", range(1, 5))
def test_heartbeat(version: int) -> None:
    body = asked("heartbeat", version)
    assert (body.group_id, body.generation_id, body.member_id) == ("g", 7, "m-1")
    assert getattr(body, "group_instance_id", None) == ("i" if version >= 3 else None)


@pytest.mark.parametrize("version", range(1, 6))
def test_leave_group(version: int) -> None:
    body = asked("leave_group", version)
    assert body.group_id == "g"
    if version < 3:
        assert body.member_id == "m-1"
        return
    (member,) = body.members
    assert (member.member_id, member.group_instance_id) == ("m-1", "i")
    assert getattr(member, "reason", None) == ("r" * 255 if version >= 5 else None)


@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator(version: int) -> None:
    body = asked("find_coordinator", version)
    assert body.key_type == 0
    assert (body.coordinator_keys if version >= 4 else (body.key,)) == ("g",)


@pytest.mark.parametrize("version", range(3, 9))
def test_offset_commit(version: int) -> None:
    body = asked("offset_commit", version)
    assert (body.group_id, body.generation_id_or_member_epoch, body.member_id) == ("g", 7, "m-1")
    assert getattr(body, "group_instance_id", None) == ("i" if version >= 7 else None)
    if version <= 4:
        assert body.retention_time == timedelta(milliseconds=-1)
    ((topic),) = body.topics
    assert topic.name == "a"
    first, second = topic.partitions
    assert (first.partition_index, first.committed_offset) == (0, 5)
    assert (second.partition_index, second.committed_offset) == (3, 6)
    assert (first.committed_metadata, second.committed_metadata) == ("x", "")
    if version >= 6:
        assert (first.committed_leader_epoch, second.committed_leader_epoch) == (2, -1)


@pytest.mark.parametrize("version", range(3, 9))
def test_offset_fetch(version: int) -> None:
    body = asked("offset_fetch", version)
    group = body.groups[0] if version >= 8 else body
    assert group.group_id == "g"
    assert [(t.name, t.partition_indexes) for t in group.topics] == [("a", (0, 3)), ("b", (1,))]
    assert getattr(body, "require_stable", None) == (True if version >= 7 else None)


@pytest.mark.parametrize("version", range(2, 8))
def test_list_offsets(version: int) -> None:
    body = asked("list_offsets", version)
    assert (body.replica_id, body.isolation_level) == (-1, 1)
    assert [
        (t.name, [(p.partition_index, p.timestamp) for p in t.partitions]) for t in body.topics
    ] == [("a", [(0, -2), (1, 1_700_000_000_000)]), ("b", [(1, -1)])]


@pytest.mark.parametrize("version", range(4, 13))
def test_metadata(version: int) -> None:
    body = asked("metadata", version)
    assert [t.name for t in body.topics] == ["a", "b"]
    assert body.allow_auto_topic_creation is True
    assert asked("metadata", version, GetMetadata(topics=None)).topics is None
    assert asked("metadata", version, GetMetadata(topics=())).topics == ()


def test_connection_requests() -> None:
    assert asked("api_versions", 3).client_software_name == "kafka-coop"
    assert asked("api_versions", 3).client_software_version
    assert asked("sasl_handshake", 1).mechanism == "PLAIN"
    for version in range(3):
        assert asked("sasl_authenticate", version).auth_bytes == b"\0user\0secret"


# --- answers -------------------------------------------------------------------------------


def first_error(codes: list[ErrorCode]) -> ErrorCode:
    return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)


def by_partition(topics: Any, value: Callable[[Any], Any]) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(t.name, p.partition_index): value(p) for t in topics for p in t.partitions
    }


def expected_coordinator(e: Any) -> CoordinatorFound:
    if hasattr(e, "coordinators"):
        if not e.coordinators:
            return CoordinatorFound(error=ErrorCode.coordinator_not_available)
        e = e.coordinators[0]
    node = Node(node_id=e.node_id, host=e.host, port=e.port)
    return CoordinatorFound(
        error=e.error_code,
        node=node if e.error_code is ErrorCode.none else None,
        message=e.error_message,
    )


def expected_joined(e: Any) -> GroupJoined:
    return GroupJoined(
        error=e.error_code,
        generation=Generation(e.generation_id),
        protocol_type=getattr(e, "protocol_type", None),
        protocol_name=e.protocol_name,
        leader=MemberId(e.leader),
        skip_assignment=getattr(e, "skip_assignment", False),
        member_id=MemberId(e.member_id),
        members=tuple(
            JoinedMember(
                member_id=MemberId(m.member_id),
                instance_id=getattr(m, "group_instance_id", None),
                metadata=m.metadata,
            )
            for m in e.members
        ),
    )


def expected_synced(e: Any) -> GroupSynced:
    return GroupSynced(
        error=e.error_code,
        protocol_type=getattr(e, "protocol_type", None),
        protocol_name=getattr(e, "protocol_name", None),
        assignment=e.assignment,
    )


def expected_left(e: Any) -> GroupLeft:
    members = [m.error_code for m in getattr(e, "members", ())]
    return GroupLeft(error=first_error([e.error_code, *members]))


def expected_fetched(e: Any) -> OffsetsFetched:
    if hasattr(e, "groups"):
        e = next((g for g in e.groups if g.group_id == "g"), None)
        if e is None:
            return OffsetsFetched(error=ErrorCode.unknown_server_error)

    def offset(p: Any) -> FetchedOffset:
        return FetchedOffset(
            offset=p.committed_offset,
            leader_epoch=getattr(p, "committed_leader_epoch", -1),
            metadata=p.metadata or "",
            error=p.error_code,
        )

    return OffsetsFetched(error=e.error_code, offsets=by_partition(e.topics, offset))


def expected_listed(e: Any) -> OffsetsListed:
    def offset(p: Any) -> ListedOffset:
        epoch = getattr(p, "leader_epoch", -1)
        return ListedOffset(offset=p.offset, leader_epoch=epoch, error=p.error_code)

    return OffsetsListed(offsets=by_partition(e.topics, offset))


def expected_metadata(e: Any) -> ClusterMetadata:
    def partition(p: Any) -> PartitionMetadata:
        return PartitionMetadata(
            partition=p.partition_index,
            leader_id=p.leader_id,
            leader_epoch=getattr(p, "leader_epoch", -1),
            replica_nodes=p.replica_nodes,
            error=p.error_code,
        )

    def topic(t: Any) -> TopicMetadata:
        ordered = sorted(map(partition, t.partitions), key=lambda p: p.partition)
        return TopicMetadata(
            name=t.name,
            error=t.error_code,
            is_internal=t.is_internal,
            partitions=tuple(ordered),
        )

    return ClusterMetadata(
        brokers={b.node_id: Node(node_id=b.node_id, host=b.host, port=b.port) for b in e.brokers},
        racks={b.node_id: b.rack for b in e.brokers},
        topics={t.name: topic(t) for t in e.topics if t.name is not None},
        cluster_id=e.cluster_id,
        controller_id=e.controller_id,
    )


def expected_api_versions(e: Any) -> ApiVersionsAnswer:
    ranges = {a.api_key: (a.min_version, a.max_version) for a in e.api_keys}
    return ApiVersionsAnswer(error=e.error_code, ranges=ranges)


def expected_authenticated(e: Any) -> SaslAuthenticateAnswer:
    return SaslAuthenticateAnswer(
        error=e.error_code,
        message=e.error_message,
        auth_bytes=e.auth_bytes,
        session_lifetime=getattr(e, "session_lifetime", timedelta(0)),
    )


EXPECTED: dict[str, Callable[[Any], Any]] = {
    "list_offsets": expected_listed,
    "metadata": expected_metadata,
    "offset_commit": lambda e: OffsetsCommitted(
        errors=by_partition(e.topics, lambda p: p.error_code)
    ),
    "offset_fetch": expected_fetched,
    "find_coordinator": expected_coordinator,
    "join_group": expected_joined,
    "heartbeat": lambda e: HeartbeatAcked(error=e.error_code),
    "leave_group": expected_left,
    "sync_group": expected_synced,
    "sasl_handshake": lambda e: SaslHandshakeAnswer(error=e.error_code, mechanisms=e.mechanisms),
    "api_versions": expected_api_versions,
    "sasl_authenticate": expected_authenticated,
}


@cache
def entities(api: str, version: int) -> st.SearchStrategy[Any]:
    return st.from_type(kio_class(api, version, "Response"))


@every_version
@settings(max_examples=10)
@given(data=st.data(), behind=st.binary(max_size=4))
def test_answers_are_what_kio_wrote(
    api: str, version: int, data: st.DataObject, behind: bytes
) -> None:
    entity = data.draw(entities(api, version))
    if api == "api_versions" and entity.error_code is ErrorCode.unsupported_version:
        return  # has no ranges: see below
    answer = decode_response(
        SAMPLES[api], version=version, payload=answer_frame(entity, 9) + behind
    )
    assert answer == (9, EXPECTED[api](entity))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("ranges", ["00000001001200000002", "00000000", ""])
def test_an_unsupported_version_of_api_versions_is_understood(version: int, ranges: str) -> None:
    """KIP-511: the broker can't know how the newer version is written, and answers in 0."""
    payload = bytes.fromhex("000000090023" + ranges)
    answer = decode_response(GetApiVersions(), version=version, payload=payload)
    assert answer == (9, ApiVersionsAnswer(error=ErrorCode.unsupported_version))


def test_golden_heartbeat_answer_v4() -> None:
    payload = bytes.fromhex("000000090000000000001b00")
    answer = decode_response(SAMPLES["heartbeat"], version=4, payload=payload)
    assert answer == (9, HeartbeatAcked(error=ErrorCode.rebalance_in_progress))


def test_an_error_code_from_the_future_is_a_server_error() -> None:
    payload = bytes.fromhex("0000000900000000007fff00")
    answer = decode_response(SAMPLES["heartbeat"], version=4, payload=payload)
    assert answer == (9, HeartbeatAcked(error=ErrorCode.unknown_server_error))


def test_tagged_fields_from_the_future_are_skipped() -> None:
    payload = bytes.fromhex("00000009010502abcd000000000000010001ff")
    answer = decode_response(SAMPLES["heartbeat"], version=4, payload=payload)
    assert answer == (9, HeartbeatAcked(error=ErrorCode.none))


def test_partitions_come_sorted() -> None:
    entity = kio_class("metadata", 12, "Response")
    module = sys.modules[entity.__module__]
    partitions = [
        module.MetadataResponsePartition(error_code=ErrorCode.none, partition_index=i, leader_id=1)
        for i in (2, 0, 1)
    ]
    topic = module.MetadataResponseTopic(
        error_code=ErrorCode.none, name="a", topic_id=None, partitions=tuple(partitions)
    )
    frame = answer_frame(
        entity(throttle_time=timedelta(0), brokers=(), controller_id=1, topics=(topic,))
    )
    _, answer = decode_response(SAMPLES["metadata"], version=12, payload=frame)
    assert isinstance(answer, ClusterMetadata)
    assert [p.partition for p in answer.topics["a"].partitions] == [0, 1, 2]


def test_metadata_that_have_not_changed_are_not_read_again() -> None:
    """A round of 10,000 partitions waits 0.13 s for its leader to read them."""
    entity = one_of_everything(kio_class("metadata", 12, "Response"))
    elsewhere = dataclasses.replace(entity, cluster_id="another")
    number = 0

    def answer(of: Any) -> Response:
        nonlocal number
        number += 1
        frame = answer_frame(of, number)
        correlation, answered = decode_response(SAMPLES["metadata"], version=12, payload=frame)
        assert (correlation, answered) == (number, EXPECTED["metadata"](of))
        return answered

    first = answer(entity)
    assert answer(entity) is first
    assert answer(elsewhere) is not first
    assert answer(entity) is first, "two clusters' members in one process"


# --- broken answers ------------------------------------------------------------------------


def decodes_or_is_malformed(api: str, version: int, payload: bytes) -> None:
    with suppress(MalformedDataError):
        decode_response(SAMPLES[api], version=version, payload=payload)


@every_version
@settings(max_examples=50)
@given(payload=st.binary(max_size=80))
def test_any_bytes_decode_or_are_malformed(api: str, version: int, payload: bytes) -> None:
    decodes_or_is_malformed(api, version, payload)
    decodes_or_is_malformed(api, version, bytes(5) + payload)


@every_version
def test_broken_answers_decode_or_are_malformed(api: str, version: int) -> None:
    """kio's own reader aborts the process on some of these."""
    payload = answer_frame(one_of_everything(kio_class(api, version, "Response")))
    for spoilt in broken(payload, seed=version):
        decodes_or_is_malformed(api, version, spoilt)


@every_version
def test_every_truncation_is_malformed(api: str, version: int) -> None:
    entity = one_of_everything(kio_class(api, version, "Response"))
    payload = answer_frame(entity)
    answer = decode_response(SAMPLES[api], version=version, payload=payload)
    assert answer == (9, EXPECTED[api](entity))
    for end in range(len(payload)):
        with pytest.raises(MalformedDataError, match=rf" v{version} answer: "):
            decode_response(SAMPLES[api], version=version, payload=payload[:end])


def test_importing_the_requests_loads_no_schema() -> None:
    """kio's hundreds of modules are loaded as they are needed: imports stay fast."""
    code = (
        "import sys, kafka_coop.protocol.requests;"
        "print([m for m in sys.modules if m.startswith('kio.schema.') and '.v' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_threads_of_several_members_may_load_the_same_schemas_at_once() -> None:
    """kio's packages import their modules, which are locked first: Python sees a deadlock."""
    code = """
import sys, threading
from kafka_coop.protocol.schemas import request_schema, response_schema

sys.setswitchinterval(1e-6)
failures = []
threading.excepthook = lambda failed: failures.append(failed.exc_value)

def load(schema, version, both):
    both.wait()
    schema("metadata", version)

for version in range(4, 13):
    both = threading.Barrier(2)
    threads = [
        threading.Thread(target=load, args=(schema, version, both))
        for schema in (request_schema, response_schema)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(failures)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_empty_fetch_asks_for_nothing() -> None:
    """None would ask for all of the group's partitions."""
    nothing = OffsetFetch(group_id="g", partitions=Partitions())
    assert asked("offset_fetch", 7, nothing).topics == ()
    assert asked("offset_fetch", 8, nothing).groups[0].topics == ()
