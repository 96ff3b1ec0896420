"""The sticky family against oracles: the best balance, and of those plans the fewest moves."""

from __future__ import annotations

import pytest
from group_strategies import Group, in_racks, next_round, seeded_group, small_groups
from hypothesis import given, settings
from optimum import best_by_flow, best_by_trying_all, score

from kafka_coop.assignors import ConstrainedCooperativeSticky, CooperativeSticky, FairestSticky
from kafka_coop.types import Cluster, Subscription


@given(small_groups())
@settings(max_examples=400, deadline=None)
def test_no_plan_of_a_small_group_is_better(world: tuple[Cluster, Group]) -> None:
    cluster, group = world
    plan = CooperativeSticky().assign(cluster, group)
    assert score(cluster, group, plan) == best_by_trying_all(cluster, group)


@pytest.mark.parametrize("seed", range(150))
def test_small_groups_of_franz_gos_oracle_sizes(seed: int) -> None:
    cluster, group = seeded_group(seed, topics=(2, 3), partitions=(1, 3), members=(2, 4))
    plan = CooperativeSticky().assign(cluster, group)
    assert score(cluster, group, plan) == best_by_trying_all(cluster, group)


@pytest.mark.parametrize("chance", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(25))
def test_min_cost_flow_finds_nothing_better(seed: int, chance: float) -> None:
    cluster, group = seeded_group(
        seed, topics=(3, 12), partitions=(1, 20), members=(2, 12), chance=chance
    )
    plan = CooperativeSticky().assign(cluster, group)
    assert score(cluster, group, plan) == best_by_flow(cluster, group)


@pytest.mark.parametrize(
    ("topics", "partitions", "members"), [(20, 120, 40), (40, 60, 20), (60, 50, 30)]
)
@pytest.mark.parametrize("owned", [0.0, 0.5, 1.0])
def test_min_cost_flow_finds_nothing_better_at_franz_gos_sizes(
    topics: int, partitions: int, members: int, owned: float
) -> None:
    cluster, group = seeded_group(
        topics + members,
        topics=(topics, topics),
        partitions=(partitions, partitions),
        members=(members, members),
        owned=owned,
    )
    plan = CooperativeSticky().assign(cluster, group)
    assert score(cluster, group, plan) == best_by_flow(cluster, group)


@given(small_groups())
@settings(max_examples=200, deadline=None)
def test_equal_subscriptions_are_balanced_by_counting_just_as_well(
    world: tuple[Cluster, Group],
) -> None:
    cluster, group = world
    everything = tuple(sorted(cluster.partitions))
    equal = {
        m: type(s)(topics=everything, owned=s.owned, generation=s.generation)
        for m, s in group.items()
    }
    for assignor in (CooperativeSticky(), ConstrainedCooperativeSticky()):
        plan = assignor.assign(cluster, equal)
        assert score(cluster, equal, plan) == best_by_trying_all(cluster, equal)


@given(small_groups())
@settings(max_examples=200, deadline=None)
def test_no_change_in_means_no_change_out(world: tuple[Cluster, Group]) -> None:
    cluster, group = world
    plan = CooperativeSticky().assign(cluster, group)
    again = CooperativeSticky().assign(cluster, next_round(group, plan, 5))
    assert dict(again) == dict(plan)


@given(small_groups())
@settings(max_examples=200, deadline=None)
def test_the_order_of_members_does_not_matter(world: tuple[Cluster, Group]) -> None:
    cluster, group = world
    backwards = dict(reversed(group.items()))
    plans = [dict(CooperativeSticky().assign(cluster, g)) for g in (group, backwards)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("seed", range(60))
def test_fairest_sticky_is_as_fair_as_keeping_everything_allows(seed: int) -> None:
    cluster, group = seeded_group(
        seed, topics=(2, 8), partitions=(1, 15), members=(2, 9), owned=0.5
    )
    plan = FairestSticky().assign(cluster, group)
    loads, moves = score(cluster, group, plan)
    assert moves == 0
    assert (loads, 0) == best_by_flow(cluster, group, keep=True)


@pytest.mark.parametrize("owned", [0.0, 0.9])
@pytest.mark.parametrize("chance", [0.5, 1.0])
@pytest.mark.parametrize("seed", range(25))
def test_balance_then_racks_then_moves(seed: int, chance: float, owned: float) -> None:
    cluster, group = seeded_group(
        seed, topics=(1, 6), partitions=(1, 12), members=(2, 8), chance=chance, owned=owned
    )
    cluster, group = in_racks(seed, cluster, group)
    places = cluster.replica_racks
    assert places is not None

    holding = {t: places[t] for s in group.values() for t in s.topics}
    sets = {frozenset(racks) for lists in holding.values() for racks in lists}
    everywhere = frozenset().union(*sets)
    telling = any(s.rack in everywhere for s in group.values())

    def far(member: str, topic: str, partition: int) -> bool:
        rack = group[member].rack
        return telling and rack is not None and rack not in places[topic][partition]

    plan = CooperativeSticky().assign(cluster, group)
    loads, moves = score(cluster, group, plan)
    misplaced = sum(far(m, t, p) for m, a in plan.items() for t, p in a.partitions)
    total = sum(loads)
    best_loads, best_cost = best_by_flow(cluster, group, far=far)
    assert loads == best_loads
    assert (misplaced, moves) == divmod(best_cost, total + 1)


def test_a_member_away_from_all_replicas_does_not_get_the_odd_partition() -> None:
    """All partitions are in the same racks, and still it makes a difference who gets more."""
    cluster = Cluster(partitions={"t": 3}, replica_racks={"t": (("r1", "r2"),) * 3})
    group = {m: Subscription(topics=("t",), rack=rack) for m, rack in (("a", "r3"), ("b", "r1"))}
    plan = CooperativeSticky().assign(cluster, group)
    assert [len(plan[m].partitions) for m in ("a", "b")] == [1, 2]
