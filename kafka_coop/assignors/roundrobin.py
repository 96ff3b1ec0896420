"""``roundrobin``: partitions dealt one by one, as the Java client deals them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from kafka_coop.assignors.columns import NOBODY
from kafka_coop.assignors.memory import Forgetful
from kafka_coop.assignors.order import seating
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import snapshot_of
from kafka_coop.types import Cluster, GroupSubscription, RebalanceProtocol


class RoundRobin(Forgetful):
    """Each partition to the next member that subscribes to its topic, topics in name order.

    Members take turns in the order of `order.seating`. Not sticky: eager only.
    """

    name = "roundrobin"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
        """Deals all partitions of all topics in one go round the members."""
        snapshot = snapshot_of(cluster, group)
        seats, seat_of = seating(snapshot)
        owner = np.full(snapshot.size, NOBODY, np.int32)
        turn = 0
        everyone, begins = snapshot.subscribers()
        for (a, b), (c, d) in zip(
            pairwise(snapshot.offsets.tolist()), pairwise(begins.tolist()), strict=True
        ):
            subscribers = everyone[c:d]
            taking = np.sort(seat_of[subscribers])
            first = int(np.searchsorted(taking, turn))
            takers = taking[(first + np.arange(b - a)) % taking.size]
            owner[a:b] = seats[takers]
            turn = (int(takers[-1]) + 1) % seats.size
        return Plan(snapshot, owner)
