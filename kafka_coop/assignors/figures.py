"""What a leader's plan costs, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Ints, loads
from kafka_coop.assignors.snapshot import Snapshot
from kafka_coop.assignors.withholding import Granted


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigures:
    """One round's plan, as its leader sees it. All count partitions.

    Attributes:
        partitions: That some member subscribes to.
        moved: That their rightful owner has to give up.
        fewest: That any plan with these loads has to take away from rightful owners.
        withheld: That nobody owns until the follow-up round (KIP-429).
        recalled: Of these, what is for nobody else: see `kafka_coop.assignors.withholding`.
        unassigned: That the strategy gives to nobody.
    """

    partitions: int = 0
    moved: int = 0
    fewest: int = 0
    withheld: int = 0
    recalled: int = 0
    unassigned: int = 0


NO_FIGURES = PlanFigures()


def figures(snapshot: Snapshot, planned: Ints, granted: Granted) -> PlanFigures:
    """Counts what a plan does. Costs O(partitions) without Python in between.

    ``fewest`` is a bound that every plan keeps to whose members, in any order, end up with as
    many partitions as this one's: whoever has more than its share has to give up the rest, and
    the least is given up where the fullest keep the largest shares. Subscriptions and racks may
    make it out of reach.
    """
    judged = snapshot.owned
    owner = np.where(judged.claimants > 0, judged.owner, NOBODY)  # what was recalled nobody has
    members = len(snapshot.members)
    owned = owner != NOBODY
    fewest = 0
    if owned.any():
        had, gets = np.sort(loads(owner, members)), np.sort(loads(planned, members))
        fewest = int(np.maximum(had - gets, 0).sum())
    return PlanFigures(
        partitions=snapshot.size,
        moved=int(np.count_nonzero(owned & (owner != planned))),
        fewest=fewest,
        withheld=int(np.count_nonzero(granted.waits)),
        recalled=granted.recalled.size,
        unassigned=int(np.count_nonzero(planned == NOBODY)),
    )
