"""What the end leaves behind: nothing."""

from __future__ import annotations

import time

import pytest
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer, forks


class UserError(Exception):
    """A callback's."""


def test_a_callback_that_raises_while_librdkafka_is_closed_leaves_nothing_behind() -> None:
    def stats_cb(_: str) -> None:
        raise UserError

    registry = CollectorRegistry()
    config = {
        "bootstrap.servers": "127.0.0.1:9",
        "group.id": "g",
        "log_level": 0,
        "statistics.interval.ms": 10,
        "stats_cb": stats_cb,
    }
    consumer = CoopConsumer(config, registry=registry)
    assert any(family.samples for family in registry.collect())
    time.sleep(0.2)  # there is one to serve
    with pytest.raises(UserError):
        consumer.close()
    left = [family.name for family in registry.collect() if family.samples]
    assert not left, "series of a consumer that is closed"
    assert consumer not in forks._consumers
