"""The constrained algorithm: everyone subscribes to the same topics.

The loads ⌊P/C⌋ and ⌈P/C⌉ are then both reachable and optimal, and the fewest moves follow from
counting: a member that owns more than its quota gives up the difference, and nobody else gives
up anything. Linear in partitions and members, but for sorting what those own who give up some.
"""

from __future__ import annotations

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Counts, Ints, loads
from kafka_coop.assignors.dealing import deal, surplus
from kafka_coop.assignors.snapshot import Snapshot


def balance_uniform(snapshot: Snapshot, owner: Ints) -> Ints:
    """Balances a group whose subscriptions are equal, moving as few partitions as possible.

    Args:
        snapshot: The group, `Snapshot.uniform`.
        owner: Per position its rightful owner, or `NOBODY`.

    Returns:
        Per position the member to own it. Counts differ by at most one among the members that
        subscribe to anything; partitions that change hands are the fewest for any such plan.
    """
    members = len(snapshot.members)
    takers = np.flatnonzero((snapshot.kind_sizes > 0)[snapshot.kinds])
    counts = loads(owner, members)
    quota = np.zeros(members, np.int64)
    if takers.size:
        quota[takers] = quotas(counts[takers], snapshot.size)
    if not counts.any():
        return deal(quota).astype(np.int32) if takers.size else owner.copy()
    planned = owner.copy()
    planned[surplus(owner, np.maximum(counts - quota, 0), snapshot.topic_of)] = NOBODY
    free = np.flatnonzero(planned == NOBODY)
    planned[free] = deal(np.maximum(quota - counts, 0))
    return planned


def quotas(counts: Counts, partitions: int) -> Counts:
    """Splits the partitions evenly; who owns most keeps the odd ones, then who comes first."""
    low, odd = divmod(partitions, counts.size)
    quota = np.full(counts.size, low, np.int64)
    keeps_more = np.argsort(counts <= low, kind="stable")
    quota[keeps_more[:odd]] += 1
    return quota
