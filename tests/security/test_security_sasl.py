"""Logins, rights and their ends, against a real broker: SASL_SSL, with an authorizer."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # hidden by its stubs
from integration_support import PATIENCE, Member, at, code, members, unique, until
from security_members import (
    TALKATIVE,
    everything_said,
    login,
    member,
    publish,
    said_by_librdkafka,
    secrets,
    tls,
)
from security_support import (
    CLIENT_SECRET,
    MECHANISMS,
    PASSWORD,
    REAUTHENTICATION_MS,
    TOPIC,
    TRANSACTION,
    Provider,
    allow,
    pem,
    stranger,
)

from kafka_coop.testing.local import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.xdist_group("security")]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_logs_in_again_before_its_time_is_up(
    guarded: LocalKafka, oidc: Provider, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    """The broker cuts a connection that uses its login past connections.max.reauth.ms."""
    oidc.life = TOKEN_LIFE if mechanism == "OAUTHBEARER" else 300.0
    before = len(oidc.issued)
    logs_in_again(guarded, login(oidc, mechanism), oidc, caplog)
    if mechanism == "OAUTHBEARER":
        assert len(oidc.issued) - before >= 2  # one for each ten seconds, at least


TOKEN_LIFE = 10.0
OURS = "kafka_coop-oauth"
"""The thread in which the membership asks for its tokens."""


def test_both_parts_ask_the_callback_for_tokens_again_and_again(
    guarded: LocalKafka, oidc: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """The same `oauth_cb` serves librdkafka's connections and ours, each with its own tokens."""
    oidc.life = TOKEN_LIFE
    askers: list[str] = []

    def oauth_cb(config: str) -> tuple[str, float]:
        assert config == "of the test"
        askers.append(threading.current_thread().name)
        token = oidc.token("reader")
        oidc.issued.append(token)
        return token, time.time() + oidc.life

    security = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "of the test",
        "oauth_cb": oauth_cb,
    }
    logs_in_again(guarded, {**tls(), **security}, oidc, caplog)
    ours = askers.count(OURS)
    assert ours >= 2, askers
    assert len(askers) - ours >= 2, askers


def logs_in_again(
    kafka: LocalKafka, security: dict[str, Any], oidc: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """A member outlives three logins and a token, and then commits and fetches as before."""
    publish(kafka, 0)
    with caplog.at_level(logging.DEBUG):
        one = member(kafka, security, **TALKATIVE)
        with members(one):
            until(lambda: len(one.owned) == 2 and bool(one.records), one)
            offsets = [TopicPartition(TOPIC, 0, 1)]
            for _ in range(3):
                _outlive(one, REAUTHENTICATION_MS / 1000)
                one.consumer.commit(offsets=offsets, asynchronous=False)
            seen = len(one.records)
            publish(kafka, 0, 1)
            until(lambda: len(one.records) >= seen + 2, one)
            assert not one.raised
            assert not one.calls("lost")
            assert "the connection was cut" not in caplog.text, "it logged in anew instead"
            said = everything_said(one, caplog)
    assert f"mechanisms {security['sasl.mechanism']}, provider" in said_by_librdkafka(caplog)
    for secret in secrets(oidc):
        assert secret not in said


def _outlive(one: Member, seconds: float) -> None:
    """Polls for so long: the broker's clock is what is tested."""
    deadline = time.monotonic() + seconds
    until(lambda: time.monotonic() > deadline, one)


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_secret_is_named_and_not_shown(
    guarded: LocalKafka, oidc: Provider, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    wrong = "hunter-two-is-wrong"
    key = "sasl.oauthbearer.client.secret" if mechanism == "OAUTHBEARER" else "sasl.password"
    with caplog.at_level(logging.DEBUG):
        one = member(guarded, {**login(oidc, mechanism), key: wrong}, **TALKATIVE)
        with members(one):
            until(lambda: bool(one.raised), one)
            assert code(one.raised[0]) == KafkaError._AUTHENTICATION
            assert wrong not in everything_said(one, caplog)
            assert mechanism in said_by_librdkafka(caplog)


def test_what_a_callback_raises_is_named_and_its_text_not_shown(
    guarded: LocalKafka, oidc: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """HTTP libraries put URLs with secrets into theirs."""

    def oauth_cb(_: str) -> tuple[str, float]:
        if threading.current_thread().name != OURS:
            return oidc.token("reader"), time.time() + oidc.life  # librdkafka waits for its first
        raise RuntimeError(f"GET {oidc.url}/token?client_secret={CLIENT_SECRET}")

    with caplog.at_level(logging.DEBUG):
        one = member(guarded, {**tls(), "sasl.mechanism": "OAUTHBEARER", "oauth_cb": oauth_cb})
        with members(one):
            until(lambda: bool(one.raised), one)
            assert code(one.raised[0]) == KafkaError._AUTHENTICATION
            said = everything_said(one, caplog)
    assert "oauth_cb raised RuntimeError" in said
    assert CLIENT_SECRET not in said


def test_a_group_that_one_may_not_join(guarded: LocalKafka, oidc: Provider) -> None:
    one = member(guarded, login(oidc, user="groupless"))
    with members(one):
        until(lambda: bool(one.raised), one)
        assert code(one.raised[0]) == KafkaError.GROUP_AUTHORIZATION_FAILED
        assert "grant READ on the group" in str(one.raised[0])


def test_a_topic_that_one_may_not_read(guarded: LocalKafka, oidc: Provider) -> None:
    one = member(guarded, login(oidc, user="topicless"))
    with members(one):
        until(lambda: bool(one.raised or one.errors), one)
        codes = [code(e) for e in one.raised] + [e.code() for m in one.errors if (e := m.error())]
        assert KafkaError.TOPIC_AUTHORIZATION_FAILED in codes


def test_a_right_that_comes_later_is_used_without_a_restart(
    guarded: LocalKafka, oidc: Provider
) -> None:
    group = unique("later")
    one = member(guarded, login(oidc), group=group)
    with members(one):
        until(lambda: bool(one.raised), one)
        assert code(one.raised[0]) == KafkaError.GROUP_AUTHORIZATION_FAILED
        allow(guarded, "reader", (ResourceType.GROUP, group, AclOperation.READ))
        until(lambda: len(one.owned) == 2, one)


@pytest.mark.parametrize(
    ("user", "transaction", "refusal"),
    [
        ("reader", "of-somebody-else", KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("groupless", TRANSACTION, KafkaError.GROUP_AUTHORIZATION_FAILED),
        ("reader", TRANSACTION, None),
    ],
)
def test_offsets_in_transactions_need_both_rights(
    guarded: LocalKafka, oidc: Provider, user: str, transaction: str, refusal: int | None
) -> None:
    one = member(guarded, login(oidc), enable_auto_commit=False)
    with members(one):
        until(lambda: len(one.owned) == 2, one)
        producer = Producer(
            {
                "bootstrap.servers": guarded.bootstrap_servers,
                "transactional.id": transaction,
                **login(oidc, user=user),
                "log_level": 0,
            }
        )

        def commit() -> None:
            producer.init_transactions(PATIENCE)
            producer.begin_transaction()
            metadata = one.consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(TOPIC, 1, 1)], metadata, PATIENCE)
            producer.commit_transaction(PATIENCE)

        if refusal is None:
            commit()
            (found,) = one.consumer.committed([TopicPartition(TOPIC, 1)], timeout=PATIENCE)
            assert found.offset == 1
        else:
            with pytest.raises(KafkaException) as refused:
                commit()
            assert code(refused.value) == refusal


# --- certificates --------------------------------------------------------------------------------


def test_an_authority_that_nobody_knows(guarded: LocalKafka, oidc: Provider) -> None:
    one = member(guarded, {**login(oidc), "ssl.ca.pem": pem(stranger().cert_pem)})
    with members(one):
        until(lambda: bool(one.raised), one)
        said = str(one.raised[0])
        assert code(one.raised[0]) == KafkaError._AUTHENTICATION
        assert guarded.bootstrap_servers in said
        assert "the broker's certificate is refused: its authority is unknown" in said
        assert "set ssl.ca.location" in said
        assert PASSWORD not in said


def test_a_certificate_for_another_name(guarded: LocalKafka, oidc: Provider) -> None:
    port = guarded.bootstrap_servers.rpartition(":")[2]
    one = member(guarded, {**login(oidc), "bootstrap.servers": f"localhost:{port}"})
    with members(one):
        until(lambda: bool(one.raised), one)
        said = str(one.raised[0])
        assert code(one.raised[0]) == KafkaError._AUTHENTICATION
        assert f"localhost:{port}: the broker's certificate is refused: it is for another" in said
        assert "connect by a name or an address in the certificate" in said


@pytest.mark.parametrize("check", ["https", "none"])
def test_librdkafka_refuses_a_certificate_for_another_name(
    guarded: LocalKafka, oidc: Provider, check: str
) -> None:
    """Fetched by hand: no connection of ours has a say. Without the check there are records."""
    port = guarded.bootstrap_servers.rpartition(":")[2]
    told: list[KafkaError] = []
    elsewhere = {
        "bootstrap.servers": f"localhost:{port}",
        "ssl.endpoint.identification.algorithm": check,
    }
    one = member(guarded, {**login(oidc), **elsewhere}, error_cb=told.append)
    with members(one):
        one.consumer.unsubscribe()
        one.consumer.assign([at(TOPIC, 0, 0)])
        if check == "none":
            until(lambda: bool(one.records), one)
        else:
            until(lambda: any(e.code() == KafkaError._SSL for e in told), one, within=30.0)
            said = next(e.str() for e in told if e.code() == KafkaError._SSL)
            assert f"localhost:{port}" in said
            assert "certificate" in said
            assert PASSWORD not in "".join(e.str() for e in told)
        assert bool(one.records) == (check == "none")


def test_tls_asked_of_a_plaintext_listener_is_told(
    guarded: LocalKafka, oidc: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """Not raised, for a broker that restarts cuts connections too; no login is sent."""
    one = member(guarded, {**login(oidc), "bootstrap.servers": guarded.admin_servers})
    with members(one):
        until(lambda: "no broker answers" in caplog.text, one)
        (told,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert "TLS" in told
        assert PASSWORD not in told
