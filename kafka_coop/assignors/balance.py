"""The balance of the sticky family: the best loads, then racks, then the fewest moves."""

from __future__ import annotations

from kafka_coop.assignors.columns import Ints
from kafka_coop.assignors.general import balance_general
from kafka_coop.assignors.racks import racks_of
from kafka_coop.assignors.snapshot import Snapshot
from kafka_coop.assignors.uniform import balance_uniform


def balance(snapshot: Snapshot, owner: Ints) -> Ints:
    """Balances by counting where that is enough, else by `transport`.

    Counting is enough where subscriptions are equal and racks make no difference (KIP-881):
    members gave none, theirs hold no replica, or every partition is in each of theirs. Both ways
    give optimal loads and the fewest moves. The Java client leaves racks out where partitions are
    all in the same ones, too; but a member elsewhere should then have no more than it must.

    Args:
        snapshot: The group.
        owner: Per position its rightful owner, or `NOBODY`.

    Returns:
        Per position the member to own it.
    """
    racks = racks_of(snapshot)
    if racks is not None and not racks.matter():
        racks = None
    if racks is None and snapshot.uniform:
        return balance_uniform(snapshot, owner)
    return balance_general(snapshot, owner, racks)
