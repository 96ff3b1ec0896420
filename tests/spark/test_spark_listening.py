"""The listener and `drain`, told of queries that are stand-ins."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram

import kafka_coop.spark
from kafka_coop.spark.errors import MembershipError
from kafka_coop.spark.latency import RebalanceLatency
from kafka_coop.spark.listening import GroupListener
from kafka_coop.spark.offsets import Range, SourceOffset
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.types import TopicPartition

SOON = timedelta(milliseconds=1)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where drivers and readers meet: other tests use the same ids at the same time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def source(topic: str, *, lag: int, id_: str = "abc") -> Any:
    """One that has read five records of partition 0."""
    ranges = {TopicPartition(topic, 0): Range(0, 5)}
    end = SourceOffset(group="g", id=id_, run="r", topics={topic: 1}, ranges=ranges)
    report = {
        "id": id_,
        "group": "g",
        "topics": [topic],
        "tps": {f"{topic}:0": 5 + lag},
        "rebalances": 3,
        "lastRebalanceMs": 70,
        "lastHandoverMs": 40,
    }
    return SimpleNamespace(endOffset=json.dumps(end.to_json()), latestOffset=json.dumps(report))


def progress(*sources: Any, stateful: bool = False) -> Any:
    operators = [SimpleNamespace(operatorName="symmetricHashJoin")] if stateful else []
    about = SimpleNamespace(id="q", name="etl", sources=sources, stateOperators=operators)
    return SimpleNamespace(progress=about)


def value(registry: CollectorRegistry, name: str, *topic: str) -> float | None:
    labels = {"query": "etl", "group": "g"}
    if topic:
        labels |= {"topic": topic[0], "partition": "0"}
    return registry.get_sample_value(f"kafka_coop_spark_{name}", labels)


def test_lag_and_rebalances_of_all_of_a_querys_sources_are_shown() -> None:
    registry = CollectorRegistry()
    listener = GroupListener(registry)
    listener.onQueryProgress(progress(source("a", lag=7), source("b", lag=2)))
    assert [value(registry, "lag", topic) for topic in ("a", "b")] == [7, 2]
    assert value(registry, "rebalances") == 3
    assert value(registry, "rebalance_latency_seconds") == 0.07
    assert value(registry, "handover_seconds") == 0.04


def test_what_was_handed_over_and_what_ended_is_shown_no_more() -> None:
    registry = CollectorRegistry()
    listener = GroupListener(registry)
    listener.onQueryProgress(progress(source("a", lag=7), source("b", lag=2)))
    listener.onQueryProgress(progress(source("b", lag=1)))
    assert [value(registry, "lag", topic) for topic in ("a", "b")] == [None, 1]
    listener.onQueryTerminated(SimpleNamespace(id="q"))
    listener.onQueryTerminated(SimpleNamespace(id="unheard of"))
    left = [sample for family in registry.collect() for sample in family.samples]
    assert left == []


def test_each_registry_has_metrics_of_its_own_wherever_it_lies_in_memory() -> None:
    """A registry may get the address, and so the id, of one that is gone."""
    for _ in range(20):
        registry = CollectorRegistry()
        GroupListener(registry).onQueryProgress(progress(source("a", lag=7)))
        assert value(registry, "lag", "a") == 7


def test_a_query_that_keeps_state_is_marked() -> None:
    rendezvous = Rendezvous("abc")
    listener = GroupListener(CollectorRegistry())
    listener.onQueryProgress(progress(source("a", lag=0)))
    assert not rendezvous.is_stateful()
    listener.onQueryProgress(progress(source("a", lag=0), stateful=True))
    assert rendezvous.is_stateful()
    assert rendezvous.is_joining()
    assert not rendezvous.is_aggregating()


def test_sources_that_divide_a_topic_between_them_are_marked(tmp_path: Path) -> None:
    def member(id_: str, topic: str, group: str = "g", member_id: str = "m") -> Any:
        made = source(topic, lag=0, id_=id_)
        end, report = json.loads(made.endOffset), json.loads(made.latestOffset)
        end["group"], report["group"], report["member"] = group, group, member_id
        return SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(report))

    def marked(*sources: Any) -> list[bool]:
        both = [Rendezvous(id_) for id_ in ("abc", "def")]
        GroupListener(CollectorRegistry()).onQueryProgress(progress(*sources))
        found = [one.is_in_competition() for one in both]
        for file in tmp_path.glob("*/*.in-competition"):
            file.unlink()
        return found

    first = member("abc", "a")
    assert marked(first, member("def", "a")) == [True, True]
    waiting = member("def", "a")  # it has had no record yet, and knows its topics
    waiting.endOffset = "{}"
    waiting.latestOffset = json.dumps(json.loads(waiting.latestOffset) | {"topics": ["a"]})
    assert marked(first, waiting) == [True, True]
    assert marked(first, member("def", "b")) == [False, False]
    assert marked(first, member("def", "a", group="h")) == [False, False]
    assert marked(first, member("def", "a", member_id="")) == [False, False], "assign: it reads all"
    assert marked(first) == [False, False]


def test_the_last_rebalances_are_what_came_since_the_last_look() -> None:
    registry = CollectorRegistry()
    name, labels = "kafka_coop_rebalance_latency_seconds", ("group", "client_id")
    histogram = Histogram(name, "…", labels, registry=registry)
    latency = RebalanceLatency(registry, "g")
    assert latency.last() == timedelta(0)
    histogram.labels("g", "c").observe(4.0)
    histogram.labels("another", "c").observe(9.0)
    assert latency.last() == timedelta(seconds=4)
    assert latency.last() == timedelta(seconds=4)
    for seconds in (1.0, 2.0):
        histogram.labels("g", "c").observe(seconds)
    assert latency.last() == timedelta(seconds=1.5)


class Query:
    """Of a source that never answers."""

    id = "a query"

    def __init__(self, *sources: Any, failed: Exception | None = None) -> None:
        self.lastProgress = SimpleNamespace(sources=sources) if sources else None
        self.stopped = False
        self.isActive = failed is None
        self._failed = failed

    def exception(self) -> Exception | None:
        return self._failed

    def stop(self) -> None:
        self.stopped = True


def test_a_query_that_does_not_end_its_batch_goes_on() -> None:
    query = Query(source("a", lag=0))
    with pytest.raises(TimeoutError, match=r"did not end its batch.*processingTime"):
        kafka_coop.spark.drain(query, SOON)
    assert not query.stopped
    assert not Rendezvous("abc").is_asked()


@pytest.mark.parametrize("sources", [[source("a", lag=0)], []], ids=["told", "told nothing"])
def test_a_query_that_failed_has_not_been_drained(sources: list[Any]) -> None:
    query = Query(*sources, failed=RuntimeError("out of memory"))
    with pytest.raises(MembershipError, match=r"a query failed before it was drained.*memory"):
        kafka_coop.spark.drain(query, SOON)


def test_a_query_that_has_ended_by_itself_has_left() -> None:
    query = Query(source("a", lag=0))
    query.isActive = False
    kafka_coop.spark.drain(query, SOON)
    assert query.stopped


def test_a_query_that_tells_nothing_goes_on() -> None:
    query = Query()
    with pytest.raises(TimeoutError, match="made no progress"):
        kafka_coop.spark.drain(query, SOON)
    assert not query.stopped


def test_other_sources_queries_cant_be_drained() -> None:
    query = Query(SimpleNamespace(endOffset="7", latestOffset=None))
    with pytest.raises(ValueError, match="does not read from kafka_coop"):
        kafka_coop.spark.drain(query)


@pytest.mark.parametrize(
    ("module", "master"),
    [
        ("pyspark.sql.connect.session", None),
        ("pyspark.sql.session", "local[2]"),
        ("pyspark.sql.session", "spark://localhost:7077"),
    ],
)
def test_a_session_is_told_what_needs_the_drivers_host_and_uses_it(
    module: str, master: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    registered: list[Any] = []
    session = type("SparkSession", (), {"__module__": module})()
    if master is not None:  # a Connect session has no context
        session.sparkContext = SimpleNamespace(master=master)
    session.dataSource = SimpleNamespace(register=registered.append)
    session.streams = SimpleNamespace(addListener=registered.append)
    kafka_coop.spark.register(session, registry=CollectorRegistry())
    assert len(registered) == 2
    assert registered[0].near is (master == "local[2]")
    assert ("only where this code runs" in caplog.text) is (".connect." in module)


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_a_missing_extra_is_told_with_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == missing else find(name)
    )
    with pytest.raises(ImportError, match=rf"needs {missing}: .*kafka-coop\[spark\]"):
        kafka_coop.spark.register(SimpleNamespace())  # type: ignore[arg-type]  # not reached
    with pytest.raises(ImportError, match=rf"needs {missing}: "):
        kafka_coop.spark.drain(Query())


def test_an_older_pyspark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    with pytest.raises(ImportError, match=r"needs PySpark 4\.2 or newer.*4\.1\.4.*pip install"):
        kafka_coop.spark.register(SimpleNamespace())  # type: ignore[arg-type]  # not reached
