"""The groups that are led: each row of the table, fresh and with one member more."""

from __future__ import annotations

import enum
import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import NO_PARTITIONS, Cluster, Generation, Subscription


class Shape(enum.Enum):
    """Who subscribes to what."""

    EQUAL = "equal"
    ONE_WITHOUT = "one member without one topic"
    HALF = "random half of the topics each"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One size of group.

    Attributes:
        topics: How many.
        partitions: Of each topic.
        members: How many, before one more joins.
        shape: Who subscribes to what.
        alone: Peers are left out: they are not known to manage.
    """

    topics: int
    partitions: int
    members: int
    shape: Shape = Shape.EQUAL
    alone: bool = False

    @property
    def size(self) -> int:
        return self.topics * self.partitions

    def __str__(self) -> str:
        return f"{self.topics} × {self.partitions} × {self.members}, {self.shape.value}"  # noqa: RUF001  # a product

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(partitions=dict.fromkeys(_topic_names(self.topics), self.partitions))

    def fresh(self) -> dict[str, bytes]:
        """Everyone's subscription when nobody owns anything."""
        return {m: encode_subscription(Subscription(topics=t)) for m, t in self._topics().items()}

    def one_more(self, plan: Mapping[str, bytes]) -> dict[str, bytes]:
        """The same once everyone owns what the plan gave them and one member more has joined."""
        group = {}
        for member, topics in self._topics(one_more=True).items():
            owned = decode_assignment(plan[member]).partitions if member in plan else NO_PARTITIONS
            group[member] = encode_subscription(
                Subscription(
                    topics=topics, owned=owned, generation=Generation(1 if member in plan else -1)
                )
            )
        return group

    def _topics(self, *, one_more: bool = False) -> dict[str, tuple[str, ...]]:
        everything = tuple(sorted(self.cluster.partitions))
        members = _member_ids(self.members + one_more)
        if self.shape is Shape.HALF:
            dice = random.Random(self.size)
            half = len(everything) // 2
            return {m: tuple(sorted(dice.sample(everything, half))) for m in members}
        topics = dict.fromkeys(members, everything)
        if self.shape is Shape.ONE_WITHOUT:
            topics[members[0]] = everything[:-1]
        return topics


ROWS: Final = (
    Row(topics=1, partitions=2100, members=2100),
    Row(topics=50, partitions=1000, members=1000),
    Row(topics=500, partitions=2000, members=2000),
    Row(topics=500, partitions=2000, members=10_000),
    Row(topics=50, partitions=1000, members=1000, shape=Shape.ONE_WITHOUT),
    Row(topics=500, partitions=2000, members=2000, shape=Shape.ONE_WITHOUT),
    Row(topics=40, partitions=50, members=40, shape=Shape.HALF),
    Row(topics=200, partitions=100, members=200, shape=Shape.HALF),
    Row(topics=1000, partitions=100, members=1000, shape=Shape.HALF),
    Row(topics=500, partitions=20_000, members=10_000, alone=True),
)


def _topic_names(count: int) -> list[str]:
    """Names without a pattern: Java's table of owned partitions collides on t000, t001, …"""
    return [f"topic-{_digest('topic', n)[:8]}" for n in range(count)]


def _member_ids(count: int) -> list[str]:
    """As long as real ones, which end in a UUID."""
    return [f"consumer-{n}-{_digest('member', n)[:36]}" for n in range(count)]


def _digest(kind: str, number: int) -> str:
    return hashlib.sha256(f"{kind} {number}".encode()).hexdigest()
