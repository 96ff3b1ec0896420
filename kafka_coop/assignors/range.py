"""``range``: each topic cut into runs, as the Java client cuts it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Counts, Flags, Ints
from kafka_coop.assignors.memory import Forgetful
from kafka_coop.assignors.order import seating
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.racks import Racks, racks_of
from kafka_coop.assignors.snapshot import Snapshot, snapshot_of
from kafka_coop.types import Cluster, GroupSubscription, RebalanceProtocol


class Range(Forgetful):
    """Per topic, consecutive partitions to its subscribers, the first ones getting one more.

    Topics with equally many partitions and the same subscribers are cut alike, so a member gets
    the same partition numbers of each: what joins of two topics need. With racks (KIP-881),
    each topic first goes to members near it, topics that are cut alike going together, as far
    as everyone's share allows; the rest is cut as ever. Not sticky: eager only.
    """

    name = "range"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
        """Cuts each topic by itself, or with those that are cut alike."""
        snapshot = snapshot_of(cluster, group)
        owner = np.full(snapshot.size, NOBODY, np.int32)
        racks = racks_of(snapshot)
        topics = list(_topics(snapshot, owner))
        if racks is not None and any(_rack_aware(t, racks) for t in topics):
            _match_racks(topics, racks)
        for topic in topics:
            topic.cut()
        return Plan(snapshot, owner)


class _Topic:
    """One topic being cut.

    Attributes:
        begin: Position of partition 0.
        members: Subscribers, in the order of `seating`.
        owner: The topic's part of the plan, a view.
        taken: Per subscriber what it has so far.
        each, extra: Everyone's share, and how many may still have one more.
    """

    def __init__(self, begin: int, members: Ints, owner: Ints) -> None:
        self.begin = begin
        self.members = members
        self.owner = owner
        self.taken = np.zeros(members.size, np.int64)
        self.each, self.extra = divmod(owner.size, members.size)

    def room(self, nth: int) -> int:
        return max(self.each + (self.extra > 0) - int(self.taken[nth]), 0)

    def take(self, nth: int, partitions: Counts) -> None:
        self.owner[partitions] = self.members[nth]
        self.taken[nth] += partitions.size
        self.extra -= bool(self.taken[nth] > self.each)

    def cut(self) -> None:
        """Everyone in turn takes the first free partitions, up to its share."""
        if not self.taken.any():
            shares = self.each + (np.arange(self.members.size) < self.extra)
            self.owner[:] = np.repeat(self.members, shares)
            return
        left = np.flatnonzero(self.owner == NOBODY)
        for nth in range(self.members.size):
            room = self.room(nth) if left.size else 0
            if room:
                self.take(nth, left[:room])
                left = left[room:]


def _topics(snapshot: Snapshot, owner: Ints) -> Iterator[_Topic]:
    seats, seat_of = seating(snapshot)
    everyone, begins = snapshot.subscribers()
    for (a, b), (c, d) in zip(
        pairwise(snapshot.offsets.tolist()), pairwise(begins.tolist()), strict=True
    ):
        yield _Topic(a, seats[np.sort(seat_of[everyone[c:d]])], owner[a:b])


def _rack_aware(topic: _Topic, racks: Racks) -> bool:
    return racks.discriminate(topic.members, topic.begin, topic.begin + topic.owner.size)


def _match_racks(topics: list[_Topic], racks: Racks) -> None:
    """Gives out what can stay in its rack, topics that are cut alike together."""

    def alike(topic: _Topic) -> tuple[bytes, int]:
        return topic.members.tobytes(), topic.owner.size

    for _, group in groupby(sorted(topics, key=alike), key=alike):
        together = list(group)
        if len(together) > 1:
            _match_together(together, racks)
        elif _rack_aware(together[0], racks):
            _match_alone(together[0], racks)


def _match_alone(topic: _Topic, racks: Racks) -> None:
    positions = topic.begin + np.arange(topic.owner.size)
    for nth, member in enumerate(topic.members):
        near = racks.match(np.full(positions.size, member, np.int32), positions)
        free = np.flatnonzero(near & (topic.owner == NOBODY))[: topic.room(nth)]
        if free.size:
            topic.take(nth, free)


def _match_together(topics: list[_Topic], racks: Racks) -> None:
    """Partition by partition, to the first member with room that is near it in every topic.

    All topics are at the same stage all the time, so the first one's room is everyone's. A
    member once full stays full, so each rack's first member with room only ever moves on.
    """
    first = topics[0]
    places = np.stack([racks.place_of[t.begin : t.begin + t.owner.size] for t in topics])
    near: Flags = np.all(racks.near[places], axis=0)
    rack_of = racks.rack_of[first.members]
    waiting = {r: np.flatnonzero(rack_of == r).tolist()[::-1] for r in set(rack_of.tolist())}
    for partition in range(first.owner.size):
        candidates = []
        for rack, queue in waiting.items():
            while queue and not first.room(queue[-1]):
                queue.pop()
            if queue and near[partition, rack]:
                candidates.append(queue[-1])
        if candidates:
            for topic in topics:
                topic.take(min(candidates), np.array([partition]))
