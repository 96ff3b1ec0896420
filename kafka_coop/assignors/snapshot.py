"""The group as columns: topics and members as indices, partitions as positions in one array.

Every assignor works on this. A partition's position is its topic's offset plus its number, so
positions in ascending order are topics in name order and partitions in number order. Members
are in the order of their ids, whatever order they came in: the same group gives the same
snapshot, and so the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Counts, Flags, Ints, by_index, runs_of
from kafka_coop.protocol.group import Claimed, GroupColumns, claimed
from kafka_coop.protocol.partition_sets import PartitionSets
from kafka_coop.protocol.user_data import decode_claim
from kafka_coop.types import (
    NO_GENERATION,
    NO_PARTITIONS,
    Cluster,
    Generation,
    GroupSubscription,
    Partitions,
    Subscription,
    TopicPartition,
)

_MOST_CELLS = 1 << 24
"""Up to how many kinds times topics a table of all of them is made."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claims:
    """Who says they own what: columns of equal length, sorted by nothing in particular.

    Attributes:
        member: Index of the claimant.
        position: The claimed partition's position.
    """

    member: Counts
    position: Counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ownership:
    """The claims, judged. All columns are read-only.

    What has to be revoked first is told by comparing a plan with them: in one that had written its
    own owners into them nothing would, and what moves would be with two members at once.

    Attributes:
        claims: All claims on partitions that exist, beaten ones too: their claimants may still
            be consuming, so a claim that lost counts as a transfer (KIP-429).
        owner: Per position the member whose claim stands; where nobody claims it, whom the
            leader has recalled it from in the round before; else `NOBODY`.
        claimants: Per position the number of members that claim it.
    """

    claims: Claims
    owner: Ints
    claimants: Ints

    def __post_init__(self) -> None:
        """Locks the columns."""
        for column in (self.claims.member, self.claims.position, self.owner, self.claimants):
            column.setflags(write=False)


class Snapshot:
    """One rebalance's input, decoded and indexed once. Immutable after construction.

    Attributes:
        cluster, group: What it was taken of.
        members: Ids, sorted.
        topics: The topics that exist and that some member subscribes to, sorted.
        counts: Number of partitions per topic.
        offsets: Position of each topic's partition 0; one more entry holds the total.
        kinds: Per member the number of its list of topics.
        kind_topics: The lists, as indices of topics that exist, one list after the other.
        kind_begins: Where each list begins, and one more entry.
        owned: `Subscription.owned`, judged; and what was recalled in the round before.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: GroupSubscription,
        *,
        generations: Counts | None = None,
        recalled: Mapping[str, Partitions] | None = None,
    ) -> None:
        columns = GroupColumns.of(group)
        self.cluster = cluster
        self.group = columns
        self.members = columns.members
        self.kinds = columns.kinds
        counts = cluster.partitions
        existing = [n for n in columns.wanted().tolist() if counts.get(columns.names[n], 0) > 0]
        existing.sort(key=columns.names.__getitem__)
        self.topics = tuple(columns.names[n] for n in existing)
        self.counts: Counts = np.array([counts[t] for t in self.topics], np.int64)
        self.offsets: Counts = np.concatenate(([0], np.cumsum(self.counts)))
        # Names' numbers to topics' indices; -1: no such topic, or nobody wants it.
        index = np.full(len(columns.names), -1, np.int64)
        index[existing] = np.arange(len(existing))
        self.kind_topics, self.kind_begins = _existing(columns, index)
        claims = self._claims(columns.claimed, index)
        owned = self.judge(claims, columns.generations if generations is None else generations)
        self.owned = self._restored(owned, recalled) if recalled else owned

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
        number = np.arange(self.size, dtype=np.int32)
        number -= np.repeat(self.offsets[:-1].astype(np.int32), self.counts)
        return number

    @property
    def kind_sizes(self) -> Counts:
        """Per kind how many existing topics it has."""
        return np.diff(self.kind_begins)

    @property
    def uniform(self) -> bool:
        """Whether all members subscribe to the same existing topics, or to none that exist."""
        sizes = self.kind_sizes[self.kinds]
        return bool(((sizes == 0) | (sizes == len(self.topics))).all())

    def subscribers(self) -> tuple[Ints, Counts]:
        """Who subscribes to what, by topic.

        Returns:
            The subscribers' indices, ascending, topic after topic; and where each topic's begin,
            with one more entry.
        """
        member, at = runs_of(self.kind_begins, self.kinds)
        order, begins = by_index(self.kind_topics[at], len(self.topics))
        return member[order].astype(np.int32), begins

    def subscribed(self, members: Ints | Counts, positions: Counts) -> Flags:
        """Whether each member subscribes to the topic of the position beside it."""
        if self.uniform:
            subscribes: Flags = (self.kind_sizes > 0)[self.kinds][members]
            return subscribes
        width = len(self.topics)
        known = np.repeat(np.arange(self.kind_begins.size - 1), self.kind_sizes) * width
        known += self.kind_topics
        asked = self.kinds[members] * np.int64(width) + self.topic_of[positions]
        if self.kind_begins.size * width <= _MOST_CELLS:
            cells = np.zeros(self.kind_begins.size * width, np.bool_)
            cells[known] = True
            subscribes = cells[asked]
        else:
            at = np.minimum(np.searchsorted(known, asked), known.size - 1)
            subscribes = known[at] == asked
        return subscribes

    def claims_of(self, owned: Sequence[Partitions]) -> Claims:
        """Turns each member's partitions into columns, less those that do not exist."""
        sets = PartitionSets.of(owned)
        at = {t: i for i, t in enumerate(self.topics)}
        return self._claims(claimed(sets), np.array([at.get(t, -1) for t in sets.names], np.int64))

    def _claims(self, said: Claimed, index: Counts) -> Claims:
        topic = index[said.topic]
        limit = np.append(self.counts, 0)[topic]  # [-1]: a topic that is not there has none
        exists = (said.partition >= 0) & (said.partition < limit)
        if exists.all():
            return Claims(member=said.member, position=self.offsets[topic] + said.partition)
        topic, partition = topic[exists], said.partition[exists]
        return Claims(member=said.member[exists], position=self.offsets[topic] + partition)

    def named(self, positions: Counts) -> list[TopicPartition]:
        """Names the partitions at these positions, in this order."""
        topics, numbers = self.topic_of[positions].tolist(), self.number_of[positions].tolist()
        return [TopicPartition(self.topics[t], n) for t, n in zip(topics, numbers, strict=True)]

    def _restored(self, owned: Ownership, recalled: Mapping[str, Partitions]) -> Ownership:
        """What was recalled counts as its member's, unless somebody has come to claim it."""
        claims = self.claims_of([recalled.get(m, NO_PARTITIONS) for m in self.members])
        free = owned.claimants[claims.position] == 0
        free &= self.subscribed(claims.member, claims.position)
        owner = owned.owner.copy()
        owner[claims.position[free]] = claims.member[free]
        return replace(owned, owner=owner)

    def judge(self, claims: Claims, generations: Counts) -> Ownership:
        """Decides whose claims stand.

        The higher generation wins. Claims of equal generation on one partition beat each other:
        which of the two is stale can't be told (KAFKA-12984). Uncontested claims stand however
        old (KAFKA-13419). A claim on a topic its claimant no longer subscribes to never stands,
        but is kept as a claim, and it beats older ones: its claimant may still be consuming.
        """
        owner = np.full(self.size, NOBODY, np.int32)
        owner[claims.position] = claims.member
        if (owner[claims.position] == claims.member).all():
            claimants = (owner != NOBODY).astype(np.int32)
        else:
            claimants = np.bincount(claims.position, minlength=self.size).astype(np.int32)
            contested = claimants[claims.position] > 1
            member, position = claims.member[contested], claims.position[contested]
            rank = np.maximum(generations, NO_GENERATION)[member]
            best = np.full(self.size, np.iinfo(np.int64).min)
            np.maximum.at(best, position, rank)
            wins = rank == best[position]
            winners = np.bincount(position[wins], minlength=self.size)
            owner[position[wins]] = member[wins]
            owner[winners > 1] = NOBODY
        if claims.member.size and not (self.kind_sizes == len(self.topics)).all():
            held = np.flatnonzero(owner >= 0)
            owner[held[~self.subscribed(owner[held], held)]] = NOBODY
        return Ownership(claims=claims, owner=owner, claimants=claimants)


def _existing(columns: GroupColumns, index: Counts) -> tuple[Ints, Counts]:
    """Each list's topics by index, less those that do not exist; and where each begins."""
    topics = index[columns.lists]
    exists = topics >= 0
    begins = np.concatenate(([0], np.cumsum(exists)))[columns.list_begins]
    return topics[exists].astype(np.int32), begins


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


def claimed_generations(group: GroupColumns) -> Counts:
    """The generations that cooperative-sticky members' claims count under.

    That of the Subscription; where it has none (before KIP-792) its user data's, in whichever
    layout; -1 where that has none either, which is older than all others.
    """
    generations = group.generations.copy()
    known: dict[bytes, Generation] = {}
    for index in np.flatnonzero(generations < 0).tolist():
        data = group.user_data[index]
        if data is not None:
            if data not in known:
                claim = decode_claim(data)
                known[data] = NO_GENERATION if claim is None else claim.generation
            generations[index] = known[data]
    return generations
