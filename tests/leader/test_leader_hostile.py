"""Bytes from other members are arbitrary input: the leader answers them all, and right."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_coop.assignors import known_names
from kafka_coop.leader import lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import SubscriptionMarks, append_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.protocol.user_data import Claim, encode_generation, encode_sticky
from kafka_coop.types import Cluster, Generation, Partitions, Subscription, TopicPartition

CLUSTER = {"a": 3, "b": 5, "c": 1}
RACKED = Cluster(
    partitions=CLUSTER,
    # Racks may lag behind partition counts, or miss a topic.
    replica_racks={"a": (("r1",), ("r2",)), "b": (("r1", "r2"),) * 9},
)
INT32 = st.integers(-(2**31), 2**31 - 1)
TOPICS = st.sampled_from(["a", "b", "c", "nowhere", ""])
PARTITIONS = st.dictionaries(TOPICS, st.lists(st.integers(-2, 6) | INT32, max_size=6), max_size=4)
OWNED = PARTITIONS.map(Partitions)
LOADS = st.dictionaries(
    st.tuples(TOPICS, st.integers(0, 6)).map(lambda p: TopicPartition(*p)),
    st.floats(0, 2.0**127, width=32),
    max_size=6,
)
USER_DATA = st.one_of(
    st.none(),
    st.binary(max_size=24),
    INT32.map(lambda g: encode_generation(Generation(g))),
    st.builds(lambda o, g: encode_sticky(Claim(owned=o, generation=Generation(g))), OWNED, INT32),
    st.builds(
        lambda d, load: append_marks(b"", SubscriptionMarks(draining=d, load=load)),
        st.booleans(),
        LOADS,
    ),
)
SUBSCRIPTIONS = st.builds(
    lambda topics, owned, generation, user_data, rack, version: encode_subscription(
        Subscription(
            topics=tuple(topics),
            owned=owned,
            generation=Generation(generation),
            user_data=user_data,
            rack=rack,
        ),
        version=version,
    ),
    st.lists(TOPICS, max_size=5),
    OWNED,
    INT32,
    USER_DATA,
    st.sampled_from([None, "", "r1"]),
    st.integers(0, 3),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Bytes that almost parse: some cut off, some changed."""
    data = bytearray(draw(SUBSCRIPTIONS))
    for _ in range(draw(st.integers(1, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


GROUPS = st.dictionaries(
    st.text(max_size=3), st.one_of(SUBSCRIPTIONS, damaged(), st.binary(max_size=30)), max_size=6
)


@pytest.mark.parametrize("name", known_names())
@given(members=GROUPS, cluster=st.sampled_from([Cluster(partitions=CLUSTER), RACKED]))
@settings(max_examples=150, deadline=None)
def test_every_member_is_answered_and_no_partition_assigned_twice(
    name: str, members: dict[str, bytes], cluster: Cluster
) -> None:
    outcome = lead(name, cluster, members)
    assert outcome.error is None
    assert outcome.assignments.keys() == members.keys()
    times: Counter[tuple[str, int]] = Counter()
    for member, data in outcome.assignments.items():
        for topic, partition in decode_assignment(data).partitions:
            times[topic, partition] += 1
            assert topic in outcome.subscriptions[member].topics
            assert 0 <= partition < CLUSTER[topic]
    assert not times or max(times.values()) == 1


@pytest.mark.parametrize("name", known_names())
@given(members=GROUPS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_order_of_members_does_not_matter(
    name: str, members: dict[str, bytes], data: st.DataObject
) -> None:
    shuffled = dict(data.draw(st.permutations(list(members.items()))))
    assert lead(name, RACKED, members).assignments == lead(name, RACKED, shuffled).assignments


@given(members=GROUPS)
@settings(max_examples=150, deadline=None)
def test_nothing_that_another_member_claims_is_handed_over(members: dict[str, bytes]) -> None:
    outcome = lead("cooperative-sticky", CLUSTER, members)
    owned = {m: s.owned for m, s in outcome.subscriptions.items()}
    for member, data in outcome.assignments.items():
        came = decode_assignment(data).partitions - owned[member]
        for other in owned.keys() - {member}:
            assert came.isdisjoint(owned[other])
