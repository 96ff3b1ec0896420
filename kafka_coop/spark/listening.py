"""A listener of a session's queries: lag and hand-overs as metrics, and a guard of state."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.registry import REGISTRY
from pyspark.sql.streaming.listener import StreamingQueryListener

from kafka_coop.spark.progress import SourceProgress, own_sources
from kafka_coop.spark.rendezvous import Rendezvous

_LABELS = ("query", "group")


class GroupListener(StreamingQueryListener):
    """Hears of each batch of each query; those that do not read from ``kafka_coop`` are ignored.

    Args:
        registry: Where the metrics go; None: prometheus_client's default. Listeners that share
            one share the metrics.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._lag = _gauge(
            registry, "lag", "Records that the query has not read.", "topic", "partition"
        )
        self._rebalances = _gauge(registry, "rebalances", "Rebalances that this run has seen.")
        self._handover = _gauge(
            registry, "handover_seconds", "The last hand-over: from on_revoke to the commit."
        )
        self._names: dict[str, str] = {}
        self._series: dict[str, set[tuple[str, ...]]] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done, or nothing came for a while."""
        progress = event.progress
        name = self._names.setdefault(str(progress.id), progress.name or str(progress.id))
        for source in own_sources(progress.sources):
            if progress.stateOperators:
                Rendezvous(source.id).mark_stateful()
            self._observe(name, source)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing changed."""

    def onQueryTerminated(self, event: Any) -> None:
        """Its series end: what it held is others' now."""
        name = self._names.pop(str(event.id), "")
        for labels in self._series.pop(name, set()):
            self._lag.remove(*labels)

    def _observe(self, name: str, source: SourceProgress) -> None:
        self._rebalances.labels(name, source.group).set(source.rebalances)
        self._handover.labels(name, source.group).set(source.last_handover.total_seconds())
        before = self._series.get(name, set())
        now: set[tuple[str, ...]] = {
            (name, source.group, of.topic, str(of.partition)) for of in source.lag
        }
        for labels in before - now:
            self._lag.remove(*labels)
        self._series[name] = now
        for of, lag in source.lag.items():
            self._lag.labels(name, source.group, of.topic, str(of.partition)).set(lag)


_made: dict[tuple[int, str], Gauge] = {}
"""By registry: a second listener of the same registry uses the same metrics."""


def _gauge(registry: CollectorRegistry | None, name: str, text: str, *labels: str) -> Gauge:
    where = REGISTRY if registry is None else registry
    key = (id(where), name)
    if key not in _made:
        _made[key] = Gauge(f"kafka_coop_spark_{name}", text, (*_LABELS, *labels), registry=where)
    return _made[key]
