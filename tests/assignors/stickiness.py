"""One way to say "this member had that" to every strategy of the sticky family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kafka_coop.assignors import ConstrainedCooperativeSticky, CooperativeSticky, Sticky
from kafka_coop.protocol.user_data import Claim, encode_sticky
from kafka_coop.types import Generation, GroupAssignment, Partitions, Subscription

Strategy = type[Sticky | CooperativeSticky | ConstrainedCooperativeSticky]
FAMILY: list[Strategy] = [Sticky, CooperativeSticky]
COUNTING: list[Strategy] = [Sticky, CooperativeSticky, ConstrainedCooperativeSticky]


def parts(text: str) -> Partitions:
    """``"a0 a1 b2"`` -> those partitions."""
    return Partitions.of((word[0], int(word[1:])) for word in text.split())


def member(
    strategy: Strategy,
    topics: Iterable[str],
    had: Partitions | str = "",
    generation: int = 1,
    rack: str | None = None,
) -> Subscription:
    owned = parts(had) if isinstance(had, str) else had
    names = tuple(sorted(topics))
    if strategy is Sticky:
        claim = Claim(owned=owned, generation=Generation(generation))
        return Subscription(topics=names, user_data=encode_sticky(claim), rack=rack)
    return Subscription(topics=names, owned=owned, generation=Generation(generation), rack=rack)


def rejoin(
    strategy: Strategy,
    plan: GroupAssignment,
    topics: Mapping[str, Iterable[str]],
    generation: int = 1,
) -> dict[str, Subscription]:
    """These members, each with what the plan gave it if it was there."""
    nothing = Partitions()
    return {
        m: member(strategy, t, plan[m].partitions if m in plan else nothing, generation)
        for m, t in topics.items()
    }


def sizes(plan: GroupAssignment) -> dict[str, int]:
    return {m: len(a.partitions) for m, a in plan.items()}


def spread(plan: GroupAssignment, topic: str | None = None) -> int:
    """The difference between who has most and who has least, of one topic or of all."""
    counts = [
        len(a.partitions) if topic is None else a.partitions.get(topic).size for a in plan.values()
    ]
    return max(counts) - min(counts)


def moved(before: GroupAssignment, after: GroupAssignment) -> int:
    """How many partitions left a member that is still there."""
    return sum(len(before[m].partitions - after[m].partitions) for m in after if m in before)


def assigned(plan: GroupAssignment) -> Counter[tuple[str, int]]:
    return Counter((t, p) for a in plan.values() for t, p in a.partitions)
