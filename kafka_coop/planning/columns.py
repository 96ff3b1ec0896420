"""A plan as columns: per position who owns it, who is to own it, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kafka_coop.assignors.columns import NOBODY, Counts, Flags, Ints, loads
from kafka_coop.assignors.racks import racks_of
from kafka_coop.assignors.snapshot import Snapshot
from kafka_coop.planning.members import PlanMember
from kafka_coop.planning.reasons import ORDER, Circumstances, reasons
from kafka_coop.planning.values import PartitionPlan
from kafka_coop.types import Cluster, GroupAssignment, Partitions

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What a plan has to know of the one before, to tell what is new and who has left."""

    cluster: Cluster
    assignment: Mapping[str, Partitions]


class PlanColumns:
    """One plan. Positions and indices of members are those of `snapshot`.

    Attributes:
        snapshot: The group, with what each member claims by its own word.
        names: Per member its name, or its id where it has none.
        before: Per position its rightful owner, or `NOBODY`.
        after: Per position who is to own it, or `NOBODY`.
        moved: Whether an owner who is there has to give it up.
        withheld: Whether it is given to nobody in the first round.
        codes: The reason, as its index in `ORDER`.
    """

    def __init__(
        self,
        cluster: Cluster,
        members: Mapping[str, PlanMember],
        intended: GroupAssignment,
        withheld: Partitions,
        earlier: Earlier | None,
        *,
        names: Mapping[str, str],
    ) -> None:
        self._members = members
        self.snapshot = Snapshot(
            cluster,
            {
                m: replace(p.sent, owned=p.claim.owned, generation=p.claim.generation)
                for m, p in members.items()
            },
        )
        self.names = tuple(names.get(m, m) for m in self.snapshot.members)
        self.before: Ints = self.snapshot.owned.owner
        self.after = self.owners(intended)
        self.moved: Flags = (self.before != NOBODY) & (self.before != self.after)
        self.withheld: Flags = np.zeros(self.snapshot.size, np.bool_)
        self.withheld[self._positions(withheld)] = True
        self.codes = reasons(self.snapshot, self.after, self._circumstances(earlier))

    def owners(self, given: GroupAssignment) -> Ints:
        """Per position to whom an assignment gives it."""
        claims = self.snapshot.claims_of([given[m].partitions for m in self.snapshot.members])
        owner = np.full(self.snapshot.size, NOBODY, np.int32)
        owner[claims.position] = claims.member
        return owner

    def counts(self, owner: Ints) -> Counts:
        """Per member the number of positions that it owns."""
        return loads(owner, len(self._members))

    def takers(self) -> Flags:
        """Per member whether it subscribes to anything that exists."""
        among: Flags = self.snapshot.kind_sizes[self.snapshot.kinds] > 0
        return among

    def name(self, index: int) -> str | None:
        """The member's, of `names`; None for `NOBODY`."""
        return None if index == NOBODY else self.names[index]

    def named(self, which: Flags) -> tuple[PartitionPlan, ...]:
        """The partitions at the positions where the flags are set."""
        at = np.flatnonzero(which)
        columns = (
            self.snapshot.named(at),
            self.before[at].tolist(),
            self.after[at].tolist(),
            self.codes[at].tolist(),
            self.withheld[at].tolist(),
        )
        return tuple(
            PartitionPlan(
                topic=partition.topic,
                partition=partition.partition,
                source=self.name(before),
                destination=self.name(after),
                reason=ORDER[code],
                withheld=withheld,
            )
            for partition, before, after, code, withheld in zip(*columns, strict=True)
        )

    @cached_property
    def loads(self) -> tuple[Floats, Floats] | None:
        """Per member what it carries before and after; None where nobody says what it costs."""
        costs = self._costs()
        if costs is None:
            return None
        before, after = (
            np.bincount(owner[owner >= 0], costs[owner >= 0], len(self._members)).astype(np.float64)
            for owner in (self.before, self.after)
        )
        return before, after

    def _costs(self) -> Floats | None:
        """Per position what its owner says, else anybody; the mean where nobody does."""
        costs = np.full(self.snapshot.size, np.nan)
        for index, member in enumerate(self.snapshot.members):
            load = self._members[member].load
            at = self._positions(Partitions.of(load))
            said = np.array([load[p] for p in self.snapshot.named(at)], np.float64)
            heard = (self.before[at] == index) | np.isnan(costs[at])
            costs[at[heard]] = said[heard]
        known = ~np.isnan(costs)
        return np.where(known, costs, costs[known].mean()) if known.any() else None

    def _positions(self, partitions: Partitions) -> Counts:
        return self.snapshot.claims_of([partitions]).position

    def _circumstances(self, earlier: Earlier | None) -> Circumstances:
        everyone = [self._members[m] for m in self.snapshot.members]
        new = [not p.claim.owned and p.claim.generation < 0 for p in everyone]
        gone: Flags = np.zeros(self.snapshot.size, np.bool_)
        fresh: Flags = np.zeros(self.snapshot.size, np.bool_)
        if earlier is not None:
            new = [m not in earlier.assignment for m in self.snapshot.members]
            for member in earlier.assignment.keys() - self._members.keys():
                gone[self._positions(earlier.assignment[member])] = True
            was = [earlier.cluster.partitions.get(t, 0) for t in self.snapshot.topics]
            fresh = self.snapshot.number_of >= np.repeat(was, self.snapshot.counts)
        return Circumstances(
            draining=np.array([p.draining for p in everyone], np.bool_),
            new=np.array(new, np.bool_),
            gone=gone,
            fresh=fresh,
            loads=None if self.loads is None else self.loads[0],
            nearer=self._nearer(),
        )

    def _nearer(self) -> Flags:
        nearer: Flags = np.zeros(self.snapshot.size, np.bool_)
        racks = racks_of(self.snapshot)
        if racks is not None:
            at = np.flatnonzero(self.moved & (self.after != NOBODY))
            nearer[at] = racks.match(self.after[at], at) & ~racks.match(self.before[at], at)
        return nearer
