"""What is read at the scrape: partitions that are owned, and no others (robinhood/faust#610)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_support import Bench

from kafka_coop.metrics.librdkafka import LibrdkafkaStatistics
from kafka_coop.metrics.scrape import MemberSnapshot, PartitionProgress
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, TopicPartition

PARTITIONS = st.sets(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(min_value=0, max_value=5))
).map(Partitions.of)
SERIES = ("kafka_coop_partition_position", "kafka_coop_partition_lag")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def everything(partitions: Partitions) -> MemberSnapshot:
    """A snapshot that knows ten records in each partition, four of them read."""
    return MemberSnapshot(
        generation=Generation(3),
        progress={tp: PartitionProgress(position=4, end=10) for tp in partitions},
    )


def shown(bench: Bench, name: str) -> set[tuple[str, int]]:
    return {
        (dict(labels)["topic"], int(dict(labels)["partition"])) for labels in bench.series(name)
    }


@settings(deadline=None, max_examples=30)
@given(known=PARTITIONS, assignments=st.lists(PARTITIONS, max_size=5))
def test_only_owned_partitions_have_series(
    known: Partitions, assignments: list[Partitions]
) -> None:
    """However stale the snapshot: series after each change are those of the owned partitions."""
    bench = Bench()
    member = bench.member(snapshot=lambda: everything(known))
    for owned in (NO_PARTITIONS, *assignments):
        member.assignment(owned, bench.clocks.steady)
        for name in SERIES:
            assert shown(bench, name) == set(owned & known)
        assert bench.value("kafka_coop_assigned_partitions") == len(owned)


def test_a_revoked_partition_vanishes_and_a_kept_one_stays(bench: Bench) -> None:
    both = Partitions({"orders": [0, 1]})
    member = bench.member(snapshot=lambda: everything(both))
    member.assignment(both, bench.clocks.steady)
    assert shown(bench, "kafka_coop_partition_lag") == {("orders", 0), ("orders", 1)}
    member.assignment(Partitions({"orders": [1]}), bench.clocks.steady)
    assert shown(bench, "kafka_coop_partition_lag") == {("orders", 1)}
    assert bench.value("kafka_coop_partition_lag", topic="orders", partition="1") == 6
    assert bench.value("kafka_coop_partition_position", topic="orders", partition="1") == 4


@pytest.mark.parametrize(
    ("progress", "position", "lag"),
    [
        (PartitionProgress(position=4, end=10), 4, 6),
        (PartitionProgress(position=10, end=10), 10, 0),
        (PartitionProgress(position=12, end=10), 12, 0),  # the end was heard before the fetch
        (PartitionProgress(position=4), 4, None),
        (PartitionProgress(end=10), None, None),
        (PartitionProgress(), None, None),
    ],
)
def test_what_is_not_known_has_no_series(
    bench: Bench, progress: PartitionProgress, position: int | None, lag: int | None
) -> None:
    member = bench.member(
        snapshot=lambda: MemberSnapshot(progress={TopicPartition("orders", 0): progress})
    )
    member.assignment(Partitions({"orders": [0]}), bench.clocks.steady)
    assert bench.value("kafka_coop_partition_position") == position
    assert bench.value("kafka_coop_partition_lag") == lag


def test_generation(bench: Bench) -> None:
    snapshot = MemberSnapshot()
    bench.member(snapshot=lambda: snapshot)
    assert bench.value("kafka_coop_generation") == -1
    snapshot = MemberSnapshot(generation=Generation(12))
    assert bench.value("kafka_coop_generation") == 12


def test_without_a_provider_nothing_is_made_up(bench: Bench) -> None:
    member = bench.member()
    member.assignment(Partitions({"orders": [0]}), bench.clocks.steady)
    assert bench.value("kafka_coop_generation") is None
    assert bench.series("kafka_coop_partition_position") == {}
    assert bench.value("kafka_coop_assigned_partitions") == 1


def test_a_snapshot_that_raises_costs_its_own_series_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> MemberSnapshot:
        raise RuntimeError("Consumer closed")

    owned = Partitions({"orders": [0]})
    sick = bench.member(client_id="sick", snapshot=broken)
    well = bench.member(client_id="well", snapshot=lambda: everything(owned))
    for member in (sick, well):
        member.assignment(owned, bench.clocks.steady)
    with caplog.at_level(logging.WARNING):
        assert bench.value("kafka_coop_partition_lag", client_id="well") == 6
    assert "orders/sick" in caplog.text
    assert "Consumer closed" in caplog.text
    assert bench.value("kafka_coop_partition_lag", client_id="sick") is None
    assert bench.value("kafka_coop_generation", client_id="sick") is None
    assert bench.value("kafka_coop_assigned_partitions", client_id="sick") == 1


def test_the_snapshot_is_taken_with_no_lock_held(bench: Bench) -> None:
    """A provider that itself opens or closes a consumer must not deadlock the scrape."""

    def provider() -> MemberSnapshot:
        bench.member(client_id="inner").close()
        return MemberSnapshot(generation=Generation(1))

    bench.member(client_id="outer", snapshot=provider)
    assert bench.value("kafka_coop_generation", client_id="outer") == 1


def test_a_scrape_changes_nothing(bench: Bench) -> None:
    member = bench.member(snapshot=lambda: everything(Partitions({"a": [0]})))
    member.assignment(Partitions({"a": [0]}), bench.clocks.steady)
    member.polls.entered(bench.clocks.steady)
    assert member.read() == member.read()


def test_librdkafkas_report_is_read_by_who_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = LibrdkafkaStatistics()
    read: list[str] = []
    loads = json.loads

    def noted(text: str) -> Any:
        read.append(text)
        return loads(text)

    def records() -> int | None:
        latest = statistics.latest
        return None if latest is None else latest.records

    monkeypatch.setattr(json, "loads", noted)
    assert records() is None
    heard = statistics.listening({})["stats_cb"]
    heard('{"rxmsgs": 1}')
    heard('{"rxmsgs": 2}')
    assert read == []
    assert [records(), records()] == [2, 2]
    assert len(read) == 1
    for broken in ("no JSON", "[]", "[" * 4096):
        heard(broken)
        assert records() == 2
