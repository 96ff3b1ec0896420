"""group.protocol=consumer: librdkafka is the member, and is refused in the same words."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError
from integration_support import code, members, unique, until
from security_members import everything_said, login, member
from security_support import PASSWORD, Provider

from kafka_coop.testing.local import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.xdist_group("security")]

NEXT: dict[str, Any] = {
    "group_protocol": "consumer",
    "debug": "security,cgrp",
    "logger": logging.getLogger("librdkafka"),
}


def test_it_logs_in_and_reads(
    guarded: LocalKafka, oidc: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        one = member(guarded, login(oidc, "SCRAM-SHA-256", "watched"), unique("g"), **NEXT)
        with members(one):
            until(lambda: len(one.owned) == 2 and bool(one.records), one)
            until(lambda: not one.consumer._backend.mailbox.expecting, one, what="an answer")
            one.consumer.commit(asynchronous=False)
            said = everything_said(one, caplog)
    assert not one.raised
    assert PASSWORD not in said


@pytest.mark.parametrize(
    ("user", "refusal"),
    [
        ("groupless", KafkaError.GROUP_AUTHORIZATION_FAILED),
        ("topicless", KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_right_that_one_lacks_has_the_code_that_it_has_in_classic_mode(
    guarded: LocalKafka,
    oidc: Provider,
    caplog: pytest.LogCaptureFixture,
    user: str,
    refusal: int,
) -> None:
    with caplog.at_level(logging.DEBUG):
        for protocol in ("classic", "consumer"):
            config = {**NEXT, "group_protocol": protocol}
            one = member(guarded, login(oidc, "SCRAM-SHA-256", user), **config)
            with members(one):
                until(lambda one=one: bool(one.raised or one.errors), one)  # type: ignore[misc]
                codes = [code(error) for error in one.raised]
                codes += [error.code() for m in one.errors if (error := m.error())]
                assert codes == [refusal], protocol
                assert PASSWORD not in everything_said(one, caplog)
