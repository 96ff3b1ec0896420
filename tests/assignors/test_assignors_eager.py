"""``range`` and ``roundrobin``, next to plain transcriptions of what they are to do."""

from __future__ import annotations

from collections import defaultdict

import pytest
from group_strategies import Group, in_racks, seeded_group
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_coop.assignors import Range, RoundRobin
from kafka_coop.types import Cluster, GroupAssignment, Partitions, Subscription

Plain = dict[str, list[tuple[str, int]]]


def plain(plan: GroupAssignment) -> Plain:
    return {m: [(t, p) for t, p in a.partitions] for m, a in plan.items()}


def in_turn(group: Group) -> list[str]:
    """Static members by instance id, then the others by member id."""
    return sorted(group, key=lambda m: (group[m].instance_id is None, group[m].instance_id or m))


def round_robin_by_hand(cluster: Cluster, group: Group) -> Plain:
    got: Plain = {m: [] for m in group}
    turns = in_turn(group)
    at = 0
    for topic in sorted(cluster.partitions):
        for partition in range(cluster.partitions[topic]):
            if any(topic in s.topics for s in group.values()):
                while topic not in group[turns[at % len(turns)]].topics:
                    at += 1
                got[turns[at % len(turns)]].append((topic, partition))
                at += 1
    return got


def range_by_hand(cluster: Cluster, group: Group) -> Plain:
    got: Plain = {m: [] for m in group}
    for topic in sorted(cluster.partitions):
        takers = [m for m in in_turn(group) if topic in group[m].topics]
        left = list(range(cluster.partitions[topic]))
        for nth, member in enumerate(takers):
            share = len(left) // (len(takers) - nth) + (len(left) % (len(takers) - nth) > 0)
            got[member] += [(topic, p) for p in left[:share]]
            left = left[share:]
    return got


@st.composite
def groups(draw: st.DrawFn) -> tuple[Cluster, Group]:
    counts = draw(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), max_size=4))
    members = draw(
        st.lists(st.text("xyZä\U0001f600", min_size=1, max_size=3), max_size=5, unique=True)
    )
    return Cluster(partitions=counts), {
        m: Subscription(
            topics=tuple(sorted(draw(st.sets(st.sampled_from("abcde"))))),
            instance_id=draw(st.none() | st.just(f"i{i}")),
        )
        for i, m in enumerate(members)
    }


@given(groups())
@settings(max_examples=300, deadline=None)
def test_round_robin_deals_in_turn(world: tuple[Cluster, Group]) -> None:
    cluster, group = world
    assert plain(RoundRobin().assign(cluster, group)) == round_robin_by_hand(cluster, group)


@given(groups())
@settings(max_examples=300, deadline=None)
def test_range_cuts_each_topic(world: tuple[Cluster, Group]) -> None:
    cluster, group = world
    assert plain(Range().assign(cluster, group)) == range_by_hand(cluster, group)


def test_members_are_ordered_by_utf_16_as_java_orders_them() -> None:
    """U+1F600 is a surrogate pair: before U+FF01 in Java, after it by code point."""
    group = {"\uff01": Subscription(topics=("t",)), "\U0001f600": Subscription(topics=("t",))}
    plan = Range().assign(Cluster(partitions={"t": 1}), group)
    assert plan["\U0001f600"].partitions == Partitions({"t": [0]})


@pytest.mark.parametrize("chance", [0.6, 1.0])
@pytest.mark.parametrize("seed", range(40))
def test_range_in_racks_keeps_its_shares_and_what_is_cut_alike_together(
    seed: int, chance: float
) -> None:
    """KIP-881: racks decide who gets which partitions, never how many."""
    cluster, group = seeded_group(
        seed, topics=(1, 5), partitions=(1, 9), members=(1, 6), chance=chance
    )
    cluster, group = in_racks(seed, cluster, group)
    plan = Range().assign(cluster, group)
    without = Range().assign(Cluster(partitions=cluster.partitions), group)
    for topic, count in cluster.partitions.items():
        takers = [m for m in group if topic in group[m].topics]
        shares = sorted(plan[m].partitions.get(topic).size for m in takers)
        assert shares == sorted(without[m].partitions.get(topic).size for m in takers)
        assert sum(shares) == (count if takers else 0)


@pytest.mark.parametrize("seed", range(20))
def test_range_in_racks_of_one_topic_is_at_least_as_near(seed: int) -> None:
    cluster, group = seeded_group(
        seed, topics=(1, 1), partitions=(3, 12), members=(2, 6), chance=1.0
    )
    cluster, group = in_racks(seed, cluster, group)
    places = cluster.replica_racks
    assert places is not None

    def near(plan: GroupAssignment) -> int:
        return sum(group[m].rack in places[t][p] for m, a in plan.items() for t, p in a.partitions)

    without = Range().assign(Cluster(partitions=cluster.partitions), group)
    assert near(Range().assign(cluster, group)) >= near(without)


def test_co_partitioned_topics_in_different_racks_stay_together_rather_than_near() -> None:
    cluster = Cluster(
        partitions={"a": 2, "b": 2},
        replica_racks={"a": (("r0",), ("r1",)), "b": (("r1",), ("r0",))},
    )
    group = {m: Subscription(topics=("a", "b"), rack=r) for m, r in (("m", "r0"), ("n", "r1"))}
    numbers: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for m, a in Range().assign(cluster, group).items():
        numbers[m] |= {tuple(n.tolist()) for _, n in a.partitions.items()}
    assert numbers == {"m": {(0,)}, "n": {(1,)}}
