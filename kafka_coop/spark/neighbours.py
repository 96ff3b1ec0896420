"""Who else reads a query's topics in its group: the coordinator knows, and tells any member."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_coop.types import TopicPartition

_PATIENCE = 1.0
"""Seconds for one question: no batch is planned meanwhile."""

_HOLD = 1.0
"""Seconds until it is asked again, where a round was under way."""

_HOLD_UNTOLD = 10.0
"""The same where nobody told."""


class Neighbours:
    """The other members of a group, looked at once after each rebalance. One thread asks.

    Args:
        admin: Who asks.
        group: The group.
    """

    def __init__(self, admin: AdminClient, group: str) -> None:
        self._admin = admin
        self._group = group
        self._seen: int | None = None
        self._ask_again = float("-inf")

    def partitions(
        self, topics: Collection[str], *, member: str, rebalances: int
    ) -> frozenset[TopicPartition]:
        """What others have of these topics.

        Args:
            topics: Their names.
            member: Our own member id.
            rebalances: How many we have seen: after each one it is looked anew.

        Returns:
            Nothing also where it is not known: nobody tells, a round is under way, or it was looked
            at since the last one.
        """
        if rebalances == self._seen or time.monotonic() < self._ask_again:
            return frozenset()
        try:
            described = self._described()
        except (KafkaException, FutureTimeoutError):
            self._ask_again = time.monotonic() + _HOLD_UNTOLD
            return frozenset()
        if described.state != ConsumerGroupState.STABLE:  # what members have is not told then
            self._ask_again = time.monotonic() + _HOLD
            return frozenset()
        self._seen = rebalances
        return frozenset(
            TopicPartition(of.topic, of.partition)
            for one in described.members
            if one.member_id != member
            for of in one.assignment.topic_partitions
            if of.topic in topics
        )

    def _described(self) -> Any:
        asked = self._admin.describe_consumer_groups([self._group], request_timeout=_PATIENCE)
        return asked[self._group].result(_PATIENCE + 0.1)
