"""What a plan says."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kafka_coop.types import Partitions


class Reason(enum.Enum):
    """Why a partition stays, moves, or is given to somebody. The text is the operator's."""

    KEPT = "it stays with its owner"
    NEW_MEMBER = "the member is new"
    BALANCE = "balance: its owner had more than its share"
    LOAD = "load: its owner carried more"
    RACK = "the member is in a rack of its replicas"
    EXCHANGE = "it makes room for others, or is where the strategy's order puts it"
    DRAINING = "its owner is about to leave"
    GONE_MEMBER = "its owner has left"
    UNSUBSCRIBED = "its owner no longer subscribes to the topic"
    DISPUTED = "several members claim it, of one generation"
    NEW_PARTITION = "the partition is new"
    UNOWNED = "nobody owned it"
    LEFT_OUT = "the strategy assigns it to nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One partition.

    Attributes:
        topic, partition: Which.
        source: Who owns it; None: nobody, or somebody who has left.
        destination: Who is to own it; None: nobody.
        reason: Why.
        withheld: It is given to nobody in the first round: the member that still consumes it
            has to revoke it first (KIP-429).
    """

    topic: str
    partition: int
    source: str | None
    destination: str | None
    reason: Reason
    withheld: bool = False

    @property
    def moves(self) -> bool:
        """Whether somebody who is there has to give it up."""
        return self.source is not None and self.source != self.destination

    def __str__(self) -> str:
        way = " ".join(
            [*([self.source] if self.source else []), "->", self.destination or "nobody"]
        )
        if self.reason is Reason.KEPT:
            way = self.destination or ""
        waits = ", withheld until it is revoked" if self.withheld else ""
        return f"{self.topic}-{self.partition} {way}{waits}: {self.reason.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How evenly partitions lie on the members that subscribe to anything."""

    least: int
    most: int
    mean: float

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.least:,} each"
        return f"{self.least:,} to {self.most:,}, {self.mean:,.1f} on average"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How many partitions.

    Attributes:
        partitions: That somebody subscribes to.
        kept, moved, placed, unassigned: That stay, leave an owner who is there, had no owner and
            get one, and are given to nobody.
        withheld: That nobody owns between the first round and the second.
        interrupted: That are revoked: those that move, or under the eager protocol all.
        fewest_moves: That the best balance by count takes away from their owners, from where the
            group is: what `cooperative-sticky` does, racks left aside (see
            `kafka_coop.assignors.transport`). A strategy with another aim may move fewer, or more.
    """

    partitions: int
    kept: int
    moved: int
    placed: int
    unassigned: int
    withheld: int
    interrupted: int
    fewest_moves: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Partitions that change hands alike; see `PartitionPlan`."""

    source: str | None
    destination: str | None
    reason: Reason
    withheld: bool
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """What a plan means to one member.

    Attributes:
        member: Its name, or id where it has none.
        topics: How many existing topics it subscribes to.
        before, after: How many partitions it owns, and is to own.
        gives, gets: How many of them leave it, and come to it.
        waits: How many of those that come are withheld from it in the first round.
        load_before, load_after: What they cost, in the group's unit, where members say so.
    """

    member: str
    topics: int
    before: int
    after: int
    gives: int
    gets: int
    waits: int
    load_before: float | None = None
    load_after: float | None = None
