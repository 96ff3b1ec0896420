"""The clock of one round: from the first wish to join until the last callback returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from kafka_coop.assignors.figures import PlanFigures
from kafka_coop.membership.events import StepDone
from kafka_coop.membership.record import RebalanceRecord, Role
from kafka_coop.membership.steps import GivingUp
from kafka_coop.types import NO_GENERATION, NO_PARTITIONS, Generation, Partitions


@dataclass(slots=True, kw_only=True)
class Round:
    """What is known so far of the round under way. Times are the machine's ``now``."""

    began_at: float
    reason: str
    sent_reason: str = ""
    """What the next JoinGroup says (KIP-800): the latest cause, where ``reason`` is the first."""
    claimed: Partitions = NO_PARTITIONS
    """What the last JoinGroup said that we own. The plan withholds from others what of it is not
    to be ours any more."""
    busy: bool = False
    """Whether JoinGroup says that our user is: the same in each attempt, for other bytes would have
    the coordinator begin another round where it only has to answer once more."""
    attempts: int = 0
    first_join_at: float | None = None
    joined_at: float | None = None
    sync_sent_at: float | None = None
    synced_at: float | None = None
    assign: timedelta = timedelta(0)
    plan: PlanFigures | None = None
    planned_at: float | None = None
    generation: Generation = NO_GENERATION
    led_since: Generation | None = None
    protocol_name: str | None = None
    role: Role = Role.FOLLOWER
    members: int | None = None
    follow_up: bool = False
    broker_assigns: bool = False
    revoked: Partitions = NO_PARTITIONS
    lost: Partitions = NO_PARTITIONS
    assigned: Partitions = NO_PARTITIONS
    kept: Partitions = NO_PARTITIONS
    callbacks: list[StepDone] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The first cause is the first to be sent."""
        self.sent_reason = self.sent_reason or self.reason

    def elected(self, generation: Generation, *, leads: bool) -> None:
        """JoinGroup was answered, once more where a newcomer came before SyncGroup was."""
        if not leads:
            self.led_since = None
        elif self.led_since is None or generation > self.generation + 1:
            self.led_since = generation
        self.generation = generation

    def gave_up(self, what: GivingUp, done: StepDone) -> None:
        """Counts what a step took away, once it has: evicted meanwhile, it may be withdrawn.

        What it would have revoked is then lost, and was counted twice.
        """
        self.revoked |= what.revoked
        self.lost |= what.lost
        self.callbacks.append(done)

    def record(
        self,
        now: float,
        *,
        group_id: str,
        client_id: str,
        member_id: str,
        cooperative: bool,
        error: str | None = None,
    ) -> RebalanceRecord:
        """The round as it stands, ended now."""
        return RebalanceRecord(
            group_id=group_id,
            client_id=client_id,
            member_id=member_id,
            reason=self.reason,
            error=error,
            generation=self.generation,
            led_since=self.led_since,
            protocol_name=self.protocol_name,
            cooperative=cooperative,
            role=self.role,
            members=self.members,
            attempts=self.attempts,
            prepare=_between(self.began_at, self.first_join_at),
            join=_between(self.first_join_at, self.joined_at),
            assign=self.assign,
            plan=self.plan,
            planned_at=self.planned_at,
            sync=_between(self.sync_sent_at, self.synced_at),
            revoke_callback=sum((c.revoke_callback for c in self.callbacks), timedelta(0)),
            assigned_callback=sum((c.assigned_callback for c in self.callbacks), timedelta(0)),
            lost_callback=sum((c.lost_callback for c in self.callbacks), timedelta(0)),
            commit=sum((c.commit for c in self.callbacks), timedelta(0)),
            total=timedelta(seconds=now - self.began_at),
            revoked=self.revoked,
            assigned=self.assigned,
            lost=self.lost,
            kept=self.kept,
            follow_up=self.follow_up,
            broker_assigns=self.broker_assigns,
        )


def _between(start: float | None, end: float | None) -> timedelta:
    return timedelta(0) if start is None or end is None else timedelta(seconds=end - start)
