"""``sticky``: KIP-54's strategy under the eager protocol, as every client has had it since."""

from __future__ import annotations

import numpy as np

from kafka_coop.assignors.balance import balance
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import Ownership, Snapshot, snapshot_of
from kafka_coop.protocol.user_data import Claim, decode_claim, encode_sticky
from kafka_coop.types import (
    Assignment,
    Cluster,
    GroupMetadata,
    GroupSubscription,
    RebalanceProtocol,
)


class Sticky:
    """The best balance there is, then the fewest partitions that leave their owner.

    Its members revoke everything before they join, so what they owned travels in the user data:
    the partitions and generation of the last assignment (KIP-341).
    """

    name = "sticky"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self._last: Claim | None = None

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:  # noqa: ARG002  # the protocol's signature
        """Returns the last assignment with its generation; None before the first one."""
        return None if self._last is None else encode_sticky(self._last)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
        """Plans for the group, taking as owned what members say they had."""
        snapshot = snapshot_of(cluster, group)
        return Plan(snapshot, balance(snapshot, _remembered(snapshot).owner))

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Remembers the partitions and the generation."""
        self._last = Claim(owned=assignment.partitions, generation=metadata.generation)


def _remembered(snapshot: Snapshot) -> Ownership:
    """Judges what members' user data claim. Version 0, without a generation, is the oldest."""
    said = [decode_claim(data) or Claim() for data in snapshot.group.user_data]
    return snapshot.judge(
        snapshot.claims_of([c.owned for c in said]),
        np.array([c.generation for c in said], np.int64),
    )
