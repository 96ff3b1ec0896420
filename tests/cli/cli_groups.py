"""Groups as the command line would see them, made without a broker."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_coop.cli.group import GroupLook, MemberLook, look_at_member, named
from kafka_coop.leader import lead
from kafka_coop.protocol.assignment import encode_assignment
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import (
    Assignment,
    Cluster,
    Generation,
    Partitions,
    Subscription,
    TopicPartition,
)


def settled(
    strategy: str,
    cluster: Mapping[str, int],
    members: Mapping[str, tuple[str, ...]],
    *,
    generation: int = 3,
    leader: str = "",
    user_data: bytes | None = None,
) -> GroupLook:
    """The group after one round of our leader, everybody joining without anything."""
    sent = {
        m: encode_subscription(Subscription(topics=topics, user_data=user_data))
        for m, topics in members.items()
    }
    first = leader or min(members, default="")
    outcome = lead(strategy, cluster, sent, leader=first, generation=Generation(generation))
    return look(
        strategy,
        cluster,
        [member(m, metadata=sent[m], assignment=outcome.assignments[m]) for m in members],
    )


def look(
    strategy: str,
    cluster: Mapping[str, int],
    members: list[MemberLook],
    *,
    state: str = "Stable",
    committed: Mapping[TopicPartition, int] | None = None,
    ends: Mapping[TopicPartition, int] | None = None,
) -> GroupLook:
    return GroupLook(
        id="orders-service",
        state=state,
        kind="classic",
        assignor=strategy,
        coordinator="broker:9092 (broker 1)",
        members=named(members),
        cluster=Cluster(partitions=cluster),
        committed=committed or {},
        ends=ends or {},
    )


def member(name: str, *, metadata: bytes = b"", assignment: bytes = b"") -> MemberLook:
    return look_at_member(
        member_id=f"{name}-id",
        client_id=name,
        host="/10.0.0.1",
        metadata=metadata,
        assignment=assignment,
    )


def owning(name: str, topic: str, *indices: int, user_data: bytes | None = None) -> MemberLook:
    """A member of another client, with this assignment."""
    return member(
        name,
        metadata=encode_subscription(Subscription(topics=(topic,), user_data=user_data)),
        assignment=encode_assignment(Assignment(partitions=Partitions({topic: indices}))),
    )
