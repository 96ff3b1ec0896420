"""Certificates on both sides, against a real broker: mutual TLS, with an authorizer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trustme
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # hidden by its stubs
from integration_support import Member, at, code, members, publish, until
from security_support import AUTHORIZER, allow, authority, between, broker_tls, pem, stranger

from kafka_coop.testing.cluster import KafkaCluster
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
    """For both parts: ours joins and commits, and librdkafka's connections fetch."""
    with caplog.at_level(logging.DEBUG):
        one = member(mutual, shown(client("reader")))
        with members(one):
            until(lambda: len(one.owned) == 2, one)
            publish(KafkaCluster(mutual.admin_servers), TOPIC, 1, 0, 1)
            until(lambda: len(one.records) == 2, one, what="what librdkafka fetches")
            one.consumer.commit(offsets=[at(TOPIC, 0, 1)], asynchronous=False)
            seen = caplog.text + repr(one.consumer) + repr(vars(one.consumer))
    assert "PRIVATE KEY" not in seen


def test_a_certificate_without_rights(mutual: LocalKafka) -> None:
    one = member(mutual, shown(client("nobody")))
    with members(one):
        until(lambda: bool(one.raised), one)
        assert code(one.raised[0]) == KafkaError.GROUP_AUTHORIZATION_FAILED


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


# --- the broker's ---------------------------------------------------------------------------------

UNSOUND = {
    "expired": (between(2020, 2021), "has expired (", "renew the broker's certificate"),
    "not yet valid": (between(2090, 2091), "not yet valid (", "check this machine's clock"),
}
"""A broker's certificate, how it is named, and its remedy."""


@pytest.fixture(scope="module", params=UNSOUND)
def unsound(request: pytest.FixtureRequest) -> Iterator[tuple[LocalKafka, str]]:
    """A broker that starts with such a certificate, as Kafka does, and which kind it is."""
    validity, _, _ = UNSOUND[request.param]
    properties = broker_tls(client_auth="none", **validity)
    with LocalKafka(client_protocol="SSL", properties=properties) as kafka:
        kafka.create_topic(TOPIC)
        publish(KafkaCluster(kafka.admin_servers), TOPIC, 1, 0)
        yield kafka, request.param


SOON = 30.0
"""Seconds; each part has its first refusal at once."""


def test_our_part_names_what_is_wrong_with_a_brokers_certificate(
    unsound: tuple[LocalKafka, str],
) -> None:
    kafka, kind = unsound
    one = member(kafka, shown(None))
    with members(one):
        until(lambda: bool(one.raised), one, within=SOON)
        said = str(one.raised[0])
        assert code(one.raised[0]) == KafkaError._AUTHENTICATION
        assert kafka.bootstrap_servers in said
        for other, (_, name, remedy) in UNSOUND.items():
            assert (name in said) == (other == kind)
            assert remedy in said or other != kind
        assert not one.owned


@pytest.mark.parametrize("verified", [True, False])
def test_librdkafka_refuses_it_as_well(unsound: tuple[LocalKafka, str], *, verified: bool) -> None:
    """Fetched by hand: no connection of ours has a say. Without the check there is a record."""
    kafka, _ = unsound
    told: list[KafkaError] = []
    checks = {"enable.ssl.certificate.verification": verified}
    one = Member(kafka, GROUP, **shown(None), **checks, error_cb=told.append)
    with members(one):
        one.consumer.assign([at(TOPIC, 0, 0)])
        if verified:
            until(lambda: any(e.code() == KafkaError._SSL for e in told), one, within=SOON)
            said = next(e.str() for e in told if e.code() == KafkaError._SSL)
            assert kafka.bootstrap_servers in said
            assert "certificate" in said
        else:
            until(lambda: bool(one.records), one, within=SOON)
        assert bool(one.records) != verified
