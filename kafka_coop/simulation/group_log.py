"""What of a group is in the log, and so survives its coordinator.

A group is written when it comes into being, when the leader's SyncGroup is taken, when its
last member is gone, and when a static member's new process takes its place. Nothing else
survives: not a join phase, not a parked request, not a generation that no leader has assigned,
and of a member's protocols only the chosen one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_coop.simulation.group import Group, GroupMember, GroupState, Pick
from kafka_coop.types import Generation, MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMember:
    """A member in a group's record. Timeouts are in seconds."""

    member_id: MemberId
    instance_id: str | None
    client_id: str
    session_timeout: float
    rebalance_timeout: float
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """The last record of a group."""

    generation: Generation
    protocol_type: str | None
    protocol_name: str | None
    leader: MemberId | None
    members: tuple[LoggedMember, ...]


def write(group: Group, assignments: Mapping[MemberId, bytes]) -> GroupRecord:
    """The record of a group with these assignments; members without one get an empty one."""
    return GroupRecord(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader,
        members=tuple(
            LoggedMember(
                member_id=m.member_id,
                instance_id=m.instance_id,
                client_id=m.client_id,
                session_timeout=m.session_timeout,
                rebalance_timeout=m.rebalance_timeout,
                metadata=m.metadata(group.protocol_name),
                assignment=assignments.get(m.member_id, b""),
            )
            for m in group.members.values()
        ),
    )


def read(group_id: str, record: GroupRecord, *, pick: Pick) -> Group:
    """The group as a new coordinator finds it: stable where it has members, else empty."""
    group = Group(group_id, pick=pick)
    group.generation = record.generation
    group.protocol_type = record.protocol_type
    group.protocol_name = record.protocol_name
    group.leader = record.leader
    if record.members:
        group.state = GroupState.STABLE
    for m in record.members:
        assert record.protocol_name is not None
        group.add(
            GroupMember(
                member_id=m.member_id,
                instance_id=m.instance_id,
                client_id=m.client_id,
                session_timeout=m.session_timeout,
                rebalance_timeout=m.rebalance_timeout,
                protocols=((record.protocol_name, m.metadata),),
                assignment=m.assignment,
            )
        )
    return group
