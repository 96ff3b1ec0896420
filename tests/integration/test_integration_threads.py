"""Calls from many threads at once, and user code that lets nobody else run."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from integration_support import (
    PATIENCE,
    Cluster,
    Member,
    code,
    in_background,
    members,
    publish,
    shared,
    unique,
    until,
)

from kafka_coop import CoopConsumer
from kafka_coop.assignors import CooperativeSticky
from kafka_coop.assignors.plan import Plan
from kafka_coop.client.polling import Polling
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.turns import Turn, TurnLock
from kafka_coop.types import Cluster as Metadata
from kafka_coop.types import GroupSubscription

CALLS = 400
"""Of each kind, in each thread."""

DOCUMENTED = {
    KafkaError._STATE,  # a partition that has just been taken away
    KafkaError._NO_OFFSET,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError._TIMED_OUT,
    KafkaError.REBALANCE_IN_PROGRESS,  # the coordinator's last word when time is up in a round
}


def test_no_record_overtakes_on_revoke_in_another_thread(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was about to take it when that thread began to poll waits for its turn."""
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=2)
    publish(embedded, topic, 100, 0, 1)
    first = Member(embedded, group, topic)
    consumer = first.consumer
    until(lambda: len(first.records) > 0, first)
    polling, fetcher = consumer._polling, cast(Fetcher, consumer._fetcher)
    about_to, go_on, decided = threading.Event(), threading.Event(), threading.Event()
    overtook: list[bool] = []
    other = threading.Thread(target=lambda: consumer.poll(0))

    def may_deliver(now: float) -> bool:
        if threading.current_thread() is other and not about_to.is_set():
            about_to.set()
            assert go_on.wait(PATIENCE)
        return Polling.may_deliver(polling, now)

    def take(timeout: float = -1) -> bool:
        if threading.current_thread() is other:
            decided.set()
        return Turn.take(polling.turn, timeout)

    def following(timeout: float) -> Message | None:
        if threading.current_thread() is other and not decided.is_set():
            overtook.append(True)
            decided.set()
        return Fetcher.next(fetcher, timeout)

    def revoked(_: CoopConsumer, __: list[TopicPartition]) -> None:
        go_on.set()
        assert decided.wait(PATIENCE)

    monkeypatch.setattr(polling, "may_deliver", may_deliver)
    monkeypatch.setattr(polling.turn, "take", take)
    monkeypatch.setattr(fetcher, "next", following)
    other.start()
    assert about_to.wait(PATIENCE)
    first.hooks["revoked"] = revoked
    second = Member(embedded, group, topic)
    with members(first, second):
        shared(topic, 2, first, second)
        other.join(PATIENCE)
        assert not overtook


def test_every_call_from_every_thread_while_the_group_rebalances(cluster: Cluster) -> None:
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=4)
    publish(cluster, topic, 200, 0, 1, 2, 3)
    member = Member(cluster, group, topic, session_timeout_ms=1400, auto_commit_interval_ms=20)
    there = [TopicPartition(topic, p) for p in range(4)]
    consumer = member.consumer
    calls: list[Callable[[], object]] = [
        lambda: consumer.position(there),
        lambda: consumer.pause(there[:1]),
        lambda: consumer.resume(there[:1]),
        lambda: consumer.seek(TopicPartition(topic, 1, 5)),
        consumer.assignment,
        lambda: consumer.commit(offsets=[TopicPartition(topic, 2, 1)]),
        lambda: consumer.commit(asynchronous=False),
        lambda: consumer.committed(there, timeout=10),
        lambda: (consumer.memberid(), consumer.consumer_group_metadata(), consumer.subscription()),
        lambda: consumer.get_watermark_offsets(there[3], cached=True),
        lambda: [*member.registry.collect()],
        lambda: consumer.poll(0.001),
        lambda: consumer.consume(10, 0.001),
    ]
    wrong: list[BaseException] = []
    left = threading.Semaphore(0)

    def hammer(call: Callable[[], object]) -> None:
        try:
            for _ in range(CALLS):
                try:
                    call()
                except KafkaException as error:
                    if code(error) not in DOCUMENTED:
                        raise
        except BaseException as error:  # noqa: BLE001  # told below
            wrong.append(error)
        finally:
            left.release()

    with members(member), in_background(member.step):
        until(lambda: len(member.owned) == 4)
        other = Member(cluster, group, topic, session_timeout_ms=1400)
        with members(other), in_background(other.step):
            threads = [threading.Thread(target=hammer, args=(call,)) for call in calls]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
                assert not thread.is_alive(), "a deadlock"
        assert not wrong
        until(lambda: len(member.owned) == 4)
        assert not member.raised


@pytest.mark.parametrize("timeout", [0, 0.01, 1])
def test_queries_are_answered_beside_a_thread_that_polls_without_pause(
    cluster: Cluster, timeout: float
) -> None:
    """confluent-kafka alone would let them wait for ever (it has a lock without a queue)."""
    topic = unique("t")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 3, 0, 1)
    member = Member(cluster, unique("g"), topic)
    there = TopicPartition(topic, 0, 0)
    with members(member), in_background(partial(member.step, timeout)):
        until(lambda: len(member.records) == 6)
        for _ in range(3):
            assert member.consumer.get_watermark_offsets(there, timeout=10) == (0, 3)
            assert set(member.consumer.list_topics(topic, timeout=10).topics) == {topic}
            assert len(member.consumer.offsets_for_times([there], timeout=10)) == 1
            assert member.consumer.cluster_id(timeout=10)
            assert any("lag" in family.name for family in member.registry.collect())


def test_who_takes_turns_lets_those_who_wait_go_first() -> None:
    lock, held, go_on = TurnLock(), threading.Event(), threading.Event()
    order: list[str] = []

    def hold() -> None:
        with lock:
            held.set()
            assert go_on.wait(PATIENCE)

    def wait() -> None:
        with lock:
            order.append("who waited")

    def be_polite() -> None:
        lock.take_turn(PATIENCE)
        order.append("who took turns")

    threads = [threading.Thread(target=work) for work in (hold, wait, be_polite)]
    holder, waiter, polite = threads
    holder.start()
    assert held.wait(PATIENCE)
    assert not _elsewhere(partial(lock.try_within, 0.01))
    waiter.start()
    until(lambda: len(lock._waiting) == 1)
    polite.start()
    polite.join(0.2)  # were it rude, it would end now
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == ["who waited", "who took turns"]
    assert lock.take_turn(PATIENCE)
    assert lock.try_within(0)
    lock.release()


def test_who_takes_turns_waits_for_those_before_and_not_for_those_who_come_meanwhile() -> None:
    """Of a pool's workers one would always be there."""
    lock, held, done = TurnLock(), threading.Event(), threading.Event()

    def keep_coming() -> None:
        while not done.is_set():
            with lock:
                held.set()
                sum(range(1000))

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(keep_coming) for _ in range(4)]
        assert held.wait(PATIENCE)
        try:
            for _ in range(20):
                assert lock.take_turn(PATIENCE)
                with lock:
                    pass
        finally:
            done.set()
        for worker in workers:
            worker.result()


def test_who_takes_turns_is_told_that_one_keeps_the_lock() -> None:
    lock, held, go_on = TurnLock(), threading.Event(), threading.Event()

    def keep() -> None:
        with lock:
            held.set()
            assert go_on.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        keeping = pool.submit(keep)
        assert held.wait(PATIENCE)
        assert not lock.take_turn(0.01)
        go_on.set()
        keeping.result()
    assert lock.take_turn(0.01)


def test_who_takes_turns_in_a_signal_handler_does_not_wait_for_what_that_interrupts() -> None:
    lock = TurnLock()
    with lock:
        assert lock.take_turn(PATIENCE)
    lock._waiting.add(threading.get_ident())  # it was interrupted while it waited
    assert lock.take_turn(0.01)


def test_a_pool_of_workers_keeps_neither_polls_nor_close_waiting(embedded: EmbeddedKafka) -> None:
    """Each of them asks again as soon as it is answered."""
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic)
    publish(embedded, topic, 100, 0)
    member = Member(embedded, group, topic)
    consumer = member.consumer
    until(lambda: len(member.records) > 0, member)

    def work() -> None:
        with contextlib.suppress(RuntimeError):  # it is closed
            while True:
                consumer.position([TopicPartition(topic, 0)])
                sum(range(1000))

    with ThreadPoolExecutor(3) as pool:
        workers = [pool.submit(work) for _ in range(3)]
        until(lambda: len(member.records) == 100, member)
        for _ in range(20):
            consumer.poll(0.01)
        consumer.close()
        for worker in workers:
            worker.result()


@pytest.mark.parametrize("calm", [True, False])
def test_a_query_that_takes_long_in_another_thread_keeps_no_poll_longer_than_it_may_take(
    embedded: EmbeddedKafka, calm: bool
) -> None:
    """Nor is it taken for a user who does not poll."""
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic)
    publish(embedded, topic, 1, 0)
    member = Member(embedded, group, topic)
    until(lambda: len(member.records) > 0, member)
    consumer, held, go_on = member.consumer, threading.Event(), threading.Event()

    def ask() -> None:
        with consumer._lock:
            held.set()
            assert go_on.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        assert held.wait(PATIENCE)
        seen = consumer._mailbox.last_poll
        if not calm:
            consumer._polling.disturb()
        assert consumer.poll(0.1) is None
        assert consumer._mailbox.last_poll > seen
        go_on.set()
        asking.result()
    consumer.close()


def _elsewhere(call: Callable[[], bool]) -> bool:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    thread.join()
    return answers[0]


@pytest.mark.parametrize("seconds", [0.4, 1.6], ids=["within the session", "beyond it"])
def test_user_code_that_holds_the_interpreter(cluster: Cluster, seconds: float) -> None:
    """A C extension that keeps the GIL silences heartbeats, and nothing else.

    Within the session nobody notices. Beyond it the group goes on without the member, whose
    lease is over by then: it delivers nothing before it has heard of its loss.
    """
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=2)
    publish(cluster, topic, 3, 0, 1)
    member = Member(cluster, group, topic)
    libc = ctypes.PyDLL(None)  # keeps the GIL while it calls, as CDLL does not
    with members(member):
        until(lambda: len(member.records) == 6, member)
        publish(cluster, topic, 1, 0, 1)
        assert libc.usleep(int(seconds * 1e6)) == 0
        until(lambda: len(member.records) == 8, member)
        shared(topic, 2, member)
        publish(cluster, topic, 1, 0, 1)
        until(lambda: len(member.records) == 10, member)
        if seconds < 1:
            assert member.told == [("assigned", ((topic, 0), (topic, 1)))]
        member.consumer.commit(asynchronous=False)


def test_heartbeats_go_on_while_a_strategy_of_the_users_computes(embedded: EmbeddedKafka) -> None:
    """It may take as long as it likes, in a thread of its own."""
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=2)
    begun, go_on = threading.Event(), threading.Event()

    class Slow(CooperativeSticky):
        name = "slow"

        def assign(self, cluster: Metadata, group: GroupSubscription) -> Plan:
            begun.set()
            assert go_on.wait(PATIENCE)
            return super().assign(cluster, group)

    member = Member(embedded, group, topic, assignors=[Slow()])
    labels = {"group": group, "client_id": "rdkafka"}

    def beats() -> float:
        name = "kafka_coop_heartbeat_latency_seconds_count"
        return member.registry.get_sample_value(name, labels) or 0.0

    with members(member):
        until(begun.is_set, member)
        before = beats()
        until(lambda: beats() >= before + 3, member)
        assert not member.owned
        go_on.set()
        shared(topic, 2, member)


@pytest.mark.parametrize("topics", [1, 3], ids=["a small group", "a large one"])
def test_a_strategy_of_ours_takes_no_thread_where_it_is_done_at_once(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    wanted, group = [unique("t") for _ in range(topics)], unique("g")
    for topic in wanted:
        embedded.create_topic(topic, partitions=100)
    threads: list[threading.Thread] = []
    assign = CooperativeSticky.assign

    def noted(self: CooperativeSticky, cluster: Metadata, group: GroupSubscription) -> Plan:
        threads.append(threading.current_thread())
        return assign(self, cluster, group)

    monkeypatch.setattr(CooperativeSticky, "assign", noted)
    member = Member(embedded, group, *wanted)
    with members(member):
        until(lambda: len(member.owned) == 100 * topics, member)
    assert {thread.name == f"kafka-coop-{group}" for thread in threads} == {topics == 1}


def test_many_consumers_in_one_process(embedded: EmbeddedKafka) -> None:
    """Trap 7 (aiokafka#1175): no state is shared between assignors, whatever they subscribe to."""
    topics = [unique("t") for _ in range(3)]
    for topic in topics:
        embedded.create_topic(topic, partitions=4)
    group = unique("g")
    choices = [topics[:1], topics[1:], topics, topics[2:]]
    made = [
        Member(embedded, group, *choice, session_timeout_ms=2000)
        for choice in itertools.islice(itertools.cycle(choices), 8)
    ]
    everything = sorted((topic, p) for topic in topics for p in range(4))
    with ExitStack() as stack:
        stack.enter_context(members(*made))
        until(lambda: sorted(pair for m in made for pair in m.owned) == everything, *made)
        for member, choice in zip(made, itertools.cycle(choices), strict=False):
            assert {topic for topic, _ in member.owned} <= set(choice)
            assert member.balance() == member.owned
