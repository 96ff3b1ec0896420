"""The sticky family against oracles: the best balance, and of those plans the fewest moves."""

from __future__ import annotations

import pytest
from group_strategies import Group, next_round, seeded_group, small_groups
from hypothesis import given, settings
from optimum import best_by_flow, best_by_trying_all, score

from kafka_coop.assignors import ConstrainedCooperativeSticky, CooperativeSticky
from kafka_coop.types import Cluster


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
