"""What all connections of a client share to be secure: the TLS context and the login."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from kafka_coop.broker.clock import elapsed
from kafka_coop.broker.oauth import CachedTokens, callback_tokens, oidc_tokens
from kafka_coop.broker.sasl import Conversation, oauthbearer, plain, scram
from kafka_coop.broker.tls import ssl_context
from kafka_coop.config import ConnectionSettings, SaslSettings
from kafka_coop.errors import ConfigurationError


class Login:
    """Who the client is to the brokers, and how it shows it.

    Args:
        settings: ``sasl.*``.
        wall_clock: Seconds since the epoch, which tokens say they expire by.
        clock: Seconds since some moment, which a token's life is measured by.

    Raises:
        ConfigurationError: The mechanism lacks its credentials.
    """

    def __init__(
        self,
        settings: SaslSettings,
        *,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        self._settings = settings
        self._tokens = _tokens(settings, wall_clock, clock)
        if self._tokens is None:
            _credentials(settings)

    @property
    def mechanism(self) -> str:
        """The SASL mechanism's name."""
        return self._settings.mechanism

    @property
    def username(self) -> str | None:
        """The user that later conversations log in; None under OAUTHBEARER."""
        return None if self._tokens else self._settings.username

    def set_credentials(self, username: str, password: str) -> None:
        """Takes these from the next conversation on. Without effect under OAUTHBEARER."""
        self._settings = replace(self._settings, username=username, password=password)

    async def conversation(self) -> Conversation:
        """A new conversation with the credentials of now.

        Raises:
            RequestFailedError: No token could be had.
        """
        match self._settings.mechanism:
            case "PLAIN":
                return plain(*_credentials(self._settings))
            case "SCRAM-SHA-256" | "SCRAM-SHA-512" as mechanism:
                return scram(mechanism, *_credentials(self._settings))
            case "OAUTHBEARER":
                assert self._tokens is not None, "the constructor saw to it"
                token = await self._tokens.token()
                return oauthbearer(token.value, token.extensions)
            case never:
                assert_never(never)


def _tokens(
    settings: SaslSettings, wall_clock: Callable[[], float], clock: Callable[[], float]
) -> CachedTokens | None:
    if settings.mechanism != "OAUTHBEARER":
        return None
    if settings.oidc is not None:
        source = oidc_tokens(settings.oidc, wall_clock=wall_clock)
    elif settings.oauth_cb is not None:
        source = callback_tokens(settings.oauth_cb, settings.oauth_config)
    else:
        raise ConfigurationError(
            "oauth_cb",
            "sasl.mechanisms=OAUTHBEARER needs oauth_cb, or sasl.oauthbearer.method=oidc with "
            "sasl.oauthbearer.token.endpoint.url, .client.id and .client.secret",
        )
    return CachedTokens(source, wall_clock=wall_clock, clock=clock)


def _credentials(settings: SaslSettings) -> tuple[str, str]:
    if settings.username is None or settings.password is None:
        missing = "sasl.username" if settings.username is None else "sasl.password"
        raise ConfigurationError(missing, f"sasl.mechanisms={settings.mechanism} needs {missing}")
    return settings.username, settings.password


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Built once a client: files are read and keys parsed here.

    Attributes:
        tls: None: plaintext.
        login: None: no SASL.
    """

    tls: ssl.SSLContext | None
    login: Login | None

    @classmethod
    def of(cls, settings: ConnectionSettings) -> Security:
        """What the settings ask for.

        Raises:
            ConfigurationError: They cannot be met: unreadable files, missing credentials.
        """
        return cls(
            tls=None if settings.tls is None else ssl_context(settings.tls),
            login=None if settings.sasl is None else Login(settings.sasl),
        )
