"""Why a connection failed, in words that tell an operator what to do.

Brokers say little: a listener that is spoken to in the wrong protocol cuts the connection.
Which one it was follows from how far the connection had come.
"""

from __future__ import annotations

import datetime as dt
import enum
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafka_coop.broker.tls import Identity, ssl_reason
from kafka_coop.errors import AuthenticationFailedError, ConnectionFailedError, RequestFailedError
from kafka_coop.protocol.messages import address

E = TypeVar("E", bound=RequestFailedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection, and how it is spoken to."""

    host: str
    port: int
    tls: bool = False
    sasl: bool = False
    identity: Identity | None = None
    """The certificate that it is shown, once there is a TLS handshake."""

    def __str__(self) -> str:
        return address(self.host, self.port)


class Stage(enum.Enum):
    """How far a connection has come. The value is what it was doing."""

    RESOLVING = "resolving the host name"
    CONNECTING = "connecting by TCP"
    TLS_HANDSHAKE = "the TLS handshake"
    NEGOTIATING = "the ApiVersions request"
    PREPARING_LOGIN = "getting what to log in with"
    AUTHENTICATING = "the SASL authentication"
    UNPROVEN = "the first request"
    """Open, but no request was answered on it yet."""
    PROVEN = "requests"


def again(error: E) -> E:
    """A copy of an error, for one more to raise: a shared one would gather tracebacks."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy


def at(peer: Peer, error: E) -> E:
    """The error with the broker's address in front of its text, once."""
    prefix = f"{peer}: "
    text = str(error)
    copy = type(error)(text if text.startswith(prefix) else prefix + text)
    copy.__cause__ = error.__cause__
    return copy


def unresolved(peer: Peer, error: OSError) -> ConnectionFailedError:
    """The host has no address."""
    return ConnectionFailedError(
        f"{peer}: the host name does not resolve ({error.strerror or error}); check "
        f"bootstrap.servers, the broker's advertised.listeners and the DNS"
    )


def unreachable(peer: Peer, failures: Sequence[tuple[str, OSError]]) -> ConnectionFailedError:
    """TCP failed on every address.

    Args:
        peer: The broker.
        failures: What happened at each address tried.
    """
    tried = "; ".join(f"{address}: {_in_words(error)}" for address, error in failures)
    return ConnectionFailedError(
        f"{peer}: no TCP connection ({tried or 'no address of the family asked for'}); check that "
        f"the broker runs, its port, its advertised.listeners and firewalls"
    )


def _in_words(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__


def tls_failed(peer: Peer, error: ssl.SSLError) -> RequestFailedError:
    """The TLS handshake, or the encrypted connection after it, broke."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrusted(peer, error)
    if isinstance(error, ssl.SSLZeroReturnError):
        # close_notify, which refuses nothing: a broker that shuts down says it to whoever is in
        # the middle of a handshake.
        return ConnectionFailedError(
            f"{peer}: the broker ended the TLS handshake before it was done, without an error: it "
            f"is probably shutting down; see its log"
        )
    reason, words = ssl_reason(error), _tls_words(error)
    if isinstance(error, ssl.SSLEOFError) or reason in _NOT_TLS:
        return _not_tls(peer)
    _, is_alert, alert = reason.partition("ALERT_")
    if is_alert:
        return AuthenticationFailedError(
            f"{peer}: the broker refused the TLS connection ({words}): {_alerted(peer, alert)}"
        )
    return AuthenticationFailedError(f"{peer}: TLS failed ({words})")


def _tls_words(error: ssl.SSLError) -> str:
    return ssl_reason(error).replace("_", " ").lower() or str(error)


def _distrusted(peer: Peer, error: ssl.SSLCertVerificationError) -> AuthenticationFailedError:
    said = f"{peer}: the broker's certificate is refused: "
    if error.verify_code not in _DISTRUST:
        return AuthenticationFailedError(said + error.verify_message)
    kind, remedy = _DISTRUST[error.verify_code]
    openssl = error.verify_message.rstrip(".")
    return AuthenticationFailedError(f"{said}{kind} ({openssl}); {remedy}")


_SET_AUTHORITY = (
    "set ssl.ca.location or ssl.ca.pem to the authority that signed the broker's certificate"
)
_OTHER_HOST = (
    "connect by a name or an address in the certificate (see the broker's advertised.listeners), "
    "or set ssl.endpoint.identification.algorithm=none"
)

_DISTRUST = {
    # OpenSSL's X509_V_ERR_* numbers, which the ssl module has no names for: what is wrong with
    # the broker's certificate, and what to do.
    2: ("its authority is itself signed by one that is unknown here", _SET_AUTHORITY),
    3: (
        "whether it was revoked is not known",
        "ssl.crl.location holds no list of the certificate's issuer",
    ),
    9: (
        "it, or its authority's, is not yet valid",
        "check this machine's clock, or wait until the certificate's time begins",
    ),
    10: (
        "it, or its authority's, has expired",
        "renew the broker's certificate, or check this machine's clock",
    ),
    12: ("the list of revoked certificates has expired", "renew the list at ssl.crl.location"),
    18: (
        "it signed itself",
        "set ssl.ca.location or ssl.ca.pem to the broker's certificate, if it is to be trusted",
    ),
    19: ("its authority is unknown here", _SET_AUTHORITY),
    20: ("its authority is unknown here", _SET_AUTHORITY),
    23: ("it was revoked", "give the broker a new certificate"),
    26: (
        "it was not made for servers",
        "give the broker one whose extended key usage has serverAuth",
    ),
    62: ("it is for another host", _OTHER_HOST),
    64: ("it is for another host", _OTHER_HOST),
}


def _alerted(peer: Peer, alert: str) -> str:
    """Why the broker broke the handshake off, and what to do.

    What it says comes last: Java's TLS says little, and what is wrong with our own certificate
    can be seen from here.
    """
    if alert not in _REFUSALS:
        return _OTHER_TLS if alert in _OF_SETTINGS else "see the broker's log"
    if peer.identity is None:
        if alert == "HANDSHAKE_FAILURE":
            return f"either it demands a client certificate: {_SET_IDENTITY}; or {_OTHER_TLS}"
        return f"it demands a client certificate, and none is configured; {_SET_IDENTITY}"
    now, starts, ends = dt.datetime.now(dt.UTC), peer.identity.starts, peer.identity.ends
    if ends is not None and now > ends:
        return f"our certificate has expired at {ends:%Y-%m-%d %H:%M} UTC; {_RENEW}"
    if starts is not None and now < starts:
        return (
            f"our certificate is not yet valid, only from {starts:%Y-%m-%d %H:%M} UTC on; check "
            f"this machine's clock, or set ssl.certificate.location to another"
        )
    return _REFUSALS[alert]


_OTHER_TLS = "compare protocol versions and ciphers (ssl.cipher.suites)"
_SET_IDENTITY = "set ssl.certificate.location and ssl.key.location to one that it trusts"
_OF_SETTINGS = frozenset({"PROTOCOL_VERSION", "INSUFFICIENT_SECURITY", "INAPPROPRIATE_FALLBACK"})
_RENEW = (
    "renew it (ssl.certificate.location, ssl.certificate.pem or ssl.keystore.location), and make "
    "the consumer anew"
)
_TRUST = (
    "add its authority to the broker's ssl.truststore.location, or set ssl.certificate.location "
    "and ssl.key.location to a certificate that the broker trusts"
)
_DISTRUSTED = (
    f"it does not trust our certificate, whose authority it probably does not know; {_TRUST} "
    f"(its log says more)"
)

_REFUSALS = {
    # Alerts about a client's certificate (RFC 8446, 6.2), where it exists and is in its time.
    "BAD_CERTIFICATE": _DISTRUSTED,
    "CERTIFICATE_UNKNOWN": _DISTRUSTED,
    "CERTIFICATE_REQUIRED": _DISTRUSTED,
    "UNKNOWN_CA": f"it does not know the authority of our certificate; {_TRUST}",
    "CERTIFICATE_EXPIRED": f"our certificate has expired by the broker's clock; {_RENEW}",
    "CERTIFICATE_REVOKED": f"our certificate was revoked; {_RENEW}",
    "UNSUPPORTED_CERTIFICATE": (
        "our certificate is not made for clients; set ssl.certificate.location to one whose "
        "extended key usage has clientAuth"
    ),
    "HANDSHAKE_FAILURE": f"{_OTHER_TLS}, and see the broker's log",
}

_NOT_TLS = {
    "WRONG_VERSION_NUMBER",
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
    "UNEXPECTED_EOF_WHILE_READING",
}


def _not_tls(peer: Peer) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"{peer}: the TLS handshake got no TLS answer: the port is probably a plaintext listener "
        f"(set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or choose the TLS listener's "
        f"port), or the broker refused our certificate or ciphers without a word"
    )


def cut(
    peer: Peer, stage: Stage, error: BaseException | None, *, unfinished: int = 0
) -> RequestFailedError:
    """The connection ended without our doing.

    Args:
        peer: The broker.
        stage: What the connection was doing.
        error: What the socket said; None: the broker closed it in order.
        unfinished: Bytes of an answer that was cut short.
    """
    if isinstance(error, ssl.SSLError):
        # Once ApiVersions is answered nothing can be wrong with certificates and settings.
        return _garbled(peer, stage, error) if stage in _SERVED else tls_failed(peer, error)
    if isinstance(error, TimeoutError):
        return ConnectionFailedError(
            f"{peer}: the connection died during {stage.value}: the system got no answer to what "
            f"it sent; a NAT, firewall or load balancer dropped it, or network or host are down"
        )
    if stage is Stage.TLS_HANDSHAKE:
        return _not_tls(peer)
    how = f" ({_in_words(error)})" if isinstance(error, OSError) else ""
    short = f", {unfinished} bytes into an answer" if unfinished else ""
    failed = f"{peer}: the connection was cut during {stage.value}{short}{how}"
    return ConnectionFailedError(f"{failed}; {_cut_remedy(peer, stage)}")


_SERVED = frozenset({Stage.PREPARING_LOGIN, Stage.AUTHENTICATING, Stage.UNPROVEN, Stage.PROVEN})


def _garbled(peer: Peer, stage: Stage, error: ssl.SSLError) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"{peer}: the TLS connection broke during {stage.value} ({_tls_words(error)}): what came, "
        f"here or there, is not what was encrypted; look for what changes bytes on the way"
    )


def _cut_remedy(peer: Peer, stage: Stage) -> str:
    match stage:
        case Stage.NEGOTIATING if not peer.tls:
            return (
                "a TLS listener does that to plaintext (set security.protocol to SSL or "
                "SASL_SSL), and so do brokers older than 0.10 and ports that are not Kafka's"
            )
        case Stage.NEGOTIATING:
            return (
                "a broker may do that to a client certificate that it misses or refuses: set "
                "ssl.certificate.location and ssl.key.location, see the broker's log"
            )
        case Stage.AUTHENTICATING:
            return "see the broker's log for the reason"
        case Stage.UNPROVEN if not peer.sasl:
            return (
                "a SASL listener does that to clients that do not authenticate: set "
                "security.protocol to SASL_PLAINTEXT or SASL_SSL, and sasl.mechanisms"
            )
        case _:
            return "the broker restarted, or closed it as idle (connections.max.idle.ms)"


def too_slow(peer: Peer, stage: Stage, seconds: float) -> ConnectionFailedError:
    """The connection was not ready in time."""
    why = (
        "oauth_cb, or the token endpoint, hangs or is slow"
        if stage is Stage.PREPARING_LOGIN
        else "the broker hangs or is overloaded, or a firewall drops packets"
    )
    return ConnectionFailedError(
        f"{peer}: not connected within {seconds:g} s (socket.connection.setup.timeout.ms): still "
        f"at {stage.value}; {why}"
    )
