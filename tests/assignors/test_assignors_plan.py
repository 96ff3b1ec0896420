"""Plans as columns: what a plan says of its owners, however large the group."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import Snapshot
from kafka_coop.protocol.assignment import decode_assignment, encode_assignments
from kafka_coop.types import Cluster, Partitions, Subscription


def dealt(members: int, partitions: dict[str, int], *, seed: int = 1) -> Plan:
    """A plan that gives every partition to somebody, or to nobody, by chance."""
    everything = Subscription(topics=tuple(sorted(partitions)))
    snapshot = Snapshot(
        Cluster(partitions=partitions), {f"m{i:05d}": everything for i in range(members)}
    )
    chance = random.Random(seed)
    owner = np.array([chance.randrange(-1, members) for _ in range(snapshot.size)], np.int32)
    owner[0], owner[-1] = members - 1, members - 1  # the largest of all keys
    return Plan(snapshot, owner)


def by_hand(plan: Plan) -> list[Partitions]:
    given: list[list[tuple[str, int]]] = [[] for _ in plan.snapshot.members]
    names = plan.snapshot.named(np.arange(plan.snapshot.size))
    for member, (topic, number) in zip(plan.owner.tolist(), names, strict=True):
        if member >= 0:
            given[member].append((topic, number))
    return [Partitions.of(p) for p in given]


@pytest.mark.parametrize(
    ("members", "largest", "bits"),
    [(2047, 1023, 31), (2048, 1023, 32), (2047, 1024, 32), (2049, 4096, 35)],
)
def test_plans_are_told_at_and_beyond_31_bits(members: int, largest: int, bits: int) -> None:
    """Member, topic and number are one number: where it no longer fits an int32, too."""
    partitions = {f"t{i:04d}": 1 for i in range(1023)} | {"t1022": largest}
    assert sum(map(int.bit_length, (members, len(partitions), largest))) == bits
    plan = dealt(members, partitions)
    assert list(plan.partitions.values()) == by_hand(plan)


@pytest.mark.parametrize("partitions", [{"a": 6}, {"a": 1, "b": 1}, {"aa": 40, "bb": 1, "c": 3}])
@pytest.mark.parametrize("members", [1, 2, 40])
def test_plans_of_few_partitions_and_of_many(members: int, partitions: dict[str, int]) -> None:
    """Runs of one partition each and longer ones, names of one length and of several."""
    plan = dealt(members, partitions)
    expected = by_hand(plan)
    assert list(plan.partitions.values()) == expected
    written = encode_assignments(plan.sets(), [b""] * members)
    assert [decode_assignment(data).partitions for data in written] == expected
