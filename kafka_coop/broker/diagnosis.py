"""Why a connection failed, in words that tell an operator what to do.

Brokers say little: a listener that is spoken to in the wrong protocol cuts the connection.
Which one it was follows from how far the connection had come.
"""

from __future__ import annotations

import enum
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafka_coop.broker.tls import ssl_reason
from kafka_coop.errors import AuthenticationFailedError, ConnectionFailedError, RequestFailedError

E = TypeVar("E", bound=RequestFailedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection, and how it is spoken to."""

    host: str
    port: int
    tls: bool = False
    sasl: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Stage(enum.Enum):
    """How far a connection has come. The value is what it was doing."""

    RESOLVING = "resolving the host name"
    CONNECTING = "connecting by TCP"
    TLS_HANDSHAKE = "the TLS handshake"
    NEGOTIATING = "the ApiVersions request"
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
        return AuthenticationFailedError(
            f"{peer}: the broker's certificate is refused: {error.verify_message}"
            f"{_VERIFY_REMEDIES.get(error.verify_code, '')}"
        )
    reason = ssl_reason(error)
    words = reason.replace("_", " ").lower() or str(error)
    if isinstance(error, ssl.SSLEOFError) or reason in _NOT_TLS:
        return _not_tls(peer)
    if "ALERT" in reason:
        return AuthenticationFailedError(
            f"{peer}: the broker refused the TLS connection ({words}); if it demands a client "
            f"certificate (ssl.client.auth=required), set ssl.certificate.location and "
            f"ssl.key.location to one that it trusts; else compare protocol versions and ciphers"
        )
    return AuthenticationFailedError(f"{peer}: TLS failed ({words})")


_VERIFY_REMEDIES = {
    # OpenSSL's X509_V_ERR_* numbers, which the ssl module has no names for.
    3: "; ssl.crl.location holds no list of the certificate's issuer",
    10: "; renew the broker's certificate, or check this machine's clock",
    12: "; renew the list at ssl.crl.location",
    18: "; set ssl.ca.location to the broker's certificate, which signed itself",
    19: "; set ssl.ca.location to the authority that signed the broker's certificate",
    20: "; set ssl.ca.location to the authority that signed the broker's certificate",
    62: "; connect by a name in the certificate (see the broker's advertised.listeners), or set "
    "ssl.endpoint.identification.algorithm=none",
    64: "; connect by an address in the certificate (see the broker's advertised.listeners), or "
    "set ssl.endpoint.identification.algorithm=none",
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
        return tls_failed(peer, error)
    if stage is Stage.TLS_HANDSHAKE:
        return _not_tls(peer)
    how = f" ({_in_words(error)})" if isinstance(error, OSError) else ""
    short = f", {unfinished} bytes into an answer" if unfinished else ""
    failed = f"{peer}: the connection was cut during {stage.value}{short}{how}"
    return ConnectionFailedError(f"{failed}; {_cut_remedy(peer, stage)}")


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
    return ConnectionFailedError(
        f"{peer}: not connected within {seconds:g} s (socket.connection.setup.timeout.ms): still "
        f"at {stage.value}; the broker hangs or is overloaded, or a firewall drops packets"
    )
