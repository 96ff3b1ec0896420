"""Errors from the broker, brokers that come and go, assignors that fail: recover or say so."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from integration_support import Cluster as AnyCluster
from integration_support import (
    Member,
    classic,
    code,
    members,
    pairs,
    publish,
    shared,
    unique,
    until,
)

from kafka_coop.assignors import CooperativeSticky
from kafka_coop.backend import clock
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.kafka_errors import AssignorException, FencedException
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.embedded import DISCONNECT, Api
from kafka_coop.types import (
    Assignment,
    Cluster,
    GroupAssignment,
    GroupMetadata,
    GroupSubscription,
    Partitions,
    RebalanceProtocol,
)

E = KafkaError
MEMBER_IS_OUT = (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION)
RETRIED = (
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    DISCONNECT,
)


def joined(embedded: EmbeddedKafka, topic: str, **config: object) -> Member:
    embedded.create_topic(topic, partitions=2)
    publish(embedded, topic, 1, 0, 1)
    member = Member(embedded, unique("g"), topic, **config)
    until(lambda: len(member.records) == 2, member)
    return member


def works(embedded: EmbeddedKafka, topic: str, member: Member) -> None:
    """It owns everything, and reads what is published now, and commits it."""
    shared(topic, 2, member)
    publish(embedded, topic, 1, 0, 1)
    seen = len(member.records)
    until(lambda: len(member.records) >= seen + 2, member)
    member.consumer.commit(asynchronous=False)


# --- JoinGroup and SyncGroup -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "error"),
    [
        *((api, e) for api in ("JoinGroup", "SyncGroup", "FindCoordinator") for e in RETRIED),
        *(
            (api, e)
            for api in ("JoinGroup", "SyncGroup")
            for e in (E.REBALANCE_IN_PROGRESS, *MEMBER_IS_OUT)
        ),
    ],
)
def test_joining_recovers(embedded: EmbeddedKafka, api: Api, error: int) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    embedded.fail(api, int(error), int(error))
    member = Member(embedded, unique("g"), topic)
    with members(member):
        works(embedded, topic, member)
        assert not member.raised
        assert not member.calls("lost")


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("JoinGroup", E.INCONSISTENT_GROUP_PROTOCOL),
        ("JoinGroup", E.INVALID_GROUP_ID),
        ("JoinGroup", E.INVALID_SESSION_TIMEOUT),
        ("JoinGroup", E.GROUP_AUTHORIZATION_FAILED),
        ("JoinGroup", E.GROUP_MAX_SIZE_REACHED),
        ("JoinGroup", E.UNSUPPORTED_VERSION),
        ("JoinGroup", E.FENCED_INSTANCE_ID),
        ("JoinGroup", E.UNKNOWN),
        ("SyncGroup", E.GROUP_AUTHORIZATION_FAILED),
        ("SyncGroup", E.FENCED_INSTANCE_ID),
    ],
)
def test_what_no_retry_can_help_is_raised_once_and_polling_on_tries_again(
    embedded: EmbeddedKafka, api: Api, error: int
) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    embedded.fail(api, int(error))
    member = Member(embedded, unique("g"), topic)
    with members(member):
        until(lambda: bool(member.raised), member)
        assert code(member.raised[0]) == error
        assert "failed: " in member.raised[0].args[0].str()
        if error == E.FENCED_INSTANCE_ID:
            assert isinstance(member.raised[0], FencedException)
        works(embedded, topic, member)
        assert len(member.raised) == 1


@pytest.mark.parametrize("error", [E.GROUP_AUTHORIZATION_FAILED, E.INVALID_GROUP_ID])
def test_a_coordinator_that_is_refused_is_raised(embedded: EmbeddedKafka, error: int) -> None:
    """librdkafka asks for one, too, and may take some of these errors away."""
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    embedded.fail("FindCoordinator", *[int(error)] * 5)
    member = Member(embedded, unique("g"), topic)
    with members(member):
        until(lambda: bool(member.raised), member)
        works(embedded, topic, member)
        assert {code(raised) for raised in member.raised} == {error}


# --- Heartbeat -------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [*RETRIED, E.REBALANCE_IN_PROGRESS, E.GROUP_AUTHORIZATION_FAILED])
def test_a_heartbeat_that_fails_takes_nothing_away(embedded: EmbeddedKafka, error: int) -> None:
    topic = unique("t")
    member = joined(embedded, topic)
    with members(member):
        embedded.track_requests()
        embedded.fail("Heartbeat", int(error))
        until(lambda: sum(r.api == "Heartbeat" for r in embedded.requests()) >= 3, member)
        works(embedded, topic, member)
        assert not member.calls("lost")
        assert not member.calls("revoked")
        assert not member.raised


@pytest.mark.verdict
@pytest.mark.parametrize("error", [*MEMBER_IS_OUT, E.FENCED_INSTANCE_ID])
def test_a_heartbeat_that_says_we_are_out_loses_everything(
    embedded: EmbeddedKafka, error: int
) -> None:
    topic = unique("t")
    member = joined(embedded, topic)
    with members(member):
        embedded.fail("Heartbeat", int(error))
        until(lambda: member.count("lost") == 1, member)
        assert member.told[-1] == ("lost", ((topic, 0), (topic, 1)))
        works(embedded, topic, member)
        codes = [code(e) for e in member.raised]
        assert codes == ([error] if error == E.FENCED_INSTANCE_ID else [])


# --- OffsetCommit and OffsetFetch --------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [*RETRIED, E.REQUEST_TIMED_OUT, E.UNKNOWN_TOPIC_OR_PART, E.REBALANCE_IN_PROGRESS]
)
def test_a_commit_is_retried(embedded: EmbeddedKafka, error: int) -> None:
    topic = unique("t")
    member = joined(embedded, topic, enable_auto_commit=False)
    with members(member):
        embedded.fail("OffsetCommit", int(error), int(error))
        done = member.consumer.commit(asynchronous=False)
        assert {(p.partition, p.offset, p.error) for p in done or []} == {
            (0, 1, None),
            (1, 1, None),
        }
        found = member.consumer.committed([TopicPartition(topic, 0)], timeout=10)
        assert [p.offset for p in found] == [1]
        assert not member.calls("lost")


@pytest.mark.parametrize(
    "error",
    [
        E.OFFSET_METADATA_TOO_LARGE,
        E.INVALID_COMMIT_OFFSET_SIZE,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_a_commit_that_is_refused_raises(embedded: EmbeddedKafka, error: int) -> None:
    topic = unique("t")
    member = joined(embedded, topic, enable_auto_commit=False)
    with members(member):
        embedded.fail("OffsetCommit", int(error))
        with pytest.raises(KafkaException) as refused:
            member.consumer.commit(asynchronous=False)
        assert code(refused.value) == error
        works(embedded, topic, member)
        assert not member.calls("lost")


def test_a_commit_of_a_topic_deleted_for_good_gives_up(embedded: EmbeddedKafka) -> None:
    """Trap 14 (KAFKA-16224): it must not be retried until the deadline."""
    topic = unique("t")
    member = joined(embedded, topic, enable_auto_commit=False)
    with members(member):
        embedded.fail("OffsetCommit", *[int(E.UNKNOWN_TOPIC_OR_PART)] * 20)
        with pytest.raises(KafkaException) as refused:
            member.consumer.commit(asynchronous=False)
        assert code(refused.value) == E.UNKNOWN_TOPIC_OR_PART
        embedded.clear_failures("OffsetCommit")


@pytest.mark.parametrize("error", [*MEMBER_IS_OUT, E.FENCED_INSTANCE_ID])
def test_a_commit_that_says_we_are_out_loses_everything_at_once(
    embedded: EmbeddedKafka, error: int
) -> None:
    """Trap 15 (franz-go 824e34d2): no zombie goes on after a fatal commit error."""
    topic = unique("t")
    member = joined(embedded, topic, enable_auto_commit=False)
    with members(member):
        embedded.fail("OffsetCommit", int(error))
        with pytest.raises(KafkaException) as refused:
            member.consumer.commit(asynchronous=False)
        assert code(refused.value) in (E.ILLEGAL_GENERATION, error)
        until(lambda: member.count("lost") == 1, member)
        works(embedded, topic, member)


@pytest.mark.parametrize("error", [*RETRIED, E.UNSTABLE_OFFSET_COMMIT])
def test_starting_positions_are_asked_for_again(embedded: EmbeddedKafka, error: int) -> None:
    """Trap 20: a fetch that fails is neither lost nor tells on_assign twice."""
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    publish(embedded, topic, 1, 0, 1)
    embedded.fail("OffsetFetch", int(error), int(error))
    member = Member(embedded, unique("g"), topic)
    with members(member):
        until(lambda: len(member.records) == 2, member)
        assert member.count("assigned") == 1
        found = member.consumer.committed([TopicPartition(topic, 0)], timeout=10)
        assert len(found) == 1


@pytest.mark.parametrize("error", [E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED])
def test_starting_positions_that_are_refused_come_as_messages(
    embedded: EmbeddedKafka, error: int
) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    embedded.fail("OffsetFetch", int(error), int(error))  # behind SyncGroup, and asked anew
    member = Member(embedded, unique("g"), topic)
    with members(member):
        until(lambda: len(member.errors) == 2, member)
        told = [(m.topic(), m.partition(), e.code()) for m in member.errors if (e := m.error())]
        assert told == [(topic, 0, error), (topic, 1, error)]


@pytest.mark.parametrize("error", [E.LEADER_NOT_AVAILABLE, E.NOT_LEADER_FOR_PARTITION, DISCONNECT])
def test_where_logs_begin_is_asked_again(embedded: EmbeddedKafka, error: int) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    publish(embedded, topic, 1, 0, 1)
    embedded.fail("ListOffsets", int(error), int(error))
    member = Member(embedded, unique("g"), topic)
    with members(member):
        until(lambda: len(member.records) == 2, member)


# --- brokers ---------------------------------------------------------------------------------


def test_a_broker_goes_down_and_comes_back(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    member = joined(embedded, topic, session_timeout_ms=6000)
    with members(member):
        embedded.broker_down(1)
        until(lambda: not classic(member)._standing.coordinator, member)
        embedded.broker_up(1)
        works(embedded, topic, member)
        assert not member.raised


@pytest.mark.verdict
def test_a_broker_away_for_longer_than_the_session_delivers_nothing_in_between(
    embedded: EmbeddedKafka,
) -> None:
    """The lease (invariant 1) ends by itself, although nobody could tell us."""
    topic = unique("t")
    member = joined(embedded, topic)
    with members(member):
        publish(embedded, topic, 50, 0, 1)
        buffer = cast(Fetcher, member.consumer._fetcher)._buffer
        until(lambda: buffer.index < len(buffer.records), member, what="a record that lies ready")
        embedded.broker_down(1)
        mailbox = member.consumer._mailbox
        until(lambda: clock.now() > mailbox.lease_until)
        read = list(member.records)
        assert not any(member.step() for _ in range(20))
        assert member.records == read
        embedded.broker_up(1)
        works(embedded, topic, member)
        everything = {(topic, p, o) for p in (0, 1) for o in range(52)}
        until(lambda: {*member.records} == everything, member)


def test_the_coordinator_moves() -> None:
    with EmbeddedKafka(brokers=3) as kafka:
        topic, group = unique("t"), unique("g")
        kafka.create_topic(topic, partitions=4)
        first, second = Member(kafka, group, topic), Member(kafka, group, topic)
        with members(first, second):
            shared(topic, 4, first, second)
            for broker in itertools.islice(itertools.cycle((2, 3, 1)), 4):
                kafka.set_coordinator(group, broker)
                until(
                    lambda b=broker: all(  # type: ignore[misc]  # a lambda's default
                        (node := classic(m)._standing.coordinator) and node.node_id == b
                        for m in (first, second)
                    ),
                    first,
                    second,
                )
            shared(topic, 4, first, second)
            publish(kafka, topic, 1, 0, 1, 2, 3)
            until(lambda: len(first.records) + len(second.records) >= 4, first, second)
            for member in (first, second):
                member.consumer.commit(asynchronous=False)
                assert not member.raised


def test_a_slow_commit_does_not_stand_in_the_way_of_the_rejoin(embedded: EmbeddedKafka) -> None:
    """Trap 13 (KAFKA-14024): commits before it revokes, and rejoins in time."""
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=2)
    publish(embedded, topic, 2, 0, 1)
    first = Member(embedded, group, topic, session_timeout_ms=3000)
    with members(first):
        until(lambda: len(first.records) == 4, first)
        embedded.delay("OffsetCommit", timedelta(milliseconds=500), broker=1, times=1)
        second = Member(embedded, group, topic, session_timeout_ms=3000)
        with members(second):
            shared(topic, 2, first, second)
            assert not first.calls("lost")
            ((_, moved),) = second.owned
            publish(embedded, topic, 1, moved)
            until(lambda: bool(second.records), first, second)
            assert second.records == [(topic, moved, 2)]


# --- assignors -------------------------------------------------------------------------------


class Faulty(CooperativeSticky):
    """Fails as told, then works."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault: str | None = fault

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        if self.fault == "subscription_user_data":
            self.fault = None
            raise ZeroDivisionError("user data")
        return super().subscription_user_data(topics)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        if self.fault == "on_assignment":
            self.fault = None
            raise ZeroDivisionError("on_assignment")
        super().on_assignment(assignment, metadata)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Any:
        fault, someone, (topic,) = self.fault, min(group), cluster.partitions
        if fault != "on_assignment":
            self.fault = None
        match fault:
            case "raises":
                raise ZeroDivisionError("assign")
            case "none":
                return None
            case "strangers":
                return {"nobody": Assignment(partitions=Partitions({topic: [0]}))}
            case "unknown partitions":
                return {someone: Assignment(partitions=Partitions({topic: [99]}))}
            case "unknown topics":
                return {someone: Assignment(partitions=Partitions({"elsewhere": [0]}))}
            case "no values":
                return {someone: 7}
        return super().assign(cluster, group)


@pytest.mark.parametrize("fault", ["strangers", "unknown partitions", "unknown topics"])
def test_what_a_plan_has_no_right_to_say_is_left_out_logged_and_raised(
    embedded: EmbeddedKafka, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    member = Member(embedded, unique("g"), topic, assignors=[Faulty(fault)])
    with members(member):
        until(lambda: member.calls("assigned") == [()], member)
        assert "of the plan" in caplog.text
        until(lambda: bool(member.raised), member)
        assert isinstance(member.raised[0], AssignorException)
        assert "of the plan" in str(member.raised[0])
        member.consumer.enforce_rebalance("the assignor is mended")
        works(embedded, topic, member)
        assert len(member.raised) == 1


@pytest.mark.parametrize(
    "fault", ["raises", "none", "no values", "subscription_user_data", "on_assignment"]
)
def test_the_group_survives_a_faulty_assignor(embedded: EmbeddedKafka, fault: str) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    member = Member(embedded, unique("g"), topic, assignors=[Faulty(fault)])
    with members(member):
        until(lambda: bool(member.raised), member)
        assert isinstance(member.raised[0], AssignorException)
        if fault in ("raises", "subscription_user_data", "on_assignment"):
            assert "ZeroDivisionError" in str(member.raised[0])
        # An assignment of nothing is no reason for another round; a rejoin makes one.
        until(lambda: bool(member.calls("assigned")), member)
        member.consumer.enforce_rebalance("the assignor is mended")
        works(embedded, topic, member)
        assert len(member.raised) == 1


def test_members_keep_what_they_own_when_the_leaders_assignor_fails(kafka: AnyCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    assignor = Faulty("")
    leader = Member(kafka, group, topic, assignors=[assignor])
    with members(leader):
        shared(topic, 4, leader)
        other = Member(kafka, group, topic)
        with members(other):
            shared(topic, 4, leader, other)
            before = leader.owned, other.owned
            assignor.fault = "raises"
            leader.consumer.enforce_rebalance("so that it fails")
            until(lambda: bool(leader.raised), leader, other)
            assert isinstance(leader.raised[0], AssignorException)
            assert (leader.owned, other.owned) == before
            publish(kafka, topic, 1, 0, 1, 2, 3)
            until(lambda: len(leader.records) + len(other.records) == 4, leader, other)
            assert not leader.calls("lost")
            assert not other.calls("lost")


def test_a_user_strategy_of_the_eager_protocol(embedded: EmbeddedKafka) -> None:
    """Revokes everything before each join, and says so even where that is nothing."""

    class Everything:
        name = "everything-to-the-first"
        supported_protocols = (RebalanceProtocol.EAGER,)

        def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
            return None

        def assign(self, cluster: Cluster, group: GroupSubscription) -> GroupAssignment:
            everything = Partitions({t: range(n) for t, n in cluster.partitions.items()})
            first = min(group)
            return {
                m: Assignment(partitions=everything) if m == first else Assignment() for m in group
            }

        def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
            pass

    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    member = Member(embedded, unique("g"), topic, assignors=[Everything()])
    with members(member):
        shared(topic, 2, member)
        member.consumer.enforce_rebalance()
        until(lambda: member.count("assigned") == 2, member)
        both = pairs([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        assert member.told == [("assigned", both), ("revoked", both), ("assigned", both)]
