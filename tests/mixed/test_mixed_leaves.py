"""A planned leave beside other clients, which do not know our mark: docs/LEAVING.md."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from integration_support import in_background, members
from mixed_support import PARTITIONS, Guest, trial, without_kafka_python

from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.trial.member import Client

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.verdict(late=True),
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("trial"),
]

BRIEF = timedelta(seconds=2)
"""For the leave. Enough for the round in which the leader gives the partitions back."""

BOUND = timedelta(seconds=10)
"""Of the whole. The session's length: a leave that took longer would be no better than a crash."""

HALF = PARTITIONS // 2

BEATS = timedelta(seconds=5)
"""Between two heartbeats of every member here: what other clients would have to be waited for."""

BUSY = timedelta(seconds=1)
"""Less than that, so that a machine may be slow, and Java's client still beats too late."""

LEAVES = 3
"""Of which one may tell. The others do not wait for a leaver that takes more than 0.2 s to give up
(docs/ARCHITECTURE.md, *Give up*), as a machine may that is busy beyond measure: their next round
begins without it, and the one after that with somebody's heartbeat."""


@pytest.mark.parametrize(
    "leader", ["java", "confluent", pytest.param("kafka-python", marks=without_kafka_python)]
)
def test_it_gives_the_partitions_back_and_time_ends_the_leave(
    kafka: KafkaCluster, tmp_path: Path, leader: Client
) -> None:
    with trial(kafka, tmp_path) as group:
        group.start("theirs", leader)
        group.until_shared("theirs")
        ours = Guest(group, "ours", session_timeout_ms=10_000, heartbeat_interval_ms=300)
        with members(ours):
            with in_background(ours.step):
                group.until(
                    lambda: len(ours.owned) == HALF == len(group.owned("theirs")), "a fair share"
                )
                assert group.leader() == "theirs"
                group.until_everyone_works()
                before, generation = len(ours.records), ours.generation
                began = time.monotonic()
                ours.consumer.drain(BRIEF)
                group.until(lambda: ours.consumer.drained, "the end of the leave")
                took = timedelta(seconds=time.monotonic() - began)
                assert BRIEF <= took < BOUND
                assert len(ours.owned) == HALF, "given back"
                assert ours.generation > generation, "it had asked"
                assert len(ours.records) > before, "it went on meanwhile"
            left = time.monotonic_ns()
            ours.consumer.close()
        group.until_shared("theirs")
        group.end_soundly()
        after = [e for e in group.events("theirs") if e.kind == "R" and e.at > left]
        mine = {(partition, offset) for _, partition, offset in ours.records}
        twice = [(*e.partitions, e.offset) for e in after if (*e.partitions, e.offset) in mine]
        assert not twice, (
            f"it was committed: {twice[:9]}, ours was told {ours.told} and committed "
            f"{ours.commits}, and closed at {left}; others: "
            f"{[e for e in group.events('theirs') if e.kind != 'R']}"
        )
        assert (ours.count("lost"), ours.raised) == (0, [])


@pytest.mark.parametrize(
    "other", ["java", "confluent", pytest.param("kafka-python", marks=without_kafka_python)]
)
def test_under_a_leader_of_ours_nothing_waits_for_the_others_heartbeats(
    kafka: KafkaCluster, tmp_path: Path, other: Client
) -> None:
    """A partition is recalled from them: they are in the round that hands over before they beat."""
    took = []
    for leave in range(LEAVES):
        (folder := tmp_path / str(leave)).mkdir()
        took.append(longest_idle_in_a_leave(kafka, folder, other))
        if took[-1] < BEATS - BUSY:
            return
    raise AssertionError(f"idle for {[str(time) for time in took]}, as if nothing were recalled")


def longest_idle_in_a_leave(kafka: KafkaCluster, folder: Path, other: Client) -> timedelta:
    config = {
        "session.timeout.ms": 60_000,
        "heartbeat.interval.ms": BEATS // timedelta(milliseconds=1),
    }
    with trial(kafka, folder, config) as group:
        group.start("leads", "ours")
        group.until_shared("leads")
        group.start("theirs", other)
        group.until_shared("leads", "theirs")
        group.start("leaves", "ours")
        group.until_shared("leads", "theirs", "leaves")
        assert group.leader() == "leads"
        group.until_everyone_works()
        before = time.monotonic_ns()
        group.ask_to_leave("leaves", drain=True)
        group.close("leaves")
        group.until_shared("leads", "theirs")
        group.end_soundly()
        idle = [after.start - gone.end for gone, after in group.handovers() if gone.end > before]
        assert len(idle) == PARTITIONS // 3 + 1, "the leaver's, and the one that was recalled"
        back = [t for t in group.stopped_in_vain("leads", "theirs") if t.start > before]
        assert [t.member for t in back] == ["theirs"], "and it got that back"
    return timedelta(microseconds=max(idle) / 1000)
