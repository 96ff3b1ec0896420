"""Oracles: what the best plan is, found in ways that share nothing with the assignors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
from ortools.graph.python import min_cost_flow  # type: ignore[import-untyped]  # has no stubs

from kafka_coop.types import Cluster, GroupAssignment, Subscription

Owners = dict[tuple[str, int], str]
Score = tuple[tuple[int, ...], int]
"""Loads, largest first; then partitions that left their owner."""


def rightful_owners(cluster: Cluster, group: Mapping[str, Subscription]) -> Owners:
    """Whose claims stand, read off the rules one partition at a time."""
    owners: Owners = {}
    for topic, count in cluster.partitions.items():
        for partition in range(count):
            claims = [(s.generation, m) for m, s in group.items() if (topic, partition) in s.owned]
            best = max((g for g, _ in claims), default=None)
            winners = [m for g, m in claims if g == best]
            if len(winners) == 1 and topic in group[winners[0]].topics:
                owners[topic, partition] = winners[0]
    return owners


def eligible(
    cluster: Cluster, group: Mapping[str, Subscription]
) -> dict[tuple[str, int], list[str]]:
    members = {t: sorted(m for m, s in group.items() if t in s.topics) for t in cluster.partitions}
    return {
        (t, p): members[t] for t, n in cluster.partitions.items() if members[t] for p in range(n)
    }


def score(cluster: Cluster, group: Mapping[str, Subscription], plan: GroupAssignment) -> Score:
    """What a plan is worth; also checks that it is one."""
    got: Owners = {}
    for member in group:
        for topic, partition in plan[member].partitions:
            assert (topic, partition) not in got, "assigned twice"
            got[topic, partition] = member
            assert topic in group[member].topics
    assert got.keys() == eligible(cluster, group).keys()
    moves = sum(got[at] != owner for at, owner in rightful_owners(cluster, group).items())
    loads = Counter(got.values())
    return tuple(sorted((loads[m] for m in group), reverse=True)), moves


def best_by_trying_all(cluster: Cluster, group: Mapping[str, Subscription]) -> Score:
    """Every plan there is. Exponential."""
    may = eligible(cluster, group)
    owners = rightful_owners(cluster, group)
    members = sorted(group)
    at = {m: i for i, m in enumerate(members)}
    best: Score | None = None
    for plan in product(*[[at[m] for m in who] for who in may.values()]):
        loads = [0] * len(members)
        for m in plan:
            loads[m] += 1
        vector = tuple(sorted(loads, reverse=True))
        if best is not None and vector > best[0]:
            continue
        moves = sum(p in owners and members[m] != owners[p] for p, m in zip(may, plan, strict=True))
        if best is None or (vector, moves) < best:
            best = (vector, moves)
    assert best is not None
    return best


def best_by_flow(
    cluster: Cluster,
    group: Mapping[str, Subscription],
    *,
    keep: bool = False,
    far: Callable[[str, str, int], bool] = lambda *_: False,
) -> tuple[tuple[int, ...], int]:
    """Min-cost flow partition by partition: the k-th place of a member costs (2k - 1) · weight.

    The sum of squares that this minimises has its optimum at the lexicographically best load
    vector, for semi-matchings; the weight puts one unit of balance before all moves.

    Args:
        cluster, group: The problem.
        keep: Owners may not lose anything.
        far: Whether a member is in another rack than a topic's partition: that costs more than
            all moves together, and less than one unit of balance.

    Returns:
        The loads, and the cost besides: moves + (partitions + 1) · partitions that are far.
    """
    may, owners = eligible(cluster, group), rightful_owners(cluster, group)
    if keep:
        may |= {p: [m] for p, m in owners.items()}
    members = sorted(group)
    index = {m: i for i, m in enumerate(members)}
    weight = (len(may) + 1) * (len(may) + 2)
    source, sink, first = len(members), len(members) + 1, len(members) + 2
    reach = Counter(m for who in may.values() for m in who)
    tails, heads, costs = [], [], []
    for node, (partition, who) in enumerate(may.items(), first):
        tails.append(source)
        heads.append(node)
        costs.append(0)
        for member in who:
            tails.append(node)
            heads.append(index[member])
            costs.append(
                int(owners.get(partition, member) != member)
                + (len(may) + 1) * far(member, *partition)
            )
    for member, most in reach.items():
        for k in range(most):
            tails.append(index[member])
            heads.append(sink)
            costs.append((2 * k + 1) * weight)
    network = min_cost_flow.SimpleMinCostFlow()
    arcs = network.add_arcs_with_capacity_and_unit_cost(
        np.array(tails), np.array(heads), np.ones(len(tails), np.int64), np.array(costs)
    )
    network.set_nodes_supplies(np.array([source, sink]), np.array([len(may), -len(may)]))
    assert network.solve_max_flow_with_min_cost() == network.OPTIMAL
    assert network.maximum_flow() == len(may)
    flows = network.flows(arcs)
    used = [h for h, f in zip(heads, flows, strict=True) if f and h < source]
    loads = Counter(used)
    squares = sum(n * n for n in loads.values())
    return (
        tuple(sorted((loads[i] for i in range(len(members))), reverse=True)),
        network.optimal_cost() - squares * weight,
    )
