"""Members that log in, and all that they said."""

from __future__ import annotations

import base64
import logging
import traceback
from typing import Any

import pytest
from confluent_kafka import Producer
from integration_support import PATIENCE, Member
from prometheus_client import generate_latest
from security_support import CLIENT_SECRET, GROUP, PASSWORD, TOPIC, Provider, authority, pem

from kafka_coop.testing.local import LocalKafka

LIBRDKAFKA = "librdkafka"
TALKATIVE: dict[str, Any] = {"debug": "all", "logger": logging.getLogger(LIBRDKAFKA)}
"""Settings of a member whose librdkafka says all that it ever may."""


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


def has_read_everything(kafka: LocalKafka, one: Member) -> bool:
    ends = kafka.end_offsets(TOPIC)
    wanted = {(TOPIC, partition, offset) for partition in ends for offset in range(ends[partition])}
    return wanted == set(one.records)


def secrets(oidc: Provider, user: str = "reader") -> list[str]:
    """What nobody may ever see: also as a token endpoint gets it."""
    basic = base64.b64encode(f"{user}:{CLIENT_SECRET}".encode()).decode()
    return [PASSWORD, CLIENT_SECRET, basic, *oidc.issued]


def said_by_librdkafka(caplog: pytest.LogCaptureFixture) -> str:
    """Its log alone: without it, a search for secrets there proves nothing."""
    return "\n".join(r.getMessage() for r in caplog.records if r.name == LIBRDKAFKA)


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
