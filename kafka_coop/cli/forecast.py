"""What the next rebalance would move: the leader's step, run on what a look showed.

Nothing is guessed about strategies: `kafka_coop.leader.lead` runs, with everyone's subscription
as it was sent but for what is owned, which is taken from the assignments of now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka_coop.assignors import resolve
from kafka_coop.cli.group import GroupLook, MemberLook
from kafka_coop.errors import ConfigurationError
from kafka_coop.leader import lead
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.protocol.user_data import Claim, encode_sticky
from kafka_coop.types import Assignor, Generation, RebalanceProtocol, TopicPartition

_NOW = Generation(1)
"""Everyone's assignment is of the same generation: which one makes no difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition and its owners' names, before and after; None: nobody."""

    partition: TopicPartition
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the next round would do, if nobody came or went.

    Attributes:
        moves: What changes hands, in order.
        counts: Partitions per member's name, afterwards.
        cooperative: Whether what stays keeps flowing.
        warnings: What the leader would log.
        unknown: Why there is no forecast; None: there is.
    """

    moves: tuple[Move, ...] = ()
    counts: Mapping[str, int] | None = None
    cooperative: bool = True
    warnings: tuple[str, ...] = ()
    unknown: str | None = None


def forecast(look: GroupLook, assignor: Assignor | None = None) -> Forecast:
    """Runs the leader's step on the group as it is.

    Args:
        look: The group.
        assignor: For a strategy that is not built in, or to try another one.
    """
    missing = _why_not(look)
    if missing is not None:
        return Forecast(unknown=missing)
    try:
        strategy = assignor or resolve(look.assignor)
    except ConfigurationError:
        return Forecast(
            unknown=f"strategy {look.assignor!r} is not built in: name its class with"
            " --assignor package.module:Class"
        )
    outcome = lead(
        strategy,
        look.cluster,
        {m.id: _subscription(m, strategy.name) for m in look.members},
        instance_ids={m.id: m.instance_id for m in look.members},
    )
    names = {m.id: m.name for m in look.members}
    after = {p: names[m] for m, a in outcome.intended.items() for p in a.partitions}
    before = {p: m.name for p, m in look.owners.items()}
    return Forecast(
        moves=tuple(
            Move(partition=p, before=before.get(p), after=after.get(p))
            for p in sorted(before.keys() | after.keys())
            if before.get(p) != after.get(p)
        ),
        counts={names[m]: len(a.partitions) for m, a in outcome.intended.items()},
        cooperative=RebalanceProtocol.COOPERATIVE in strategy.supported_protocols,
        warnings=outcome.warnings,
    )


def _why_not(look: GroupLook) -> str | None:
    if look.kind != "classic":
        return "the broker assigns in a group of type consumer"
    if not look.members:
        return "the group has no members"
    if not all(m.subscription is not None or m.problem for m in look.members):
        return f"the broker shows subscriptions of a stable group alone, and it is {look.state}"
    return None


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
