"""What comes out of a configuration: typed, checked, immutable.

No secret is in a ``repr``: neither librdkafka's sensitive properties nor callables, which may
be partials that hold some.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

NEVER = timedelta(days=36_525)
"""An interval that was switched off: a century, which every timer can be set to."""


class OffsetReset(enum.Enum):
    """Where to start where the group has no committed offset (``auto.offset.reset``)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """``ssl.*``. Secrets are kept out of ``repr``."""

    ca_location: str | None = None
    """A PEM file or a directory; None: the system's store (unless ``ca_pem`` is given)."""
    ca_pem: str | None = field(default=None, repr=False)
    certificate_location: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_location: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    keystore_location: str | None = None
    """PKCS#12."""
    keystore_password: str | None = field(default=None, repr=False)
    crl_location: str | None = None
    cipher_suites: str | None = None
    verify: bool = True
    """``enable.ssl.certificate.verification``"""
    check_hostname: bool = True
    """``ssl.endpoint.identification.algorithm`` is ``https``, the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """``sasl.oauthbearer.*`` with ``sasl.oauthbearer.method=oidc`` (client credentials)."""

    token_endpoint_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    https_ca_location: str | None = None
    https_ca_pem: str | None = field(default=None, repr=False)


OauthCallback = Callable[[str | None], tuple[Any, ...]]
"""confluent's ``oauth_cb``: gets ``sasl.oauthbearer.config``, or None where that is unset, returns
``(token, expiry in seconds since the epoch[, principal[, extensions]])``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """``sasl.*``."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    oauth_cb: OauthCallback | None = field(default=None, repr=False)
    oauth_config: str | None = field(default=None, repr=False)
    oidc: OidcSettings | None = None
    """None where ``oauth_cb`` is given, which goes before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """All that a connection to a broker needs to know."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "rdkafka"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    connect_timeout: timedelta = timedelta(seconds=30)
    """``socket.connection.setup.timeout.ms``: TCP, TLS and SASL together."""
    request_timeout: timedelta = timedelta(seconds=60)
    """``socket.timeout.ms``"""
    reconnect_backoff: timedelta = timedelta(milliseconds=100)
    reconnect_backoff_max: timedelta = timedelta(seconds=1)
    connections_max_idle: timedelta = timedelta(0)
    """Zero: never closed for being idle."""
    keepalive: bool = False
    nagle_disable: bool = True
    address_family: Literal["any", "v4", "v6"] = "any"
    receive_message_max_bytes: int = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The callables of confluent's configuration, kept apart from values."""

    error_cb: Callable[..., Any] | None = field(default=None, repr=False)
    stats_cb: Callable[..., Any] | None = field(default=None, repr=False)
    throttle_cb: Callable[..., Any] | None = field(default=None, repr=False)
    oauth_cb: OauthCallback | None = field(default=None, repr=False)
    on_commit: Callable[..., Any] | None = field(default=None, repr=False)
    logger: Any | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """A validated configuration."""

    group_id: str
    client_id: str
    connection: ConnectionSettings
    instance_id: str | None = None
    rack: str | None = None
    group_protocol: Literal["classic", "consumer"] = "classic"
    remote_assignor: str | None = None
    """``group.remote.assignor``: the broker's assignor (KIP-848); None: the broker's choice.
    Without meaning in the classic protocol."""
    strategies: tuple[str, ...] = ("cooperative-sticky",)
    session_timeout: timedelta = timedelta(seconds=45)
    heartbeat_interval: timedelta | None = None
    """None: not set by the user, so that the leader's suggestion holds."""
    rebalance_timeout: timedelta = timedelta(minutes=5)
    """``max.poll.interval.ms``"""
    auto_commit: bool = True
    auto_commit_interval: timedelta = timedelta(seconds=5)
    """Zero: not periodically, only where partitions leave and at close (librdkafka's rule)."""
    auto_offset_store: bool = True
    offset_reset: OffsetReset = OffsetReset.LATEST
    read_committed: bool = True
    allow_auto_create_topics: bool = False
    metadata_max_age: timedelta = timedelta(minutes=5)
    """``topic.metadata.refresh.interval.ms``; `NEVER` where it is switched off."""
    retry_backoff: timedelta = timedelta(milliseconds=100)
    retry_backoff_max: timedelta = timedelta(seconds=1)
    poll_prefetch: int = 500
    """``coop.poll.prefetch``: how many records poll() takes from librdkafka at once."""
    watchdog: bool = False
    """``coop.watchdog``: a process of its own leaves for this member should its process die."""
    callbacks: Callbacks = field(default_factory=Callbacks)
    fetcher: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What librdkafka is configured with; secrets inside."""
