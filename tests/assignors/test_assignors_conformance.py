"""What Apache Kafka's own tests of its assignors pin, scenario by scenario.

The names in the docstrings are the scenarios' there (AbstractStickyAssignorTest and its
subclasses, RangeAssignorTest). The tests are ours.
"""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pytest
from group_strategies import seeded_group
from optimum import best_by_flow, score
from stickiness import (
    COUNTING,
    FAMILY,
    Strategy,
    assigned,
    member,
    moved,
    parts,
    rejoin,
    sizes,
    spread,
)

from kafka_coop.assignors import CooperativeSticky, Range, Sticky
from kafka_coop.assignors.snapshot import claimed_generations
from kafka_coop.leader import lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.group import GroupColumns
from kafka_coop.protocol.subscription import decode_subscription, encode_subscription
from kafka_coop.protocol.user_data import Claim, decode_claim, encode_generation, encode_sticky
from kafka_coop.types import (
    Assignment,
    Cluster,
    Generation,
    GroupAssignment,
    Partitions,
    Subscription,
)

family = pytest.mark.parametrize("strategy", FAMILY)
counting = pytest.mark.parametrize("strategy", COUNTING)


def cluster(**topics: int) -> Cluster:
    return Cluster(partitions=topics)


def grow(strategy: Strategy, world: Cluster, *rosters: str) -> list[GroupAssignment]:
    """Plans for one roster after the other; everyone subscribes to everything."""
    plans: list[GroupAssignment] = [{}]
    for generation, roster in enumerate(rosters, 1):
        topics = dict.fromkeys(roster.split(), world.partitions)
        group = rejoin(strategy, plans[-1], topics, generation)
        plans.append(strategy().assign(world, group))
    return plans[1:]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_01_member_data_of_every_version_decodes_alike(version: int) -> None:
    """testMemberData"""
    owned = parts("a0 a1")
    user_data = encode_sticky(Claim(owned=owned, generation=Generation(4)))
    subscription = Subscription(
        topics=("a",), owned=owned, generation=Generation(4), user_data=user_data
    )
    got = decode_subscription(encode_subscription(subscription, version=version))
    assert claimed_generations(GroupColumns.of({"m": got})).tolist() == [4]
    claim = decode_claim(got.user_data)
    assert claim is not None
    assert claim.owned == owned


@counting
def test_02_one_member_and_no_topic_or_one_that_does_not_exist(strategy: Strategy) -> None:
    """testOneConsumerNoTopic, testOneConsumerNonexistentTopic"""
    for topics in ((), ("nowhere",)):
        plan = strategy().assign(cluster(), {"m": member(strategy, topics)})
        assert sizes(plan) == {"m": 0}


@counting
def test_03_only_partitions_of_subscribed_topics(strategy: Strategy) -> None:
    """testOnlyAssignsPartitionsFromSubscribedTopics"""
    plan = strategy().assign(cluster(a=3, b=2), {"m": member(strategy, ["a"])})
    assert plan["m"].partitions == parts("a0 a1 a2")


@counting
def test_04_an_owner_of_the_lesser_share_may_get_the_greater(strategy: Strategy) -> None:
    """testConsumerOwningMinQuotaExpectedMaxQuota"""
    group = {
        "m1": member(strategy, ["a", "b"], "a0 b1"),
        "m2": member(strategy, ["a", "b"], "b0 b2"),
    }
    plan = strategy().assign(cluster(a=2, b=3), group)
    assert sorted(sizes(plan).values()) == [2, 3]
    for m, s in (("m1", "a0 b1"), ("m2", "b0 b2")):
        assert not parts(s) - plan[m].partitions


@counting
def test_05_two_two_none_of_four_is_one_transfer(strategy: Strategy) -> None:
    """testMaxQuotaConsumerMoreThanNumExpectedMaxCapacityMembers"""
    group = {
        "m1": member(strategy, ["a", "b"], "a0 b0"),
        "m2": member(strategy, ["a", "b"], "a1 b1"),
        "m3": member(strategy, ["a", "b"]),
    }
    plan = strategy().assign(cluster(a=2, b=2), group)
    assert sorted(sizes(plan).values()) == [1, 1, 2]
    assert len(plan["m3"].partitions) == 1


@counting
def test_06_all_below_the_lesser_share_keep_all(strategy: Strategy) -> None:
    """testAllConsumersAreUnderMinQuota"""
    had = {"m1": "a0", "m2": "b1", "m3": ""}
    group = {m: member(strategy, ["a", "b"], s) for m, s in had.items()}
    plan = strategy().assign(cluster(a=2, b=3), group)
    assert all(not parts(s) - plan[m].partitions for m, s in had.items())
    assert spread(plan) <= 1


@counting
def test_07_two_one_none_of_four_moves_nothing(strategy: Strategy) -> None:
    """testMinQuotaConsumerMoreThanNumExpectedMinCapacityMembers-like: room for everybody's own"""
    had = {"m1": "a0 a1", "m2": "b0", "m3": ""}
    group = {m: member(strategy, ["a", "b"], s) for m, s in had.items()}
    plan = strategy().assign(cluster(a=2, b=2), group)
    assert all(not parts(s) - plan[m].partitions for m, s in had.items())
    assert sorted(sizes(plan).values()) == [1, 1, 2]


@counting
def test_08_a_member_more_or_less_on_one_topic_is_one_transfer(strategy: Strategy) -> None:
    """testAddRemoveConsumerOneTopic"""
    one, two, gone = grow(strategy, cluster(a=3), "m1", "m1 m2", "m2")
    assert moved(one, two) == 1
    assert spread(two) == 1
    assert moved(two, gone) == 0
    assert sizes(gone) == {"m2": 3}


@counting
def test_09_two_topics_of_twelve_while_members_come_and_go(strategy: Strategy) -> None:
    """testTwoConsumersTwoTopics… 1 -> 2 -> 4 -> 2"""
    rosters = "m1", "m1 m2", "m1 m2 m3 m4", "m2 m3"
    plans = grow(strategy, cluster(a=12, b=12), *rosters)
    for plan in plans:
        assert spread(plan) == 0
    for plan in (plans[0], plans[1]):
        assert spread(plan, "a") <= 1
        assert spread(plan, "b") <= 1
    assert [moved(a, b) for a, b in pairwise(plans)] == [12, 12, 0]


@counting
def test_10_add_and_remove_two_members_on_two_topics(strategy: Strategy) -> None:
    """testAddRemoveTwoConsumersTwoTopics"""
    plans = grow(strategy, cluster(a=3, b=3), "m1 m2", "m1 m2 m3 m4", "m2 m4", "m4")
    assert all(spread(plan) <= 1 for plan in plans[:-1])
    assert [moved(a, b) for a, b in pairwise(plans)] == [2, 0, 0]
    assert assigned(plans[-1]).total() == 6


@family
def test_11_where_round_robin_does_poorly(strategy: Strategy) -> None:
    """testPoorRoundRobinAssignmentScenario"""
    world = cluster(**{f"t{i}": i % 2 + 1 for i in range(1, 6)})
    everything = [f"t{i}" for i in range(1, 6)]
    topics = {
        "m1": everything,
        "m2": ["t1", "t3", "t5"],
        "m3": ["t1", "t3", "t5"],
        "m4": everything,
    }
    group = rejoin(strategy, {}, topics)
    plan = strategy().assign(world, group)
    assert score(world, group, plan)[0] == best_by_flow(world, group)[0]


@counting
def test_12_a_topic_comes_and_another_goes(strategy: Strategy) -> None:
    """testAddRemoveTopicTwoConsumers"""
    both = {m: ["a"] for m in ("m1", "m2")}
    first = strategy().assign(cluster(a=3), rejoin(strategy, {}, both))
    more = {m: ["a", "b"] for m in both}
    second = strategy().assign(cluster(a=3, b=3), rejoin(strategy, first, more, 2))
    assert spread(second) == 0
    assert moved(first, second) == 0
    less = {m: ["b"] for m in both}
    third = strategy().assign(cluster(b=3), rejoin(strategy, second, less, 3))
    assert spread(third) == 1
    assert moved(second, third) == 3, "only topic a is gone"


@family
def test_13_a_pyramid_of_topics_from_which_one_member_leaves(strategy: Strategy) -> None:
    """testReassignmentAfterOneConsumerLeaves"""
    world = cluster(**{f"t{i:02}": i for i in range(1, 20)})
    topics = {f"m{i:02}": [f"t{j:02}" for j in range(1, i + 1)] for i in range(1, 20)}
    before = strategy().assign(world, rejoin(strategy, {}, topics))
    del topics["m10"]
    group = rejoin(strategy, before, topics)
    after = strategy().assign(world, group)
    assert sticky_score(world, group, before, after) == best(world, group, before)


@counting
def test_14_twenty_partitions_from_nine_to_ten_members(strategy: Strategy) -> None:
    """testReassignmentAfterOneConsumerAdded"""
    nine = " ".join(f"m{i}" for i in range(9))
    before, after = grow(strategy, cluster(a=20), nine, f"{nine} m9")
    assert moved(before, after) == 2
    assert spread(after) == 0


@counting
def test_15_fourteen_topics_and_eight_members_of_which_one_leaves(strategy: Strategy) -> None:
    """testSameSubscriptions"""
    world = cluster(**{f"t{i:02}": i for i in range(1, 15)})
    roster = [f"m{i}" for i in range(1, 9)]
    before, after = grow(strategy, world, " ".join(roster), " ".join(roster[:4] + roster[5:]))
    assert moved(before, after) == 0
    assert spread(after) <= 1


@family
def test_16_new_subscriptions_move_what_there_is(strategy: Strategy) -> None:
    """testNewSubscription, testMoveExistingAssignments"""
    world = cluster(**{f"t{i}": 1 for i in range(1, 7)})
    topics = {
        "m1": ["t1", "t2"],
        "m2": ["t1", "t2", "t3", "t4"],
        "m3": ["t2", "t3", "t4", "t5", "t6"],
    }
    group = {
        "m1": member(strategy, topics["m1"], Partitions({"t1": [0]})),
        "m2": member(strategy, topics["m2"], Partitions({"t2": [0], "t3": [0]})),
        "m3": member(strategy, topics["m3"], Partitions({"t4": [0], "t5": [0], "t6": [0]})),
    }
    plan = strategy().assign(world, group)
    assert spread(plan) == 0
    more = rejoin(strategy, plan, topics | {"m0": list(world.partitions)}, 2)
    after = strategy().assign(world, more)
    assert sticky_score(world, more, plan, after) == best(world, more, plan)


@counting
def test_17_three_partitions_and_four_members_of_which_the_leader_leaves(
    strategy: Strategy,
) -> None:
    """testStickiness"""
    before, after = grow(strategy, cluster(a=3), "m1 m2 m3 m4", "m2 m3 m4")
    assert spread(before) == spread(after) + 1 == 1
    assert moved(before, after) == 0


@counting
def test_18_a_topic_is_deleted_and_then_the_only_one(strategy: Strategy) -> None:
    """testAssignmentUpdatedForDeletedTopic, testNoExceptionThrownWhenOnlySubscribedTopicDeleted"""
    plan = strategy().assign(cluster(b=100), {"m": member(strategy, ["a", "b"], "a0 b7")})
    assert plan["m"].partitions.topics() == ("b",)
    assert sizes(plan) == {"m": 100}
    plan = strategy().assign(cluster(), rejoin(strategy, plan, {"m": ["b"]}))
    assert sizes(plan) == {"m": 0}


@family
def test_19_a_hundred_rounds_of_random_subscriptions_and_changes(strategy: Strategy) -> None:
    """testLargeAssignmentWithMultipleConsumersLeavingAndRandomSubscription and its kin"""
    rng = random.Random(19)
    for round_number in range(100):
        world = cluster(**{f"t{i}": rng.randint(1, 9) for i in range(rng.randint(10, 19))})
        names = list(world.partitions)
        topics = {
            f"m{i:02}": rng.sample(names, rng.randint(1, len(names)))
            for i in range(rng.randint(20, 39))
        }
        before = strategy().assign(world, rejoin(strategy, {}, topics))
        for gone in rng.sample(sorted(topics), rng.randint(1, 8)):
            del topics[gone]
        group = rejoin(strategy, before, topics, 2)
        after = strategy().assign(world, group)
        assert sticky_score(world, group, before, after) == best(world, group, before), round_number


@pytest.mark.parametrize("generation", [9, 8, -1])
@family
def test_20_what_was_owned_in_an_older_generation_gives_way(
    strategy: Strategy, generation: int
) -> None:
    """testOwnedPartitionsAreInvalidatedForConsumerWithStaleGeneration, …NoGeneration, gap of 2"""
    group = {
        "m1": member(strategy, ["a"], "a0 a2", 10),
        "m2": member(strategy, ["a"], "a0 a1 a3", generation),
        "m3": member(strategy, ["a"], "", 10),
    }
    plan = strategy().assign(cluster(a=6), group)
    assert plan["m1"].partitions == parts("a0 a2")
    assert plan["m2"].partitions == parts("a1 a3")
    assert plan["m3"].partitions == parts("a4 a5")


@family
def test_21_claimed_twice_in_one_generation_it_is_nobodys(strategy: Strategy) -> None:
    """testPartitionsTransferringOwnershipIncludeThePartitionClaimedByMultipleConsumersInSameGeneration"""
    group = {
        "m1": member(strategy, ["a"], "a0 a1"),
        "m2": member(strategy, ["a"], "a0 a2"),
        "m3": member(strategy, ["a"], ""),
    }
    plan = strategy().assign(cluster(a=3), group)
    assert plan["m1"].partitions == parts("a1")
    assert plan["m2"].partitions == parts("a2")
    assert plan["m3"].partitions == parts("a0")


@family
def test_22_the_highest_generation_wins(strategy: Strategy) -> None:
    """testEnsurePartitionsAssignedToHighestGeneration"""
    group = {
        "m1": member(strategy, ["a", "b", "c"], "a0 b0 c0", 10),
        "m2": member(strategy, ["a", "b", "c"], "a1 b1 c1 b0", 9),
        "m3": member(strategy, ["a", "b", "c"], "a2 b2 c2 a1 c0", 8),
    }
    plan = strategy().assign(cluster(a=3, b=3, c=3), group)
    assert plan["m1"].partitions == parts("a0 b0 c0")
    assert plan["m2"].partitions == parts("a1 b1 c1")
    assert plan["m3"].partitions == parts("a2 b2 c2")


@family
def test_23_older_claims_that_nobody_contests_are_honoured(strategy: Strategy) -> None:
    """testUniqueOwnedPartitionsOfOlderGenerationAreKept (KAFKA-13419, 14639)"""
    had = {"m1": ("a0", 10), "m2": ("a1", 9), "m3": ("a2", -1)}
    group = {m: member(strategy, ["a"], s, g) for m, (s, g) in had.items()}
    plan = strategy().assign(cluster(a=3), group)
    assert all(plan[m].partitions == parts(s) for m, (s, _) in had.items())


@pytest.mark.parametrize("order", [(a, b, 3 - a - b) for a in range(3) for b in range(3) if a != b])
@family
def test_24_unequal_subscriptions_and_three_generations(
    strategy: Strategy, order: tuple[int, int, int]
) -> None:
    """testOwnedPartitionsAreStableForConsumerWithMultipleGeneration, 6 permutations"""
    generations = [10, 9, 8]
    rows = [(["a", "b", "c"], "a0 b0"), (["a", "b"], "a1 b1"), (["a", "c"], "a2 c0")]
    group = {
        f"m{i}": member(strategy, topics, had, generations[order[i]])
        for i, (topics, had) in enumerate(rows)
    }
    plan = strategy().assign(cluster(a=3, b=2, c=1), group)
    assert all(plan[f"m{i}"].partitions == parts(had) for i, (_, had) in enumerate(rows))


RACKS = ("r0", "r1", "r2")


def racked(counts: dict[str, int], replicas: int = 1) -> Cluster:
    return Cluster(
        partitions=counts,
        replica_racks={
            t: tuple(tuple(RACKS[(p + k) % len(RACKS)] for k in range(replicas)) for p in range(n))
            for t, n in counts.items()
        },
    )


def near(world: Cluster, plan: GroupAssignment, racks: dict[str, str | None]) -> int:
    """How many partitions are in their member's rack."""
    assert world.replica_racks is not None
    return sum(
        racks[m] in world.replica_racks[t][p] for m, a in plan.items() for t, p in a.partitions
    )


@family
def test_25_racks_with_equal_subscriptions(strategy: Strategy) -> None:
    """testRackAwareAssignmentWithUniformSubscription"""
    world = racked({"a": 6, "b": 6})
    racks = {f"m{i}": RACKS[i] for i in range(3)}
    had = {"m0": "a1 a2 b1 b2", "m1": "a0 a3 b0 b3", "m2": "a4 a5 b4 b5"}
    group = {m: member(strategy, "ab", had[m], rack=r) for m, r in racks.items()}
    plan = strategy().assign(world, group)
    assert spread(plan) == 0
    assert near(world, plan, dict(racks)) == 12
    everywhere = racked({"a": 6, "b": 6}, replicas=3)
    assert moved(claims(group), strategy().assign(everywhere, group)) == 0, "racks tell nothing"
    elsewhere = {m: member(strategy, "ab", had[m], rack="moon") for m in racks}
    assert moved(claims(group), strategy().assign(world, elsewhere)) == 0, "nobody is near"


@family
def test_26_racks_with_unequal_subscriptions(strategy: Strategy) -> None:
    """testRackAwareAssignmentWithNonEqualSubscription"""
    world = racked({"a": 6, "b": 6, "c": 2})
    racks: dict[str, str | None] = {"m0": "r0", "m1": "r1", "m2": "r2"}
    topics = {"m0": "abc", "m1": "abc", "m2": "ac"}
    group = {m: member(strategy, topics[m], rack=r) for m, r in racks.items()}
    plan = strategy().assign(world, group)
    assert spread(plan) <= 1, "balance comes first"
    assert near(world, plan, racks) == 10, "m2 has to take two of a, the others b2 and b5"
    fewer = {m: member(strategy, topics[m], plan[m].partitions, rack=r) for m, r in racks.items()}
    assert moved(plan, strategy().assign(world, fewer)) == 0


@pytest.mark.parametrize("third", [("a",), ("a", "b")])
def test_27_28_what_two_claim_in_one_generation_the_third_does_not_get_this_round(
    third: tuple[str, ...],
) -> None:
    """test…ConsumersInSameGeneration{Equal,Unequal}SubscriptionOfPartitionsTransferring"""
    group = {
        "m1": member(CooperativeSticky, ["a"], "a0 a1"),
        "m2": member(CooperativeSticky, ["a"], "a0 a2"),
        "m3": member(CooperativeSticky, third),
    }
    outcome = lead("cooperative-sticky", cluster(a=3), encoded(group))
    got = {m: decode_assignment(b).partitions for m, b in outcome.assignments.items()}
    assert got == {"m1": parts("a1"), "m2": parts("a2"), "m3": Partitions()}
    assert outcome.withheld == parts("a0")
    assert outcome.follow_up


@family
def test_29_member_data_that_contradict_one_another(strategy: Strategy) -> None:
    """testAssignmentWithConflictingPreviousGenerations, inconsistent data: repaired, not refused"""
    group = {
        "m1": member(strategy, ["a"], "a0 a1 a2 a3 a99"),
        "m2": member(strategy, ["b"], "a0 a1"),
        "m3": member(strategy, ["a", "b"], "b0", -5),
    }
    plan = strategy().assign(cluster(a=4, b=2), group)
    assert assigned(plan) == dict.fromkeys(map(tuple, parts("a0 a1 a2 a3 b0 b1")), 1)
    assert sizes(plan) == {"m1": 2, "m2": 2, "m3": 2}


def test_30_a_swap_between_racks_withholds_both_partitions() -> None:
    """testPartitionsTransferringOwnershipIncludeThePartitionClaimed… with racks (KAFKA-15170)"""
    world = racked({"a": 2})
    group = {
        "m0": member(CooperativeSticky, ["a"], "a1", rack="r0"),
        "m1": member(CooperativeSticky, ["a"], "a0", rack="r1"),
    }
    outcome = lead("cooperative-sticky", world, encoded(group))
    assert outcome.withheld == parts("a0 a1")
    assert outcome.intended["m0"].partitions == parts("a0")
    assert outcome.intended["m1"].partitions == parts("a1")


@pytest.mark.parametrize("seed", range(20))
def test_31_never_revoked_and_assigned_in_one_round_and_four_rounds_at_most(seed: int) -> None:
    """verifyCooperativeValidity; converges in ≤ 4 rebalances"""
    world, group = seeded_group(seed, topics=(3, 9), partitions=(1, 12), members=(4, 12))
    for generation in range(2, 6):
        outcome = lead("cooperative-sticky", world, encoded(group))
        got = {m: decode_assignment(b).partitions for m, b in outcome.assignments.items()}
        came = {tuple(p) for m in got for p in got[m] - group[m].owned}
        left = {tuple(p) for m in got for p in group[m].owned - got[m]}
        assert not came & left
        group = {
            m: Subscription(topics=s.topics, owned=got[m], generation=Generation(generation))
            for m, s in group.items()
        }
        if not outcome.follow_up:
            return
    pytest.fail("no end of rounds")


def test_32_members_of_several_generations() -> None:
    """testAssignmentWithMultipleGenerations1 and 2"""
    before = {
        "m1": member(Sticky, ["a"], "a0 a1", 2),
        "m2": member(Sticky, ["a"], "a2 a3", 2),
        "m3": member(Sticky, ["a"], "a2 a4 a5", 1),
    }
    plan = Sticky().assign(cluster(a=6), before)
    assert plan["m1"].partitions == parts("a0 a1")
    assert plan["m2"].partitions == parts("a2 a3")
    assert plan["m3"].partitions == parts("a4 a5")


def test_33_conflicting_previous_generations() -> None:
    """testAssignmentWithConflictingPreviousGenerations"""
    group = {
        "m1": member(Sticky, ["a"], "a0 a1 a4", 1),
        "m2": member(Sticky, ["a"], "a0 a2 a3", 1),
        "m3": member(Sticky, ["a"], "a3 a4 a5", 2),
    }
    plan = Sticky().assign(cluster(a=6), group)
    assert sizes(plan) == {"m1": 2, "m2": 2, "m3": 2}
    assert ("a", 1) in plan["m1"].partitions
    assert ("a", 2) in plan["m2"].partitions
    assert not plan["m3"].partitions - parts("a3 a4 a5")


def test_34_user_data_of_the_old_schema() -> None:
    """testSchemaBackwardCompatibility"""
    old = struct.pack(">ih1si2i", 1, 1, b"a", 2, 0, 2)
    group = {
        "m1": member(Sticky, ["a"], "a1", 1),
        "m2": Subscription(topics=("a",), user_data=old),
        "m3": Subscription(topics=("a",)),
    }
    plan = Sticky().assign(cluster(a=3), group)
    assert plan["m1"].partitions == parts("a1")
    assert len(plan["m2"].partitions) == len(plan["m3"].partitions) == 1
    assert not plan["m2"].partitions - parts("a0 a2")


@pytest.mark.parametrize(
    "user_data",
    [encode_generation(Generation(7)), encode_sticky(Claim(generation=Generation(7)))],
    ids=["java", "librdkafka"],
)
def test_35_the_generation_in_user_data_counts_where_the_subscription_has_none(
    user_data: bytes,
) -> None:
    """testMemberDataWithInconsistentData / …EncodedWithGeneration"""
    group = {
        "m1": Subscription(topics=("a",), owned=parts("a0"), user_data=user_data),
        "m2": Subscription(topics=("a",), owned=parts("a0 a1"), generation=Generation(6)),
    }
    outcome = lead("cooperative-sticky", cluster(a=2), encoded(group))
    got = {m: decode_assignment(b).partitions for m, b in outcome.assignments.items()}
    assert got == {"m1": parts("a0"), "m2": parts("a1")}


@family
def test_36_user_data_are_honoured_and_garbage_is_not(strategy: Strategy) -> None:
    """testMemberDataWillHonorUserData"""
    group = {
        "m1": member(strategy, ["a"], "a1 a2", 3),
        "m2": Subscription(topics=("a",), user_data=b"\x7f\xff\xff\xff\x00"),
    }
    plan = strategy().assign(cluster(a=4), group)
    assert plan["m1"].partitions == parts("a1 a2")
    assert plan["m2"].partitions == parts("a0 a3")


def test_37_static_members_keep_their_ranges_when_their_member_ids_change() -> None:
    """testStaticMemberRangeAssignmentPersistent"""
    world = cluster(a=5, b=4)

    def plan(*ids: str) -> dict[str | None, Partitions]:
        group = {
            m: Subscription(topics=("a", "b"), instance_id=f"i{n}" if n < 3 else None)
            for n, m in enumerate(ids)
        }
        got = Range().assign(world, group)
        return {group[m].instance_id or m: a.partitions for m, a in got.items()}

    assert plan("x", "b", "y", "z") == plan("q", "zz", "a", "z")


def test_38_range_in_racks_with_co_partitioning() -> None:
    """testRackAwareAssignmentWithCoPartitioning"""
    world = racked({"a": 6, "b": 6, "c": 2, "d": 2})
    racks: dict[str, str | None] = {"m0": "r0", "m1": "r1", "m2": "r2"}
    group = {m: Subscription(topics=("a", "b", "c", "d"), rack=r) for m, r in racks.items()}
    plan = Range().assign(world, group)
    assert plan["m0"].partitions == parts("a0 a3 b0 b3 c0 d0")
    assert plan["m1"].partitions == parts("a1 a4 b1 b4 c1 d1")
    assert plan["m2"].partitions == parts("a2 a5 b2 b5")


def test_39_equal_subscriptions_are_co_partitioned() -> None:
    """testCoPartitionedAssignmentWithSameSubscription"""
    world = racked({"a": 6, "b": 6, "c": 6, "d": 6})
    for racks in [("r0", "r1", "r2"), ("r0", None, "r0"), (None, None, None)]:
        group = {
            f"m{i}": Subscription(topics=("a", "b", "c", "d"), rack=r) for i, r in enumerate(racks)
        }
        plan = Range().assign(world, group)
        for a in plan.values():
            numbers = {tuple(n.tolist()) for _, n in a.partitions.items()}
            assert len(numbers) == 1
            assert sum(len(n) for n in numbers) == 2


def encoded(group: dict[str, Subscription]) -> dict[str, bytes]:
    return {m: encode_subscription(s) for m, s in group.items()}


def claims(group: dict[str, Subscription]) -> GroupAssignment:
    had = {m: (decode_claim(s.user_data) or Claim()).owned | s.owned for m, s in group.items()}
    return {m: Assignment(partitions=p) for m, p in had.items()}


def as_owners(group: dict[str, Subscription], before: GroupAssignment) -> dict[str, Subscription]:
    """The group as the oracles read it: claims in the subscription."""
    return {
        m: Subscription(
            topics=s.topics,
            owned=before[m].partitions if m in before else Partitions(),
            generation=Generation(1),
        )
        for m, s in group.items()
    }


def sticky_score(
    world: Cluster, group: dict[str, Subscription], before: GroupAssignment, after: GroupAssignment
) -> tuple[tuple[int, ...], int]:
    return score(world, as_owners(group, before), after)


def best(
    world: Cluster, group: dict[str, Subscription], before: GroupAssignment
) -> tuple[tuple[int, ...], int]:
    return best_by_flow(world, as_owners(group, before))
