"""``cooperative-sticky``: KIP-54's strategy under KIP-429's protocol."""

from __future__ import annotations

from kafka_coop.assignors.balance import balance
from kafka_coop.assignors.memory import RemembersGeneration
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import snapshot_of
from kafka_coop.types import Cluster, GroupSubscription, RebalanceProtocol


class CooperativeSticky(RemembersGeneration):
    """The best balance there is, then the fewest partitions that leave their owner."""

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
        """Plans for the group, taking as owned what members claim in their subscriptions."""
        snapshot = snapshot_of(cluster, group)
        return Plan(snapshot, balance(snapshot, snapshot.owned.owner))
