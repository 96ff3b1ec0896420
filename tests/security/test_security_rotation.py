"""A password is changed under a living member: it hears of it, and goes on with the new one."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # hidden by its stubs
from integration_support import PATIENCE, code, members, unique, until
from security_members import everything_said, has_read_everything, login, member, publish
from security_support import PASSWORD, TOPIC, Provider, allow, set_password

from kafka_coop.testing.local import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.xdist_group("security")]

NEW_PASSWORD = "of-the-next-quarter"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_password_that_changes_under_a_living_member(
    guarded: LocalKafka, oidc: Provider, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    """Nobody is logged out: the broker asks again when connections.max.reauth.ms is over."""
    user, group = unique("user"), unique("g")
    set_password(guarded, PASSWORD, user)
    of_group = (ResourceType.GROUP, group, AclOperation.READ)
    allow(guarded, user, of_group, (ResourceType.TOPIC, TOPIC, AclOperation.READ))
    told: list[KafkaError] = []
    with caplog.at_level(logging.DEBUG):
        one = member(
            guarded,
            login(oidc, "SCRAM-SHA-512", user),
            group,
            group_protocol=protocol,
            error_cb=told.append,
            debug="security,broker,cgrp",
            logger=logging.getLogger("librdkafka"),
        )

        def refused() -> bool:
            codes = {code(error) for error in one.raised}
            if protocol == "consumer":  # librdkafka is the member, and says so there
                codes |= {error.code() for error in told}
            return KafkaError._AUTHENTICATION in codes

        with members(one):
            until(lambda: len(one.owned) == 2 and has_read_everything(guarded, one), one)
            set_password(guarded, NEW_PASSWORD, user)
            until(refused, one)
            publish(guarded, 0, 1)
            one.consumer.set_sasl_credentials(user, NEW_PASSWORD)
            until(lambda: len(one.owned) == 2 and has_read_everything(guarded, one), one)
            one.consumer.commit(asynchronous=False)
            both = [TopicPartition(TOPIC, partition) for partition in (0, 1)]
            found = one.consumer.committed(both, timeout=PATIENCE)
            assert {p.partition: p.offset for p in found} == guarded.end_offsets(TOPIC)
        said = everything_said(one, caplog) + "".join(str(error) for error in told)
    assert "re-authentication" in said
    assert PASSWORD not in said
    assert NEW_PASSWORD not in said
