"""Names, addresses and TLS: what an operator reads when one of them is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import errno
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from broker_certificates import (
    FUTURE,
    PAST,
    authority,
    authority_pem,
    broker_certificate,
    broker_context,
    certificate_pem,
    client_certificate,
    key_pem,
    stranger,
)
from broker_harness import HEARTBEAT_REQUEST, SOON, FakeBroker, Visitor, on_loop, settings
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from kafka_coop.broker.connection import Connection
from kafka_coop.broker.diagnosis import Peer, Stage, cut, tls_failed
from kafka_coop.broker.keepalive import probe
from kafka_coop.broker.tls import Identity
from kafka_coop.config import ConnectionSettings, TlsSettings
from kafka_coop.errors import AuthenticationFailedError, ConnectionFailedError, RequestFailedError


async def used(host: str, port: int, with_settings: ConnectionSettings) -> None:
    """Opens a connection, uses and closes it."""
    connection = await Connection.open(host, port, with_settings)
    try:
        await connection.send(HEARTBEAT_REQUEST, timeout=SOON)
    finally:
        connection.close()
        await connection.wait_closed()


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


# --- names and addresses -------------------------------------------------------------------


@on_loop
async def test_a_refused_connection_is_named() -> None:
    port = closed_port()
    with pytest.raises(ConnectionFailedError, match="connection refused") as caught:
        await used("127.0.0.1", port, settings())
    assert str(caught.value).startswith(f"127.0.0.1:{port}: ")
    assert "advertised.listeners" in str(caught.value)


def resolves_to(monkeypatch: pytest.MonkeyPatch, *found: tuple[socket.AddressFamily, Any]) -> None:
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *_: [(family, socket.SOCK_STREAM, 6, "", address) for family, address in found],
    )


def test_a_name_that_does_not_resolve_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    @on_loop
    async def run() -> None:
        with pytest.raises(ConnectionFailedError, match="Name or service not known") as caught:
            await used("no.such.host", 9092, settings())
        assert str(caught.value).startswith("no.such.host:9092: ")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    run()


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "a..b", "bad\udcffname"])
@on_loop
async def test_a_name_that_cannot_be_one_is_an_error_like_any_other(host: str) -> None:
    with pytest.raises(ConnectionFailedError, match="does not resolve"):
        await used(host, 9092, settings())


def test_every_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_loop
    async def run() -> None:
        async with FakeBroker() as broker:
            bad = (socket.AF_INET, ("127.0.0.1", closed_port()))
            good = (socket.AF_INET, ("127.0.0.1", broker.port))
            resolves_to(monkeypatch, bad, good)
            await used("two.addresses", broker.port, settings())
            resolves_to(monkeypatch, bad, (socket.AF_INET, ("127.0.0.2", closed_port())))
            with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1: .*; 127\.0\.0\.2: "):
                await used("two.addresses", broker.port, settings())

    run()


def test_an_address_that_swallows_packets_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @on_loop
    async def run() -> None:
        # A listener whose queue is full drops what comes: connecting to it hangs.
        with socket.socket() as deaf, socket.socket() as first:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            first.connect(deaf.getsockname())
            async with FakeBroker() as broker:
                resolves_to(
                    monkeypatch,
                    (socket.AF_INET, deaf.getsockname()),
                    (socket.AF_INET, ("127.0.0.1", broker.port)),
                )
                limit = timedelta(seconds=2)
                await used("two.addresses", broker.port, settings(connect_timeout=limit))

    run()


@pytest.mark.parametrize(
    ("family", "asked"),
    [("any", socket.AF_UNSPEC), ("v4", socket.AF_INET), ("v6", socket.AF_INET6)],
)
def test_the_address_family_is_asked_for(
    family: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    families: list[int] = []

    def note(_host: str, _port: int, wanted: int, _kind: int) -> list[Any]:
        families.append(wanted)
        return []

    @on_loop
    async def run() -> None:
        with pytest.raises(ConnectionFailedError, match="no address of the family"):
            await used("some.host", 9092, settings(address_family=family))

    monkeypatch.setattr(socket, "getaddrinfo", note)
    run()
    assert families == [asked]


@pytest.mark.parametrize(("keepalive", "nagle_disable"), [(True, True), (False, False)])
@on_loop
async def test_socket_options_are_set(keepalive: bool, nagle_disable: bool) -> None:
    async with FakeBroker() as broker:
        connection = await Connection.open(
            *broker.address, settings(keepalive=keepalive, nagle_disable=nagle_disable)
        )
        transport = connection._wire._transport
        assert transport is not None
        sock = transport.get_extra_info("socket")
        assert bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) == keepalive
        assert bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) == nagle_disable
        connection.close()
        await connection.wait_closed()


LINUX = {
    "SO_KEEPALIVE": 1,
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 20_000,
}


class Options:
    """A socket that notes what is set, and refuses some of it."""

    def __init__(self, *refused: int) -> None:
        self.set: dict[int, int] = {}
        self._refused = refused

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        if option in self._refused:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        self.set[option] = value


def probed(*refused: int) -> dict[int, int]:
    options: Any = Options(*refused)
    probe(options)
    found: dict[int, int] = options.set
    return found


def test_a_flow_is_probed_by_the_names_that_the_system_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LINUX.keys() - {"SO_KEEPALIVE"}:
        monkeypatch.delattr(socket, name, raising=False)
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", 16, raising=False)  # macOS
    assert probed() == {socket.SO_KEEPALIVE: 1, 16: 10}


@pytest.mark.parametrize("stage", [Stage.TLS_HANDSHAKE, Stage.PROVEN])
def test_a_flow_that_the_kernel_found_dead_is_no_brokers_fault(stage: Stage) -> None:
    died = TimeoutError(errno.ETIMEDOUT, "Connection timed out")
    error = cut(Peer(host="h", port=1), stage, died)
    assert isinstance(error, ConnectionFailedError)
    assert "a NAT, firewall or load balancer dropped it" in str(error)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's options")
def test_an_option_that_is_refused_is_done_without() -> None:
    options = {getattr(socket, name): value for name, value in LINUX.items()}
    assert probed() == options
    del options[socket.TCP_USER_TIMEOUT]
    assert probed(socket.TCP_USER_TIMEOUT) == options


# --- TLS -----------------------------------------------------------------------------------


def tls(**changes: Any) -> ConnectionSettings:
    return settings(tls=TlsSettings(**{"ca_pem": authority_pem(), **changes}))


def test_a_tls_handshake_may_take_as_long_as_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.constants.SSL_HANDSHAKE_TIMEOUT", 0.02)

    @on_loop
    async def run() -> None:
        # Connections to it stand, and nobody says a word on them.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            limited = dataclasses.replace(tls(), connect_timeout=timedelta(seconds=1))
            with pytest.raises(ConnectionFailedError, match=r"within 1 s .* the TLS hand"):
                await used("127.0.0.1", silent.getsockname()[1], limited)

    run()


async def refusal(broker: FakeBroker, with_settings: ConnectionSettings) -> RequestFailedError:
    with pytest.raises(RequestFailedError) as caught:
        await used(*broker.address, with_settings)
    assert str(caught.value).startswith(f"127.0.0.1:{broker.port}: ")
    return caught.value


@on_loop
async def test_tls_with_a_trusted_certificate() -> None:
    async with FakeBroker(tls=broker_context()) as broker:
        await used(*broker.address, tls())


@on_loop
async def test_closing_does_not_wait_for_the_brokers_goodbye() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        visitor.go_deaf()
        await asyncio.Event().wait()

    async with FakeBroker(script, tls=broker_context()) as broker:
        connection = await Connection.open(*broker.address, tls())
        connection.close()
        async with asyncio.timeout(10):
            await connection.wait_closed()


CHECK_THE_NAME = "ssl.endpoint.identification.algorithm=none"
TRUST_THE_BROKER = "set ssl.ca.location"

BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "another name": ({"name": "other.host"}, "another host", CHECK_THE_NAME),
    "another address": ({"name": "127.0.0.9"}, "another host", CHECK_THE_NAME),
    "unknown authority": ({"known": False}, "authority is unknown", TRUST_THE_BROKER),
    "expired": ({"valid": PAST}, "has expired (", "renew the broker's certificate"),
    "not yet valid": ({"valid": FUTURE}, "not yet valid (", "this machine's clock"),
}
"""What is wrong with a broker's certificate, its name in the message, and the remedy there."""


@pytest.mark.parametrize("kind", BROKEN)
@on_loop
async def test_what_is_wrong_with_a_brokers_certificate_is_named(kind: str) -> None:
    wrong, *_ = BROKEN[kind]
    async with FakeBroker(tls=broker_context(broker_certificate(**wrong))) as broker:
        error = await refusal(broker, tls())
        assert isinstance(error, AuthenticationFailedError)
        assert_only(str(error), kind, {key: said for key, (_, *said) in BROKEN.items()})


def assert_only(text: str, kind: str, kinds: Mapping[str, list[str]]) -> None:
    """The text names this kind and its remedy, and no other kind."""
    name, _ = kinds[kind]
    for part in kinds[kind]:
        assert part in text
    for other, _ in kinds.values():
        assert other == name or other not in text


@on_loop
async def test_the_checks_of_a_brokers_certificate_can_be_given_up() -> None:
    async with FakeBroker(tls=broker_context(broker_certificate(name="other.host"))) as broker:
        await used(*broker.address, tls(check_hostname=False))
    async with FakeBroker(tls=broker_context(broker_certificate(known=False))) as broker:
        await used(*broker.address, tls(verify=False))


def broker_with(file: Path, *pems: trustme.Blob) -> FakeBroker:
    """A broker that sends these certificates, of which the first is its own."""
    file.write_bytes(b"".join(pem.bytes() for pem in pems))
    context = broker_context()
    context.load_cert_chain(file)
    return FakeBroker(tls=context)


@on_loop
async def test_a_certificate_that_signed_itself_is_named(tmp_path: Path) -> None:
    own = stranger()
    async with broker_with(tmp_path / "own.pem", own.private_key_pem, own.cert_pem) as broker:
        error = await refusal(broker, tls())
        assert isinstance(error, AuthenticationFailedError)
        assert "it signed itself (" in str(error)
        assert "to the broker's certificate, if it is to be trusted" in str(error)


@on_loop
async def test_an_unknown_authority_that_the_broker_sends_along_is_named(tmp_path: Path) -> None:
    leaf = broker_certificate(known=False)
    chain = (leaf.private_key_pem, *leaf.cert_chain_pems, stranger().cert_pem)
    async with broker_with(tmp_path / "chain.pem", *chain) as broker:
        error = await refusal(broker, tls())
        assert "in certificate chain" in str(error), "OpenSSL's words: a kind of its own there"
        assert "authority is unknown" in str(error)
        assert TRUST_THE_BROKER in str(error)


@on_loop
async def test_a_client_certificate_is_shown_from_strings() -> None:
    async with FakeBroker(tls=broker_context(demands_client=True)) as broker:
        await used(*broker.address, shown(client_certificate()))


@contextlib.contextmanager
def strict_listener(context: ssl.SSLContext) -> Iterator[tuple[str, int]]:
    """A TLS listener that says why it refuses a client. asyncio's own drop the alert."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            visitor, _ = listener.accept()
            with context.wrap_socket(
                visitor, server_side=True, do_handshake_on_connect=False
            ) as encrypted:
                with pytest.raises(ssl.SSLError):
                    encrypted.do_handshake()
                # Were it closed at once, the client's next write would destroy the alert.
                with contextlib.suppress(ConnectionError):
                    while socket.socket.recv(encrypted, 1024):
                        pass

        thread = threading.Thread(target=refuse)
        thread.start()
        yield listener.getsockname()
        thread.join()


async def alerted(context: ssl.SSLContext, with_settings: ConnectionSettings) -> str:
    """The text with which a broker's TLS alert reaches the user."""
    with strict_listener(context) as address:
        with pytest.raises(AuthenticationFailedError) as caught:
            await used(*address, with_settings)
        return str(caught.value)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_loop
async def test_a_missing_client_certificate_is_named(version: ssl.TLSVersion) -> None:
    """In TLS 1.3 the refusal comes after the client's handshake is complete."""
    context = broker_context(demands_client=True)
    context.maximum_version = version
    said = await alerted(context, tls())
    assert "demands a client certificate" in said
    assert "set ssl.certificate.location and ssl.key.location" in said


REFUSED: dict[str, list[str]] = {
    "expired": ["has expired at 2020-01-02 00:00 UTC", "renew it (ssl.certificate.location"],
    "not yet valid": ["not yet valid, only from 2090-01-01 00:00 UTC on", "this machine's clock"],
    "unknown authority": ["know the authority of our certificate", "ssl.truststore.location"],
    "revoked": ["was revoked", "renew it (ssl.certificate.location"],
}
"""The name in the message of what a broker refuses in a client's certificate, and the remedy."""


@pytest.mark.parametrize("kind", REFUSED)
@on_loop
async def test_what_is_wrong_with_the_clients_certificate_is_named(
    kind: str, tmp_path: Path
) -> None:
    context = broker_context(demands_client=True)
    leaf = {
        "expired": client_certificate(valid=PAST),
        "not yet valid": client_certificate(valid=FUTURE),
        "unknown authority": client_certificate(known=False),
        "revoked": client_certificate(),
    }[kind]
    if kind == "revoked":
        file = tmp_path / "crl.pem"
        file.write_text(revocations(serial_number(leaf)))
        context.load_verify_locations(file)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    said = await alerted(context, shown(leaf))
    assert_only(said, kind, REFUSED)


def shown(leaf: trustme.LeafCert) -> ConnectionSettings:
    return tls(certificate_pem=certificate_pem(leaf), key_pem=key_pem(leaf))


ALERTS = {
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": ("probably does not know", "ssl.truststore.location"),
    "SSLV3_ALERT_BAD_CERTIFICATE": ("probably does not know", "ssl.truststore.location"),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": ("expired by the broker's clock", "renew it"),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": ("not made for clients", "clientAuth"),
    "TLSV1_ALERT_PROTOCOL_VERSION": ("protocol versions", "ssl.cipher.suites"),
    "TLSV1_ALERT_INTERNAL_ERROR": ("internal error", "see the broker's log"),
}


@pytest.mark.parametrize("reason", ALERTS)
def test_what_a_broker_alone_can_know_is_told_by_its_alert(reason: str) -> None:
    """As it is where the certificate looks sound from here; Java's alerts say no more."""
    alert = ssl.SSLError()
    alert.reason = reason
    peer = Peer(host="b", port=9093, tls=True, identity=Identity())
    text = str(tls_failed(peer, alert))
    assert text.startswith("b:9093: the broker refused the TLS connection")
    for part in ALERTS[reason]:
        assert part in text


def test_what_garbles_a_tls_connection_that_has_served_is_no_refusal() -> None:
    """A user who is told of a refusal would look for it in certificates, and give up."""
    garbled = ssl.SSLError()
    garbled.reason = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
    peer = Peer(host="b", port=9093, tls=True)
    error = cut(peer, Stage.PROVEN, garbled)
    assert isinstance(error, ConnectionFailedError)
    assert "the TLS connection broke during requests (decryption failed or" in str(error)
    # The broker has said which requests it knows: it has taken our certificate.
    assert isinstance(cut(peer, Stage.UNPROVEN, garbled), ConnectionFailedError)
    assert isinstance(cut(peer, Stage.NEGOTIATING, garbled), AuthenticationFailedError)


USER_CANCELED = b"\x15\x03\x03\x00\x02\x01\x5a"
CLOSE_NOTIFY = b"\x15\x03\x03\x00\x02\x01\x00"


@pytest.mark.parametrize("said", [CLOSE_NOTIFY, USER_CANCELED + CLOSE_NOTIFY])
@on_loop
async def test_a_broker_that_shuts_down_during_a_tls_handshake_refuses_nobody(said: bytes) -> None:
    """Java's says both. A user who is told of a refusal gives up, in the midst of a restart."""

    async def shut_down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(shut_down, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailedError, match="is probably shutting down") as caught:
            await used("127.0.0.1", port, tls())
        assert str(caught.value).startswith(f"127.0.0.1:{port}: ")


@on_loop
async def test_a_broker_that_refuses_a_client_without_a_word_is_doubted() -> None:
    async with FakeBroker(tls=broker_context(demands_client=True)) as broker:
        error = await refusal(broker, tls())
        assert isinstance(error, ConnectionFailedError)
        assert "ssl.certificate.location" in str(error)


@on_loop
async def test_no_common_cipher_is_named() -> None:
    context = broker_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    assert "ciphers" in await alerted(context, tls(cipher_suites="ECDHE-ECDSA-AES128-SHA256"))


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x04abcd"])
@on_loop
async def test_tls_spoken_to_a_plaintext_port_is_named(answer: bytes) -> None:
    async def script(visitor: Visitor) -> None:
        visitor.raw(answer)
        await visitor.sent()

    async with FakeBroker(script) as broker:
        error = await refusal(broker, tls())
        assert isinstance(error, ConnectionFailedError)
        assert "plaintext listener" in str(error)


@on_loop
async def test_plaintext_spoken_to_a_tls_port_is_named() -> None:
    async with FakeBroker(tls=broker_context()) as broker:
        error = await refusal(broker, settings())
        assert isinstance(error, ConnectionFailedError)
        assert "security.protocol to SSL" in str(error)


@on_loop
async def test_a_tls_handshake_that_hangs_is_limited() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.left()

    async with FakeBroker(script) as broker:
        limited = settings(
            tls=TlsSettings(ca_pem=authority_pem()), connect_timeout=timedelta(seconds=1)
        )
        error = await refusal(broker, limited)
        assert isinstance(error, ConnectionFailedError)
        assert "TLS handshake" in str(error)


def revocations(*serials: int) -> str:
    """A revocation list of the authority's."""
    ca = authority()
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    key = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now - dt.timedelta(days=1))
        .next_update(now + dt.timedelta(days=1))
    )
    for serial in serials:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder()
            .serial_number(serial)
            .revocation_date(now - dt.timedelta(days=1))
            .build()
        )
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]  # trustme's kind of key
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def serial_number(leaf: trustme.LeafCert) -> int:
    return x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).serial_number


@on_loop
async def test_a_revoked_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "crl.pem"
    async with FakeBroker(tls=broker_context()) as broker:
        file.write_text(revocations())
        await used(*broker.address, tls(crl_location=str(file)))
        file.write_text(revocations(serial_number(broker_certificate())))
        error = await refusal(broker, tls(crl_location=str(file)))
        assert isinstance(error, AuthenticationFailedError)
        assert "it was revoked (" in str(error)
        assert "give the broker a new certificate" in str(error)


@on_loop
async def test_a_cancelled_tls_handshake_leaves_no_socket() -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def script(visitor: Visitor) -> None:
        arrived.set()
        await visitor.left()
        gone.set()

    async with FakeBroker(script) as broker:
        opening = asyncio.create_task(Connection.open(*broker.address, tls()))
        await arrived.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await gone.wait()
