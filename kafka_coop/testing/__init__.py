"""Brokers and checks for tests: ours and yours.

The names are imported on first use, so that the pytest plugin costs nothing to the tests
that need no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_coop.first_use import imported_on_first_use

if TYPE_CHECKING:
    from kafka_coop.testing.assignor import AssignorCheckError, check_assignor
    from kafka_coop.testing.cluster import KafkaCluster
    from kafka_coop.testing.container import ContainerKafka, ContainerKafkaError
    from kafka_coop.testing.embedded import EmbeddedKafka, EmbeddedKafkaError
    from kafka_coop.testing.local import LocalKafka, LocalKafkaError
    from kafka_coop.testing.proxy import Proxy, Weather
    from kafka_coop.testing.unavailable import KafkaUnavailableError

__all__ = [
    "AssignorCheckError",
    "ContainerKafka",
    "ContainerKafkaError",
    "EmbeddedKafka",
    "EmbeddedKafkaError",
    "KafkaCluster",
    "KafkaUnavailableError",
    "LocalKafka",
    "LocalKafkaError",
    "Proxy",
    "Weather",
    "check_assignor",
]

_HOMES = {
    "AssignorCheckError": "kafka_coop.testing.assignor",
    "ContainerKafka": "kafka_coop.testing.container",
    "ContainerKafkaError": "kafka_coop.testing.container",
    "EmbeddedKafka": "kafka_coop.testing.embedded",
    "EmbeddedKafkaError": "kafka_coop.testing.embedded",
    "KafkaCluster": "kafka_coop.testing.cluster",
    "KafkaUnavailableError": "kafka_coop.testing.unavailable",
    "LocalKafka": "kafka_coop.testing.local",
    "LocalKafkaError": "kafka_coop.testing.local",
    "Proxy": "kafka_coop.testing.proxy",
    "Weather": "kafka_coop.testing.proxy",
    "check_assignor": "kafka_coop.testing.assignor",
}

if not TYPE_CHECKING:
    __getattr__ = imported_on_first_use(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
