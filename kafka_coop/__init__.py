"""A Kafka consumer whose group membership is its own.

    from kafka_coop import CoopConsumer, RebalanceListener, TopicPartition, plan

The public names are imported on first use: ``import kafka_coop`` costs next to nothing, and
the pure layers can be used without librdkafka.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

    from kafka_coop.consumer import CoopConsumer
    from kafka_coop.listener import RebalanceListener
    from kafka_coop.planning import plan
    from kafka_coop.shutdown import Shutdown

__all__ = ["CoopConsumer", "RebalanceListener", "Shutdown", "TopicPartition", "plan"]

_HOMES = {
    "CoopConsumer": "kafka_coop.consumer",
    "RebalanceListener": "kafka_coop.listener",
    "Shutdown": "kafka_coop.shutdown",
    "TopicPartition": "confluent_kafka",
    "plan": "kafka_coop.planning",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
