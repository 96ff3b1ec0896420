"""Each version of a group request that the embedded broker announces is one it parses.

The requests go over a plain socket, built and read by kio: librdkafka's own consumer only
ever sends some of the versions, and a member of ours sends others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from embedded_wire import (
    ASSIGNMENT,
    Wire,
    announced,
    commit,
    committed,
    heartbeat,
    join,
    member,
    sync,
)

from kafka_coop.testing.embedded import EmbeddedKafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        kafka.create_topic("orders", partitions=2)
        yield kafka


@pytest.fixture
def wire(cluster: EmbeddedKafka) -> Iterator[Wire]:
    with closing(Wire(cluster.bootstrap_servers)) as connection:
        yield connection


def test_join_group_carries_protocol_name_and_metadata(wire: Wire) -> None:
    versions = announced(wire, "JoinGroup")
    assert versions[-1] == 5, "v6 has compact arrays, which the mock cluster does not read"
    for version in versions:
        joined = join(wire, f"join-{version}", version)
        assert joined.error_code == 0
        assert joined.protocol_name == "ours"
        assert joined.leader == joined.member_id
        assert [m.metadata for m in joined.members] == [b"user data"]


def test_sync_group_hands_out_the_leaders_bytes(wire: Wire) -> None:
    for version in announced(wire, "SyncGroup"):
        group = f"sync-{version}"
        assert sync(wire, group, join(wire, group), version).assignment == ASSIGNMENT


def test_heartbeat_knows_the_generation(wire: Wire) -> None:
    joined = member(wire, "beats")
    for version in announced(wire, "Heartbeat"):
        assert heartbeat(wire, "beats", joined, version) == 0


def test_leave_group_removes_the_member(wire: Wire) -> None:
    for version in announced(wire, "LeaveGroup"):
        group = f"leave-{version}"
        joined = member(wire, group)
        answer = wire.ask("leave_group", version, group_id=group, member_id=joined.member_id)
        assert answer.error_code == 0
        assert heartbeat(wire, group, joined) == 25, "UNKNOWN_MEMBER_ID"


def test_offsets_are_committed_by_members_alone_and_read_back(wire: Wire) -> None:
    joined = member(wire, "offsets")
    for version in announced(wire, "OffsetCommit"):
        if version >= 2:  # kio speaks no older one
            assert commit(wire, "offsets", joined, 100 + version, version) == 0
            assert committed(wire, "offsets") == 100 + version
    for version in announced(wire, "OffsetFetch"):
        if version >= 1:
            assert committed(wire, "offsets", version) == 109


def test_a_stale_generation_or_a_stranger_commits_nothing(wire: Wire) -> None:
    joined = member(wire, "fenced")

    class Stale:
        member_id = joined.member_id
        generation_id = joined.generation_id - 1

    class Stranger:
        member_id = "who"
        generation_id = joined.generation_id

    assert commit(wire, "fenced", Stale, 5) == 22, "ILLEGAL_GENERATION"
    assert commit(wire, "fenced", Stranger, 5) == 25, "UNKNOWN_MEMBER_ID"
    assert committed(wire, "fenced") == -1
