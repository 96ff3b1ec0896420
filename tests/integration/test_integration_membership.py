"""Members come, go, and change their minds: on the embedded broker and on a real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition
from integration_support import (
    PATIENCE,
    Cluster,
    Member,
    UserError,
    code,
    in_background,
    members,
    publish,
    shared,
    unique,
    until,
)
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer, RebalanceListener
from kafka_coop.kafka_errors import PollTooLateException
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import KafkaCluster

LATE = timedelta(seconds=1)


def test_one_member_joins_and_reads_everything(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic, partitions=4)
    publish(cluster, topic, 25, 0, 1, 2, 3)
    one = Member(cluster, unique("g"), topic)
    with members(one):
        until(lambda: len(one.records) == 100, one)
        assert one.offsets == {(topic, p): list(range(25)) for p in range(4)}
        assert one.told == [("assigned", tuple((topic, p) for p in range(4)))]
        assert one.consumer.memberid()
        assert not one.raised


@pytest.mark.usefixtures("foreign_loops")
def test_a_member_joins_in_a_service_that_runs_on_uvloop(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    one = Member(embedded, unique("g"), topic)
    with members(one):
        shared(topic, 2, one)


def test_members_come_and_go_and_callbacks_are_deltas(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=6)
    first = Member(cluster, group, topic)
    with members(first):
        shared(topic, 6, first)
        second, third = Member(cluster, group, topic), Member(cluster, group, topic)
        with members(second, third):
            shared(topic, 6, first, second, third)
            kept = first.owned
            assert [len(m.owned) for m in (first, second, third)] == [2, 2, 2]
            for member in (first, second, third):
                assert member.balance() == member.owned
                assert not member.calls("lost")
        shared(topic, 6, first)
        # Cooperative: what it kept was never taken from it.
        taken = {pair for call in first.calls("revoked") for pair in call}
        assert not taken & set(kept)
        assert first.balance() == first.owned
        assert not first.raised


def test_empty_deltas_are_told_on_assign_alone(cluster: Cluster) -> None:
    """Trap 21: on_assign comes after every round, with an empty list if nothing was added."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=1)
    owner = Member(cluster, group, topic)
    with members(owner):
        shared(topic, 1, owner)
        idle = Member(cluster, group, topic)
        with members(idle):
            until(lambda: idle.count("assigned") > 0 and owner.count("assigned") > 1, owner, idle)
            assert {*idle.calls("assigned")} == {()}
            assert {*owner.calls("assigned")[1:]} == {()}
            for member in (owner, idle):
                assert () not in member.calls("revoked")
                assert () not in member.calls("lost")


def test_the_listener_form(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    told: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, _: CoopConsumer, partitions: list[TopicPartition]) -> None:
            told.append(("assigned", len(partitions)))

        def on_partitions_revoked(self, _: CoopConsumer, partitions: list[TopicPartition]) -> None:
            told.append(("revoked", len(partitions)))

    member = Member(embedded, unique("g"))
    with members(member):
        member.consumer.subscribe([topic], listener=Listener())
        until(lambda: bool(told), member)
    assert told == [("assigned", 2), ("revoked", 2)]


def test_a_new_subscription_replaces_the_old_one(cluster: Cluster) -> None:
    old, new, group = unique("old"), unique("new"), unique("g")
    for topic in (old, new):
        cluster.create_topic(topic, partitions=2)
    member = Member(cluster, group, old)
    with members(member):
        shared(old, 2, member)
        member.subscribe(new)
        shared(new, 2, member)
        assert member.consumer.subscription() == [new]
        assert member.told == [
            ("assigned", ((old, 0), (old, 1))),
            ("revoked", ((old, 0), (old, 1))),
            ("assigned", ((new, 0), (new, 1))),
        ]


def test_unsubscribe_and_subscribe_again(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 3, 0, 1)
    leaver, stayer = Member(cluster, group, topic), Member(cluster, group, topic)
    with members(leaver, stayer):
        shared(topic, 2, leaver, stayer)
        leaver.consumer.unsubscribe()
        assert leaver.consumer.subscription() == []
        until(lambda: len(stayer.owned) == 2, leaver, stayer)
        assert leaver.owned == ()
        assert leaver.told[-1][0] == "revoked"
        leaver.subscribe(topic)
        until(lambda: len(leaver.owned) == 1, leaver, stayer)
        assert not leaver.calls("lost")
        assert leaver.balance() == leaver.owned


def test_unsubscribe_and_subscribe_at_once(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic, partitions=2)
    member = Member(cluster, unique("g"), topic)
    with members(member):
        shared(topic, 2, member)
        member.consumer.unsubscribe()
        member.subscribe(topic)
        until(lambda: member.count("assigned") == 2, member)
        shared(topic, 2, member)
        assert [kind for kind, _ in member.told] == ["assigned", "revoked", "assigned"]


@pytest.mark.verdict
def test_what_is_unsubscribed_from_is_not_committed(cluster: Cluster) -> None:
    """Also where the next periodic commit is due by then."""
    topic = unique("t")
    cluster.create_topic(topic)
    publish(cluster, topic, 3, 0)
    member = Member(cluster, unique("g"), topic, auto_commit_interval_ms=60_000)
    with members(member):
        until(lambda: len(member.records) == 3, member)
        member.consumer._commits.auto_commit_due = 0.0  # as if that took the user so long
        member.consumer.unsubscribe()
        until(lambda: member.owned == (), member)
        (found,) = member.consumer.committed([TopicPartition(topic, 0)], PATIENCE)
    assert found.offset == OFFSET_INVALID


def test_a_forced_rebalance_changes_nothing_and_keeps_everything_flowing(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=4)
    one, two = Member(cluster, group, topic), Member(cluster, group, topic)
    with members(one, two):
        shared(topic, 4, one, two)
        before = (one.owned, two.owned)
        rounds = one.count("assigned"), two.count("assigned")
        one.consumer.enforce_rebalance("because")
        until(
            lambda: one.count("assigned") > rounds[0] and two.count("assigned") > rounds[1],
            one,
            two,
        )
        assert (one.owned, two.owned) == before
        assert one.calls("assigned")[-1] == two.calls("assigned")[-1] == ()


def test_a_topic_that_a_pattern_matches_later_is_taken_up(cluster: Cluster) -> None:
    stem, group = unique("regex"), unique("g")
    cluster.create_topic(f"{stem}-a", partitions=2)
    member = Member(cluster, group, f"^{stem}-[ab]$", topic_metadata_refresh_interval_ms=200)
    with members(member):
        shared(f"{stem}-a", 2, member)
        cluster.create_topic(f"{stem}-c", partitions=1)
        cluster.create_topic(f"{stem}-b", partitions=1)
        until(lambda: len(member.owned) == 3, member)
        assert member.told == [
            ("assigned", ((f"{stem}-a", 0), (f"{stem}-a", 1))),
            ("assigned", ((f"{stem}-b", 0),)),
        ]


def test_a_subscribed_topic_that_comes_later(cluster: Cluster) -> None:
    topic = unique("later")
    # The mock makes any topic that is asked for, unless it is told not to know it.
    member = Member(cluster, unique("g"), topic, allow_auto_create_topics=False)
    if isinstance(cluster, EmbeddedKafka):
        cluster.set_topic_error(topic, 3)
    with members(member):
        until(lambda: bool(member.errors), member)
        error = member.errors[0].error()
        assert error is not None
        assert error.code() == 3
        assert topic in error.str()
        if isinstance(cluster, EmbeddedKafka):
            cluster.set_topic_error(topic, 0)
        else:
            cluster.create_topic(topic, partitions=4)
        until(lambda: len(member.owned) == 4, member)


def test_on_assign_overrides_where_to_start(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 10, 0, 1)
    member = Member(cluster, unique("g"))

    def from_seven(consumer: CoopConsumer, partitions: list[TopicPartition]) -> None:
        for p in partitions:
            if p.partition == 1:
                p.offset = 7
        consumer.incremental_assign(partitions)

    member.hooks["assigned"] = from_seven
    member.subscribe(topic)
    with members(member):
        until(lambda: len(member.records) == 13, member)
        assert member.offsets == {(topic, 0): list(range(10)), (topic, 1): [7, 8, 9]}


@pytest.mark.parametrize("asynchronous", [True, False])
def test_what_on_assign_commits_is_where_to_start(cluster: Cluster, asynchronous: bool) -> None:
    """As with confluent's and Java's, which look up what is committed when it has returned."""
    topic = unique("t")
    cluster.create_topic(topic, partitions=1)
    publish(cluster, topic, 10, 0)
    member = Member(cluster, unique("g"))
    member.hooks["assigned"] = lambda consumer, partitions: consumer.commit(
        offsets=[TopicPartition(p.topic, p.partition, 7) for p in partitions],
        asynchronous=asynchronous,
    )
    member.subscribe(topic)
    with members(member):
        until(lambda: bool(member.records) and member.records[-1][2] == 9, member)
        assert member.offsets == {(topic, 0): [7, 8, 9]}


@pytest.mark.parametrize("form", ["assign", "seek"])
def test_other_ways_to_say_where_to_start(embedded: EmbeddedKafka, form: str) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=1)
    publish(embedded, topic, 10, 0)
    member = Member(embedded, unique("g"))

    def start(consumer: CoopConsumer, partitions: list[TopicPartition]) -> None:
        at = [TopicPartition(p.topic, p.partition, 8) for p in partitions]
        if form == "assign":
            consumer.assign(at)
        else:
            consumer.seek(at[0])

    member.hooks["assigned"] = start
    member.subscribe(topic)
    with members(member):
        until(lambda: len(member.records) == 2, member)
        assert member.offsets == {(topic, 0): [8, 9]}


def test_a_late_word_of_what_is_committed_moves_nobody_from_there(embedded: EmbeddedKafka) -> None:
    """Trap 18: the answer comes when the user's own start has been read from."""
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=1)
    publish(embedded, topic, 10, 0)
    before = Member(embedded, group, topic, enable_auto_commit=False)
    with members(before):
        shared(topic, 1, before)
        before.consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    member = Member(embedded, group, enable_auto_commit=False)

    def from_seven(consumer: CoopConsumer, partitions: list[TopicPartition]) -> None:
        for p in partitions:
            consumer.seek(TopicPartition(topic, p.partition, 7))

    member.hooks["assigned"] = from_seven
    embedded.delay("OffsetFetch", LATE, broker=1, times=2)
    member.subscribe(topic)
    with members(member):
        until(lambda: len(member.records) == 3, member)
        # As late, and asked later: the other answer has come by then.
        (committed,) = member.consumer.committed([TopicPartition(topic, 0)])
        assert committed.offset == 2
        publish(embedded, topic, 1, 0)
        until(lambda: len(member.records) == 4, member)
        assert member.offsets == {(topic, 0): [7, 8, 9, 10]}


# --- pausing -------------------------------------------------------------------------------


def test_a_pause_inside_on_assign_holds_until_resume(cluster: Cluster) -> None:
    topic = unique("t")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 3, 0, 1)
    member = Member(cluster, unique("g"))
    member.hooks["assigned"] = lambda c, ps: c.pause([p for p in ps if p.partition == 0])
    member.subscribe(topic)
    with members(member):
        until(lambda: len(member.records) == 3, member)
        publish(cluster, topic, 1, 1)
        until(lambda: len(member.records) == 4, member)
        assert {partition for _, partition, _ in member.records} == {1}
        member.consumer.resume([TopicPartition(topic, 0)])
        until(lambda: len(member.records) == 7, member)
        assert member.offsets[topic, 0] == [0, 1, 2]


def test_a_pause_survives_a_rebalance_and_ends_with_ownership(cluster: Cluster) -> None:
    """Trap 24 (franz-go#1272): kept means paused still; lost and regained means unpaused."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=4)
    first = Member(cluster, group, topic)
    with members(first):
        shared(topic, 4, first)
        first.consumer.pause([TopicPartition(topic, p) for p in range(4)])
        second = Member(cluster, group, topic)
        with members(second):
            shared(topic, 4, first, second)
            kept, moved = first.owned, second.owned
            second.consumer.pause([TopicPartition(*p) for p in moved])
        shared(topic, 4, first)
        publish(cluster, topic, 2, *range(4))
        until(lambda: len(first.records) == 4, first)
        publish(cluster, topic, 1, *range(4))
        until(lambda: len(first.records) == 6, first)
        assert {(t, p) for t, p, _ in first.records} == set(moved)
        first.consumer.resume([TopicPartition(*p) for p in kept])
        until(lambda: len(first.records) == 12, first)


def test_a_pause_of_what_was_never_fetched_ends_with_ownership_too(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    publish(embedded, topic, 2, 0)
    embedded.fail("OffsetFetch", *[88] * 200)  # unstable: its start stays unknown
    member = Member(embedded, unique("g"))

    def pause(consumer: CoopConsumer, partitions: list[TopicPartition]) -> None:
        consumer.pause(partitions)
        del member.hooks["assigned"]

    member.hooks["assigned"] = pause
    member.subscribe(topic)
    with members(member):
        shared(topic, 1, member)
        embedded.fail("Heartbeat", 25)
        until(lambda: member.count("lost") == 1, member)
        embedded.clear_failures("OffsetFetch")
        until(lambda: len(member.records) == 2, member)


# --- callbacks that take long, or raise ------------------------------------------------------


@pytest.mark.verdict
def test_a_callback_that_takes_long_holds_up_nobody_else(kafka: KafkaCluster) -> None:
    """Trap 19 (kafka-python#3132), and more: what others give up moves on, too.

    What the slow one gives up stays its own until it has, and is committed in the midst of the
    rounds after. The mock would go on without it.
    """
    cluster = kafka
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=6)  # of 3 each, both give up one
    quick, slow = Member(cluster, group, topic), Member(cluster, group, topic)
    entered, go_on = threading.Event(), threading.Event()

    def wait(_: CoopConsumer, __: list[TopicPartition]) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    with members(quick, slow):
        shared(topic, 6, quick, slow)
        kept = set(quick.owned)
        publish(cluster, topic, 5, *range(6))
        until(lambda: len(quick.records) == len(slow.records) == 15, quick, slow)
        slow.hooks["revoked"] = wait
        third = Member(cluster, group, topic)
        with members(third), in_background(slow.step):
            try:
                until(lambda: entered.is_set() and set(quick.owned) < kept, quick, third)
                seen = len(quick.records)
                flowing = [p for _, p in quick.owned]
                assert flowing
                publish(cluster, topic, 5, *flowing)
                until(lambda: len(quick.records) >= seen + 5 * len(flowing), quick, third)
                until(lambda: set(third.owned) == kept - set(quick.owned), quick, third)
                assert not set(third.owned) & set(slow.owned)
                assert not go_on.is_set()
            finally:
                go_on.set()
            until(lambda: len(third.owned) == 2, quick, third)
            read = quick.records + slow.records + third.records
            assert len(read) == len(set(read)), "what it gave up late was not committed"
        assert not slow.calls("lost")


@pytest.mark.verdict
def test_a_callback_longer_than_the_session_loses_nothing(cluster: Cluster) -> None:
    """Heartbeats go on in the background while the user's thread is in a callback."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=2)
    member = Member(cluster, group)

    def long(consumer: CoopConsumer, _: list[TopicPartition]) -> None:
        me, until_ = consumer.memberid(), time.monotonic() + 1.6
        while time.monotonic() < until_:  # the callback's own work, longer than the session
            threading.Event().wait(0.05)
        assert consumer.memberid() == me

    member.hooks["assigned"] = long
    member.subscribe(topic)
    with members(member):
        publish(cluster, topic, 1, 0, 1)
        until(lambda: len(member.records) == 2, member)
        assert member.told == [("assigned", ((topic, 0), (topic, 1)))]
        assert not member.raised


@pytest.mark.parametrize("kind", ["assigned", "revoked"])
def test_a_callback_that_raises(cluster: Cluster, kind: str) -> None:
    """The exception comes out of poll; the step is done all the same, and the group goes on."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=4)

    def fail(_: CoopConsumer, __: list[TopicPartition]) -> None:
        raise UserError(kind)

    first = Member(cluster, group, topic)
    with members(first):
        shared(topic, 4, first)
        second = Member(cluster, group)
        (first if kind == "revoked" else second).hooks[kind] = fail  # type: ignore[index]  # one of the two
        second.subscribe(topic)
        with members(second):
            shared(topic, 4, first, second)
            raised = first.raised if kind == "revoked" else second.raised
            assert [str(error) for error in raised][:1] == [kind]
            for member in (first, second):
                assert member.balance() == member.owned
            publish(cluster, topic, 1, 0, 1, 2, 3)
            until(lambda: len(first.records) + len(second.records) == 4, first, second)


def test_the_first_of_two_exceptions_surfaces(embedded: EmbeddedKafka) -> None:
    """Both callbacks of a change of subscription run, whatever the first one did."""
    old, new = unique("old"), unique("new")
    for topic in (old, new):
        embedded.create_topic(topic)
    member = Member(embedded, unique("g"), old)

    def fail(name: str) -> Callable[[CoopConsumer, list[TopicPartition]], None]:
        def failing(_: CoopConsumer, __: list[TopicPartition]) -> None:
            raise UserError(name)

        return failing

    with members(member):
        shared(old, 1, member)
        member.hooks["assigned"], member.hooks["revoked"] = fail("assigned"), fail("revoked")
        member.subscribe(new)
        shared(new, 1, member)
        until(lambda: len(member.raised) == 2, member)
        assert [str(e) for e in member.raised] == ["revoked", "assigned"]
        member.hooks.clear()


# --- polling too late --------------------------------------------------------------------------


def test_polling_too_late_loses_everything_and_the_next_poll_says_so(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=2)
    slow = Member(cluster, group, topic, max_poll_interval_ms=1200, session_timeout_ms=1100)
    quick = Member(cluster, group, topic)
    with members(slow, quick):
        shared(topic, 2, slow, quick)
        (mine,) = slow.owned
        # It does not poll any more; the other one gets everything.
        shared(topic, 2, quick)
        assert slow.owned == (mine,)  # it has not been told yet
        publish(cluster, topic, 1, 0, 1)
        until(lambda: len(quick.records) == 2, quick)
        until(lambda: bool(slow.raised), slow)
        assert slow.told[-1] == ("lost", (mine,))
        assert isinstance(slow.raised[0], PollTooLateException)
        assert code(slow.raised[0]) == -147
        assert not slow.records
        shared(topic, 2, slow, quick)  # it joins again by itself
        assert slow.balance() == slow.owned


def test_the_interval_to_poll_begins_with_the_subscription(embedded: EmbeddedKafka) -> None:
    """A liveness probe restarts a process that hangs before its first poll; not one that rests."""
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), max_poll_interval_ms=1200)
    with members(member):
        member.subscribe(topic)
        assert member.consumer.health().live
        until(lambda: member.consumer.health().poll_overdue)
        assert not member.consumer.health().live
        member.consumer.unsubscribe()
        assert member.consumer.health().live, "it need not poll"
        member.subscribe(topic)
        assert member.consumer.health().live, "that it did not poll before does not count"


# --- several consumers in one process -----------------------------------------------------------


def test_two_consumers_share_a_registry(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    registry = CollectorRegistry()
    groups = [unique("g"), unique("g")]
    made = [
        CoopConsumer(
            {
                "bootstrap.servers": embedded.bootstrap_servers,
                "group.id": group,
                "client.id": group,
                "session.timeout.ms": 1100,
            },
            registry=registry,
        )
        for group in groups
    ]
    try:
        for consumer in made:
            consumer.subscribe([topic])
        until(lambda: all(len(_polled(c).assignment()) == 2 for c in made))
        samples = {
            s.labels["group"]: s.value
            for family in registry.collect()
            for s in family.samples
            if s.name == "kafka_coop_assigned_partitions"
        }
        assert samples == dict.fromkeys(groups, 2.0)
        made[0].close()
        left = {s.labels.get("group") for family in registry.collect() for s in family.samples} - {
            None
        }
        assert left == {groups[1]}
    finally:
        for consumer in made:
            consumer.close()


def _polled(consumer: CoopConsumer) -> CoopConsumer:
    consumer.poll(0.01)
    return consumer
