"""Who is dealt what: each topic is spread over members as far as their quotas go."""

from __future__ import annotations

import numpy as np
import pytest

from kafka_coop.assignors import CooperativeSticky
from kafka_coop.assignors.dealing import deal
from kafka_coop.types import Cluster, Subscription


def test_larger_quotas_take_part_in_every_round_in_proportion() -> None:
    dealt = deal(np.array([2, 0, 6])).tolist()
    assert dealt == [0, 2, 2, 2, 0, 2, 2, 2]


def test_each_deck_is_dealt_out_before_the_next() -> None:
    dealt = deal(np.array([1, 3, 2, 2]), np.array([0, 0, 1, 1])).tolist()
    assert sorted(dealt[:4]) == [0, 1, 1, 1]
    assert dealt[4:] == [2, 3, 2, 3]


@pytest.mark.parametrize("members", [2, 3, 7])
def test_a_groups_first_plan_spreads_each_topic(members: int) -> None:
    group = {f"m{i}": Subscription(topics=("a", "b", "c")) for i in range(members)}
    plan = CooperativeSticky().assign(Cluster(partitions={"a": 14, "b": 5, "c": 23}), group)
    for topic, count in {"a": 14, "b": 5, "c": 23}.items():
        got = [len(plan[m].partitions.get(topic)) for m in group]
        assert sum(got) == count
        assert max(got) - min(got) <= 1, topic
