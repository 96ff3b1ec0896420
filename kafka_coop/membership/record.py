"""What one rebalance was and what it cost: the value that logs and metrics are made of."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta

from kafka_coop.assignors.figures import PlanFigures
from kafka_coop.types import NO_GENERATION, NO_PARTITIONS, Generation, Partitions


class Role(enum.Enum):
    """What this member was in a round."""

    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRecord:
    """One finished round, or one that failed, as this member saw it.

    A *round* is one JoinGroup/SyncGroup pair that ended in an adopted assignment, together
    with its failed attempts. KIP-429 asks that its latency include the callbacks: ``total``
    runs from the first wish to join until the last callback returned.

    Attributes:
        reason: Why this member joined (the text it sent, KIP-800).
        error: Why the round failed; None when its assignment was adopted.
        generation: The round's generation, or the last one known where it failed.
        led_since: The first generation of those that this member led without a break up to this
            one: an attempt that a newcomer cuts short uses one up. None on followers.
        members: How many members the group has; None on followers, who are not told.
        attempts: JoinGroup requests sent.
        prepare: Commit and callbacks before the join.
        join: From the first JoinGroup to the last answer.
        assign: The assignor's run, leader only.
        sync: SyncGroup.
        revoke_callback, assigned_callback, lost_callback: The user's callbacks.
        commit: The commit between on_revoke and the end of ownership.
        revoked, assigned, lost, kept: Partitions by what became of them here.
        follow_up: The leader announced that another round must come.
        broker_assigns: Nobody leads: a group of KIP-848, where the broker makes the plan.
        plan: What the plan costs, leader only.
        planned_at: When it was made, on the machine's clock.
    """

    group_id: str
    client_id: str
    member_id: str = ""
    reason: str = ""
    error: str | None = None
    generation: Generation = NO_GENERATION
    led_since: Generation | None = None
    protocol_name: str | None = None
    cooperative: bool = True
    role: Role = Role.FOLLOWER
    members: int | None = None
    attempts: int = 1
    prepare: timedelta = timedelta(0)
    join: timedelta = timedelta(0)
    assign: timedelta = timedelta(0)
    sync: timedelta = timedelta(0)
    revoke_callback: timedelta = timedelta(0)
    assigned_callback: timedelta = timedelta(0)
    lost_callback: timedelta = timedelta(0)
    commit: timedelta = timedelta(0)
    total: timedelta = timedelta(0)
    revoked: Partitions = NO_PARTITIONS
    assigned: Partitions = NO_PARTITIONS
    lost: Partitions = NO_PARTITIONS
    kept: Partitions = NO_PARTITIONS
    follow_up: bool = False
    broker_assigns: bool = False
    plan: PlanFigures | None = None
    planned_at: float | None = None
