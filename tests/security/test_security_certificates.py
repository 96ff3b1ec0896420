"""Certificates on both sides, against a real broker: mutual TLS, with an authorizer."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trustme
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # hidden by its stubs
from integration_support import Member, at, code, members, until
from security_support import AUTHORIZER, allow, authority, broker_tls, pem, stranger

from kafka_coop.testing.local import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.xdist_group("security")]

GROUP, TOPIC = "shown-group", "shown-topic"


@pytest.fixture(scope="module")
def mutual() -> Iterator[LocalKafka]:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/"}
    properties = broker_tls(client_auth="required") | AUTHORIZER | rules
    with LocalKafka(client_protocol="SSL", properties=properties) as kafka:
        kafka.create_topic(TOPIC, partitions=2)
        group = (ResourceType.GROUP, GROUP, AclOperation.READ)
        topic = (ResourceType.TOPIC, TOPIC, AclOperation.READ)
        allow(kafka, "reader", group, topic)
        yield kafka


def shown(leaf: trustme.LeafCert | None) -> dict[str, Any]:
    tls = {"security.protocol": "SSL", "ssl.ca.pem": pem(authority().cert_pem)}
    if leaf is None:
        return tls
    certificate = {"ssl.certificate.pem": pem(*leaf.cert_chain_pems)}
    return {**tls, **certificate, "ssl.key.pem": pem(leaf.private_key_pem)}


def client(name: str, ca: trustme.CA | None = None, **more: Any) -> trustme.LeafCert:
    return (ca or authority()).issue_cert(f"{name}.example", common_name=name, **more)


def member(kafka: LocalKafka, security: dict[str, Any]) -> Member:
    made = Member(kafka, GROUP, session_timeout_ms=6000, **security)
    made.subscribe(TOPIC)
    return made


def test_the_certificate_is_who_one_is(
    mutual: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        one = member(mutual, shown(client("reader")))
        with members(one):
            until(lambda: len(one.owned) == 2, one)
            one.consumer.commit(offsets=[at(TOPIC, 0, 0)], asynchronous=False)
            seen = caplog.text + repr(one.consumer) + repr(vars(one.consumer))
    assert "PRIVATE KEY" not in seen


def test_a_certificate_without_rights(mutual: LocalKafka) -> None:
    one = member(mutual, shown(client("nobody")))
    with members(one):
        until(lambda: bool(one.raised), one)
        assert code(one.raised[0]) == KafkaError.GROUP_AUTHORIZATION_FAILED


def between(first: int, last: int) -> dict[str, Any]:
    """A certificate's validity, in years."""
    return {
        "not_before": dt.datetime(first, 1, 1, tzinfo=dt.UTC),
        "not_after": dt.datetime(last, 1, 1, tzinfo=dt.UTC),
    }


KINDS = {
    "none": ("none is configured", "set ssl.certificate.location and ssl.key.location"),
    "unknown authority": ("does not trust our certificate", "the broker's ssl.truststore.location"),
    "expired": ("expired at 2021-01-01 00:00 UTC", "renew it"),
    "not yet valid": ("not yet valid, only from 2090-01-01 00:00 UTC", "this machine's clock"),
}
"""How each kind of broken certificate is named, and its remedy."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_certificate_is_refused_and_named(
    mutual: LocalKafka, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Java's brokers say the same of all of them but the first."""
    leaf = {
        "none": None,
        "unknown authority": client("reader", stranger()),
        "expired": client("reader", **between(2020, 2021)),
        "not yet valid": client("reader", **between(2090, 2091)),
    }[kind]
    one = member(mutual, shown(leaf))
    with members(one):
        until(lambda: bool(one.raised), one)
        said = str(one.raised[0])
        assert code(one.raised[0]) == KafkaError._AUTHENTICATION
        assert mutual.bootstrap_servers in said
        for other, (name, remedy) in KINDS.items():
            assert (name in said) == (other == kind)
            assert remedy in said or other != kind
        assert "PRIVATE KEY" not in said + caplog.text
        assert not one.owned
