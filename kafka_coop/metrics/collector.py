"""One collector per registry, shared by all consumers that were given it.

All families are registered as one collector, so that a registry gets either all of them or,
where a name is taken, none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import count
from typing import TypeAlias
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from kafka_coop.errors import ConfigurationError
from kafka_coop.metrics.families import EventFamilies
from kafka_coop.metrics.scrape import MemberLabels, MemberReading, scraped

Reader: TypeAlias = Callable[[], MemberReading]


class GroupCollector(Collector):
    """kafka_coop's metrics of every consumer on one registry. Thread-safe."""

    def __init__(self) -> None:
        self.begin_anew()

    def claim(self, group: str, client_id: str, reader: Reader) -> MemberLabels:
        """Adds a member to every later scrape, until its labels are released.

        Two consumers of one group often share a client id: librdkafka's default is
        ``rdkafka``. Two series of the same labels make Prometheus refuse the whole scrape, so
        the second is called ``rdkafka-2``, by the lowest number that is free.

        ``reader`` is called by the thread that scrapes, with no lock held.
        """
        with self._lock:
            for number in count(1):
                name = client_id if number == 1 else f"{client_id}-{number}"
                labels = MemberLabels(group, name)
                if labels not in self._readers:
                    break
            self._readers[labels] = reader
            return labels

    def release(self, labels: MemberLabels) -> None:
        """Leaves a member out from now on; its labels are free for another. Idempotent."""
        with self._lock:
            self._readers.pop(labels, None)

    def begin_anew(self) -> None:
        """In a process that was forked: its parent's consumers are none of its own.

        With locks of its own: another thread of the parent's may have held these.
        """
        self.events = EventFamilies()
        self._lock = threading.Lock()
        self._readers: dict[MemberLabels, Reader] = {}

    def describe(self) -> Iterable[Metric]:
        """The names, without reading any member: a registry asks for them to find clashes."""
        return [*(m for f in self._event_families() for m in f.describe()), *scraped(())]

    def collect(self) -> Iterable[Metric]:
        """Every family with the samples of every member."""
        with self._lock:
            readers = list(self._readers.items())
        readings = [(labels, reader()) for labels, reader in readers]
        return [*(m for f in self._event_families() for m in f.collect()), *scraped(readings)]

    def _event_families(self) -> list[MetricWrapperBase]:
        return [getattr(self.events, f.name) for f in fields(self.events)]


_collectors: WeakKeyDictionary[CollectorRegistry, GroupCollector] = WeakKeyDictionary()
_collectors_lock = threading.Lock()


def collector_for(registry: CollectorRegistry | None) -> GroupCollector:
    """The registry's collector, made and registered at the first call. None: the default one.

    Raises:
        ConfigurationError: It is no registry, or others' metrics have our names in it.
    """
    where = REGISTRY if registry is None else registry
    if not isinstance(where, CollectorRegistry):
        raise ConfigurationError(
            "registry",
            f"registry must be a prometheus_client.CollectorRegistry or None, not {where!r}",
        )
    with _collectors_lock:
        collector = _collectors.get(where)
        if collector is None:
            collector = GroupCollector()
            _register(collector, where)
            _collectors[where] = collector
        return collector


def _begin_anew_in_child() -> None:
    """A child that serves metrics would else go on telling of consumers that it can't use.

    They are outside of the group for it, with what they owned at the fork, and never poll again:
    alerts of a stuck round, of a late poll, and of partitions that are owned twice, without end.
    """
    global _collectors_lock  # noqa: PLW0603  # another thread of the parent's may have held it
    _collectors_lock = threading.Lock()
    for collector in list(_collectors.values()):
        collector.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_in_child)


def _register(collector: GroupCollector, registry: CollectorRegistry) -> None:
    try:
        registry.register(collector)
    except ValueError as error:
        taken = ", ".join(sorted(getattr(error, "duplicates", ()))) or str(error)
        raise ConfigurationError(
            "registry",
            f"the registry already holds metrics of these names, and they are not this "
            f"kafka_coop's: {taken}. Unregister them, or give the consumer a registry of its "
            f"own: CoopConsumer(config, registry=CollectorRegistry())",
        ) from None
