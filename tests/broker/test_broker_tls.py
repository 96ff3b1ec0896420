"""The context: what it loads and what it refuses. Handshakes are in test_broker_dial.py."""

from __future__ import annotations

import datetime as dt
import os
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trustme
from broker_certificates import (
    FUTURE,
    PAST,
    authority,
    authority_pem,
    certificate_pem,
    client_certificate,
    key_pem,
    stranger,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

from kafka_coop.broker.tls import Identity, shown_by, ssl_context
from kafka_coop.config import TlsSettings
from kafka_coop.errors import ConfigurationError

CERTIFICATE = certificate_pem(client_certificate())
KEY = key_pem(client_certificate())


def encrypted(key: str, password: str) -> str:
    return (
        serialization.load_pem_private_key(key.encode(), None)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        )
        .decode()
    )


def keystore(password: str) -> bytes:
    key = serialization.load_pem_private_key(KEY.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    return pkcs12.serialize_key_and_certificates(
        b"client",
        key,
        load_pem_x509_certificate(CERTIFICATE.encode()),
        None,
        serialization.BestAvailableEncryption(password.encode()),
    )


def weak() -> TlsSettings:
    """A pair that belongs together, of a size that OpenSSL takes no more."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")])
    starts, ends = PAST
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, starts, ends)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return TlsSettings(certificate_pem=made.decode(), key_pem=private.decode())


def refusal(settings: TlsSettings) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        ssl_context(settings)
    return caught.value


def test_by_default_everything_is_checked() -> None:
    context = ssl_context(TlsSettings())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_the_host_name_check_can_be_given_up_alone() -> None:
    context = ssl_context(TlsSettings(check_hostname=False))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.check_hostname


def test_verification_can_be_given_up() -> None:
    context = ssl_context(TlsSettings(verify=False))
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname


def test_own_authorities_replace_the_systems(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(authority_pem())
    for settings in (TlsSettings(ca_location=str(file)), TlsSettings(ca_pem=authority_pem())):
        assert len(ssl_context(settings).get_ca_certs()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system is asked")
def test_the_systems_authorities_are_those_that_librdkafka_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the member would join, and nothing be fetched; or nothing where both could."""
    file, other = tmp_path / "system.pem", tmp_path / "other.pem"
    file.write_text(authority_pem())
    other.write_text(authority_pem() + stranger().cert_pem.bytes().decode())
    empty, damaged = tmp_path / "certs", tmp_path / "damaged.pem"
    empty.mkdir()
    damaged.write_text("nonsense")
    places = ("/no/such/file.pem", str(empty), str(damaged), str(file))
    monkeypatch.setattr("kafka_coop.broker.tls._AUTHORITIES", places)
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    assert len(ssl_context(TlsSettings()).get_ca_certs()) == 1
    monkeypatch.setattr("kafka_coop.broker.tls._AUTHORITIES", places[:-1])
    assert len(ssl_context(TlsSettings()).get_ca_certs()) == 2, "Python's"
    monkeypatch.setattr("kafka_coop.broker.tls._AUTHORITIES", places)
    monkeypatch.setattr("kafka_coop.broker.tls._has_openssl_built_in", lambda: False)
    assert len(ssl_context(TlsSettings()).get_ca_certs()) == 2, "librdkafka asks OpenSSL, too"


def test_authorities_in_a_string_may_be_named_in_any_script() -> None:
    """In comments, as bundles do that tell whose each certificate is."""
    named = f"# Issuer: CN=Főtanúsítvány O=NetLock Kft.\n{authority_pem()}"
    assert len(ssl_context(TlsSettings(ca_pem=named)).get_ca_certs()) == 1


def test_a_directory_of_authorities_is_taken(tmp_path: Path) -> None:
    ssl_context(TlsSettings(ca_location=str(tmp_path)))


@pytest.mark.parametrize("key", ["ca_location", "certificate_location", "crl_location"])
def test_a_missing_file_is_named_with_its_key(key: str) -> None:
    missing: dict[str, Any] = {key: "/no/such/file.pem"}
    if key == "certificate_location":
        missing["key_pem"] = KEY
    error = refusal(TlsSettings(**missing))
    assert error.key == "ssl." + key.replace("_", ".")
    assert "/no/such/file.pem" in str(error)
    assert "No such file" in str(error)


def test_a_pem_string_that_is_none_is_refused() -> None:
    assert refusal(TlsSettings(ca_pem="nonsense")).key == "ssl.ca.pem"
    error = refusal(TlsSettings(certificate_pem="nonsense", key_pem="s3cret"))
    assert error.key == "ssl.certificate.pem"
    assert "s3cret" not in str(error)


def test_a_key_without_its_certificate_is_refused() -> None:
    assert "without its certificate" in str(refusal(TlsSettings(key_pem=KEY)))


def test_a_certificate_without_its_key_is_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where one file holds both: librdkafka shows none, and would fetch as another user."""
    file = tmp_path / "both.pem"
    file.write_text(CERTIFICATE + KEY)
    for settings in (
        TlsSettings(certificate_pem=CERTIFICATE + KEY),
        TlsSettings(certificate_location=str(file)),
    ):
        caplog.clear()
        assert shown_by(ssl_context(settings)) is None
        assert "is set without its private key" in caplog.text
    both = TlsSettings(certificate_location=str(file), key_location=str(file))
    assert shown_by(ssl_context(both)) is not None


@pytest.mark.parametrize("kind", [trustme.KeyType.ECDSA, trustme.KeyType.RSA])
def test_a_key_of_another_certificate_is_refused(kind: trustme.KeyType) -> None:
    other = key_pem(authority().issue_cert("other.example", key_type=kind))
    error = refusal(TlsSettings(certificate_pem=CERTIFICATE, key_pem=other))
    assert "does not belong" in str(error)
    # As in the midst of a renewal, when the new key is there and the new certificate is not.
    other = encrypted(other, "open sesame")
    error = refusal(
        TlsSettings(certificate_pem=CERTIFICATE, key_pem=other, key_password="open sesame")
    )
    assert "does not belong" in str(error)


def test_a_missing_key_file_is_not_blamed_on_the_certificate(tmp_path: Path) -> None:
    file = tmp_path / "client.pem"
    file.write_text(CERTIFICATE)
    error = refusal(
        TlsSettings(certificate_location=str(file), key_location=str(tmp_path / "key.pem"))
    )
    assert error.key == "ssl.key.location"


def test_of_the_two_files_the_one_that_is_no_pem_is_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.pem", tmp_path / "bad.der"
    good.write_text(CERTIFICATE)
    bad.write_bytes(b"\x30\x82")
    error = refusal(TlsSettings(certificate_location=str(good), key_location=str(bad)))
    assert error.key == "ssl.key.location"
    assert str(bad) in str(error)
    error = refusal(TlsSettings(certificate_location=str(bad), key_pem=KEY))
    assert error.key == "ssl.certificate.location"
    assert refusal(TlsSettings(certificate_pem=CERTIFICATE, key_pem="no")).key == "ssl.key.pem"
    assert refusal(weak()).key == "ssl.certificate.pem", "it is the one that is refused"


def test_a_string_goes_before_a_file(tmp_path: Path) -> None:
    """librdkafka loads it last."""
    other = client_certificate(valid=PAST)
    file = tmp_path / "other.pem"
    file.write_text(certificate_pem(other) + key_pem(other))
    shown = shown_by(
        ssl_context(
            TlsSettings(
                certificate_pem=CERTIFICATE,
                certificate_location=str(file),
                key_pem=KEY,
                key_location=str(file),
            )
        )
    )
    assert shown is not None
    assert shown.ends != PAST[1]


def test_an_encrypted_key_asks_for_its_password_and_not_on_the_terminal() -> None:
    key = encrypted(KEY, "open sesame")
    error = refusal(TlsSettings(certificate_pem=CERTIFICATE, key_pem=key))
    assert error.key == "ssl.key.password"
    wrong = refusal(
        TlsSettings(certificate_pem=CERTIFICATE, key_pem=key, key_password="hidden-guess")
    )
    assert "ssl.key.password is wrong" in str(wrong)
    assert "hidden-guess" not in str(wrong)
    ssl_context(TlsSettings(certificate_pem=CERTIFICATE, key_pem=key, key_password="open sesame"))
    long = refusal(TlsSettings(certificate_pem=CERTIFICATE, key_pem=key, key_password="x" * 2000))
    assert long.key == "ssl.key.password"


def test_a_certificate_in_a_file_may_have_its_key_in_a_string(tmp_path: Path) -> None:
    file = tmp_path / "client.pem"
    file.write_text(CERTIFICATE)
    ssl_context(TlsSettings(certificate_location=str(file), key_pem=KEY))


def test_without_memory_files_a_private_file_serves_and_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, certificate: str, *rest: str, **more: object) -> None:
        modes.append((Path(certificate).parent, Path(certificate).stat().st_mode & 0o777))
        load(self, certificate, *rest, **more)  # type: ignore[arg-type]  # passed through

    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    ssl_context(TlsSettings(certificate_pem=CERTIFICATE, key_pem=KEY))
    assert modes == [(tmp_path, 0o600)]
    assert list(tmp_path.iterdir()) == []


def test_a_keystore_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "client.p12"
    file.write_bytes(keystore("open sesame"))
    opened = ssl_context(TlsSettings(keystore_location=str(file), keystore_password="open sesame"))
    found = load_pem_x509_certificate(CERTIFICATE.encode())
    assert shown_by(opened) == Identity(
        starts=found.not_valid_before_utc, ends=found.not_valid_after_utc
    )
    error = refusal(TlsSettings(keystore_location=str(file), keystore_password="hidden-guess"))
    assert error.key == "ssl.keystore.location"
    assert "hidden-guess" not in str(error)


def test_a_keystore_without_cryptography_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    error = refusal(TlsSettings(keystore_location=str(tmp_path / "client.p12")))
    assert "'cryptography'" in str(error)
    assert "openssl pkcs12" in str(error)


# --- when the client's own certificate is valid -------------------------------------------------


@pytest.mark.parametrize("valid", [PAST, FUTURE])
def test_the_validity_of_the_clients_certificate_is_read(
    valid: tuple[dt.datetime, dt.datetime], tmp_path: Path
) -> None:
    leaf = client_certificate(valid=valid)
    file = tmp_path / "client.pem"
    file.write_text("A comment.\n" + key_pem(leaf) + certificate_pem(leaf) + authority_pem())
    for settings in (
        TlsSettings(certificate_pem=certificate_pem(leaf), key_pem=key_pem(leaf)),
        TlsSettings(certificate_location=str(file), key_location=str(file)),
    ):
        starts, ends = valid
        assert shown_by(ssl_context(settings)) == Identity(starts=starts, ends=ends)


def test_without_a_certificate_nothing_is_shown() -> None:
    assert shown_by(ssl_context(TlsSettings())) is None


def test_without_cryptography_it_is_not_known_and_the_certificate_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    leaf = client_certificate()
    settings = TlsSettings(certificate_pem=certificate_pem(leaf), key_pem=key_pem(leaf))
    assert shown_by(ssl_context(settings)) == Identity()


def test_by_default_the_suites_are_openssls_as_librdkafkas_are() -> None:
    """A broker that offers but one that Python leaves out would serve librdkafka alone."""
    openssls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    openssls.set_ciphers("DEFAULT")
    assert ssl_context(TlsSettings()).get_ciphers() == openssls.get_ciphers()


def test_cipher_suites_are_checked() -> None:
    names = [c["name"] for c in ssl_context(TlsSettings(cipher_suites="AES128-SHA")).get_ciphers()]
    assert "AES128-SHA" in names
    assert refusal(TlsSettings(cipher_suites="NO-SUCH")).key == "ssl.cipher.suites"


def test_secrets_are_not_shown() -> None:
    settings = TlsSettings(key_pem=KEY, key_password="pw-hidden", keystore_password="ks-hidden")
    assert "hidden" not in repr(settings)
    assert "PRIVATE" not in repr(settings)
