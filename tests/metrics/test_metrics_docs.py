"""docs/METRICS.md and the registry say the same."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from metrics_support import Bench
from prometheus_client import Metric
from test_metrics_log import EXAMPLE, RECORD

from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.metrics.log import rebalance_fields
from kafka_coop.metrics.scrape import MemberSnapshot, PartitionProgress
from kafka_coop.types import Partitions, TopicPartition

DOCS = (Path(__file__).parents[2] / "docs" / "METRICS.md").read_text(encoding="utf-8")

# The metrics of Java's ConsumerCoordinatorMetrics, AbstractCoordinator, KafkaConsumerMetrics.
JAVA = (
    "rebalance-latency-avg",
    "rebalance-latency-max",
    "rebalance-latency-total",
    "rebalance-total",
    "rebalance-rate-per-hour",
    "failed-rebalance-total",
    "failed-rebalance-rate-per-hour",
    "last-rebalance-seconds-ago",
    "last-heartbeat-seconds-ago",
    "join-time-avg",
    "join-time-max",
    "join-rate",
    "join-total",
    "sync-time-avg",
    "sync-time-max",
    "sync-rate",
    "sync-total",
    "heartbeat-response-time-max",
    "heartbeat-rate",
    "heartbeat-total",
    "commit-latency-avg",
    "commit-latency-max",
    "commit-rate",
    "commit-total",
    "partition-revoked-latency-avg",
    "partition-revoked-latency-max",
    "partition-assigned-latency-avg",
    "partition-assigned-latency-max",
    "partition-lost-latency-avg",
    "partition-lost-latency-max",
    "assigned-partitions",
    "last-poll-seconds-ago",
    "time-between-poll-avg",
    "time-between-poll-max",
    "poll-idle-ratio-avg",
)

NAME = re.compile(r"kafka_coop_[a-z_]+")


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, cells stripped."""
    section = DOCS.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


OWN = table("The metrics")
LIBRDKAFKAS = table("librdkafka's statistics")
OURS = OWN + LIBRDKAFKAS
FROM_JAVA = table("From Java's names")


@pytest.fixture
def bench() -> Bench:
    """With one member that has done everything once and owns one partition."""
    bench = Bench()
    progress = {TopicPartition("t", 0): PartitionProgress(position=1, end=2)}
    member = bench.member(snapshot=lambda: MemberSnapshot(progress=progress))
    member.assignment(Partitions({"t": [0]}), bench.clocks.steady)
    member.heartbeat(timedelta(0))
    member.rebalance(RebalanceRecord(group_id="orders", client_id="rdkafka"))
    member.librdkafka.hear('{"brokers": {"b:1": {"nodeid": 1}}}')
    for at in (1.0, 2.0):
        member.polls.entered(at)
        member.polls.left(at)
    return bench


def families(bench: Bench) -> dict[str, Metric]:
    """By the name that the docs use: counters with their suffix."""
    return {
        m.name + "_total" if m.type == "counter" else m.name: m for m in bench.registry.collect()
    }


def live(family: Metric) -> list[dict[str, str]]:
    return [s.labels for s in family.samples if not s.name.endswith("_created")]


def test_the_table_has_every_family_and_no_other(bench: Bench) -> None:
    documented = [row[0].strip("`") for row in OURS]
    assert sorted(documented) == sorted(families(bench))


@pytest.mark.parametrize("row", OURS, ids=[row[0].strip("`") for row in OURS])
def test_type_labels_and_number_of_series_are_as_documented(bench: Bench, row: list[str]) -> None:
    name, kind, _unit, labels, series, meaning = row
    family = families(bench)[name.strip("`")]
    assert family.type == kind
    own = {label for sample in live(family) for label in sample} - {"group", "client_id", "le"}
    assert own == set(re.findall(r"`(\w+)`", labels))
    assert f"{len(live(family))}" == series.removesuffix(" per owned partition").removesuffix(
        " per broker"
    )
    assert meaning
    assert family.documentation


@pytest.mark.parametrize("row", OURS, ids=[row[0].strip("`") for row in OURS])
def test_values_of_closed_labels_are_named(bench: Bench, row: list[str]) -> None:
    name, meaning = row[0].strip("`"), row[5]
    for label in ("phase", "kind", "callback"):
        values = {s[label] for s in live(families(bench)[name]) if label in s}
        where = DOCS if name == "kafka_coop_callback_failures_total" else meaning
        assert all(f"`{value}`" in where for value in values)


def test_the_total_of_series(bench: Bench) -> None:
    found = families(bench)
    own = [family for name, family in found.items() if "librdkafka" not in name]
    total = sum(len(live(family)) for family in own)
    created = sum(len(f.samples) for f in own) - total
    assert f"A member has {total - 2} series, and 2 more per partition" in DOCS
    assert f"{total - 2}·*M* + 2·*P*" in DOCS
    assert f"each counter and histogram, {created} more" in DOCS
    per_broker = sum("per broker" in row[4] for row in LIBRDKAFKAS)
    once = len(LIBRDKAFKAS) - per_broker
    assert f"librdkafka's statistics are {once} more, and {per_broker} per broker" in DOCS


@pytest.mark.parametrize("java", JAVA)
def test_every_java_metric_has_a_row_with_metrics_that_exist(bench: Bench, java: str) -> None:
    (row,) = [row for row in FROM_JAVA if row[0] == f"`{java}`"]
    named = NAME.findall(row[1])
    assert named
    assert set(named) <= set(families(bench))
    samples = {s.name for family in families(bench).values() for s in family.samples}
    queried = NAME.findall(row[2])
    assert queried
    assert set(queried) <= samples
    for name in named:
        assert any(query.startswith(name) for query in queried)


def test_no_row_for_what_java_does_not_have() -> None:
    assert sorted(row[0].strip("`") for row in FROM_JAVA) == sorted(JAVA)


def test_the_log_line_and_its_fields_are_as_documented() -> None:
    assert EXAMPLE in DOCS
    rows = table("The log of rebalances")
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert documented == list(rebalance_fields(RECORD))
