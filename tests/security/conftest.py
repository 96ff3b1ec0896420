from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # hidden by its stubs
from security_members import publish
from security_support import (
    AUTHORIZER,
    GROUP,
    TOPIC,
    TRANSACTION,
    Provider,
    allow,
    broker_sasl,
    broker_tls,
    make_scram_users,
    provider,
)

from kafka_coop.testing.local import LocalKafka


@pytest.fixture(scope="session")
def oidc() -> Iterator[Provider]:
    with provider() as made:
        yield made


@pytest.fixture(scope="session")
def guarded(oidc: Provider) -> Iterator[LocalKafka]:
    """A real broker that takes nobody without TLS, a login and rights."""
    keys = f"{oidc.url}/keys"
    with LocalKafka(
        client_protocol="SASL_SSL",
        properties=broker_tls(client_auth="none") | broker_sasl(keys) | AUTHORIZER,
        jvm_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"],
    ) as kafka:
        make_scram_users(kafka)
        kafka.create_topic(TOPIC, partitions=2)
        group = (ResourceType.GROUP, GROUP, AclOperation.READ)
        topic = (ResourceType.TOPIC, TOPIC, AclOperation.READ)
        transaction = (ResourceType.TRANSACTIONAL_ID, TRANSACTION, AclOperation.WRITE)
        allow(kafka, "reader", group, topic, transaction)
        allow(kafka, "groupless", topic, transaction)
        allow(kafka, "topicless", group)
        allow(kafka, "watched", (ResourceType.GROUP, "*", AclOperation.READ))
        allow(kafka, "watched", (ResourceType.TOPIC, "*", AclOperation.READ))
        publish(kafka, 0, 1)
        yield kafka
