"""What the tests of metrics share: clocks that stand still, and the exposition as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from kafka_coop.metrics.member import MemberMetrics, SnapshotProvider

Labels = frozenset[tuple[str, str]]


@dataclass
class Clocks:
    """A steady clock and a wall clock that move when told."""

    steady: float = 1_000.0
    wall: float = 1_700_000_000.0

    def advance(self, seconds: float) -> None:
        self.steady += seconds
        self.wall += seconds


@dataclass
class Bench:
    """A registry of its own, clocks, and consumers made on them."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    clocks: Clocks = field(default_factory=Clocks)

    def member(
        self,
        *,
        group_id: str = "orders",
        client_id: str = "rdkafka",
        snapshot: SnapshotProvider | None = None,
    ) -> MemberMetrics:
        return MemberMetrics(
            group_id=group_id,
            client_id=client_id,
            registry=self.registry,
            snapshot=snapshot,
            max_poll_interval=timedelta(minutes=5),
            clock=lambda: self.clocks.steady,
            wall_clock=lambda: self.clocks.wall,
        )

    def value(self, name: str, /, **labels: str) -> float | None:
        """The one sample of this name whose labels include these; None where there is none."""
        found = [v for have, v in self.series(name).items() if labels.items() <= dict(have).items()]
        assert len(found) <= 1, f"{name} {labels} is ambiguous: {found}"
        return found[0] if found else None

    def series(self, name: str) -> Mapping[Labels, float]:
        """All series of one sample name. Asked for alone: the parser is slow."""
        return exposition(self.registry.restricted_registry([name])).get(name, {})


def exposition(registry: Collector) -> dict[str, dict[Labels, float]]:
    """Sample name -> labels -> value, as read back from the text that Prometheus is sent."""
    samples: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            series = samples.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in series, f"twice in one scrape: {sample.name} {sample.labels}"
            series[labels] = sample.value
    return samples
