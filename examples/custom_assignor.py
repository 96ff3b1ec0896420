"""A strategy of your own, in a dozen lines: rendezvous hashing.

    python examples/custom_assignor.py

Each partition goes to the member whose name, hashed together with the partition's, is largest.
Nobody has to remember anything: when a member joins, only what it wins moves, and when it
leaves, only what it had. `kafka_coop.testing.check_assignor(Rendezvous)` finds nothing wrong.
"""

from __future__ import annotations

import time
from zlib import crc32

from playground import playground

from kafka_coop import CoopConsumer, plan
from kafka_coop.types import (
    Assignment,
    Cluster,
    GroupAssignment,
    GroupMetadata,
    GroupSubscription,
    Partitions,
    RebalanceProtocol,
    Subscription,
)


class Rendezvous:
    """Highest random weight: statistically even, and the fewest moves without any memory."""

    name = "rendezvous"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> GroupAssignment:
        """Depends on names alone, so the order of members can't matter."""
        won: dict[str, list[tuple[str, int]]] = {member: [] for member in group}
        for topic, count in cluster.partitions.items():
            able = sorted(m for m in group if topic in group[m].topics)
            for partition in range(count if able else 0):
                weight = {m: crc32(f"{topic}/{partition}/{m}".encode()) for m in able}
                won[max(able, key=weight.__getitem__)].append((topic, partition))
        return {m: Assignment(partitions=Partitions.of(p)) for m, p in won.items()}

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Nothing is to be told to the leader."""

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Nothing is to be remembered."""


def main() -> None:
    """Shows what would move; then two members share a topic, and one of them leaves."""
    three = {f"member-{i}": Subscription(topics=("orders",)) for i in range(3)}
    print(plan(Rendezvous(), {"orders": 12}, three).join("member-3"), end="\n\n")
    with playground(orders=12) as config:
        group = [
            CoopConsumer(
                {**config, "group.id": "custom", "client.id": f"consumer-{i}"},
                assignors=[Rendezvous()],
            )
            for i in range(2)
        ]
        for consumer in group:
            consumer.subscribe(["orders"])
        while group:
            share(group)
            group.pop().close()


def share(group: list[CoopConsumer]) -> None:
    """Polls until the members own all partitions between them, and says who owns what."""
    until = time.monotonic() + 120
    while sum(len(c.assignment()) for c in group) < 12 or not all(c.assignment() for c in group):  # noqa: PLR2004  # as created
        if time.monotonic() > until:
            raise TimeoutError("the group did not settle within two minutes")
        for consumer in group:
            consumer.poll(0.1)
    for consumer in group:
        print(consumer.memberid(), sorted(p.partition for p in consumer.assignment()))


if __name__ == "__main__":
    main()
