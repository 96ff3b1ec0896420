"""The group's requests and answers: our values to kio's fields and back."""

from __future__ import annotations

from functools import lru_cache

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    CONSUMER_PROTOCOL_TYPE,
    CoordinatorFound,
    FindCoordinator,
    GroupJoined,
    GroupLeft,
    GroupSynced,
    Heartbeat,
    HeartbeatAcked,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    Node,
    SyncGroup,
)
from kafka_coop.protocol.response_reader import Values
from kafka_coop.protocol.schemas import RequestSchema
from kafka_coop.types import Generation, MemberId

_LONGEST_REASON = 255
"""KIP-800. The coordinator refuses longer ones."""


def encode_find_coordinator(request: FindCoordinator, schema: RequestSchema) -> bytes:
    """Version 4 asks for many groups at once (KIP-699)."""
    return schema.encode(key=request.group_id, key_type=0, coordinator_keys=(request.group_id,))


def decode_find_coordinator(_request: FindCoordinator, values: Values) -> CoordinatorFound:
    """An answer about no group at all counts as COORDINATOR_NOT_AVAILABLE."""
    if "coordinators" in values:
        if not values["coordinators"]:
            return CoordinatorFound(error=ErrorCode.coordinator_not_available)
        values = values["coordinators"][0]
    node = Node(node_id=values["node_id"], host=values["host"], port=values["port"])
    return CoordinatorFound(
        error=values["error_code"],
        node=node if values["error_code"] is ErrorCode.none else None,
        message=values["error_message"],
    )


def encode_join_group(request: JoinGroup, schema: RequestSchema) -> bytes:
    """Version 5 knows static members (KIP-345), 8 the reason (KIP-800)."""
    return schema.encode(
        group_id=request.group_id,
        session_timeout=request.session_timeout,
        rebalance_timeout=request.rebalance_timeout,
        member_id=request.member_id,
        group_instance_id=request.instance_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=tuple(
            schema.nested("JoinGroupRequestProtocol", name=name, metadata=metadata)
            for name, metadata in request.protocols
        ),
        reason=None if request.reason is None else request.reason[:_LONGEST_REASON],
    )


def decode_join_group(_request: JoinGroup, values: Values) -> GroupJoined:
    """Version 5 tells instance ids, 7 the protocol's type, 9 whom to assign (KIP-814)."""
    return GroupJoined(
        error=values["error_code"],
        generation=Generation(values["generation_id"]),
        protocol_type=values.get("protocol_type"),
        protocol_name=values["protocol_name"],
        leader=MemberId(values["leader"]),
        skip_assignment=values.get("skip_assignment", False),
        member_id=MemberId(values["member_id"]),
        members=tuple(
            JoinedMember(
                member_id=MemberId(member["member_id"]),
                instance_id=member.get("group_instance_id"),
                metadata=member["metadata"],
            )
            for member in values["members"]
        ),
    )


def encode_sync_group(request: SyncGroup, schema: RequestSchema) -> bytes:
    """Version 3 knows static members, 5 says which protocol was meant (KIP-559)."""
    return schema.encode(
        group_id=request.group_id,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple(
            schema.nested("SyncGroupRequestAssignment", member_id=member, assignment=assignment)
            for member, assignment in request.assignments.items()
        ),
    )


def decode_sync_group(_request: SyncGroup, values: Values) -> GroupSynced:
    """Before version 5 nothing is said of the protocol."""
    return GroupSynced(
        error=values["error_code"],
        protocol_type=values.get("protocol_type"),
        protocol_name=values.get("protocol_name"),
        assignment=values["assignment"],
    )


@lru_cache(maxsize=16)
def encode_heartbeat(request: Heartbeat, schema: RequestSchema) -> bytes:
    """Version 3 knows static members. The same bytes, many times a second, for a generation."""
    return schema.encode(
        group_id=request.group_id,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.instance_id,
    )


def decode_heartbeat(_request: Heartbeat, values: Values) -> HeartbeatAcked:
    """Only an error code."""
    return HeartbeatAcked(error=values["error_code"])


def encode_leave_group(request: LeaveGroup, schema: RequestSchema) -> bytes:
    """Version 3 lists members (KIP-345), 5 says why (KIP-800)."""
    if schema.version < 3:  # noqa: PLR2004  # as the docstring says
        return schema.encode(group_id=request.group_id, member_id=request.member_id)
    member = schema.nested(
        "MemberIdentity",
        member_id=request.member_id,
        group_instance_id=request.instance_id,
        reason=None if request.reason is None else request.reason[:_LONGEST_REASON],
    )
    return schema.encode(group_id=request.group_id, members=(member,))


def decode_leave_group(_request: LeaveGroup, values: Values) -> GroupLeft:
    """The request's own error, else the member's."""
    error = values["error_code"]
    if error is ErrorCode.none:
        codes = (member["error_code"] for member in values.get("members", ()))
        error = next((code for code in codes if code is not ErrorCode.none), error)
    return GroupLeft(error=error)
