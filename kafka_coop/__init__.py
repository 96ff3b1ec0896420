"""A Kafka consumer whose group membership is its own.

    from kafka_coop import CoopConsumer, RebalanceListener, TopicPartition, plan

The public names are imported on first use: ``import kafka_coop`` costs next to nothing, and
the pure layers can be used without librdkafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_coop.first_use import imported_on_first_use

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

if not TYPE_CHECKING:
    __getattr__ = imported_on_first_use(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
