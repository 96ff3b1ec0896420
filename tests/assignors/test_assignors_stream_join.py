"""``stream-join-sticky``: the text of KIP-315, edge by edge."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_coop.assignors import StreamJoinSticky
from kafka_coop.protocol.user_data import Claim, decode_generation, encode_sticky
from kafka_coop.types import (
    Assignment,
    Cluster,
    Generation,
    GroupAssignment,
    GroupMetadata,
    Partitions,
    Subscription,
)


def had(*numbers: int, epoch: int, topics: tuple[str, ...] = ("a", "b")) -> Subscription:
    """A member that was given these partition numbers."""
    claim = Claim(owned=Partitions({"": numbers}), generation=Generation(epoch))
    return Subscription(topics=topics, user_data=encode_sticky(claim))


def numbers(plan: GroupAssignment) -> dict[str, dict[str, list[int]]]:
    return {m: {t: n.tolist() for t, n in a.partitions.items()} for m, a in plan.items()}


def epoch_of(plan: GroupAssignment) -> int:
    (epoch,) = {decode_generation(a.user_data) for a in plan.values()}
    return epoch


def test_the_example_of_the_text_four_members_of_which_one_leaves() -> None:
    group = {
        "A": had(0, 1, 2, epoch=1),
        "B": had(3, 4, 5, epoch=1),
        "C": had(6, 7, epoch=1),
    }
    plan = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 10, "b": 10}), group))
    assert {0, 1, 2} <= set(plan["A"]["a"])
    assert {3, 4, 5} <= set(plan["B"]["a"])
    assert {6, 7} <= set(plan["C"]["a"])
    assert sorted(len(p["a"]) for p in plan.values()) == [3, 3, 4]
    assert all(p["a"] == p["b"] for p in plan.values())


def test_only_numbers_that_every_topic_has_are_assigned() -> None:
    group = {"A": had(epoch=0), "B": had(epoch=0)}
    plan = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 6, "b": 4}), group))
    assert sorted(plan["A"]["a"] + plan["B"]["a"]) == [0, 1, 2, 3]
    assert all(p["a"] == p["b"] for p in plan.values())


def test_a_topic_that_does_not_exist_takes_no_part() -> None:
    group = {"A": Subscription(topics=("a", "nowhere"))}
    plan = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 2}), group))
    assert plan == {"A": {"a": [0, 1]}}


def test_a_topic_that_one_member_adds_is_not_loaded_onto_it_whole() -> None:
    group = {"A": had(0, 1, epoch=3, topics=("a", "b", "x")), "B": had(2, 3, epoch=3)}
    world = Cluster(partitions={"a": 4, "b": 4, "x": 100})
    plan = numbers(StreamJoinSticky().assign(world, group))
    assert plan["A"] == {"a": [0, 1], "b": [0, 1], "x": [0, 1]}
    assert plan["B"] == {"a": [2, 3], "b": [2, 3]}


def test_the_later_epoch_has_what_two_claim() -> None:
    group = {"A": had(0, 1, epoch=7), "B": had(1, 2, epoch=8), "C": had(3, epoch=2)}
    plan = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 4, "b": 4}), group))
    assert plan["A"]["a"] == [0]
    assert plan["B"]["a"] == [1, 2]
    assert plan["C"]["a"] == [3]


def test_the_next_epoch_is_the_largest_plus_one_and_comes_back_in_the_user_data() -> None:
    world = Cluster(partitions={"a": 2, "b": 2})
    group = {"A": had(0, epoch=7), "B": had(1, epoch=5), "C": Subscription(topics=("a", "b"))}
    plan = StreamJoinSticky().assign(world, group)
    assert epoch_of(plan) == 8
    member = StreamJoinSticky()
    assert member.subscription_user_data(("a", "b")) is None
    member.on_assignment(plan["A"], GroupMetadata(group_id="g", generation=Generation(99)))
    assert member.subscription_user_data(("a", "b")) == had(0, epoch=8).user_data


def test_the_first_epoch_and_the_last_one_there_is() -> None:
    world = Cluster(partitions={"a": 1})
    assert epoch_of(StreamJoinSticky().assign(world, {"A": Subscription(topics=("a",))})) == 0
    last = 2**31 - 1
    assert epoch_of(StreamJoinSticky().assign(world, {"A": had(0, epoch=last)})) == last


def test_a_new_member_steals_from_those_with_the_longest_lists() -> None:
    group = {
        "A": had(0, 1, 2, 3, epoch=1),
        "B": had(4, 5, 6, epoch=1),
        "C": had(7, 8, epoch=1),
        "D": had(epoch=1),
    }
    plan = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 9, "b": 9}), group))
    assert len(plan["D"]["a"]) == 2
    assert plan["C"]["a"] == [7, 8]
    assert set(plan["D"]["a"]) <= {0, 1, 2, 3, 4, 5, 6}


@given(
    counts=st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1),
    claims=st.lists(st.tuples(st.sets(st.integers(-1, 9)), st.integers(-1, 3)), max_size=5),
)
@settings(max_examples=150, deadline=None)
def test_every_joined_number_is_with_one_member_for_all_topics(
    counts: dict[str, int], claims: list[tuple[set[int], int]]
) -> None:
    topics = tuple(sorted(counts))
    group = {f"m{i}": had(*n, epoch=e, topics=topics) for i, (n, e) in enumerate(claims)}
    plan: GroupAssignment = StreamJoinSticky().assign(Cluster(partitions=counts), group)
    per_member = [
        {t: frozenset(n.tolist()) for t, n in a.partitions.items()} for a in plan.values()
    ]
    assert all(len(set(p.values())) <= 1 for p in per_member)
    assert all(p.keys() == counts.keys() for p in per_member if p)
    given_numbers = sorted(n for p in per_member if p for n in p[topics[0]])
    assert given_numbers == (list(range(min(counts.values()))) if group else [])
    sizes = [len(p[topics[0]]) if p else 0 for p in per_member]
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_no_assignment_forgets_the_numbers() -> None:
    member = StreamJoinSticky()
    member.on_assignment(Assignment(), GroupMetadata(group_id="g"))
    assert member.subscription_user_data(()) == had(epoch=-1).user_data
