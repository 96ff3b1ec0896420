"""Errors that waiting does not cure. Apart from `kafka_errors`, which takes long to load."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

HOPELESS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001  # the name of confluent's public constant
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Codes: a credential or a right is missing."""
