"""``stream-join-sticky``: the text of KIP-315, edge by edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

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


def test_what_is_left_out_is_told_once_until_it_changes() -> None:
    strategy, group = StreamJoinSticky(), {"A": had(epoch=0)}

    def told(a: int, b: int) -> tuple[str, ...]:
        return strategy.assign(Cluster(partitions={"a": a, "b": b}), group).notes

    assert told(6, 6) == ()
    (note,) = told(6, 1)
    assert "'b'" in note
    assert "5 partitions" in note
    assert told(6, 1) == ()
    assert told(6, 4) != ()
    assert told(6, 6) == ()
    assert told(6, 4) != ()


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


def claims_that_stand(said: Sequence[tuple[set[int], int]], joined: int) -> dict[int, str]:
    """Step 2 of the text, one number at a time: the higher epoch; of equal ones nobody."""
    owners = {}
    for number in range(joined):
        epochs = {f"m{i}": epoch for i, (had_, epoch) in enumerate(said) if number in had_}
        best = [m for m, epoch in epochs.items() if epoch == max(epochs.values())]
        if len(best) == 1:
            owners[number] = best[0]
    return owners


@given(
    count=st.integers(1, 6),
    claims=st.lists(
        st.tuples(st.sets(st.integers(0, 6)), st.integers(0, 2)), min_size=1, max_size=4
    ),
)
@settings(max_examples=200, deadline=None)
def test_no_plan_is_as_fair_and_takes_fewer_numbers_away(
    count: int, claims: list[tuple[set[int], int]]
) -> None:
    """By trying all: stealing is fair, from the longest lists, and no more than fairness asks."""
    group = {f"m{i}": had(*n, epoch=e) for i, (n, e) in enumerate(claims)}
    plan = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": count, "b": count}), group))
    got = {n: m for m, topics in plan.items() for n in topics.get("a", [])}
    owners = claims_that_stand(claims, count)

    def score(given_to: Sequence[str]) -> tuple[tuple[int, ...], int]:
        loads = Counter(given_to)
        stolen = sum(given_to[n] != m for n, m in owners.items())
        return tuple(sorted((loads[m] for m in group), reverse=True)), stolen

    assert score([got[n] for n in range(count)]) == min(
        map(score, product(sorted(group), repeat=count))
    )


def test_partitions_that_all_topics_get_are_joined_and_owners_keep_theirs() -> None:
    """Step 1: while one topic is ahead its new partitions wait; then everyone has them."""
    group = {"A": had(0, 1, epoch=1), "B": had(2, 3, epoch=1)}
    ahead = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 6, "b": 4}), group))
    assert ahead == {m: dict.fromkeys("ab", n) for m, n in (("A", [0, 1]), ("B", [2, 3]))}
    both = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 6, "b": 6}), group))
    assert {0, 1} < set(both["A"]["b"])
    assert {2, 3} < set(both["B"]["b"])


def test_a_short_topic_that_one_member_adds_shortens_the_join_of_all() -> None:
    """Step 1 says: the minimum across all topics being subscribed to in the group."""
    group = {"A": had(0, 1, epoch=3, topics=("a", "x")), "B": had(2, 3, epoch=3, topics=("a",))}
    plan = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 4, "x": 2}), group))
    assert sorted(n for topics in plan.values() for n in topics["a"]) == [0, 1]


def test_a_topic_that_leaves_the_join_is_nobodys() -> None:
    group = {m: had(*n, epoch=1, topics=("a",)) for m, n in (("A", [0]), ("B", [1]))}
    plan = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 2, "b": 2}), group))
    assert plan == {"A": {"a": [0]}, "B": {"a": [1]}}


def test_numbers_that_no_topic_has_any_more_count_for_nothing() -> None:
    """Step 2b: previous ownership includes partitions eligible for assignment alone."""
    group = {"A": had(0, 7, 8, 9, epoch=1), "B": had(1, epoch=1), "C": had(epoch=1)}
    plan = numbers(StreamJoinSticky().assign(Cluster(partitions={"a": 3, "b": 3}), group))
    assert plan["A"]["a"] == [0], "three of its four numbers do not exist: its list is short"
    assert plan["B"]["a"] == [1]
    assert plan["C"]["a"] == [2]


def test_no_assignment_forgets_the_numbers() -> None:
    member = StreamJoinSticky()
    member.on_assignment(Assignment(), GroupMetadata(group_id="g"))
    assert member.subscription_user_data(()) == had(epoch=-1).user_data
