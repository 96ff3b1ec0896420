"""The group as columns: topics and members as indices, partitions as positions in one array.

Every assignor works on this. A partition's position is its topic's offset plus its number, so
positions in ascending order are topics in name order and partitions in number order. Members
are in the order of their ids, whatever order they came in: the same group gives the same
snapshot, and so the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Counts, Flags, Ints, by_index
from kafka_coop.protocol.user_data import decode_claim
from kafka_coop.types import (
    NO_GENERATION,
    Cluster,
    Generation,
    GroupSubscription,
    Partitions,
    Subscription,
    TopicPartition,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claims:
    """Who says they own what: columns of equal length, sorted by nothing in particular.

    Attributes:
        member: Index of the claimant.
        position: The claimed partition's position.
    """

    member: Ints
    position: Counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ownership:
    """The claims, judged.

    Attributes:
        claims: All claims on partitions that exist, beaten ones too: their claimants may still
            be consuming, so a claim that lost counts as a transfer (KIP-429).
        owner: Per position the member whose claim stands, or `NOBODY`.
        claimants: Per position the number of members that claim it.
    """

    claims: Claims
    owner: Ints
    claimants: Ints


class Snapshot:
    """One rebalance's input, decoded and indexed once. Immutable after construction.

    Attributes:
        cluster, group: What it was taken of.
        members: Ids, sorted.
        topics: The topics that exist and that some member subscribes to, sorted.
        counts: Number of partitions per topic.
        offsets: Position of each topic's partition 0; one more entry holds the total.
        kinds: Per member the index of its subscription in ``kind_topics``.
        kind_topics: The distinct subscriptions, as sorted topic indices.
        owned: `Subscription.owned`, judged.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: GroupSubscription,
        *,
        generations: Mapping[str, int] | None = None,
    ) -> None:
        self.cluster = cluster
        self.group = group
        self.members = tuple(sorted(group))
        subscriptions = [group[m] for m in self.members]
        kinds, kind_names = _kinds_of(subscriptions)
        self.topics = tuple(
            sorted(t for t in set().union(*kind_names) if cluster.partitions.get(t, 0) > 0)
        )
        self._index = {t: i for i, t in enumerate(self.topics)}
        self.counts: Counts = np.array([cluster.partitions[t] for t in self.topics], np.int64)
        self.offsets: Counts = np.concatenate(([0], np.cumsum(self.counts)))
        self.kinds = kinds
        self.kind_topics = tuple(self._indices_of(names) for names in kind_names)
        ages = [s.generation for s in subscriptions]
        if generations is not None:
            ages = [Generation(generations[m]) for m in self.members]
        claims = self.claims_of([s.owned for s in subscriptions])
        self.owned = self.judge(claims, np.maximum(np.array(ages, np.int64), NO_GENERATION))

    @property
    def size(self) -> int:
        """The number of partitions."""
        return int(self.offsets[-1])

    @cached_property
    def topic_of(self) -> Ints:
        """The topic's index per position."""
        return np.repeat(np.arange(len(self.topics), dtype=np.int32), self.counts)

    @cached_property
    def number_of(self) -> Ints:
        """The partition's number within its topic per position."""
        number = np.arange(self.size, dtype=np.int64) - np.repeat(self.offsets[:-1], self.counts)
        return number.astype(np.int32)

    @property
    def uniform(self) -> bool:
        """Whether all members subscribe to the same existing topics, or to none that exist."""
        return all(k.size in {0, len(self.topics)} for k in self.kind_topics)

    def subscribers(self) -> tuple[Ints, Counts]:
        """Who subscribes to what, by topic.

        Returns:
            The subscribers' indices, ascending, topic after topic; and where each topic's begin,
            with one more entry.
        """
        wanted = np.concatenate(
            [np.empty(0, np.int32), *map(self.kind_topics.__getitem__, self.kinds)]
        )
        sizes = np.array([k.size for k in self.kind_topics], np.int64)[self.kinds]
        member = np.repeat(np.arange(len(self.members), dtype=np.int32), sizes)
        order, begins = by_index(wanted, len(self.topics))
        return member[order], begins

    def subscribed(self, members: Ints, positions: Counts) -> Flags:
        """Whether each member subscribes to the topic of the position beside it."""
        if len(self.kind_topics) == 1:
            return np.ones(members.size, np.bool_)
        width = np.int64(len(self.topics) or 1)
        known = np.concatenate(
            [np.empty(0, np.int64), *(k + i * width for i, k in enumerate(self.kind_topics))]
        )
        asked = self.kinds[members] * width + self.topic_of[positions]
        at = np.minimum(np.searchsorted(known, asked), max(known.size - 1, 0))
        return known[at] == asked if known.size else np.zeros(members.size, np.bool_)

    def claims_of(self, owned: Sequence[Partitions]) -> Claims:
        """Turns each member's partitions into columns, less those that do not exist."""
        columns = [partitions.columns() for partitions in owned]
        if not columns:
            return Claims(member=np.empty(0, np.int32), position=np.empty(0, np.int64))
        # Members with the same topics share the tuple (the decoder sees to it), so the names
        # are looked up once a tuple. The values keep the tuples alive, so ids are not reused.
        tables: dict[int, tuple[tuple[str, ...], Ints]] = {}
        for topics, _, _ in columns:
            if id(topics) not in tables:
                found = [self._index.get(t, -1) for t in topics]
                tables[id(topics)] = topics, np.array(found, np.int32)
        topic = np.concatenate([tables[id(c.topics)][1] for c in columns])
        topic = np.repeat(topic, np.concatenate([c.counts for c in columns]))
        number = np.concatenate([c.indices for c in columns])
        sizes = [c.indices.size for c in columns]
        member = np.repeat(np.arange(len(columns), dtype=np.int32), sizes)
        limit = np.append(self.counts, 0)  # a topic that is not there has no partitions: [-1]
        exists = (number >= 0) & (number < limit[topic])
        if not exists.all():
            topic, number, member = topic[exists], number[exists], member[exists]
        return Claims(member=member, position=self.offsets[topic] + number)

    def named(self, positions: Counts) -> list[TopicPartition]:
        """Names the partitions at these positions, in this order."""
        topics, numbers = self.topic_of[positions].tolist(), self.number_of[positions].tolist()
        return [TopicPartition(self.topics[t], n) for t, n in zip(topics, numbers, strict=True)]

    def judge(self, claims: Claims, generations: Counts) -> Ownership:
        """Decides whose claims stand.

        The higher generation wins. Claims of equal generation on one partition beat each other:
        which of the two is stale can't be told (KAFKA-12984). Uncontested claims stand however
        old (KAFKA-13419). A claim on a topic its claimant no longer subscribes to never stands,
        but is kept as a claim, and it beats older ones: its claimant may still be consuming.
        """
        owner = np.full(self.size, NOBODY, np.int32)
        claimants = np.bincount(claims.position, minlength=self.size).astype(np.int32)
        owner[claims.position] = claims.member
        contested = claimants[claims.position] > 1
        if contested.any():
            member, position = claims.member[contested], claims.position[contested]
            rank = generations[member]
            best = np.full(self.size, np.iinfo(np.int64).min)
            np.maximum.at(best, position, rank)
            wins = rank == best[position]
            winners = np.bincount(position[wins], minlength=self.size)
            owner[position[wins]] = member[wins]
            owner[winners > 1] = NOBODY
        held = np.flatnonzero(owner >= 0)
        owner[held[~self.subscribed(owner[held], held)]] = NOBODY
        return Ownership(claims=claims, owner=owner, claimants=claimants)

    def _indices_of(self, topics: tuple[str, ...]) -> Ints:
        try:
            found = np.array(list(map(self._index.__getitem__, topics)), np.int32)
        except KeyError:  # some do not exist: look up twice as slowly
            found = np.array([self._index.get(t, -1) for t in topics], np.int32)
        if not (found[1:] > found[:-1]).all() or (found[:1] < 0).any():
            found = np.unique(found[found >= 0])
        return found


def _kinds_of(subscriptions: list[Subscription]) -> tuple[Ints, list[tuple[str, ...]]]:
    """Numbers the distinct subscriptions; members decoded from equal bytes share a tuple."""
    by_identity: dict[int, int] = {}
    by_value: dict[tuple[str, ...], int] = {}
    kinds: list[int] = []
    for subscription in subscriptions:
        topics = subscription.topics
        kind = by_identity.get(id(topics))
        if kind is None:
            kind = by_identity[id(topics)] = by_value.setdefault(topics, len(by_value))
        kinds.append(kind)
    return np.array(kinds, np.int32), list(by_value)


class SnapshotGroup(Mapping[str, Subscription]):
    """A group that brings its snapshot along, so that an assignor need not take it again.

    Attributes:
        snapshot: Of this group.
        loads: What members say their partitions cost, where they say so.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        loads: Mapping[str, Mapping[TopicPartition, float]] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.loads = loads or {}

    def __getitem__(self, member: str) -> Subscription:
        return self.snapshot.group[member]

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot.members)

    def __len__(self) -> int:
        return len(self.snapshot.members)


def snapshot_of(cluster: Cluster, group: GroupSubscription) -> Snapshot:
    """Returns the group's own snapshot where it brings one of this cluster, else takes one."""
    if isinstance(group, SnapshotGroup) and group.snapshot.cluster is cluster:
        return group.snapshot
    return Snapshot(cluster, group)


def claimed_generation(subscription: Subscription) -> int:
    """The generation a cooperative-sticky member's claims count under.

    That of its Subscription; where it has none (before KIP-792) its user data's, in whichever
    layout; -1 where that has none either, which is older than all others.
    """
    if subscription.generation >= 0:
        return subscription.generation
    claim = decode_claim(subscription.user_data)
    return NO_GENERATION if claim is None else claim.generation
