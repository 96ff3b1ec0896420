"""How long the member's rebalances take, from the consumer's own metrics."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from prometheus_client import CollectorRegistry

_FAMILY: Final = "kafka_coop_rebalance_latency_seconds"
_SUM: Final = f"{_FAMILY}_sum"
_COUNT: Final = f"{_FAMILY}_count"


class RebalanceLatency:
    """From the first wish to join until the last callback (docs/METRICS.md).

    Args:
        registry: Where the consumer's metrics are.
        group: The consumer's.
    """

    def __init__(self, registry: CollectorRegistry, group: str) -> None:
        self._registry = registry
        self._group = group
        self._seen = 0.0, 0.0
        self._last = timedelta(0)

    def last(self) -> timedelta:
        """Of the last rebalance; of several since the last call, their mean."""
        values = {_SUM: 0.0, _COUNT: 0.0}
        for family in self._registry.restricted_registry([_SUM, _COUNT]).collect():
            for sample in family.samples:
                if sample.labels.get("group") == self._group:
                    values[sample.name] += sample.value
        total, count = values[_SUM], values[_COUNT]
        seconds, rebalances = total - self._seen[0], count - self._seen[1]
        if rebalances > 0:
            self._last = timedelta(seconds=seconds / rebalances)
            self._seen = total, count
        return self._last
