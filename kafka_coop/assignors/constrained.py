"""``constrained-cooperative-sticky``: the KIP of that name."""

from __future__ import annotations

from kafka_coop.assignors.balance import balance
from kafka_coop.assignors.memory import RemembersGeneration
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import snapshot_of
from kafka_coop.assignors.uniform import balance_uniform
from kafka_coop.types import Cluster, GroupSubscription, RebalanceProtocol

_NOT_EQUAL = (
    "constrained-cooperative-sticky: members subscribe to different topics, which this strategy "
    "is not made for; planning as cooperative-sticky does"
)


class ConstrainedCooperativeSticky(RemembersGeneration):
    """For groups whose members all subscribe to the same topics.

    Counts differ by at most one; the fewest partitions move; the same input gives the same
    plan; time is linear. Racks are not looked at. Where subscriptions differ after all it
    neither fails nor mis-assigns: it plans as `CooperativeSticky` does, and the first such plan
    says so in its notes.
    """

    name = "constrained-cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        super().__init__()
        self._told = False

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
        """Plans for the group; see the class for what it promises."""
        snapshot = snapshot_of(cluster, group)
        if snapshot.uniform:
            return Plan(snapshot, balance_uniform(snapshot, snapshot.owned.owner))
        notes: tuple[str, ...] = ()
        if not self._told:
            self._told = True
            notes = (_NOT_EQUAL,)
        return Plan(snapshot, balance(snapshot, snapshot.owned.owner), notes=notes)
