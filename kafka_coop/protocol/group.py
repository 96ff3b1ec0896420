"""A group's subscriptions as columns, and as the values that they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kafka_coop.protocol.partition_sets import Longs, PartitionSets
from kafka_coop.types import Generation, GroupSubscription, Partitions, Subscription

NO_TOPICS = 0
"""The number of the empty list in what was decoded."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claimed:
    """Who says they own what: one entry a partition, sorted by nothing in particular.

    Attributes:
        member: The claimant's index.
        topic: The topic's number among the group's names.
        partition: The partition; it need not exist.
    """

    member: Longs
    topic: Longs
    partition: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupColumns(Mapping[str, Subscription]):
    """A group's subscriptions, as columns; a member's own is made when it is asked for.

    Attributes:
        members: Ids, sorted: the same group gives the same columns.
        names: Topics by number: all that members subscribe to or own, existing or not.
        kinds: Per member the number of its list of topics.
        lists: The lists, as numbers of topics ascending by name, one list after the other. Some
            may be equal, and some nobody's.
        list_begins: Where each list begins, and one more entry.
        generations: Per member, -1 where it sent none.
        user_data, racks, instance_ids: Per member, as in `Subscription`.
        claimed: What members say they own.
        owned: The same, but for members that are in `owned_alone`.
        owned_alone: By index, where it had to be read alone.
    """

    members: tuple[str, ...]
    names: Sequence[str]
    kinds: npt.NDArray[np.int32]
    lists: Longs
    list_begins: Longs
    generations: Longs
    user_data: Sequence[bytes | None]
    racks: Sequence[str | None]
    instance_ids: Sequence[str | None]
    claimed: Claimed
    owned: PartitionSets
    owned_alone: Mapping[int, Partitions] = field(default_factory=dict)
    _values: dict[str, Subscription] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, group: GroupSubscription) -> GroupColumns:
        """Takes the columns of a group; costs nothing where it is one already."""
        if isinstance(group, GroupColumns):
            return group
        members = tuple(sorted(group))
        values = [group[m] for m in members]
        owned = PartitionSets.of([s.owned for s in values])
        names = list(owned.names)
        numbers = {n: i for i, n in enumerate(names)}
        kinds: dict[tuple[str, ...], int] = {}
        of_member = [kinds.setdefault(s.topics, len(kinds)) for s in values]
        lists = []
        for topics in kinds:
            for topic in topics:
                if topic not in numbers:
                    numbers[topic] = len(names)
                    names.append(topic)
            lists.append([numbers[t] for t in sorted(set(topics))])
        sizes = np.cumsum([0, *map(len, lists)])
        return cls(
            members=members,
            names=names,
            kinds=np.array(of_member, np.int32),
            lists=np.array([n for numbers in lists for n in numbers], np.int64),
            list_begins=sizes.astype(np.int64),
            generations=np.array([s.generation for s in values], np.int64),
            user_data=[s.user_data for s in values],
            racks=[s.rack for s in values],
            instance_ids=[s.instance_id for s in values],
            claimed=claimed(owned),
            owned=owned,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, member: str) -> Subscription:
        """The member's subscription. All are made when the first is asked for."""
        if not self._values:
            self._values.update(zip(self.members, self._subscriptions(), strict=True))
        return self._values[member]

    def wanted(self) -> Longs:
        """The numbers of the topics that some member subscribes to, existing or not."""
        return np.flatnonzero(self._wanted_by(self.kinds))

    def relieving(self, draining: npt.NDArray[np.bool_], *, joined: bool = False) -> GroupColumns:
        """The same group, but for members who drain and take nothing that another can take.

        What nobody else subscribes to stays theirs. A group of which all members are about to
        leave would else be left without owners, long before the first of them is gone.

        Args:
            draining: Per member, whether it does.
            joined: A member's topics are worth nothing one without the other: where another can
                take one of them, all go.
        """
        elsewhere = self._wanted_by(self.kinds[~draining])
        kinds, lists, begins = self.kinds.copy(), [self.lists], self.list_begins.tolist()
        for kind in set(self.kinds[draining].tolist()):
            topics = self.lists[begins[kind] : begins[kind + 1]]
            shared = elsewhere[topics]
            alone = topics[:0] if joined and shared.any() else topics[~shared]
            kinds[draining & (self.kinds == kind)] = len(begins) - 1
            lists.append(alone)
            begins.append(begins[-1] + alone.size)
        return replace(
            self,
            kinds=kinds,
            lists=np.concatenate(lists),
            list_begins=np.array(begins, np.int64),
        )

    def _wanted_by(self, kinds: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        held = np.zeros(self.list_begins.size - 1, np.bool_)
        held[kinds] = True
        wanted = np.zeros(len(self.names), np.bool_)
        wanted[self.lists[np.repeat(held, np.diff(self.list_begins))]] = True
        return wanted

    def _subscriptions(self) -> Iterator[Subscription]:
        begins = self.list_begins.tolist()
        topics = [
            tuple(self.names[n] for n in self.lists[a:b].tolist()) for a, b in pairwise(begins)
        ]
        owned = self.owned.values()
        for index, partitions in self.owned_alone.items():
            owned[index] = partitions
        for kind, mine, generation, user_data, rack, instance_id in zip(
            self.kinds.tolist(),
            owned,
            self.generations.tolist(),
            self.user_data,
            self.racks,
            self.instance_ids,
            strict=True,
        ):
            yield Subscription(
                topics=topics[kind],
                owned=mine,
                generation=Generation(generation),
                user_data=user_data,
                rack=rack,
                instance_id=instance_id,
            )


def claimed(sets: PartitionSets) -> Claimed:
    """Lists what members own, one set each."""
    member, topic = sets.flat()
    return Claimed(member=member, topic=topic, partition=sets.numbers)
