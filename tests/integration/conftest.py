from __future__ import annotations

import pytest

from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.embedded import EmbeddedKafka


@pytest.fixture(
    params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.real_kafka])]
)
def cluster(request: pytest.FixtureRequest) -> EmbeddedKafka | KafkaCluster:
    """Both brokers, one after the other: the embedded one, and the real one that --kafka names."""
    found: EmbeddedKafka | KafkaCluster = request.getfixturevalue(request.param)
    return found
