"""What tests of the watchdog have in common."""

from __future__ import annotations

from kafka_coop.testing import EmbeddedKafka


def leaves(kafka: EmbeddedKafka) -> int:
    return sum(1 for request in kafka.requests() if request.api == "LeaveGroup")
