"""What a member wants done: the outputs of its state machine.

The driver carries effects out in the order given. Steps go to the user's thread, which
carries out their actions in the order given: **that order is the contract of KIP-429**
(revoke, then change ownership, then assign), and tests read it literally.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from kafka_coop.errors import Failure
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.protocol.messages import (
    FindCoordinator,
    GetMetadata,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Node,
    SyncGroup,
)
from kafka_coop.types import NO_PARTITIONS, Cluster, Generation, GroupMetadata, MemberId, Partitions

# --- actions of a step: the user's thread --------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRevoked:
    """on_revoke. Until it returns the partitions are owned, and commits of them go through."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPositions:
    """Auto-commit: wait until it is done, or given up with an error the user sees."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLost:
    """on_lost. The partitions may have another owner by now: nothing is committed."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Ownership ends: no record of these is delivered any more, whatever was fetched."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Ownership begins. Fetching does once the positions of this generation are known."""

    partitions: Partitions
    generation: Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAssigned:
    """on_assign with what was added, even if nothing was."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseError:
    """Raise from poll(). The step is done once it was raised."""

    failure: Failure


Action: TypeAlias = (
    CallRevoked | CommitPositions | CallLost | Release | Own | CallAssigned | RaiseError
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Work for the user's thread, answered by StepDone (or StepWithdrawn, if not begun).

    Steps are carried out in the order offered. The machine waits for a *blocking* one (what
    is given up must be gone before this member joins again, or is claimed once more, where that
    takes long: `kafka_coop.membership.joining`) and never has two of them out.
    It does not wait for the others: what was gained is owned from the Sync on, and a user who
    polls late must not hold up the next round of the whole group. A blocking step without
    actions asks only that the user polls.
    """

    step_id: int
    actions: tuple[Action, ...]
    blocking: bool = False


# --- effects -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferStep:
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawStep:
    """Take the step back. Answered by StepWithdrawn, or by StepDone where it had begun."""

    step_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFindCoordinator:
    token: int
    request: FindCoordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMetadata:
    token: int
    request: GetMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJoin:
    """On the connection for joining: a parked JoinGroup blocks what follows it."""

    token: int
    node: Node
    request: JoinGroup
    timeout: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortParked:
    """A JoinGroup's or SyncGroup's answer is no longer wanted: free the connection for joining.

    It may be parked there, for as long as the others take, and what is sent next is behind it.
    """

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSync:
    """On the connection for joining.

    Attributes:
        ahead: What the answer may bring. Their committed offsets may be asked for right behind it,
            before it is known which of them come: a connection's requests are processed in the
            order in which they are sent, so that an offset is as fresh as one asked for when
            SyncGroup has been answered. Earlier it would not be: what the last owner has committed
            may still be on its way to the coordinator's replicas, an open transaction's offsets,
            too, and the assignment is behind them in the same log.
    """

    token: int
    node: Node
    request: SyncGroup
    timeout: timedelta
    ahead: Partitions = NO_PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeartbeat:
    token: int
    node: Node
    request: Heartbeat
    timeout: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLeave:
    """Not on the connection for joining."""

    token: int
    node: Node
    request: LeaveGroup
    timeout: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAssignor:
    """The leader's work (`kafka_coop.leader.lead`), away from heartbeats: it may take long."""

    token: int
    protocol_name: str
    cluster: Cluster
    members: Mapping[str, bytes]
    instance_ids: Mapping[str, str]
    leader: MemberId
    generation: Generation
    recalled: Mapping[str, Partitions]
    """What the round before has taken away only for the time until this one, by member id."""
    announced: bool
    """Whether the round before has announced this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorChanged:
    """Where commits and offset fetches go; None: wait until it is known again."""

    node: Node | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityChanged:
    """What commits must carry from now on.

    ``commits_open`` is False while the group is between two generations: a commit sent then
    would be answered REBALANCE_IN_PROGRESS, so it waits for the round's end.

    A member id without a generation is one that the coordinator gave, and waits for: commits are
    judged as they are without it, and whoever outlives this process can leave in its name.
    """

    metadata: GroupMetadata
    commits_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendLease:
    """Records of group partitions may be handed out before ``until`` (invariant 1)."""

    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLease:
    """No record of a group partition may be handed out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchOffsets:
    """These partitions are about to be owned: their positions will be wanted.

    Asked for while on_revoke and on_assign still run. A result is good for the `Own` of the
    same generation alone: the partition may go and come back, with another's commit between.

    Attributes:
        ahead: What was asked for behind this generation's SyncGroup will do.
    """

    partitions: Partitions
    generation: Generation
    ahead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTopicErrors:
    """Subscribed topics that can't be had, with Kafka's error codes; each is said once."""

    errors: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """A round ended: for the log and the metrics."""

    record: RebalanceRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatObserved:
    """For metrics: a heartbeat was acknowledged, or (None) refused, or not answered."""

    latency: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Left for good, or as far as could be: the driver may stop."""


Effect: TypeAlias = (
    OfferStep
    | WithdrawStep
    | SendFindCoordinator
    | SendMetadata
    | SendJoin
    | AbortParked
    | SendSync
    | SendHeartbeat
    | SendLeave
    | RunAssignor
    | CoordinatorChanged
    | IdentityChanged
    | ExtendLease
    | EndLease
    | PrefetchOffsets
    | ReportTopicErrors
    | Announce
    | HeartbeatObserved
    | Left
)
