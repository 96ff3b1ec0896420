"""A real coordinator behind the same face as `coordinator_box.Box`, spoken to in raw requests.

Every request has a connection of its own, so that a parked one holds nothing up.
"""

from __future__ import annotations

import io
import select
import socket
import time
from contextlib import suppress
from typing import Any, TypeVar

from coordinator_box import Description
from kio.schema.describe_groups.v5 import request as describe_request
from kio.schema.describe_groups.v5 import response as describe_response
from kio.schema.heartbeat.v4 import request as heartbeat_request
from kio.schema.heartbeat.v4 import response as heartbeat_response
from kio.schema.join_group.v9 import request as join_request
from kio.schema.join_group.v9 import response as join_response
from kio.schema.leave_group.v5 import request as leave_request
from kio.schema.leave_group.v5 import response as leave_response
from kio.schema.offset_commit.v9 import request as commit_request
from kio.schema.offset_commit.v9 import response as commit_response
from kio.schema.offset_fetch.v8 import request as fetch_request
from kio.schema.offset_fetch.v8 import response as fetch_response
from kio.schema.sync_group.v5 import request as sync_request
from kio.schema.sync_group.v5 import response as sync_response
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta, i64

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    FetchedOffset,
    GroupJoined,
    GroupLeft,
    GroupSynced,
    Heartbeat,
    HeartbeatAcked,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    Response,
    SyncGroup,
)
from kafka_coop.simulation.coordinator import GroupRequest
from kafka_coop.simulation.group import RequestToken
from kafka_coop.simulation.settings import Client
from kafka_coop.testing.local import LocalKafka
from kafka_coop.types import NO_PARTITIONS, Generation, MemberId, TopicPartition

ResponseT = TypeVar("ResponseT")
AT_ONCE = 0.4
"""Seconds within which an answer that is not parked has come."""
PATIENCE = 60.0


class KafkaBox:
    """One group of a real Kafka. Waiting takes real time."""

    def __init__(self, kafka: LocalKafka, group_id: str) -> None:
        self.kafka = kafka
        self.group_id = group_id
        self._open: dict[RequestToken, tuple[socket.socket, GroupRequest]] = {}
        self._answers: dict[RequestToken, Response] = {}
        self._tokens = 0

    def send(self, request: GroupRequest, client: Client | None = None) -> RequestToken:
        self._tokens += 1
        token = RequestToken(self._tokens)
        connection = self._connect()
        _send(connection, _encode(request), client or Client())
        self._open[token] = connection, request
        return token

    def answer(self, token: RequestToken, kind: type[ResponseT]) -> ResponseT:
        self._read(token, PATIENCE)
        response = self._answers[token]
        assert isinstance(response, kind)
        return response

    def is_parked(self, token: RequestToken) -> bool:
        self._read(token, AT_ONCE)
        return token not in self._answers

    def until_answered(self, *tokens: RequestToken) -> None:
        for token in tokens:
            self._read(token, PATIENCE)
            assert token in self._answers, "parked for ever"

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # the scenario's own time, not a synchronisation

    def describe(self) -> Description:
        with self._connect() as connection:
            request = describe_request.DescribeGroupsRequest(
                groups=(GroupId.parse(self.group_id),), include_authorized_operations=False
            )
            _send(connection, request, Client())
            answer = _receive(connection, describe_response.DescribeGroupsResponse)
        (group,) = answer.groups
        members = {m.member_id: m.member_assignment for m in group.members}
        return Description(state=group.group_state, assignments=members)

    def fail_over(self) -> None:
        """Restarts the only broker: it is the coordinator again, with nothing but its log."""
        self.kafka.stop_broker(1)
        self.kafka.start_broker(1)
        self.until_serving()

    def until_serving(self) -> None:
        """Waits until the broker is the group's coordinator and has read its log."""
        self.kafka.admin().describe_consumer_groups([self.group_id])[self.group_id].exception(
            PATIENCE
        )
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            probe = self.send(OffsetFetch(group_id=self.group_id, partitions=NO_PARTITIONS))
            if self.answer(probe, OffsetsFetched).error is ErrorCode.none:
                return
            time.sleep(0.05)
        raise TimeoutError("the coordinator does not come back")

    def close(self) -> None:
        for connection, _ in self._open.values():
            connection.close()

    def _connect(self) -> socket.socket:
        host, port = self.kafka.bootstrap_servers.split(":")
        return socket.create_connection((host, int(port)), timeout=PATIENCE)

    def _read(self, token: RequestToken, timeout: float) -> None:
        if token in self._answers:
            return
        connection, request = self._open[token]
        if select.select([connection], [], [], timeout)[0]:
            # A restarted broker has cut the connection: the request stays unanswered.
            with suppress(ConnectionError):
                self._answers[token] = _decode(connection, request)
                self._open.pop(token)[0].close()


def _send(connection: socket.socket, request: Any, client: Client) -> None:
    buffer = io.BytesIO()
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32.parse(1),
        client_id=client.client_id,
    )
    entity_writer(type(header))(buffer, header)
    entity_writer(type(request))(buffer, request)
    payload = buffer.getvalue()
    connection.sendall(len(payload).to_bytes(4, "big") + payload)


def _receive(connection: socket.socket, schema: type[Any]) -> Any:
    with connection.makefile("rb") as stream:
        size = stream.read(4)
        if len(size) < 4:
            raise ConnectionResetError("cut")
        payload = stream.read(int.from_bytes(size, "big"))
    _, used = entity_reader(schema.__header_schema__)(payload, 0)
    value, _ = entity_reader(schema)(payload, used)
    return value


def _encode(request: GroupRequest) -> Any:
    group_id = GroupId.parse(request.group_id)
    match request:
        case JoinGroup():
            return join_request.JoinGroupRequest(
                group_id=group_id,
                session_timeout=i32Timedelta.parse(request.session_timeout),
                rebalance_timeout=i32Timedelta.parse(request.rebalance_timeout),
                member_id=request.member_id,
                group_instance_id=request.instance_id,
                protocol_type="consumer",
                protocols=tuple(
                    join_request.JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name, metadata in request.protocols
                ),
                reason=request.reason,
            )
        case SyncGroup():
            return sync_request.SyncGroupRequest(
                group_id=group_id,
                generation_id=i32.parse(request.generation),
                member_id=request.member_id,
                group_instance_id=request.instance_id,
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignments=tuple(
                    sync_request.SyncGroupRequestAssignment(member_id=m, assignment=plan)
                    for m, plan in request.assignments.items()
                ),
            )
        case Heartbeat():
            return heartbeat_request.HeartbeatRequest(
                group_id=group_id,
                generation_id=i32.parse(request.generation),
                member_id=request.member_id,
                group_instance_id=request.instance_id,
            )
        case LeaveGroup():
            member = leave_request.MemberIdentity(
                member_id=request.member_id,
                group_instance_id=request.instance_id,
                reason=request.reason,
            )
            return leave_request.LeaveGroupRequest(group_id=group_id, members=(member,))
        case OffsetCommit():
            return commit_request.OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=i32.parse(request.generation),
                member_id=request.member_id,
                group_instance_id=request.instance_id,
                topics=tuple(
                    commit_request.OffsetCommitRequestTopic(
                        name=TopicName.parse(partition.topic),
                        partitions=(
                            commit_request.OffsetCommitRequestPartition(
                                partition_index=i32.parse(partition.partition),
                                committed_offset=i64.parse(position.offset),
                                committed_metadata=position.metadata,
                            ),
                        ),
                    )
                    for partition, position in request.offsets.items()
                ),
            )
        case OffsetFetch():
            group = fetch_request.OffsetFetchRequestGroup(
                group_id=group_id,
                topics=tuple(
                    fetch_request.OffsetFetchRequestTopics(
                        name=TopicName.parse(topic),
                        partition_indexes=tuple(i32.parse(i) for i in indices.tolist()),
                    )
                    for topic, indices in request.partitions.items()
                ),
            )
            return fetch_request.OffsetFetchRequest(
                groups=(group,), require_stable=request.require_stable
            )


def _decode(connection: socket.socket, request: GroupRequest) -> Response:
    match request:
        case JoinGroup():
            return _joined(_receive(connection, join_response.JoinGroupResponse))
        case SyncGroup():
            answer = _receive(connection, sync_response.SyncGroupResponse)
            return GroupSynced(
                error=answer.error_code,
                protocol_type=answer.protocol_type,
                protocol_name=answer.protocol_name,
                assignment=answer.assignment,
            )
        case Heartbeat():
            answer = _receive(connection, heartbeat_response.HeartbeatResponse)
            return HeartbeatAcked(error=answer.error_code)
        case LeaveGroup():
            answer = _receive(connection, leave_response.LeaveGroupResponse)
            errors = [answer.error_code, *(m.error_code for m in answer.members)]
            return GroupLeft(error=next((e for e in errors if e), ErrorCode.none))
        case OffsetCommit():
            answer = _receive(connection, commit_response.OffsetCommitResponse)
            return OffsetsCommitted(
                errors={
                    TopicPartition(t.name, p.partition_index): p.error_code
                    for t in answer.topics
                    for p in t.partitions
                }
            )
        case OffsetFetch():
            (group,) = _receive(connection, fetch_response.OffsetFetchResponse).groups
            return OffsetsFetched(
                error=group.error_code,
                offsets={
                    TopicPartition(t.name, p.partition_index): FetchedOffset(
                        offset=p.committed_offset,
                        metadata=p.metadata or "",
                        error=p.error_code,
                    )
                    for t in group.topics
                    for p in t.partitions
                },
            )


def _joined(answer: join_response.JoinGroupResponse) -> GroupJoined:
    return GroupJoined(
        error=answer.error_code,
        generation=Generation(answer.generation_id),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        leader=MemberId(answer.leader),
        skip_assignment=answer.skip_assignment,
        member_id=MemberId(answer.member_id),
        members=tuple(
            JoinedMember(
                member_id=MemberId(m.member_id),
                instance_id=m.group_instance_id,
                metadata=m.metadata,
            )
            for m in answer.members
        ),
    )
