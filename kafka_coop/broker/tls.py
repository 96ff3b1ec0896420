"""The TLS side of a connection: an `ssl.SSLContext` from ``ssl.*``.

What Python's ``ssl`` cannot do as librdkafka does: TLS 1.3 cipher suites are OpenSSL's own
(``ssl.cipher.suites`` governs TLS 1.2), and a PKCS#12 keystore needs the package
``cryptography``.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kafka_coop.config import TlsSettings
from kafka_coop.errors import ConfigurationError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The certificate that a client shows of itself, and when it is valid; None: not known.

    A broker refuses one that has expired with the same alert as one of an unknown authority:
    what is wrong with it has to be found out at this end.
    """

    starts: dt.datetime | None = None
    ends: dt.datetime | None = None


_AUTHORITIES = (
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/pki/tls/certs/ca-bundle.trust.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/cacert.pem",
    "/etc/certs/ca-certificates.crt",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/certs",
    "/usr/local/etc/ssl/cert.pem",
    "/usr/local/etc/ssl/cacert.pem",
    "/usr/local/etc/ssl/certs/cert.pem",
    "/usr/local/etc/ssl/certs/cacert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
    "/etc/openssl/certs/ca-certificates.crt",
)
"""Where librdkafka looks for the system's authorities: the first that can be loaded counts."""


class _Context(ssl.SSLContext):
    """A context that remembers what it shows: ``ssl`` has no way to ask."""

    identity: Identity | None = None


def shown_by(context: ssl.SSLContext) -> Identity | None:
    """The client certificate of a context that `ssl_context` made; None: it shows none."""
    return context.identity if isinstance(context, _Context) else None


def ssl_context(settings: TlsSettings) -> ssl.SSLContext:
    """Builds the context that every TLS connection of a client shares.

    Files are read here, once; a renewed certificate is seen by the next client. Blocks for
    the time of reading them.

    Returns:
        A client context: TLS 1.2 or newer, certificates and host names checked unless the
        settings say otherwise.

    Raises:
        ConfigurationError: A file cannot be read or does not hold what its key says.
    """
    # Not ssl.create_default_context: since Python 3.13 it demands of every certificate what
    # RFC 5280 does, which in-house authorities rarely meet and librdkafka does not ask.
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    # Some builds of Python, Debian's among them, leave that to OpenSSL's configuration.
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    context.check_hostname = settings.check_hostname and settings.verify
    context.verify_mode = ssl.CERT_REQUIRED if settings.verify else ssl.CERT_NONE
    _load_authorities(context, settings)
    _load_identity(context, settings)
    if settings.crl_location is not None:
        with _blaming("ssl.crl.location", settings.crl_location):
            context.load_verify_locations(settings.crl_location)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    # Python's own list leaves out what librdkafka would fetch records with from the same brokers.
    suites = "DEFAULT" if settings.cipher_suites is None else settings.cipher_suites
    with _blaming("ssl.cipher.suites", suites):
        context.set_ciphers(suites)
    return context


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings) -> None:
    location, pem = settings.ca_location, settings.ca_pem
    if location is None and pem is None and not _load_the_systems(context):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if location is not None:
        with _blaming("ssl.ca.location", location):
            _load_place(context, Path(location))
    if pem is not None:
        with _blaming("ssl.ca.pem"):
            # Bundles name authorities in comments, in UTF-8; ``ssl`` takes ASCII alone.
            context.load_verify_locations(cadata=pem.encode("ascii", "ignore").decode())


def _load_the_systems(context: ssl.SSLContext) -> bool:
    """Those that librdkafka finds by itself; False: it asks OpenSSL, and so is Python to.

    It does in confluent-kafka's wheels, where OpenSSL is built into it. Not what SSL_CERT_FILE
    says, nor where this Python's OpenSSL was told to look: the member would join, and nothing be
    fetched, or the other way round.
    """
    if sys.platform != "linux" or not _has_openssl_built_in():
        return False
    for place in map(Path, _AUTHORITIES):
        with suppress(OSError):  # it is not there, or can't be used: it is passed over
            if not place.is_dir() or any(place.iterdir()):
                _load_place(context, place)
                return True
    return False


def _has_openssl_built_in() -> bool:
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        return False
    return Path(spec.origin).parents[1].joinpath("confluent_kafka.libs").is_dir()


def _load_place(context: ssl.SSLContext, place: Path) -> None:
    place.stat()
    # OpenSSL opens a directory's files (named by hash, see `openssl rehash`) on demand and takes a
    # missing directory for an empty one.
    if place.is_dir():
        context.load_verify_locations(capath=place)
    else:
        context.load_verify_locations(cafile=place)


def _load_identity(context: _Context, settings: TlsSettings) -> None:
    """The client's own certificate, from files, strings or a keystore."""
    if settings.keystore_location is not None:
        chain = _open_keystore(settings.keystore_location, settings.keystore_password)
        with _blaming("ssl.keystore.location", settings.keystore_location), _as_file(chain) as path:
            context.load_cert_chain(path)
            context.identity = _identity(path)
        return
    certificate = _Pem.of(
        "ssl.certificate", settings.certificate_location, settings.certificate_pem
    )
    key = _Pem.of("ssl.key", settings.key_location, settings.key_pem)
    if certificate is None and key is None:
        return
    if certificate is None:
        raise ConfigurationError(
            "ssl.certificate.location",
            "a private key is set without its certificate: set ssl.certificate.location "
            "or ssl.certificate.pem",
        )
    if key is None:
        # librdkafka looks for it nowhere else, and shows no certificate then: were we to, the
        # member would join as one user, and fetch as nobody.
        _log.warning(
            "%s is set without its private key, so brokers are shown no certificate: set "
            "ssl.key.location (to the same file, if it holds both) or ssl.key.pem",
            certificate.name,
        )
        return
    with certificate.as_path() as certificate_path, key.as_path() as key_path:
        try:
            _load_pair(context, certificate_path, key_path, settings.key_password)
        except OSError as error:  # which does not say of which of the two
            bad = certificate if _is_the_certificates(error, certificate_path) else key
            with bad.blamed():
                raise error from None
        context.identity = _identity(certificate_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pem:
    """What a file or a string holds, and the key that gives it."""

    name: str
    location: str | None
    text: str | None = field(repr=False)

    @classmethod
    def of(cls, name: str, location: str | None, text: str | None) -> _Pem | None:
        if text is not None:  # it goes before a file, as with librdkafka
            return cls(name=f"{name}.pem", location=None, text=text)
        if location is not None:
            return cls(name=f"{name}.location", location=location, text=None)
        return None

    @contextmanager
    def as_path(self) -> Iterator[str]:
        if self.text is not None:
            with _as_file(self.text) as path:
                yield path
            return
        assert self.location is not None, "one of the two is set"
        with self.blamed(), Path(self.location).open("rb"):
            pass
        yield self.location

    def blamed(self) -> AbstractContextManager[None]:
        """See `_blaming`."""
        return _blaming(self.name, self.location)


def _is_the_certificates(error: OSError, certificate: str) -> bool:
    """Whether it is of the certificate that a pair could not be loaded, and not of its key."""
    reason = ssl_reason(error) if isinstance(error, ssl.SSLError) else ""
    if reason in _ANOTHERS_KEY or reason.startswith(_TOO_WEAK):
        return True
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except OSError:
        return True
    return False


def _load_pair(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    asked = False

    def tell() -> str:
        # Called for encrypted keys alone. Without it OpenSSL would prompt on the terminal.
        nonlocal asked
        asked = True
        if password is None:
            raise ConfigurationError(
                "ssl.key.password", "the private key is encrypted: set ssl.key.password"
            )
        return password

    try:
        context.load_cert_chain(certificate, key, password=tell)
    except ValueError as error:  # of the password's length
        raise ConfigurationError(
            "ssl.key.password", f"ssl.key.password cannot be used: {error}"
        ) from error
    except ssl.SSLError as error:
        if asked and ssl_reason(error) not in _ANOTHERS_KEY:  # it was read, then
            raise ConfigurationError(
                "ssl.key.password", "the private key does not decrypt: ssl.key.password is wrong"
            ) from error
        raise


def _identity(path: str) -> Identity:
    """The first certificate of a PEM file, which OpenSSL has taken.

    ``ssl`` decodes certificates of the other side alone. What can't be read, or not without the
    package ``cryptography``, refuses nothing: it serves to explain a refusal.
    """
    try:
        from cryptography import x509  # noqa: PLC0415  # optional

        found = x509.load_pem_x509_certificate(Path(path).read_bytes())
        return Identity(starts=found.not_valid_before_utc, ends=found.not_valid_after_utc)
    except Exception:  # noqa: BLE001  # not there, older than 42, not read as OpenSSL does
        return Identity()


def _open_keystore(location: str, password: str | None) -> str:
    """The keystore's key and certificates as PEM."""
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # optional
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415  # optional
    except ImportError as error:
        raise ConfigurationError(
            "ssl.keystore.location",
            "a PKCS#12 keystore needs the package 'cryptography': install it, or convert the "
            "keystore with `openssl pkcs12 -in keystore.p12 -out client.pem -nodes` and set "
            "ssl.certificate.location and ssl.key.location to the result",
        ) from error
    with _blaming("ssl.keystore.location", location):
        key, certificate, others = pkcs12.load_key_and_certificates(
            Path(location).read_bytes(), None if password is None else password.encode()
        )
        if key is None or certificate is None:
            raise ValueError("it holds no private key with its certificate")
        parts = [
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            *(c.public_bytes(serialization.Encoding.PEM) for c in (certificate, *others)),
        ]
    return b"".join(parts).decode()


@contextmanager
def _as_file(secret: str) -> Iterator[str]:
    """A path under which OpenSSL can read a string, gone afterwards.

    ``ssl`` takes client certificates from files alone. On Linux the file is memory
    (memfd_create) and never has a name; elsewhere it is a temporary one that its owner alone
    may read, for as long as the reading takes.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        with os.fdopen(os.memfd_create("kafka_coop"), "wb") as memory:
            memory.write(secret.encode())
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(prefix="kafka_coop-") as file:
            file.write(secret.encode())
            file.flush()
            yield file.name


@contextmanager
def _blaming(key: str, value: str | None = None) -> Iterator[None]:
    """Turns what goes wrong inside into an error of this configuration key."""
    shown = key if value is None else f"{key}={value}"
    try:
        yield
    except ConfigurationError:
        raise
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(key, f"{shown} cannot be used: {_reason(error)}") from error


_TOO_WEAK = ("EE_", "CA_")
"""How OpenSSL's reasons begin that a certificate is refused for (``EE_KEY_TOO_SMALL``)."""

_ANOTHERS_KEY = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""The last: one of another kind, of which no certificate was loaded."""


def ssl_reason(error: ssl.SSLError) -> str:
    """OpenSSL's name for what happened, empty where it has none."""
    # Errors that the ssl module raises by itself lack the attribute, whatever its type says.
    reason: str | None = getattr(error, "reason", None)
    return reason or ""


def _reason(error: OSError | ValueError) -> str:
    """The error in words. OpenSSL's reasons need some help."""
    if isinstance(error, ssl.SSLError):
        match ssl_reason(error):
            case reason if reason in _ANOTHERS_KEY:
                return "the private key does not belong to the certificate"
            case "" if "PEM lib" in str(error):
                return "it is not PEM, or lacks the certificate or the private key"
            case reason:
                return reason.replace("_", " ").lower() or str(error.args[-1])
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
