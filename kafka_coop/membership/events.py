"""What can happen to a member: the inputs of its state machine.

Every answer carries the token of the request it answers; an answer whose token is no longer
awaited belongs to an earlier attempt and is dropped without effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from kafka_coop.assignors.figures import NO_FIGURES, PlanFigures
from kafka_coop.errors import RequestFailedError
from kafka_coop.protocol.messages import (
    ClusterMetadata,
    CoordinatorFound,
    GroupJoined,
    GroupLeft,
    GroupSynced,
    HeartbeatAcked,
)
from kafka_coop.types import Generation, MemberId

# --- from the user's thread ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """Topics by name, and regular expressions (without librdkafka's ``^``: as `re` takes them)."""

    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """Give everything up and leave, but stay usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Give everything up and leave for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Have the group take over what we own, while we go on: we are about to leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforceRebalance:
    """The user asks for a round (KIP-568)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The user's thread was seen in poll() at ``at``.

    Attributes:
        at: When.
        delivered_at: When it was last given a record, -inf where never; None: it is not known.
    """

    at: float
    delivered_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """The user's thread carried a step out, whole."""

    step_id: int
    revoke_callback: timedelta = timedelta(0)
    assigned_callback: timedelta = timedelta(0)
    lost_callback: timedelta = timedelta(0)
    commit: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWithdrawn:
    """The step had not been begun and never will be."""

    step_id: int


# --- from brokers --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorAnswered:
    token: int
    answer: CoordinatorFound | RequestFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAnswered:
    token: int
    answer: ClusterMetadata | RequestFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswered:
    token: int
    answer: GroupJoined | RequestFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    token: int
    answer: GroupSynced | RequestFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswered:
    token: int
    answer: HeartbeatAcked | RequestFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAnswered:
    token: int
    answer: GroupLeft | RequestFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRefused:
    """The coordinator refused a commit of this generation and member.

    ``error`` is Kafka's code: 22, 25, 27 or 82.
    """

    error: int
    generation: Generation
    member_id: MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLost:
    """Another user of the coordinator (a commit, an offset fetch) found that it is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorWanted:
    """Another user of the coordinator waits for it to be found."""


# --- from the leader's work ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentComputed:
    """The assignor's run is over. ``error`` goes to the user; the plan is usable either way."""

    token: int
    assignments: dict[str, bytes]
    duration: timedelta = timedelta(0)
    error: Exception | None = None
    figures: PlanFigures = NO_FIGURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: `Member.next_deadline` was reached, or may have been."""


Event: TypeAlias = (
    Subscribe
    | Unsubscribe
    | Close
    | Drain
    | EnforceRebalance
    | Polled
    | StepDone
    | StepWithdrawn
    | CoordinatorAnswered
    | MetadataAnswered
    | JoinAnswered
    | SyncAnswered
    | HeartbeatAnswered
    | LeaveAnswered
    | CommitRefused
    | CoordinatorLost
    | CoordinatorWanted
    | AssignmentComputed
    | Tick
)
