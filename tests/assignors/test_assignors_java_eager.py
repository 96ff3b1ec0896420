"""``range`` and ``roundrobin``, byte for byte what Java's classes make of the same members."""

from __future__ import annotations

import pytest
from group_strategies import Group
from hypothesis import event, given, settings
from hypothesis import strategies as st

from benchmarks.peers.java import JavaPeer
from kafka_coop.leader import run_assignor
from kafka_coop.protocol.assignment import decode_assignment, encode_assignment
from kafka_coop.protocol.marks import split_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import Assignment, Cluster, Subscription

TOPICS = "abcdef"
RACKS = ("r0", "r1", "r2")


@st.composite
def groups(draw: st.DrawFn, *, racks: bool = False) -> tuple[Cluster, Group]:
    """Equal and unequal subscriptions, static members, ids that sort otherwise in UTF-16.

    Few different partition counts, and members that share subscriptions, so that topics are
    often cut alike.
    """
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 8), max_size=6))
    alike = draw(st.none() | st.sampled_from([2, 3, 6]))
    if alike:
        counts = dict.fromkeys(counts, alike)
    replicas = st.lists(st.sampled_from(RACKS), max_size=2, unique=True).map(tuple)
    places = {t: tuple(draw(replicas) for _ in range(n)) for t, n in counts.items()}
    members = draw(
        st.lists(
            st.text("xyZä\uff01\U0001f600", min_size=1, max_size=3),
            min_size=1,  # Java's roundrobin raises when there is nobody
            max_size=6,
            unique=True,
        )
    )
    choices = draw(st.lists(st.sets(st.sampled_from(TOPICS + "z")), min_size=1, max_size=3))
    group = {
        m: Subscription(
            topics=tuple(sorted(draw(st.sampled_from(choices)))),
            instance_id=draw(st.none() | st.sampled_from([f"i{i}", f"I{9 - i}"])),
            rack=draw(st.none() | st.sampled_from((*RACKS, "moon"))) if racks else None,
        )
        for i, m in enumerate(members)
    }
    return Cluster(partitions=counts, replica_racks=places if racks else None), group


def unmarked(data: bytes) -> bytes:
    """The assignment without what members of ours alone understand."""
    assignment = decode_assignment(data)
    user_data, _ = split_marks(assignment.user_data)
    return encode_assignment(
        Assignment(partitions=assignment.partitions, user_data=user_data or b"")
    )


def assert_same_bytes(java: JavaPeer, name: str, cluster: Cluster, group: Group) -> None:
    sent = {m: encode_subscription(s) for m, s in group.items()}
    instances = {m: s.instance_id for m, s in group.items()}
    ours = run_assignor(name, cluster, sent, instance_ids=instances)
    theirs = java.lead(name, cluster, sent, instance_ids=instances)
    assert {m: unmarked(data) for m, data in ours.items()} == theirs


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(world=groups())
@settings(max_examples=200)
def test_the_bytes_are_javas(java: JavaPeer, name: str, world: tuple[Cluster, Group]) -> None:
    assert_same_bytes(java, name, *world)


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(world=groups(racks=True))
@settings(max_examples=300)
def test_the_bytes_are_javas_in_racks(
    java: JavaPeer, name: str, world: tuple[Cluster, Group]
) -> None:
    cluster, group = world
    event(f"{len({s.rack for s in group.values()})} racks")
    assert_same_bytes(java, name, cluster, group)
