"""Which members are near which partitions (KIP-881)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Counts, Flags, Ints
from kafka_coop.assignors.snapshot import Snapshot
from kafka_coop.types import distinct


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Racks:
    """Racks as columns. All of a partition's replicas count: a follower can be fetched from.

    Attributes:
        rack_of: Per member the index of its rack, or -1: it gave none, and is near everything.
        place_of: Per position the index of its set of racks.
        near: ``near[place, rack]``: whether the set holds the rack. The last column, for -1, is
            all true.
    """

    rack_of: Ints
    place_of: Ints
    near: Flags

    def match(self, members: Ints, positions: Counts) -> Flags:
        """Whether each member is near the partition beside it, or gave no rack."""
        matches: Flags = self.near[self.place_of[positions], self.rack_of[members]]
        return matches

    def discriminate(self, members: Ints, begin: int, end: int) -> bool:
        """Whether racks matter to these members for the partitions from begin to end.

        They do if some member's rack holds a replica, and not every partition is in every rack.
        That is the Java client's rule; see `matter` for whether a choice is left.
        """
        places = distinct(self.place_of[begin:end])
        held: Flags = self.near[places, :-1]
        anywhere: Flags = np.logical_or.reduce(held, axis=0)
        racks = self.rack_of[members]
        return bool(anywhere[racks[racks >= 0]].any() and not (held == anywhere).all())

    def matter(self) -> bool:
        """Whether of all that members could have, some is in their rack and some is not."""
        near = self.near[:, distinct(self.rack_of[self.rack_of >= 0])]
        return bool(near.any() and not near.all())


def racks_of(snapshot: Snapshot) -> Racks | None:
    """Takes the racks of a snapshot; None where members or brokers gave none."""
    replica_racks = snapshot.cluster.replica_racks
    given = snapshot.group.racks
    if not replica_racks or not any(given):
        return None
    places: dict[frozenset[str], int] = {}
    place_of = np.empty(snapshot.size, np.int32)
    for index, topic in enumerate(snapshot.topics):
        begin, end = snapshot.offsets[index : index + 2].tolist()
        lists = [*replica_racks.get(topic, ())[: end - begin]]
        lists += [()] * (end - begin - len(lists))
        place_of[begin:end] = [_number(places, racks) for racks in lists]
    names = {r: i for i, r in enumerate(sorted({r for r in given if r}.union(*places)))}
    near = np.zeros((len(places), len(names) + 1), np.bool_)
    near[:, NOBODY] = True
    for racks, place in places.items():
        near[place, [names[r] for r in racks]] = True
    rack_of = np.array([names[r] if r else NOBODY for r in given], np.int32)
    return Racks(rack_of=rack_of, place_of=place_of, near=near)


def _number(places: dict[frozenset[str], int], racks: Iterable[str]) -> int:
    return places.setdefault(frozenset(r for r in racks if r), len(places))
