"""What happened to a group, for traces and checks. Times are virtual seconds."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kafka_coop.types import Generation, MemberId


class Departure(enum.Enum):
    """Why a member is no longer in the group."""

    LEFT = "left"
    """LeaveGroup, its own or an administrator's."""
    SESSION_EXPIRED = "session expired"
    NOT_REJOINED = "did not rejoin in time"
    NOT_SYNCED = "did not sync in time"
    GROUP_FULL = "the group is full"
    REPLACED = "replaced by a new process with its instance id"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAdded:
    """A member is in the group: no longer pending, not yet in a generation."""

    at: float
    member_id: MemberId
    instance_id: str | None
    reason: str | None
    """The client's reason to join (KIP-800)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRemoved:
    """A member, or a pending one, is gone."""

    at: float
    member_id: MemberId
    instance_id: str | None
    cause: Departure
    reason: str | None = None
    """The client's reason to leave (KIP-800)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStarted:
    """A join phase has begun."""

    at: float
    generation: Generation
    """The one that ends."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStarted:
    """A join phase is over. Without members the group is empty."""

    at: float
    generation: Generation
    protocol_name: str | None
    leader: MemberId | None
    members: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentStored:
    """The leader's SyncGroup was taken: the group is stable."""

    at: float
    generation: Generation
    assignments: Mapping[MemberId, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoaded:
    """A coordinator took the group over from the log, as its last record left it."""

    at: float
    generation: Generation
    members: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUnloaded:
    """The coordinator gave the group up, at this generation."""

    at: float
    generation: Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted:
    """The group is gone; one of the same name begins at generation 1 again."""

    at: float
    generation: Generation


GroupEvent: TypeAlias = (
    MemberAdded
    | MemberRemoved
    | RebalanceStarted
    | GenerationStarted
    | AssignmentStored
    | GroupLoaded
    | GroupUnloaded
    | GroupDeleted
)
