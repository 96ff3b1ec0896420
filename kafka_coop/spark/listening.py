"""A listener of a session's queries: lag and hand-overs as metrics, and a guard of state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.registry import REGISTRY
from pyspark import SparkContext
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener

from kafka_coop.spark.progress import (
    QueryProgress,
    SourceProgress,
    from_event,
    from_json,
    in_competition,
)
from kafka_coop.spark.rendezvous import Rendezvous

_LABELS = ("query", "group")
_Series: TypeAlias = tuple[Gauge, tuple[str, ...]]


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
        self._latency = _gauge(
            registry,
            "rebalance_latency_seconds",
            "The last rebalance: from the wish to join to the last callback.",
        )
        self._handover = _gauge(
            registry, "handover_seconds", "The last hand-over: from on_revoke to the commit."
        )
        self._in_java: Any = None
        self._names: dict[str, str] = {}
        self._shown: dict[str, set[_Series]] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done, or nothing came for a while."""
        self.hear(from_event(event.progress))

    def hear(self, progress: QueryProgress) -> None:
        """A batch is done, or nothing came for a while."""
        name = self._names.setdefault(progress.id, progress.name)
        for source in progress.sources if progress.state else ():
            Rendezvous(source.id).mark_stateful(
                aggregating=progress.aggregates, joining=progress.joins
            )
        for source in in_competition(progress.sources):
            Rendezvous(source.id).mark_in_competition()
        self._show(name, progress.sources)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing changed."""

    def onQueryTerminated(self, event: Any) -> None:
        """Its series end: what it held is others' now."""
        self._show(self._names.pop(str(event.id), ""), [])

    @property
    def _jlistener(self) -> Any:
        """What the JVM calls. PySpark's own name; a PySpark without it calls `onQueryProgress`."""
        if self._in_java is None:
            assert SparkContext._jvm is not None  # noqa: SLF001  # as PySpark does
            wrapper = SparkContext._jvm.PythonStreamingQueryListenerWrapper  # noqa: SLF001  # the same
            self._in_java = wrapper(_OneCall(self))
        return self._in_java

    def _show(self, name: str, sources: Iterable[SourceProgress]) -> None:
        """All of a query's sources at once: what none of them has any more is shown no more."""
        now: dict[_Series, float] = {}
        for source in sources:
            labels = (name, source.group)
            now[self._rebalances, labels] = source.rebalances
            now[self._latency, labels] = source.last_rebalance.total_seconds()
            now[self._handover, labels] = source.last_handover.total_seconds()
            for of, lag in source.lag.items():
                now[self._lag, (*labels, of.topic, str(of.partition))] = lag
        for gauge, gone in self._shown.pop(name, set()) - now.keys():
            gauge.remove(*gone)
        for (gauge, shown), value in now.items():
            gauge.labels(*shown).set(value)
        if now:
            self._shown[name] = set(now)


class _OneCall(JStreamingQueryListener):
    """Fetches a batch's progress from the JVM in one piece.

    PySpark's own asks for each field with a call of its own, and for its class, which the JVM looks
    for in all of Spark's jars: 80 ms of the driver's CPU time for every batch.
    """

    def __init__(self, listener: GroupListener) -> None:
        super().__init__(listener)
        self._listener = listener

    def onQueryProgress(self, jevent: Any) -> None:
        self._listener.hear(from_json(jevent.progress().json()))


_made: WeakKeyDictionary[CollectorRegistry, dict[str, Gauge]] = WeakKeyDictionary()
"""By registry: a second listener of the same registry uses the same metrics."""


def _gauge(registry: CollectorRegistry | None, name: str, text: str, *labels: str) -> Gauge:
    where = REGISTRY if registry is None else registry
    gauges = _made.setdefault(where, {})
    if name not in gauges:
        gauges[name] = Gauge(f"kafka_coop_spark_{name}", text, (*_LABELS, *labels), registry=where)
    return gauges[name]
