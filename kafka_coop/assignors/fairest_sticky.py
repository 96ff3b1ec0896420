"""``fairest-sticky``: KIP-54's alternative, where stickiness comes before balance."""

from __future__ import annotations

from kafka_coop.assignors.general import fill_general
from kafka_coop.assignors.memory import RemembersGeneration
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import snapshot_of
from kafka_coop.types import Cluster, GroupSubscription, RebalanceProtocol


class FairestSticky(RemembersGeneration):
    """Nobody loses what is rightfully theirs; what has no owner is placed as fairly as possible.

    Of all plans that keep every owner, the sorted load vector is lexicographically the best. A
    new member gets nothing until something becomes free: for groups in which to move a
    partition costs more than to be unbalanced.
    """

    name = "fairest-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
        """Plans for the group, taking as owned what members claim in their subscriptions."""
        snapshot = snapshot_of(cluster, group)
        return Plan(snapshot, fill_general(snapshot, snapshot.owned.owner))
