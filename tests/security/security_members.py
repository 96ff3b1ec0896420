"""Members that log in, and all that they said."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from confluent_kafka import Producer
from integration_support import PATIENCE, Member
from prometheus_client import generate_latest
from security_support import CLIENT_SECRET, GROUP, PASSWORD, TOPIC, Provider, authority, pem

from kafka_coop.testing.local import LocalKafka


def publish(kafka: LocalKafka, *partitions: int) -> None:
    """Behind the doors: the brokers' own listener asks for nothing."""
    producer = Producer({"bootstrap.servers": kafka.admin_servers})
    for partition in partitions:
        producer.produce(TOPIC, b"value", partition=partition)
    assert producer.flush(PATIENCE) == 0


def tls() -> dict[str, Any]:
    return {"security.protocol": "SASL_SSL", "ssl.ca.pem": pem(authority().cert_pem)}


def login(oidc: Provider, mechanism: str = "PLAIN", user: str = "reader") -> dict[str, Any]:
    if mechanism != "OAUTHBEARER":
        secrets = {"sasl.username": user, "sasl.password": PASSWORD}
        return {**tls(), "sasl.mechanism": mechanism, **secrets}
    return {
        **tls(),
        "sasl.mechanism": mechanism,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": user,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.token.endpoint.url": f"{oidc.url}/token",
    }


def member(kafka: LocalKafka, security: dict[str, Any], group: str = GROUP, **more: Any) -> Member:
    if more.get("group_protocol") != "consumer":  # which leaves it to the broker
        more["session_timeout_ms"] = 6000
    made = Member(kafka, group, **security, **more)
    made.subscribe(TOPIC)
    return made


def everything_said(one: Member, caplog: pytest.LogCaptureFixture) -> str:
    """Whatever an operator may see of a member."""
    return "\n".join(
        [
            caplog.text,
            repr(one.consumer),
            repr(vars(one.consumer)),
            *(repr(e) for e in one.raised),
            *("".join(traceback.format_exception(e)) for e in one.raised),
            *(str(m.error()) for m in one.errors),
            generate_latest(one.registry).decode(),
        ]
    )
