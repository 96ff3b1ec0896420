"""What the configuration tests share: a valid configuration, and confluent's constructor."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException

from kafka_coop.config import ConsumerConfig, parse
from kafka_coop.errors import ConfigurationError

BASE: dict[str, Any] = {"bootstrap.servers": "broker:9092", "group.id": "g"}

SCRAM: dict[str, Any] = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanisms": "SCRAM-SHA-256",
    "sasl.username": "me",
    "sasl.password": "pass",
}

OIDC: dict[str, Any] = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://login.invalid/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "pass",
}


def configured(**changes: Any) -> ConsumerConfig:
    """`BASE` with changes; a keyword's ``__`` stands for a dot."""
    return parse({**BASE, **{k.replace("__", "."): v for k, v in changes.items()}})


def confluent_refuses(config: dict[str, Any]) -> str | None:
    """Why confluent's constructor refuses a configuration; None where it takes it.

    Without brokers: nothing is connected to, and the consumer is closed at once.
    """
    try:
        consumer = Consumer({"group.id": "g", "log_level": 0, **config})
    except (KafkaException, TypeError, ValueError, AttributeError) as error:
        return str(error)
    consumer.close()
    return None


def we_refuse(config: dict[str, Any]) -> str | None:
    """Why `parse` refuses a configuration; None where it takes it."""
    try:
        parse({**BASE, **config})
    except ConfigurationError as error:
        return str(error)
    return None
