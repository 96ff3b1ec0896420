"""Where OAUTHBEARER tokens come from: the user's callback, or an OIDC token endpoint."""

from __future__ import annotations

import asyncio
import base64
import http.client
import logging
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias

from kafka_coop.broker.blocking import begin_blocking
from kafka_coop.broker.tls import ssl_context
from kafka_coop.config import OauthCallback, OidcSettings, TlsSettings
from kafka_coop.errors import (
    AuthenticationFailedError,
    ConfigurationError,
    ConnectionFailedError,
    RequestFailedError,
)
from kafka_coop.json_objects import json_object
from kafka_coop.printable import shown

_log = logging.getLogger(__name__)

_REFRESH_AT = 0.8
"""The part of a token's life after which a new one is fetched."""

_RETRY_AFTER = 10.0
"""Seconds before a failed refresh is tried again while the old token lives (librdkafka's)."""

_REFRESH_LIMIT = 20.0
"""Seconds that a refresh may take while the old token lives: less than the 30 that a connection
has, so that one that is being made still logs in, with the old token."""

_MOST_PATIENCE = 300.0
"""Seconds for which a call that does not return may have been the last."""

_HTTP_TIMEOUT = 20.0
"""Seconds that the token endpoint may be silent."""

_ANSWER_MAX_BYTES = 1 << 20
"""No token is larger; a hostile endpoint is not read to its end."""

_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token. ``expires_at`` is in seconds since the epoch."""

    value: str = field(repr=False)
    expires_at: float
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


TokenSource: TypeAlias = Callable[[], Token]
"""Fetches a new token; may block. Raises AuthenticationFailedError or ConnectionFailedError."""


class CachedTokens:
    """One token for all connections, fetched again when 80 % of its life is over.

    Fetched when asked for, not by a timer: who is not connected needs none. A refresh that
    fails, or hangs, is logged, and the old token serves until it expires.

    The wall clock is looked at once, when a token comes, for how long it has to live. That is
    measured by another: where the wall clock is set back, a dead token would serve on.

    Args:
        fetch: The source; runs in a thread of its own.
        wall_clock: Seconds since the epoch.
        clock: Seconds since some moment; is not set.
    """

    def __init__(
        self,
        fetch: TokenSource,
        *,
        wall_clock: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._fetch = fetch
        self._wall_clock = wall_clock
        self._clock = clock
        self._token: Token | None = None
        self._expires_at = self._refresh_at = 0.0  # by `clock`
        self._fetching = asyncio.Lock()
        self._call: Future[Token] | None = None
        self._given_up_at = 0.0
        self._patience = _REFRESH_LIMIT

    async def token(self) -> Token:
        """A token that has not expired. Concurrent callers share one fetch.

        Raises:
            RequestFailedError: There is none to be had.
        """
        async with self._fetching:
            now = self._clock()
            if self._token is None or now >= self._refresh_at:
                await self._refresh(now)
            assert self._token is not None, "a refresh that yields none raises"
            return self._token

    async def _refresh(self, now: float) -> None:
        asked_at = self._wall_clock()
        old_one_lives = self._token is not None and self._expires_at > now
        if old_one_lives:
            # A connection that has less time gives up first, and the next is not to wait, too.
            self._refresh_at = min(self._expires_at, now + _REFRESH_LIMIT)
        try:
            token = await self._fetched(now, _REFRESH_LIMIT if old_one_lives else None)
            life = token.expires_at - asked_at
            if not life > 0:  # so written, NaN has expired too
                raise AuthenticationFailedError(
                    "the OAUTHBEARER token had expired when it came: check this machine's clock, "
                    "and that expiry is given in seconds since the epoch"
                )
        except RequestFailedError as error:
            if not old_one_lives:
                raise
            _log.warning(
                "The OAUTHBEARER token was not refreshed, the old one serves on: %s", error
            )
            self._refresh_at = min(self._expires_at, self._clock() + _RETRY_AFTER)
        else:
            self._token = token
            self._expires_at = now + life
            self._refresh_at = now + life * _REFRESH_AT

    async def _fetched(self, now: float, limit: float | None) -> Token:
        """A new token. Without a limit, whoever asks gives up in time.

        What a call brings that takes longer than anyone waits is for the next who asks. One that
        may never return is given up, each after twice the time of the one before, up to some
        minutes: it leaves a thread behind.
        """
        call = self._call
        patience = _REFRESH_LIMIT
        if call is not None and not call.done() and now >= self._given_up_at:
            call, patience = None, min(2 * self._patience, _MOST_PATIENCE)
        elif call is not None and call.done() and not self._is_of_use(call):
            call = None
        if call is None:
            call = self._call = begin_blocking(self._fetch, name="kafka_coop-oauth")
            self._given_up_at, self._patience = now + patience, patience
        try:
            async with asyncio.timeout(limit):
                token = await asyncio.wrap_future(call)
        except TimeoutError:
            raise ConnectionFailedError(
                f"none came within {limit:g} s: oauth_cb, or the token endpoint, hangs or is slow"
            ) from None
        self._call = None
        return token

    def _is_of_use(self, ended: Future[Token]) -> bool:
        """Nobody waited for its end: it may be long ago."""
        return ended.exception() is None and ended.result().expires_at > self._wall_clock()


def callback_tokens(callback: OauthCallback, config: str | None) -> TokenSource:
    """Tokens from ``oauth_cb``, confluent's contract: see `kafka_coop.config.OauthCallback`."""

    def fetch() -> Token:
        try:
            answer = callback(config)
        except BaseException as error:  # noqa: BLE001  # SystemExit too: the client's loop goes on
            # Neither its text nor its traceback is passed on: HTTP libraries put URLs with secrets
            # into theirs, and whoever logs our exception would log its cause along with it.
            raise AuthenticationFailedError(
                f"oauth_cb raised {type(error).__name__}; its text, which may hold secrets, is not "
                "shown: have oauth_cb log what may be seen of it"
            ) from None
        token = _token_of(answer)
        if token is None:
            del answer  # nothing of it is told, not to who logs tracebacks with locals either
            raise AuthenticationFailedError(
                "oauth_cb must return (token, expiry in seconds since the epoch"
                "[, principal[, extensions]])"
            )
        return token

    return fetch


def _token_of(answer: Any) -> Token | None:
    """What ``oauth_cb`` returned; None: it can't be used, whatever its objects raise."""
    with suppress(BaseException):  # SystemExit too, as above
        match answer:
            case (str(value), SupportsFloat() | SupportsIndex() as expiry, *rest):
                return Token(
                    value=value, expires_at=float(expiry), extensions=_extensions_in(*rest)
                )
    return None


def _extensions_in(
    _principal: object = None, extensions: Mapping[Any, Any] | None = None, /
) -> dict[str, str]:
    """Of what follows the expiry. Raises whatever its objects do, and where it is more, or less."""
    return {str(k): str(v) for k, v in ({} if extensions is None else extensions).items()}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token endpoint that redirects is refused: the client's secret would go along."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def oidc_tokens(settings: OidcSettings, *, wall_clock: Callable[[], float]) -> TokenSource:
    """Tokens by the client credentials grant (RFC 6749, 4.4; KIP-768).

    The secret travels in an Authorization header, not urlencoded, as librdkafka sends it.
    Proxies are taken from the environment, as libcurl does, which is librdkafka's way there.

    Raises:
        ConfigurationError: The URL or the CA of the endpoint cannot be used.
    """
    key, url = "sasl.oauthbearer.token.endpoint.url", settings.token_endpoint_url
    if "@" in urllib.parse.urlsplit(url.partition("[")[0]).netloc:
        # urllib would take the password for a port, and say so in each error.
        raise ConfigurationError(
            key,
            f"{key} holds a user or a password: set sasl.oauthbearer.client.id and .client.secret",
        )
    if not _is_http(url):
        raise ConfigurationError(key, f"{url!r} is neither an https nor an http URL")
    tls = _endpoint_tls(settings)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(_proxies()),
        urllib.request.HTTPSHandler(context=tls),
        _NoRedirects(),
    )

    def fetch() -> Token:
        asked_at = wall_clock()
        # Anew each time: urllib writes into a request where a proxy is, and takes it for a plain
        # http one when it sees it again, and sends the secret so.
        request = _token_request(settings)
        return _read_token(_post(opener, request, settings), settings, asked_at)

    return fetch


def _proxies() -> dict[str, str]:
    """The environment's. ``all_proxy`` is for what has none of its own, and urllib ignores it.

    Nor does urllib speak SOCKS, and would take such a proxy for an HTTP one, or for a URL that it
    does not know: that stays ignored.
    """
    named = urllib.request.getproxies().items()
    found = {kind: proxy for kind, proxy in named if not proxy.lower().startswith("socks")}
    rest = found.get("all")
    return found if rest is None else {"http": rest, "https": rest, **found}


def _is_http(url: str) -> bool:
    """Whether urllib can ask it: else each login would fail, and not as logins do."""
    try:
        parts = urllib.parse.urlsplit(url)
        (parts.hostname or "").encode("idna")
        f"{parts.path}?{parts.query}".encode("ascii")
    except ValueError:  # UnicodeError is one
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def _endpoint_tls(settings: OidcSettings) -> ssl.SSLContext:
    location, pem = settings.https_ca_location, settings.https_ca_pem
    try:
        context = ssl_context(TlsSettings(ca_location=location, ca_pem=pem))
    except ConfigurationError as error:
        raise ConfigurationError("https.ca.location", f"https.ca.*: {error}") from error
    if location is None and pem is None:
        # Those of SSL_CERT_FILE too: librdkafka asks OpenSSL here.
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _token_request(settings: OidcSettings) -> urllib.request.Request:
    form = {"grant_type": "client_credentials"}
    if settings.scope is not None:
        form["scope"] = settings.scope
    basic = base64.b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
    return urllib.request.Request(  # noqa: S310  # the caller checked the scheme
        settings.token_endpoint_url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": f"Basic {basic}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        method="POST",
    )


def _post(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, settings: OidcSettings
) -> bytes:
    url = settings.token_endpoint_url
    try:
        with opener.open(request, timeout=_HTTP_TIMEOUT) as answer:
            body: bytes = answer.read(_ANSWER_MAX_BYTES)
            if len(body) < _ANSWER_MAX_BYTES and answer.length:
                # `read` tells of it by returning less. Half a token's JSON holds none, which would
                # pass for a failed authentication.
                raise ConnectionFailedError(
                    f"the token endpoint {url} was cut off in the middle of its answer"
                )
            return body
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error, settings) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise AuthenticationFailedError(
                f"the certificate of the token endpoint {url} was refused: "
                f"{error.reason.verify_message}; set https.ca.location or https.ca.pem"
            ) from error
        raise ConnectionFailedError(
            f"the token endpoint {url} cannot be reached: {error.reason}"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        # ValueError: it redirects to what urllib finds to be no URL.
        raise ConnectionFailedError(
            f"the token endpoint {url} gave no answer: {str(error) or type(error).__name__}"
        ) from error


def _refused(error: urllib.error.HTTPError, settings: OidcSettings) -> RequestFailedError:
    """An answer other than 200. What may pass by itself is no failed authentication."""
    try:
        said = json_object(error.read(_ANSWER_MAX_BYTES)) or {}
    except (OSError, http.client.HTTPException):
        said = {}
    reasons = [str(said[key]) for key in ("error", "error_description") if key in said]
    # Before it is cut, lest a part of the secret be left at the end.
    unspoken = ": ".join(reasons).replace(settings.client_secret, "***")
    text = shown(" ".join(unspoken.split())[:300])
    message = (
        f"the token endpoint {settings.token_endpoint_url} answered {error.code}"
        f"{': ' + text if text else ''}"
    )
    if error.code == _TOO_MANY_REQUESTS or error.code >= _SERVER_ERRORS:
        return ConnectionFailedError(message)
    return AuthenticationFailedError(
        f"{message}; check sasl.oauthbearer.client.id, .client.secret, .scope and the URL"
    )


def _read_token(body: bytes, settings: OidcSettings, asked_at: float) -> Token:
    """The token in an endpoint's answer; its life from ``expires_in``, else from the JWT."""
    said = json_object(body) or {}
    value = said.get("access_token")
    if not isinstance(value, str):
        raise AuthenticationFailedError(
            f"the answer of the token endpoint {settings.token_endpoint_url} has no access_token"
        )
    life = _number(said.get("expires_in"))
    expires_at = asked_at + life if life is not None else _jwt_expiry(value)
    if expires_at is None:
        del body, said, value  # as above
        raise AuthenticationFailedError(
            f"the answer of the token endpoint {settings.token_endpoint_url} has no expires_in, "
            f"and its token is no JWT with an exp claim"
        )
    return Token(value=value, expires_at=expires_at, extensions=settings.extensions)


def _jwt_expiry(token: str) -> float | None:
    """The ``exp`` claim of a JWT, unverified: the broker verifies, we only plan."""
    parts = token.split(".")
    if len(parts) != 3:  # noqa: PLR2004  # header, claims, signature
        return None
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except ValueError:
        return None
    return _number((json_object(claims) or {}).get("exp"))


def _number(value: object) -> float | None:
    """A finite number; some endpoints send ``expires_in`` as a string."""
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < float("inf") else None
