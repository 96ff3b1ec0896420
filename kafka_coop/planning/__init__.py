"""What-if without a broker: who would get what, what would move, and why.

    >>> from kafka_coop import plan
    >>> from kafka_coop.types import Partitions, Subscription
    >>> had = {"a": Partitions({"t": [0, 1]}), "b": Partitions({"t": [2, 3]})}
    >>> group = {m: Subscription(topics=("t",), owned=p) for m, p in had.items()}
    >>> now = plan("cooperative-sticky", {"t": 4}, group)
    >>> len(now.moves), now.join("c").balance_after
    (0, Balance(least=1, most=2, mean=1.3333333333333333))
    >>> [str(move) for move in now.join("c").moves]
    ['t-3 b -> c, withheld until it is revoked: the member is new']

The function is `kafka_coop.plan`; this package has another name, so that neither hides the other.
Pictures are in `kafka_coop.planning.picture`.
"""

from kafka_coop.planning.group_plan import GroupPlan, plan
from kafka_coop.planning.values import Balance, MemberPlan, PartitionPlan, Reason, Totals, Way

__all__ = [
    "Balance",
    "GroupPlan",
    "MemberPlan",
    "PartitionPlan",
    "Reason",
    "Totals",
    "Way",
    "plan",
]
