"""The groups that an assignor is tried on: small, and as odd as groups get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hypothesis import strategies as st

from kafka_coop.types import NO_GENERATION, Cluster, Generation, Partitions, Subscription

Shape: TypeAlias = Literal["any", "equal"]
Event: TypeAlias = Literal["join", "leave", "grow", "miss"]

_EVENTS: tuple[Event, ...] = ("join", "leave", "grow", "miss")
_NOWHERE = "nowhere"
_RACKS = ("r0", "r1")
_NOISE = st.one_of(st.none(), st.none(), st.binary(max_size=12))
_BEYOND = 9
"""A partition number that no topic here has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large and how odd the groups may be; see `check_assignor`."""

    subscriptions: Shape
    equal_partitions: bool
    racks: bool
    members: int
    topics: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One group, and what happens to it.

    Attributes:
        cluster, group: What `assign` is called with.
        noise: Member id -> bytes it sends as user data, whatever the strategy expects.
        events: What happens to the group after it has settled.
    """

    cluster: Cluster
    group: dict[str, Subscription]
    noise: dict[str, bytes]
    events: tuple[Event, ...]

    def lines(self) -> Iterator[str]:
        """The group as code, ready to be pasted into a test."""
        racks = self.cluster.replica_racks
        more = f", replica_racks={dict(racks)!r}" if racks else ""
        yield f"cluster = Cluster(partitions={dict(self.cluster.partitions)!r}{more})"
        yield "group = {"
        for member, subscription in self.group.items():
            yield f"    {member!r}: {_code(subscription)},"
        yield "}"
        if self.noise:
            yield f"user data of members that send something else: {self.noise!r}"
        if self.events:
            yield f"then: {', '.join(self.events)}"


def situations(limits: Limits) -> st.SearchStrategy[Situation]:
    """Draws groups; the simplest is one member, one topic, one partition."""

    @st.composite
    def one(draw: st.DrawFn) -> Situation:
        cluster = draw(_clusters(limits))
        topics = sorted(cluster.partitions)
        shared = draw(_subscriptions(topics)) if limits.subscriptions == "equal" else None
        member = _member(cluster, shared, racks=limits.racks)
        drawn = draw(st.lists(member, min_size=1, max_size=limits.members))
        group = {f"m{i}": subscription for i, (subscription, _) in enumerate(drawn)}
        noise = {f"m{i}": data for i, (_, data) in enumerate(drawn) if data is not None}
        events = draw(st.lists(st.sampled_from(_EVENTS), max_size=3))
        return Situation(cluster=cluster, group=group, noise=noise, events=tuple(events))

    return one()


@st.composite
def _clusters(draw: st.DrawFn, limits: Limits) -> Cluster:
    count = st.integers(1, limits.partitions)
    alike = draw(count)
    names = [f"t{i}" for i in range(draw(st.integers(1, limits.topics)))]
    counts = {t: alike if limits.equal_partitions else draw(count) for t in names}
    if not limits.racks:
        return Cluster(partitions=counts)
    place = st.lists(st.sampled_from(_RACKS), min_size=1, max_size=2, unique=True)
    racks = {t: tuple(tuple(sorted(draw(place))) for _ in range(n)) for t, n in counts.items()}
    return Cluster(partitions=counts, replica_racks=racks)


def _subscriptions(topics: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Everything first, for that is the simplest; also nothing, and what does not exist."""
    chosen = st.lists(st.sampled_from([*topics, _NOWHERE]), unique=True)
    return st.one_of(st.just(tuple(topics)), chosen.map(lambda names: tuple(sorted(names))))


@st.composite
def _member(
    draw: st.DrawFn, cluster: Cluster, shared: tuple[str, ...] | None, *, racks: bool
) -> tuple[Subscription, bytes | None]:
    """Claims overlap with those of others, are of any age, and may be on what does not exist."""
    there = [(t, p) for t, n in cluster.partitions.items() for p in range(n)]
    odd = [("t0", _BEYOND), (_NOWHERE, 0)]
    owned = draw(st.lists(st.sampled_from([*there, *odd]), max_size=6, unique=True))
    topics = draw(_subscriptions(sorted(cluster.partitions))) if shared is None else shared
    subscription = Subscription(
        topics=topics,
        owned=Partitions.of(owned),
        generation=Generation(draw(st.integers(0, 2))) if owned else NO_GENERATION,
        rack=draw(st.sampled_from((None, *_RACKS))) if racks else None,
    )
    return subscription, draw(_NOISE)


def _code(subscription: Subscription) -> str:
    """Without the fields that say nothing."""
    shown = {
        name: getattr(subscription, name)
        for name in ("topics", "owned", "generation", "user_data", "rack")
        if getattr(subscription, name) != getattr(_PLAIN, name)
    }
    return f"Subscription({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


_PLAIN = Subscription()
