"""What is paused is what is owned; a scrape of the metrics waits for nobody's callback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import Generation, GroupMetadata, MemberId, Partitions

CONFIG: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0}


THOSE = [TopicPartition("t", 0, 5), TopicPartition("t", 1, 5)]


@pytest.mark.parametrize("made", [CoopConsumer, Consumer], ids=["ours", "confluent's"])
def test_what_is_not_owned_any_more_is_paused_and_resumed_without_a_word(made: Any) -> None:
    """Who keeps a list of what it has paused resumes all of it, after a rebalance, too."""
    consumer = made(CONFIG, **({"registry": CollectorRegistry()} if made is CoopConsumer else {}))
    try:
        consumer.assign(THOSE)
        consumer.pause(THOSE)
        consumer.incremental_unassign(THOSE[1:])
        consumer.resume(THOSE)
        consumer.pause(THOSE)
        consumer.unassign()
        consumer.resume(THOSE)
    finally:
        consumer.close()


def test_beside_what_is_not_owned_the_others_are_paused_and_resumed() -> None:
    with CoopConsumer(CONFIG, registry=CollectorRegistry()) as consumer:
        assert isinstance(consumer._fetcher, Fetcher)
        consumer.assign(THOSE[:1])
        consumer.pause(THOSE)
        assert consumer._fetcher.paused() == Partitions({"t": [0]})
        consumer.resume(THOSE)
        assert not consumer._fetcher.paused()


def test_who_a_member_is_is_asked_while_the_lock_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-848's membership takes the lock for it, and would wait for whoever took it in between."""
    held: list[bool] = []
    with CoopConsumer(CONFIG, registry=CollectorRegistry()) as consumer:

        def metadata() -> GroupMetadata:
            held.append(consumer._lock.raw._is_owned())  # type: ignore[attr-defined]
            return GroupMetadata(group_id="g")

        monkeypatch.setattr(consumer._backend, "metadata", metadata)
        consumer.health()
        assert held == [True]


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoopConsumer]:
    """It is in its group."""
    with CoopConsumer(CONFIG, registry=CollectorRegistry()) as consumer:
        monkeypatch.setattr(consumer, "_topics", ("t",))
        joined = GroupMetadata(group_id="g", generation=Generation(5), member_id=MemberId("me"))
        monkeypatch.setattr(consumer._backend, "_identity", joined)
        yield consumer


def test_who_is_in_the_group_stays_so_while_another_thread_is_inside_librdkafka(
    member: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition without a leader keeps get_watermark_offsets waiting; probes failed meanwhile."""
    monkeypatch.setattr(member._lock, "try_within", lambda _seconds: False)
    found = member.health()
    assert (found.generation, found.joined, found.stable) == (5, True, True)
    assert found.problems == ()


def test_a_round_that_has_lost_its_coordinator_is_still_under_way(member: CoopConsumer) -> None:
    """Nothing is expected of the user, and so it counted as stable: the alert stayed silent."""
    member._mailbox.wants_to_join = True
    assert not member.health().stable
    member._mailbox.wants_to_join = False
    assert member.health().stable


@pytest.mark.parametrize("how", ["assign", "incremental_assign"])
def test_what_is_no_offset_is_refused_before_anything_is_assigned(how: str) -> None:
    """Half done, it would leave partitions that are owned and never read."""
    with CoopConsumer(CONFIG, registry=CollectorRegistry()) as consumer:
        consumer.assign([TopicPartition("t", 2, 7)])
        wrong = [TopicPartition("t", 0, -5), TopicPartition("t", 1)]
        with pytest.raises(KafkaException, match=r"t\[0\]: -5 is no offset"):
            getattr(consumer, how)(wrong)
        assert [p.partition for p in consumer.assignment()] == [2]


def test_subscribing_to_nothing_tells_whoever_was_told_before(embedded: EmbeddedKafka) -> None:
    """As `unsubscribe`: what on_assign was called for ends with its on_revoke."""
    embedded.create_topic("t")
    told: list[str] = []
    config = {**CONFIG, "bootstrap.servers": embedded.bootstrap_servers}
    with CoopConsumer(config, registry=CollectorRegistry()) as consumer:
        consumer.subscribe(
            ["t"],
            on_assign=lambda _c, _p: told.append("assign"),
            on_revoke=lambda _c, _p: told.append("revoke"),
        )
        while not told:
            consumer.poll(0.1)
        consumer.subscribe([])
        assert consumer.subscription() == []
        while len(told) < 2:
            consumer.poll(0.1)
        assert told == ["assign", "revoke"]
