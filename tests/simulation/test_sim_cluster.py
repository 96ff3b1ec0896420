"""Brokers, topics and logs around the coordinator."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    ClusterMetadata,
    CoordinatorFound,
    FindCoordinator,
    GetMetadata,
    GroupJoined,
    Heartbeat,
    HeartbeatAcked,
    JoinGroup,
    ListOffsets,
    OffsetsListed,
    Response,
)
from kafka_coop.simulation.cluster import ClusterRequest, SimulatedCluster
from kafka_coop.simulation.group import RequestToken
from kafka_coop.simulation.settings import Client
from kafka_coop.simulation.topics import Topics
from kafka_coop.types import NO_MEMBER_ID, Generation, MemberId, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BEAT = Heartbeat(group_id="g", generation=Generation(1), member_id=MemberId("m"), instance_id=None)
JOIN = JoinGroup(
    group_id="g",
    session_timeout=timedelta(seconds=10),
    rebalance_timeout=timedelta(seconds=30),
    member_id=NO_MEMBER_ID,
    instance_id="i",
    protocols=(("coop", b""),),
)
TOKENS = count(1)


def ask(
    cluster: SimulatedCluster, node: int, request: ClusterRequest, now: float = 0.0
) -> Response:
    token = RequestToken(next(TOKENS))
    replies = cluster.handle(node, request, client=Client(), token=token, now=now)
    return next(r.response for r in replies if r.token == token)


def metadata(cluster: SimulatedCluster, node: int, *topics: str) -> ClusterMetadata:
    answer = ask(cluster, node, GetMetadata(topics=topics or None))
    assert isinstance(answer, ClusterMetadata)
    return answer


def size(cluster: SimulatedCluster, node: int) -> int:
    return len(metadata(cluster, node, "orders").topics["orders"].partitions)


def listed(
    cluster: SimulatedCluster,
    partition: TopicPartition,
    timestamp: int,
    *,
    node: int = 1,
    read_committed: bool = False,
) -> tuple[int, ErrorCode]:
    request = ListOffsets(timestamps={partition: timestamp}, read_committed=read_committed)
    answer = ask(cluster, node, request)
    assert isinstance(answer, OffsetsListed)
    found = answer.offsets[partition]
    return found.offset, found.error


class TestCoordinatorPlace:
    def found(self, cluster: SimulatedCluster, node: int = 1, now: float = 0.0) -> CoordinatorFound:
        answer = ask(cluster, node, FindCoordinator(group_id="g"), now)
        assert isinstance(answer, CoordinatorFound)
        return answer

    def test_every_broker_knows_it(self) -> None:
        cluster = SimulatedCluster(brokers=3)
        for node in (1, 2, 3):
            found = self.found(cluster, node).node
            assert found is not None
            assert found.node_id == 1

    def test_the_others_are_not_coordinator(self) -> None:
        cluster = SimulatedCluster(brokers=2)
        assert ask(cluster, 1, BEAT) == HeartbeatAcked(error=ErrorCode.unknown_member_id)
        assert ask(cluster, 2, BEAT) == HeartbeatAcked(error=ErrorCode.not_coordinator)

    def test_it_moves_and_loads(self) -> None:
        cluster = SimulatedCluster(brokers=2)
        cluster.move_coordinator(2, 1.0, loading=timedelta(seconds=3))
        assert cluster.coordinator_node == 2
        assert ask(cluster, 2, JOIN, 2.0) == GroupJoined(
            error=ErrorCode.coordinator_load_in_progress
        )
        assert ask(cluster, 1, JOIN, 2.0) == GroupJoined(error=ErrorCode.not_coordinator)
        assert cluster.next_deadline() == 4.0
        assert cluster.advance(4.0) == []
        assert ask(cluster, 2, BEAT, 4.0) == HeartbeatAcked(error=ErrorCode.unknown_member_id)

    def test_a_dead_coordinator_answers_nothing_that_was_parked(self) -> None:
        cluster = SimulatedCluster(brokers=2)
        token = RequestToken(next(TOKENS))
        assert cluster.handle(1, JOIN, client=Client(), token=token, now=0.0) == []
        assert cluster.fail_broker(1, 1.0) == []
        assert self.found(cluster, 2, 1.0).error is ErrorCode.coordinator_not_available
        with pytest.raises(ValueError, match="broker 1 is down"):
            ask(cluster, 1, BEAT, 1.0)
        with pytest.raises(ValueError, match="broker 1 is down"):
            cluster.move_coordinator(1, 1.0)
        assert cluster.move_coordinator(2, 1.0) == []
        cluster.restart_broker(1)
        assert ask(cluster, 1, BEAT, 1.0) == HeartbeatAcked(error=ErrorCode.not_coordinator)

    def test_another_brokers_death_leaves_it_alone(self) -> None:
        cluster = SimulatedCluster(brokers=2)
        cluster.fail_broker(2, 1.0)
        assert cluster.coordinator_node == 1

    def test_it_may_be_nowhere(self) -> None:
        cluster = SimulatedCluster()
        cluster.move_coordinator(None, 0.0)
        assert self.found(cluster).error is ErrorCode.coordinator_not_available
        assert ask(cluster, 1, BEAT) == HeartbeatAcked(error=ErrorCode.not_coordinator)

    def test_denied_by_acl_everywhere(self) -> None:
        cluster = SimulatedCluster(brokers=2)
        cluster.coordinator.denied.add("g")
        assert self.found(cluster, 2).error is ErrorCode.group_authorization_failed
        for node in (1, 2):
            assert ask(cluster, node, BEAT) == HeartbeatAcked(
                error=ErrorCode.group_authorization_failed
            )

    def test_asking_anything_lets_time_pass(self) -> None:
        cluster = SimulatedCluster()
        token = RequestToken(next(TOKENS))
        cluster.handle(1, JOIN, client=Client(), token=token, now=0.0)
        other = RequestToken(next(TOKENS))
        replies = cluster.handle(
            1, FindCoordinator(group_id="g"), client=Client(), token=other, now=3.0
        )
        assert [r.token for r in replies] == [token, other]


class TestMetadata:
    def test_of_some_all_and_no_topics(self) -> None:
        cluster = SimulatedCluster(brokers=2, racks={1: "a"})
        cluster.topics.create("orders", 3)
        cluster.topics.create("users", 1)
        assert list(metadata(cluster, 1).topics) == ["orders", "users"]
        some = metadata(cluster, 2, "orders", "nowhere")
        assert some.topics["nowhere"].error is ErrorCode.unknown_topic_or_partition
        assert [p.leader_id for p in some.topics["orders"].partitions] == [1, 2, 1]
        assert dict(some.racks) == {1: "a", 2: None}
        answer = ask(cluster, 1, GetMetadata(topics=()))
        assert isinstance(answer, ClusterMetadata)
        assert answer.topics == {}

    def test_grows_shrinks_never_vanishes_and_comes_back(self) -> None:
        cluster = SimulatedCluster()
        cluster.topics.create("orders", 2)
        cluster.topics.append(P1, 5, timestamp=0)
        cluster.topics.grow("orders", 3)
        assert size(cluster, 1) == 3
        with pytest.raises(ValueError, match="3 partitions already"):
            cluster.topics.grow("orders", 3)
        cluster.delete_topic("orders")
        assert size(cluster, 1) == 0
        cluster.topics.create("orders", 2)
        assert size(cluster, 1) == 2
        assert listed(cluster, P1, OFFSET_LATEST) == (0, ErrorCode.none)

    def test_a_broker_may_lag(self) -> None:
        """KAFKA-9815: asked in turn, the brokers' answers flip back and forth."""
        cluster = SimulatedCluster(brokers=2)
        cluster.topics.create("orders", 2)
        cluster.hold_metadata(2)
        cluster.topics.grow("orders", 3)
        assert [size(cluster, node) for node in (1, 2, 1)] == [3, 2, 3]
        cluster.release_metadata(2)
        assert size(cluster, 2) == 3

    def test_a_dead_brokers_partitions_are_led_by_the_next(self) -> None:
        cluster = SimulatedCluster(brokers=3)
        cluster.topics.create("orders", 3)
        cluster.fail_broker(2, 0.0)
        answer = metadata(cluster, 1, "orders")
        assert [p.leader_id for p in answer.topics["orders"].partitions] == [1, 3, 3]
        assert sorted(answer.brokers) == [1, 3]


class TestListOffsets:
    def test_ends_and_times(self) -> None:
        cluster = SimulatedCluster()
        cluster.topics.create("orders", 1)
        cluster.topics.append(P0, 10, timestamp=1_000)
        cluster.topics.append(P0, 5, timestamp=2_000)
        cluster.topics.log(P0).start = 3
        assert listed(cluster, P0, OFFSET_EARLIEST) == (3, ErrorCode.none)
        assert listed(cluster, P0, OFFSET_LATEST) == (15, ErrorCode.none)
        assert listed(cluster, P0, 1_000) == (3, ErrorCode.none)
        assert listed(cluster, P0, 1_001) == (10, ErrorCode.none)
        assert listed(cluster, P0, 2_001) == (-1, ErrorCode.none)

    def test_read_committed_ends_where_a_transaction_is_open(self) -> None:
        cluster = SimulatedCluster()
        cluster.topics.create("orders", 1)
        cluster.topics.append(P0, 10, timestamp=1_000)
        cluster.topics.append(P0, 5, timestamp=2_000)
        cluster.topics.log(P0).stable_end = 10
        assert listed(cluster, P0, OFFSET_LATEST) == (15, ErrorCode.none)
        assert listed(cluster, P0, OFFSET_LATEST, read_committed=True)[0] == 10
        assert listed(cluster, P0, 2_000, read_committed=True)[0] == -1

    def test_only_the_leader_answers(self) -> None:
        cluster = SimulatedCluster(brokers=2)
        cluster.topics.create("orders", 2)
        assert listed(cluster, P1, OFFSET_LATEST, node=1)[1] is ErrorCode.not_leader_or_follower
        assert listed(cluster, P1, OFFSET_LATEST, node=2)[1] is ErrorCode.none
        unknown = TopicPartition("orders", 9)
        assert listed(cluster, unknown, 0)[1] is ErrorCode.unknown_topic_or_partition


class TestTopics:
    def test_refuses_nonsense(self) -> None:
        topics = Topics()
        topics.create("orders", 1)
        with pytest.raises(ValueError, match="exists"):
            topics.create("orders", 1)
        with pytest.raises(ValueError, match="at least one"):
            topics.create("users", 0)
        with pytest.raises(KeyError):
            topics.delete("users")
        with pytest.raises(KeyError):
            topics.log(P1)
        assert not topics.exists(TopicPartition("orders", -1))
