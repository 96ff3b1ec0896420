"""A plan of which something waits for its old owner, and the next round that is to end it.

A strategy that goes by measurements would plan anew there by newer ones, and place what lies free
between the rounds by itself: what has been given up for one member would come to another, or go
back, and the round after that would have to move it once more.
"""

from __future__ import annotations

import numpy as np

from kafka_coop.assignors.columns import NOBODY
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import Snapshot


class Underway:
    """What the plan before left to be done. Of one leader, whose next plans are in its rounds.

    A leader elected in between knows nothing of it and plans anew: that costs a round more, and
    nothing else.
    """

    def __init__(self) -> None:
        self._plan: Plan | None = None

    def begins(self, plan: Plan) -> None:
        """Notes a plan that goes out, where its members have to give something up first."""
        owned = plan.snapshot.owned
        waits = (owned.claimants > 0) & (plan.owner != owned.owner)
        self._plan = plan if waits.any() else None

    def rest_of(self, snapshot: Snapshot) -> Plan | None:
        """The plan before, for the group as it is now; None where there is nothing to go on with.

        Nor where anything came between: a member, a topic, a subscription, a partition that is
        whose it was not to be. Who is late to give up, and claims it still, is none of that.
        """
        plan = self._plan
        if plan is None or not _follows(plan.snapshot, snapshot):
            return None
        now, before = snapshot.owned.owner, plan.snapshot.owned.owner
        expected = (now == plan.owner) | (now == before) | (now == NOBODY)
        return Plan(snapshot, plan.owner.copy()) if expected.all() else None


def _follows(one: Snapshot, other: Snapshot) -> bool:
    """Whether the other is of a later round, and differs in nothing but owners."""
    if other.group.generations.max(initial=0) <= one.group.generations.max(initial=0):
        return False
    if one.members != other.members or one.topics != other.topics:
        return False
    columns = ((s.counts, *s.subscribers()) for s in (one, other))
    return all(np.array_equal(a, b) for a, b in zip(*columns, strict=True))
