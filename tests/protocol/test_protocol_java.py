"""Java reads what ours writes, and ours what Java writes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_strategies import generations, partition_sets, subscriptions

from benchmarks.peers.java import JavaPeer
from kafka_coop.assignors import CooperativeSticky, Sticky
from kafka_coop.protocol.assignment import decode_assignment, encode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, append_marks
from kafka_coop.protocol.subscription import decode_subscription, encode_subscription
from kafka_coop.protocol.topic_partitions import encode_topic_partitions
from kafka_coop.protocol.user_data import Claim, decode_sticky, encode_generation, encode_sticky
from kafka_coop.types import (
    NO_GENERATION,
    Assignment,
    Generation,
    GroupMetadata,
    Partitions,
    Subscription,
)

claims = st.builds(Claim, owned=partition_sets, generation=generations)
marks = st.none() | st.builds(
    SubscriptionMarks, rejoin=st.integers(0, 9), draining=st.booleans(), load=st.just({})
)


def with_marks(user_data: bytes | None, marks: SubscriptionMarks | None) -> bytes | None:
    return user_data if marks is None else append_marks(user_data, marks)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@given(subscription=subscriptions)
def test_subscriptions_are_the_same_bytes_once_java_has_read_and_written_them(
    java: JavaPeer, version: int, subscription: Subscription
) -> None:
    data = encode_subscription(subscription, version=version)
    theirs = java.rewrite_subscription(data, version)
    assert theirs == data
    assert decode_subscription(theirs) == decode_subscription(data)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@given(subscription=subscriptions)
def test_java_reads_of_a_newer_version_what_an_older_one_has(
    java: JavaPeer, version: int, subscription: Subscription
) -> None:
    newest = encode_subscription(subscription)
    older = encode_subscription(subscription, version=version)
    assert java.rewrite_subscription(newest, version) == older


@given(partitions=partition_sets, user_data=st.binary(max_size=20))
def test_assignments_are_the_same_bytes_once_java_has_read_and_written_them(
    java: JavaPeer, partitions: Partitions, user_data: bytes
) -> None:
    data = encode_assignment(Assignment(partitions=partitions, user_data=user_data))
    assert java.rewrite_assignment(data) == data


@given(partitions=partition_sets, follow_up=st.booleans())
def test_java_hands_the_assignors_of_its_members_the_partitions_whatever_is_behind_them(
    java: JavaPeer, partitions: Partitions, follow_up: bool
) -> None:
    marked = append_marks(
        b"", AssignmentMarks(follow_up=follow_up, heartbeat_interval=timedelta(seconds=1))
    )
    data = encode_assignment(Assignment(partitions=partitions, user_data=marked))
    claim = decode_sticky(java.user_data("sticky", data, 3))
    assert claim == Claim(owned=partitions, generation=Generation(3))


@given(partitions=partition_sets, generation=generations)
def test_a_member_of_java_sends_the_user_data_that_ours_would(
    java: JavaPeer, partitions: Partitions, generation: Generation
) -> None:
    assignment = Assignment(partitions=partitions)
    data = encode_assignment(assignment)
    metadata = GroupMetadata(group_id="group", generation=generation)
    cooperative, sticky = CooperativeSticky(), Sticky()
    cooperative.on_assignment(assignment, metadata)
    sticky.on_assignment(assignment, metadata)
    theirs = java.user_data("cooperative-sticky", data, generation)
    assert theirs == cooperative.subscription_user_data(())
    theirs = java.user_data("sticky", data, generation)  # topics in the order of a hash table
    assert decode_sticky(theirs) == decode_sticky(sticky.subscription_user_data(()))
    if len(partitions.topics()) == 1:
        assert theirs == sticky.subscription_user_data(())


@given(claim=claims, marks=marks)
def test_java_believes_the_claims_of_sticky_members(
    java: JavaPeer, claim: Claim, marks: SubscriptionMarks | None
) -> None:
    user_data = with_marks(encode_sticky(claim), marks)
    data = encode_subscription(Subscription(topics=("a",), user_data=user_data))
    assert java.claim("sticky", data) == claim


@given(partitions=partition_sets)
def test_java_and_ours_read_version_0_alike(java: JavaPeer, partitions: Partitions) -> None:
    user_data = encode_topic_partitions(partitions)
    data = encode_subscription(Subscription(topics=("a",), user_data=user_data))
    assert java.claim("sticky", data) == decode_sticky(user_data) == Claim(owned=partitions)


@given(claim=claims, marks=marks)
@settings(max_examples=200)
def test_java_believes_the_claims_of_cooperative_members(
    java: JavaPeer, claim: Claim, marks: SubscriptionMarks | None
) -> None:
    """Before KIP-792, version 1, the generation is in the user data alone."""
    subscription = Subscription(
        topics=("a",),
        owned=claim.owned,
        generation=claim.generation,
        user_data=with_marks(encode_generation(claim.generation), marks),
    )
    for version in (1, 2, 3):
        data = encode_subscription(subscription, version=version)
        assert java.claim("cooperative-sticky", data) == claim


@given(marks=marks)
def test_java_believes_that_a_new_member_of_ours_had_nothing(
    java: JavaPeer, marks: SubscriptionMarks | None
) -> None:
    for assignor in (Sticky(), CooperativeSticky()):
        user_data = with_marks(assignor.subscription_user_data(("a",)), marks)
        data = encode_subscription(Subscription(topics=("a",), user_data=user_data))
        assert java.claim(assignor.name, data) == Claim(generation=NO_GENERATION)


def test_an_assignment_of_java_is_read_as_it_was_meant(java: JavaPeer) -> None:
    data = java.rewrite_assignment(encode_assignment(Assignment(partitions=Partitions({"a": [1]}))))
    assert decode_assignment(data) == Assignment(partitions=Partitions({"a": [1]}))
