"""Somebody in the middle, who reads and changes what passes.

They stand at the address that the broker advertises: the connections to the coordinator and
those that fetch go through them as well.

Without TLS nothing keeps records or offsets from them. What must hold even so: they learn no
password that SCRAM guards, can't pass for the broker, and can't talk a client into giving more
away; and bytes that they change do no other harm than a cut connection. With TLS they learn
nothing, and nobody speaks to them who is not the broker.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError
from integration_support import Member, at, code, members, unique, until
from integration_support import publish as send
from security_support import PASSWORD, authority, broker_tls, make_scram_users, pem, stranger

from kafka_coop.testing.broker_settings import HOST
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.local import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.xdist_group("security")]

SCRAM = "SCRAM-SHA-256"


class Middle:
    """Passes bytes on, and may change those of the broker's answers.

    Args:
        here: The port to listen on.
        there: The broker's.
        disguise: Passes for the broker itself, with the certificate in it, and passes nothing on.

    Attributes:
        heard: Everything that passed, both ways; in disguise, what was confided to it.
        refusals: OpenSSL's names of the alerts that met the disguise.
        change: What becomes of a piece of an answer.
    """

    def __init__(self, here: int, there: int, disguise: ssl.SSLContext | None = None) -> None:
        self.heard = bytearray()
        self.refusals: list[str] = []
        self.change: Callable[[bytes], bytes] = bytes
        self._there = there
        self._disguise = disguise
        self._listener = socket.create_server((HOST, here))
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=work, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                self._ends.append(near)
                if self._disguise is not None:
                    self._start(self._pretend, near, self._disguise)
                    continue
                far = socket.create_connection((HOST, self._there))
            except OSError:
                return
            self._ends.append(far)
            self._start(self._pass_on, near, far, False)
            self._start(self._pass_on, far, near, True)

    def _pretend(self, near: socket.socket, disguise: ssl.SSLContext) -> None:
        try:
            with disguise.wrap_socket(near, server_side=True) as inside:
                while piece := inside.recv(65536):
                    self.heard += piece
        except ssl.SSLError as error:
            self.refusals.append(error.reason)
        except OSError:
            pass  # cut

    def _pass_on(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                self.heard += piece
                sink.sendall(self.change(piece) if answers else piece)
        _cut(source)
        _cut(sink)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for end in self._ends:
            _cut(end)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()


def _cut(end: socket.socket) -> None:
    """Wakes who reads from it, too; closing would not."""
    with contextlib.suppress(OSError):  # it was cut before
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def middle(kafka: LocalKafka, disguise: ssl.SSLContext | None = None) -> Iterator[Middle]:
    """Somebody where the broker says that it is."""
    made = Middle(port(kafka.bootstrap_servers), kafka._nodes[1].client, disguise)
    try:
        yield made
    finally:
        made.close()


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


@contextmanager
def door(client_protocol: str, properties: dict[str, str]) -> Iterator[LocalKafka]:
    """A broker that tells clients of an address where nobody listens yet."""
    with LocalKafka(client_protocol=client_protocol, properties=properties, proxied=True) as kafka:
        kafka.proxy(1).close()
        yield kafka


PLAIN_LOGIN = {
    "listener.name.client.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_reader="{PASSWORD}";'
    )
}


@pytest.fixture(scope="module")
def open_door() -> Iterator[LocalKafka]:
    """SASL without TLS."""
    prefix = "listener.name.client."
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    properties = {
        **PLAIN_LOGIN,
        prefix + "sasl.enabled.mechanisms": f"{SCRAM},PLAIN",
        prefix + "scram-sha-256.sasl.jaas.config": scram,
    }
    with door("SASL_PLAINTEXT", properties) as kafka:
        make_scram_users(kafka)
        yield kafka


@pytest.fixture(scope="module")
def closed_door() -> Iterator[LocalKafka]:
    """TLS, behind which even PLAIN is safe."""
    mechanisms = {"listener.name.client.sasl.enabled.mechanisms": "PLAIN"}
    with door("SASL_SSL", broker_tls(client_auth="none") | PLAIN_LOGIN | mechanisms) as kafka:
        yield kafka


def login(mechanism: str = SCRAM) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "reader",
        "sasl.password": PASSWORD,
    }


def safe_login() -> dict[str, Any]:
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.pem": pem(authority().cert_pem)}
    return {**login("PLAIN"), **tls}


RECORD = b"a record that passes"


def publish(kafka: LocalKafka, topic: str) -> None:
    """A record to each partition, by the brokers' own listener: nobody stands there."""
    send(KafkaCluster(kafka.admin_servers), topic, 1, 0, 1, value=RECORD)


def through(kafka: LocalKafka, **more: Any) -> Member:
    """A member of a new group that reads a new topic of two records."""
    topic = unique("heard")
    kafka.create_topic(topic, partitions=2)
    publish(kafka, topic)
    return Member(kafka, unique("g"), topic, **{**login(), **more})


OF_THE_COORDINATOR = b"cooperative-sticky"
"""What JoinGroup says, and no request that a client sends elsewhere."""


def test_who_listens_learns_no_password(open_door: LocalKafka) -> None:
    with middle(open_door) as made:
        one = through(open_door)
        with members(one):
            until(lambda: len(one.records) == 2, one)
        assert SCRAM.encode() in made.heard
        assert b"reader" in made.heard
        assert OF_THE_COORDINATOR in made.heard
        assert RECORD in made.heard, "without TLS"
        assert PASSWORD.encode() not in made.heard


def test_who_changes_the_proof_is_found_out(open_door: LocalKafka) -> None:
    """The broker's last word proves that it knows the password, too."""
    with middle(open_door) as made:
        made.change = lambda piece: re.sub(rb"v=(.)", _another_letter, piece)
        one = through(open_door)
        with members(one):
            until(lambda: bool(one.raised), one)
            assert code(one.raised[0]) == KafkaError._AUTHENTICATION
            assert not one.owned


def _another_letter(found: re.Match[bytes]) -> bytes:
    return b"v=B" if found[1] == b"A" else b"v=A"


def test_nobody_talks_a_client_into_a_weaker_login(open_door: LocalKafka) -> None:
    """The broker is made to say that it knows PLAIN alone."""
    with middle(open_door) as made:

        def weaken(piece: bytes) -> bytes:
            # Handshake: error 33, UNSUPPORTED_SASL_MECHANISM, and the mechanisms that there are.
            if SCRAM.encode() not in piece:
                return piece
            body = piece[4:8] + b"\0\x21" + b"\0\0\0\1" + b"\0\5PLAIN"
            return len(body).to_bytes(4, "big") + body

        made.change = weaken
        one = through(open_door)
        with members(one):
            until(lambda: bool(one.raised), one)
            assert "PLAIN" in str(one.raised[0])
        assert PASSWORD.encode() not in made.heard


def flipped(piece: bytes) -> bytes:
    return bytes(b ^ 0x80 for b in piece)


def test_changed_bytes_do_no_more_harm_than_a_cut(
    open_door: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with middle(open_door) as made, caplog.at_level(logging.DEBUG):
        made.change = flipped
        one = through(open_door)
        with members(one):
            until(lambda: "no broker answers" in caplog.text or bool(one.raised), one)
            assert not one.owned
            made.change = bytes
            until(lambda: len(one.records) == 2, one, what="what comes when they are gone")
        assert PASSWORD not in caplog.text


@pytest.mark.verdict
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_group_that_stands_outlives_changed_bytes(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    """Those of heartbeats and of fetches: connections are cut, and no record is left out."""
    safe = protocol == "SASL_SSL"
    kafka = request.getfixturevalue("closed_door" if safe else "open_door")
    told: list[KafkaError] = []
    settings = {
        **(safe_login() if safe else {}),
        "reconnect.backoff.max.ms": 500,
        "error_cb": told.append,
    }
    with middle(kafka) as made, caplog.at_level(logging.DEBUG):
        one = through(kafka, **settings)
        with members(one):
            until(lambda: len(one.records) == 2, one)
            topic, _, _ = one.records[0]
            made.change = flipped
            publish(kafka, topic)
            until(lambda: HARM[protocol] in caplog.text and bool(told), one, what="harm to both")
            assert len(one.records) == 2, "nothing unsound came"
            made.change = bytes
            until(lambda: {(topic, p, 1) for p in range(2)} <= set(one.records), one)
            assert {m.value() for m in one.messages} == {RECORD}
            assert not one.raised


HARM = {"SASL_PLAINTEXT": "unreadable answer", "SASL_SSL": "the TLS connection broke"}
"""What a connection of ours says of changed bytes; librdkafka tells `error_cb`."""


# --- with TLS ------------------------------------------------------------------------------------


def test_who_listens_to_tls_learns_nothing(closed_door: LocalKafka) -> None:
    with middle(closed_door) as made:
        one = through(closed_door, **safe_login())
        with members(one):
            until(lambda: len(one.records) == 2, one)
        assert made.heard
        for said in (PASSWORD.encode(), b"reader", one.group.encode(), RECORD, OF_THE_COORDINATOR):
            assert said not in made.heard


def test_who_passes_for_the_coordinator_is_refused(closed_door: LocalKafka) -> None:
    """The bootstrap is the broker itself, which sends its clients to the middle."""
    refused = "the broker's certificate is refused: its authority is unknown"
    with middle(closed_door, disguise()) as made:
        one = through(closed_door, **safe_login(), **itself(closed_door))
        with members(one):
            told = f"{closed_door.bootstrap_servers}: {refused}"
            until(lambda: any(told in str(error) for error in one.raised), one)
            until(lambda: UNKNOWN in made.refusals, one)
            assert not one.owned
        assert not made.heard


UNKNOWN = "TLSV1_ALERT_UNKNOWN_CA"


def test_nobody_fetches_from_who_passes_for_the_broker(closed_door: LocalKafka) -> None:
    """Fetched by hand, for no group is to be had there: librdkafka's connections."""
    told: list[KafkaError] = []
    with middle(closed_door, disguise()) as made:
        one = through(closed_door, **safe_login(), **itself(closed_door), error_cb=told.append)
        with members(one):
            (topic,) = one.consumer.subscription()
            one.consumer.unsubscribe()
            one.consumer.assign([at(topic, 0, 0)])
            until(lambda: KafkaError._SSL in [error.code() for error in told], one)
            until(lambda: UNKNOWN in made.refusals, one)
            assert not one.records
        assert not made.heard


def itself(kafka: LocalKafka) -> dict[str, str]:
    return {"bootstrap.servers": f"{HOST}:{kafka._nodes[1].client}"}


def disguise() -> ssl.SSLContext:
    """For the broker's own address, by an authority that nobody was told of."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    stranger().issue_cert(HOST).configure_cert(context)
    return context
