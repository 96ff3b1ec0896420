"""Who else reads a query's topics in its group: the coordinator knows, and tells any member."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_coop.types import TopicPartition

_PATIENCE = 1.0
"""Seconds for one question: no batch is planned meanwhile."""

_HOLD = 1.0
"""Seconds until it is asked again, where a round was under way, or somebody is seen first."""

_HOLD_UNTOLD = 10.0
"""The same where nobody told."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What others have of the topics that a query reads.

    Attributes:
        partitions: Empty where it is alone with them, and where it is not known.
        strategy: By which the group is balanced.
    """

    partitions: frozenset[TopicPartition] = frozenset()
    strategy: str = ""


class Neighbours:
    """The other members of a group, looked at after each rebalance. One thread asks.

    Args:
        admin: Who asks.
        group: The group.
    """

    def __init__(self, admin: AdminClient, group: str) -> None:
        self._admin = admin
        self._group = group
        self._known: int | None = None
        self._suspects: frozenset[str] = frozenset()
        self._ask_again = float("-inf")

    def look(self, asks_for: Callable[[str], bool], *, member: str, rebalances: int) -> Shared:
        """What others have of these topics.

        Who is seen once may be the run before, which leaves as this one comes: so they count when
        they are seen a second time.

        Args:
            asks_for: Whether a topic is among them.
            member: Our own member id.
            rebalances: How many we have seen: after each one it is looked anew.

        Returns:
            Nothing also where it is not known: nobody tells, a round is under way, or it was looked
            at since the last one.
        """
        if rebalances == self._known or time.monotonic() < self._ask_again:
            return Shared()
        try:
            described = self._described()
        except (KafkaException, FutureTimeoutError):
            return self._again_in(_HOLD_UNTOLD)
        if described.state != ConsumerGroupState.STABLE:  # what members have is not told then
            return self._again_in(_HOLD)
        theirs = {
            one.member_id: {
                TopicPartition(of.topic, of.partition)
                for of in one.assignment.topic_partitions
                if asks_for(of.topic)
            }
            for one in described.members
            if one.member_id != member
        }
        sharing = frozenset(id_ for id_, partitions in theirs.items() if partitions)
        stayed, self._suspects = sharing & self._suspects, sharing
        if sharing and not stayed:
            return self._again_in(_HOLD)
        self._known = rebalances
        partitions = frozenset[TopicPartition]().union(*(theirs[id_] for id_ in stayed))
        return Shared(partitions, described.partition_assignor)

    def _again_in(self, seconds: float) -> Shared:
        self._ask_again = time.monotonic() + seconds
        return Shared()

    def _described(self) -> Any:
        asked = self._admin.describe_consumer_groups([self._group], request_timeout=_PATIENCE)
        return asked[self._group].result(_PATIENCE + 0.1)
