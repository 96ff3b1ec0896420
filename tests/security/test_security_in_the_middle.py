"""Somebody in the middle of a connection without TLS, who reads and changes what passes.

Without TLS nothing keeps records or offsets from them. What must hold even so: they learn no
password that SCRAM guards, can't pass for the broker, and can't talk a client into giving more
away; and bytes that they change do no other harm than a cut connection.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError
from integration_support import Member, code, members, publish, unique, until
from security_support import PASSWORD, make_scram_users

from kafka_coop.testing.broker_settings import HOST
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.local import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.xdist_group("security")]

SCRAM = "SCRAM-SHA-256"


class Middle:
    """Passes bytes on, and may change those of the broker's answers.

    Attributes:
        heard: Everything that passed, both ways.
        change: What becomes of a piece of an answer.
    """

    def __init__(self, there: int) -> None:
        self.heard = bytearray()
        self.change: Callable[[bytes], bytes] = bytes
        self.there = there
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection((HOST, self.there))
            except OSError:
                return
            self._ends += (near, far)
            for source, sink, answers in ((near, far, False), (far, near, True)):
                self._threads.append(
                    threading.Thread(target=self._pass_on, args=(source, sink, answers))
                )
                self._threads[-1].start()

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
def middle(there: int) -> Iterator[Middle]:
    made = Middle(there)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def open_door() -> Iterator[LocalKafka]:
    """SASL without TLS. Clients are told of an address that somebody else may listen on."""
    prefix = "listener.name.client."
    module = "org.apache.kafka.common.security."
    properties = {
        prefix + "sasl.enabled.mechanisms": f"{SCRAM},PLAIN",
        prefix + "scram-sha-256.sasl.jaas.config": f"{module}scram.ScramLoginModule required;",
        prefix + "plain.sasl.jaas.config": (
            f'{module}plain.PlainLoginModule required user_reader="{PASSWORD}";'
        ),
    }
    with LocalKafka(client_protocol="SASL_PLAINTEXT", properties=properties, proxied=True) as kafka:
        make_scram_users(kafka)
        yield kafka


def login(mechanism: str = SCRAM) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "reader",
        "sasl.password": PASSWORD,
    }


def through(kafka: LocalKafka, made: Middle, **more: Any) -> Member:
    """A member whose first connection goes through the middle."""
    topic = unique("heard")
    kafka.create_topic(topic, partitions=2)
    publish(KafkaCluster(kafka.admin_servers), topic, 1, 0, 1)
    servers = {"bootstrap.servers": f"{HOST}:{made.port}"}
    return Member(kafka, unique("g"), topic, **{**login(), **servers, **more})


def client_port(kafka: LocalKafka) -> int:
    return int(kafka.bootstrap_servers.rpartition(":")[2])


def test_who_listens_learns_no_password(open_door: LocalKafka) -> None:
    with middle(client_port(open_door)) as made:
        one = through(open_door, made)
        with members(one):
            until(lambda: len(one.records) == 2, one)
        assert SCRAM.encode() in made.heard
        assert b"reader" in made.heard
        assert PASSWORD.encode() not in made.heard


def test_who_changes_the_proof_is_found_out(open_door: LocalKafka) -> None:
    """The broker's last word proves that it knows the password, too."""
    with middle(client_port(open_door)) as made:
        made.change = lambda piece: re.sub(rb"v=(.)", _another_letter, piece)
        one = through(open_door, made)
        with members(one):
            until(lambda: bool(one.raised), one)
            assert code(one.raised[0]) == KafkaError._AUTHENTICATION
            assert not one.owned


def _another_letter(found: re.Match[bytes]) -> bytes:
    return b"v=B" if found[1] == b"A" else b"v=A"


def test_nobody_talks_a_client_into_a_weaker_login(open_door: LocalKafka) -> None:
    """The broker is made to say that it knows PLAIN alone."""
    with middle(client_port(open_door)) as made:

        def weaken(piece: bytes) -> bytes:
            # Handshake: error 33, UNSUPPORTED_SASL_MECHANISM, and the mechanisms that there are.
            if SCRAM.encode() not in piece:
                return piece
            body = piece[4:8] + b"\0\x21" + b"\0\0\0\1" + b"\0\5PLAIN"
            return len(body).to_bytes(4, "big") + body

        made.change = weaken
        one = through(open_door, made)
        with members(one):
            until(lambda: bool(one.raised), one)
            assert "PLAIN" in str(one.raised[0])
        assert PASSWORD.encode() not in made.heard


def test_changed_bytes_do_no_more_harm_than_a_cut(
    open_door: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with middle(client_port(open_door)) as made, caplog.at_level(logging.DEBUG):
        made.change = lambda piece: bytes(b ^ 0x80 for b in piece)
        one = through(open_door, made)
        with members(one):
            until(lambda: "no broker answers" in caplog.text or bool(one.raised), one)
            assert not one.owned
            made.change = bytes
            until(lambda: len(one.records) == 2, one, what="what comes when they are gone")
        assert PASSWORD not in caplog.text
