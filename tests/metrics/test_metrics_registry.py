"""Registries: shared, the default one, held by others; and what close() leaves behind."""

from __future__ import annotations

import gc
import os
import weakref
from datetime import timedelta

import pytest
from metrics_support import Bench, exposition
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, generate_latest

from kafka_coop.errors import ConfigurationError
from kafka_coop.metrics.collector import collector_for
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.metrics.scrape import MemberSnapshot, PartitionProgress
from kafka_coop.types import Partitions, TopicPartition

MS = timedelta(milliseconds=1)
SNAPSHOT = MemberSnapshot(progress={TopicPartition("t", 0): PartitionProgress(position=1, end=2)})


@pytest.fixture
def bench() -> Bench:
    return Bench()


def names_of(bench: Bench) -> set[tuple[str, str]]:
    """(group, client id) of every series there is."""
    return {
        (dict(labels)["group"], dict(labels)["client_id"])
        for series in exposition(bench.registry).values()
        for labels in series
    }


def test_two_consumers_share_a_registry(bench: Bench) -> None:
    first, second = bench.member(client_id="a"), bench.member(client_id="b")
    first.heartbeat(MS)
    first.heartbeat(MS)
    second.heartbeat(MS)
    assert bench.value("kafka_coop_heartbeat_latency_seconds_count", client_id="a") == 2
    assert bench.value("kafka_coop_heartbeat_latency_seconds_count", client_id="b") == 1


def test_two_consumers_of_one_client_id_have_series_of_their_own(bench: Bench) -> None:
    """A scrape with two samples of the same labels would be refused as a whole."""
    members = [bench.member(snapshot=lambda: SNAPSHOT) for _ in range(3)]
    for member in members:
        member.assignment(Partitions({"t": [0]}), bench.clocks.steady)
    assert [m.labels.client_id for m in members] == ["rdkafka", "rdkafka-2", "rdkafka-3"]
    assert len(bench.series("kafka_coop_partition_lag")) == 3  # and none twice
    members[1].close()
    assert bench.member().labels.client_id == "rdkafka-2"
    assert bench.member(group_id="other").labels == ("other", "rdkafka")


def test_a_name_that_looks_numbered_is_not_taken_twice(bench: Bench) -> None:
    names = [bench.member(client_id=c).labels.client_id for c in ("x-2", "x", "x")]
    assert names == ["x-2", "x", "x-3"]


def test_close_removes_every_series_of_that_consumer_alone(bench: Bench) -> None:
    members = {c: bench.member(client_id=c, snapshot=lambda: SNAPSHOT) for c in ("a", "b")}
    for member in members.values():
        member.assignment(Partitions({"t": [0]}), bench.clocks.steady)
        member.heartbeat(MS)
        member.commit_failed("anything")
        member.callback("revoked", MS, failed=True)
        member.polls.entered(bench.clocks.steady)
    assert names_of(bench) == {("orders", "a"), ("orders", "b")}
    before_b = {
        name: {s: v for s, v in series.items() if ("client_id", "b") in s}
        for name, series in exposition(bench.registry).items()
    }
    members["a"].close()
    assert exposition(bench.registry) == before_b
    members["b"].close()
    assert names_of(bench) == set()


def test_what_comes_after_close_is_dropped_and_close_may_be_repeated(bench: Bench) -> None:
    member = bench.member()
    member.close()
    successor = bench.member()  # has the labels now
    member.heartbeat(MS)
    member.commit_failed("other")
    member.assignment(Partitions({"t": [0]}), bench.clocks.steady)
    member.close()
    assert successor.labels == member.labels
    assert bench.value("kafka_coop_heartbeat_latency_seconds_count") == 0
    assert bench.value("kafka_coop_commit_failures_total", reason="other") == 0
    assert bench.value("kafka_coop_assigned_partitions") == 0


def test_none_is_the_default_registry() -> None:
    member = MemberMetrics(group_id="only-in-this-test", client_id="x")
    try:
        assert b'group="only-in-this-test"' in generate_latest(REGISTRY)
        assert collector_for(None) is collector_for(REGISTRY)
    finally:
        member.close()
    assert b"only-in-this-test" not in generate_latest(REGISTRY)


@pytest.mark.parametrize("auto_describe", [False, True])
def test_families_are_registered_once(*, auto_describe: bool) -> None:
    bench = Bench(registry=CollectorRegistry(auto_describe=auto_describe))
    calls = []

    def snapshot() -> MemberSnapshot:
        calls.append(1)
        return MemberSnapshot()

    for _ in range(2):
        bench.member(snapshot=snapshot).close()
    bench.member(snapshot=snapshot)
    assert calls == []  # registering asks no consumer for its values
    assert len(bench.series("kafka_coop_generation")) == 1


@pytest.mark.parametrize(
    "name",
    [
        "kafka_coop_assigned_partitions",  # read at the scrape
        "kafka_coop_join_attempts",  # counted as it happens
        "kafka_coop_sync_latency_seconds_bucket",  # a sample's name, not a family's
    ],
)
def test_anothers_metric_of_our_name_is_a_clear_error(bench: Bench, name: str) -> None:
    theirs = Gauge(name, "somebody else's", registry=bench.registry)
    theirs.set(7)
    before = generate_latest(bench.registry)
    with pytest.raises(ConfigurationError, match=name) as caught:
        bench.member()
    assert caught.value.key == "registry"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__  # no traceback out of prometheus_client
    assert generate_latest(bench.registry) == before  # nothing of ours is half registered
    bench.registry.unregister(theirs)
    bench.member()


def test_others_metrics_of_other_names_live_beside_ours(bench: Bench) -> None:
    Counter("kafka_coop_orders", "an application's own", registry=bench.registry).inc()
    bench.member().heartbeat(MS)
    assert bench.value("kafka_coop_orders_total") == 1
    assert bench.value("kafka_coop_heartbeat_latency_seconds_count") == 1


@pytest.mark.parametrize("wrong", ["default", 7, CollectorRegistry])
def test_what_is_no_registry_is_a_clear_error(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="CollectorRegistry") as caught:
        MemberMetrics(group_id="g", client_id="c", registry=wrong)  # type: ignore[arg-type]  # a user's mistake
    assert caught.value.key == "registry"


def test_a_restricted_scrape_reads_one_name(bench: Bench) -> None:
    """Prometheus asks so with ``?name[]=…``."""
    bench.member().heartbeat(MS)
    text = generate_latest(
        bench.registry.restricted_registry(["kafka_coop_heartbeat_latency_seconds_count"])
    ).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        'kafka_coop_heartbeat_latency_seconds_count{client_id="rdkafka",group="orders"} 1.0'
    ]


def test_a_registry_that_is_dropped_is_freed() -> None:
    registry = CollectorRegistry()
    MemberMetrics(group_id="g", client_id="c", registry=registry).close()
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None


def test_labels_of_any_text_are_escaped(bench: Bench) -> None:
    odd = 'a"b\\c\nd é'
    bench.member(group_id=odd, client_id=odd)
    assert names_of(bench) == {(odd, odd)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_tells_nothing_of_its_parents_consumers() -> None:
    """It would tell of members that are stuck outside of the group, for as long as it lives."""
    bench = Bench()
    member = bench.member()
    member.assignment(Partitions({"t": [0]}), bench.clocks.steady)
    gc.collect()  # other tests' consumers: librdkafka crashes where a child frees its parent's
    listening, speaking = os.pipe()
    pid = os.fork()
    if pid == 0:  # never returns: the child must not run the parent's tests
        before = names_of(bench)
        found = bench.member().labels.client_id, len(bench.series("kafka_coop_generation"))
        os.write(speaking, f"{before} {found}".encode())
        os._exit(0)
    os.close(speaking)
    with os.fdopen(listening) as said:
        assert said.read() == "set() ('rdkafka', 0)"
    os.waitpid(pid, 0)  # no other's: whoever started that would wait for a pid that is used anew
    assert bench.value("kafka_coop_assigned_partitions") == 1
