"""The metric families whose values are read when Prometheus asks.

Nothing is stored for them: a partition that is no longer owned has no series at the next
scrape, because nothing speaks of it any more. (Series that outlive a rebalance are the usual
bug of exporters that set gauges per partition.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from kafka_coop.assignors.figures import PlanFigures
from kafka_coop.metrics.families import MEMBER_LABELS, PREFIX
from kafka_coop.metrics.librdkafka import Statistics, librdkafka_families
from kafka_coop.metrics.polls import PollReading
from kafka_coop.types import NO_GENERATION, NO_PARTITIONS, Generation, Partitions, TopicPartition


class MemberLabels(NamedTuple):
    """The label values that all of one member's series share."""

    group: str
    client_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far one partition is read. None: not known yet.

    Attributes:
        position: The offset of the next record that the application will get.
        end: The log's end as last heard from its leader; under
            ``isolation.level=read_committed`` the last stable offset.
    """

    position: int | None = None
    end: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets still to come; never negative, though the end may be older than the position."""
        if self.position is None or self.end is None:
            return None
        return max(self.end - self.position, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    """What only the consumer knows at the moment of a scrape.

    Attributes:
        generation: The generation the member is in; `NO_GENERATION` outside the group.
        stable: In the group, with no round under way; or nothing is subscribed to.
        progress: By partition. What the member no longer owns may be in it: it is left out.
    """

    generation: Generation = NO_GENERATION
    stable: bool = False
    progress: Mapping[TopicPartition, PartitionProgress] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReading:
    """One member at one scrape. Moments are seconds since the epoch; None: never, not known."""

    owned: Partitions = NO_PARTITIONS
    last_assignment: float | None = None
    last_rebalance: float | None = None
    last_heartbeat: float | None = None
    last_poll: float | None = None
    polls: PollReading
    poll_limit: float | None = None
    snapshot: MemberSnapshot | None = None
    plan: PlanFigures | None = None
    librdkafka: Statistics | None = None


Readings = Sequence[tuple[MemberLabels, MemberReading]]

_GAUGES: Final[tuple[tuple[str, str, Callable[[MemberReading], float | None]], ...]] = (
    ("assigned_partitions", "Partitions owned.", lambda m: len(m.owned)),
    (
        "generation",
        "The group's generation this member is in; -1 outside the group.",
        lambda m: None if m.snapshot is None else m.snapshot.generation,
    ),
    (
        "stable",
        "1: in the group, with no rebalance under way, or subscribed to nothing; 0: not.",
        lambda m: None if m.snapshot is None else float(m.snapshot.stable),
    ),
    (
        "leader",
        "1: in the group, and led its last round; 0: not.",
        lambda m: float(m.plan is not None),
    ),
    (
        "group_partitions",
        "Partitions that the group subscribes to, as its leader knows them; 0 on others.",
        lambda m: 0 if m.plan is None else m.plan.partitions,
    ),
    (
        "withheld_partitions",
        "Partitions that the leader's last plan gave to nobody yet; 0 on others.",
        lambda m: 0 if m.plan is None else m.plan.withheld,
    ),
    (
        "unassigned_partitions",
        "Partitions that the leader's strategy gives to nobody; 0 on others.",
        lambda m: 0 if m.plan is None else m.plan.unassigned,
    ),
    (
        "last_assignment_timestamp_seconds",
        "When the set of owned partitions last changed.",
        lambda m: m.last_assignment,
    ),
    (
        "last_rebalance_timestamp_seconds",
        "When the last completed rebalance round ended.",
        lambda m: m.last_rebalance,
    ),
    (
        "last_heartbeat_timestamp_seconds",
        "When the last acknowledged heartbeat was sent.",
        lambda m: m.last_heartbeat,
    ),
    (
        "last_poll_timestamp_seconds",
        "When the application was last inside poll().",
        lambda m: m.last_poll,
    ),
    (
        "poll_interval_limit_seconds",
        "max.poll.interval.ms: without a poll for so long the member loses its partitions.",
        lambda m: m.poll_limit,
    ),
    (
        "poll_interval_max_seconds",
        "The longest time between two polls in the last one to two minutes of polling.",
        lambda m: m.polls.gap_max if m.polls.gaps else None,
    ),
)

_PARTITION_GAUGES: Final[tuple[tuple[str, str, Callable[[PartitionProgress], int | None]], ...]] = (
    (
        "partition_position",
        "The offset of the next record of an owned partition.",
        lambda p: p.position,
    ),
    (
        "partition_lag",
        "Offsets between the position in an owned partition and the end of its log.",
        lambda p: p.lag,
    ),
)


def scraped(readings: Readings) -> list[Metric]:
    """The families with these members' samples; with no member, what there would be.

    Costs O(owned partitions).
    """
    return [
        *(_gauge(name, text, value, readings) for name, text, value in _GAUGES),
        *(_partition_gauge(name, text, value, readings) for name, text, value in _PARTITION_GAUGES),
        _poll_interval(readings),
        _poll_idle(readings),
        *librdkafka_families((member, r.librdkafka) for member, r in readings),
    ]


def _gauge(
    name: str, text: str, value: Callable[[MemberReading], float | None], readings: Readings
) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=MEMBER_LABELS)
    for member, reading in readings:
        if (at := value(reading)) is not None:
            family.add_metric(member, at)
    return family


def _partition_gauge(
    name: str, text: str, value: Callable[[PartitionProgress], int | None], readings: Readings
) -> Metric:
    labels = (*MEMBER_LABELS, "topic", "partition")
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for member, reading in readings:
        progress = {} if reading.snapshot is None else reading.snapshot.progress
        for partition in reading.owned if progress else ():
            known = progress.get(partition)
            if known is not None and (at := value(known)) is not None:
                family.add_metric((*member, partition.topic, str(partition.partition)), at)
    return family


def _poll_interval(readings: Readings) -> Metric:
    family = SummaryMetricFamily(
        PREFIX + "poll_interval_seconds",
        "Time between two polls, from begin to begin.",
        labels=MEMBER_LABELS,
    )
    for member, reading in readings:
        family.add_metric(member, count_value=reading.polls.gaps, sum_value=reading.polls.gaps_sum)
    return family


def _poll_idle(readings: Readings) -> Metric:
    family = CounterMetricFamily(
        PREFIX + "poll_idle_seconds",
        "Time the application spent inside poll(), waiting for records.",
        labels=MEMBER_LABELS,
    )
    for member, reading in readings:
        family.add_metric(member, reading.polls.idle)
    return family
