"""What the next rebalance would move: `kafka_coop.plan`, run on what a look showed.

Nothing is guessed about strategies: everyone joins with the subscription that was seen, but for
what is owned, which is taken from the assignments of now; and under its id, for range and the like
go by the ids' order, and a strategy of somebody's own may hash them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_coop.assignors import resolve
from kafka_coop.cli.group import GroupLook, MemberLook
from kafka_coop.errors import AssignorFailedError, ConfigurationError
from kafka_coop.planning import GroupPlan, PartitionPlan, plan
from kafka_coop.printable import shown
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.protocol.user_data import Claim, encode_sticky
from kafka_coop.types import Assignor, Generation

_NOW = Generation(1)
"""Everyone's assignment is of the same generation: which one makes no difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the next round would do, if nobody came or went.

    Attributes:
        plan: Members are called by their names in the look.
        unknown: Why there is none; empty where there is.
    """

    plan: GroupPlan | None = None
    unknown: str = ""

    @property
    def changes(self) -> tuple[PartitionPlan, ...]:
        """What moves, and what gets an owner; in order."""
        if self.plan is None:
            return ()
        both = (*self.plan.moves, *self.plan.placed)
        return tuple(sorted(both, key=lambda p: (p.topic, p.partition)))


def forecast(look: GroupLook, assignor: Assignor | None = None) -> Forecast:
    """Plans the group's next round.

    Args:
        look: The group.
        assignor: For a strategy that is not built in.
    """
    missing = _why_not(look, assignor)
    if missing:
        return Forecast(unknown=missing)
    try:
        strategy = assignor or resolve(look.assignor)
    except ConfigurationError:
        return Forecast(
            unknown=f"strategy {look.assignor!r} is not built in: name its class with"
            " --assignor package.module:Class"
        )
    try:
        planned = plan(
            strategy,
            look.cluster,
            {m.id: _subscription(m, strategy.name) for m in look.members},
            instance_ids={m.id: m.instance_id for m in look.members},
            names={m.id: m.name for m in look.members},
        )
    except AssignorFailedError as error:
        return Forecast(unknown=str(error))
    return Forecast(plan=planned)


def _why_not(look: GroupLook, assignor: Assignor | None) -> str:
    if look.kind != "classic":
        return "the broker assigns in a group of type consumer"
    if not look.members:
        return "the group has no members"
    if not all(m.subscription is not None or m.problem for m in look.members):
        return look.untold or (
            f"the broker shows subscriptions of a stable group alone, and it is {look.state}"
        )
    if hidden := sorted({p.topic for p in look.owners}.intersection(look.unseen)):
        return f"members own partitions of {shown(hidden[0])}, and no broker shows that topic"
    if assignor is not None and assignor.name != look.assignor:
        return (
            f"the group's strategy is {look.assignor!r}, and the class that --assignor names is"
            f" {assignor.name!r}"
        )
    return ""


def _subscription(member: MemberLook, strategy: str) -> bytes:
    """What the member would join with now."""
    sent = member.subscription
    if sent is None:
        return b""  # as unreadable to the leader as it was to us
    user_data = member.raw_user_data
    if strategy == "sticky":  # eager: what was owned travels in the user data alone
        user_data = encode_sticky(Claim(owned=member.assigned, generation=_NOW))
    now = replace(sent, owned=member.assigned, generation=_NOW, user_data=user_data)
    return encode_subscription(now)
