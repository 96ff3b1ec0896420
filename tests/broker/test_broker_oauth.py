from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import socket
import ssl
import threading
import traceback
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from broker_certificates import authority_pem, broker_context
from broker_harness import on_loop
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.broker import oauth
from kafka_coop.broker.oauth import CachedTokens, Token, _jwt_expiry, callback_tokens, oidc_tokens
from kafka_coop.config import OidcSettings
from kafka_coop.errors import (
    AuthenticationFailedError,
    ConfigurationError,
    ConnectionFailedError,
    RequestFailedError,
)

SECRET = "hush-hush"


class WallClock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


# --- the cache -----------------------------------------------------------------------------


class Source:
    """Tokens that live for 100 s, numbered; or a failure."""

    def __init__(self, clock: WallClock) -> None:
        self.fetched = 0
        self.failure: RequestFailedError | None = None
        self._clock = clock

    def __call__(self) -> Token:
        self.fetched += 1
        if self.failure is not None:
            raise self.failure
        return Token(value=f"token-{self.fetched}", expires_at=self._clock.now + 100)


@on_loop
async def test_a_token_serves_for_80_percent_of_its_life() -> None:
    clock = WallClock()
    source = Source(clock)
    tokens = CachedTokens(source, wall_clock=clock, clock=clock)
    for passed, expected in [(0, 1), (79, 1), (1, 2), (79, 2), (1, 3)]:
        clock.now += passed
        assert (await tokens.token()).value == f"token-{expected}"


@on_loop
async def test_callers_share_a_fetch() -> None:
    clock = WallClock()
    source = Source(clock)
    tokens = CachedTokens(source, wall_clock=clock, clock=clock)
    got = await asyncio.gather(*(tokens.token() for _ in range(5)))
    assert {each.value for each in got} == {"token-1"}
    assert source.fetched == 1


@on_loop
async def test_a_failed_refresh_leaves_the_old_token_until_it_expires() -> None:
    clock = WallClock()
    source = Source(clock)
    tokens = CachedTokens(source, wall_clock=clock, clock=clock)
    await tokens.token()
    source.failure = ConnectionFailedError("down")
    clock.now += 85
    assert (await tokens.token()).value == "token-1"
    assert (await tokens.token()).value == "token-1"
    assert source.fetched == 2, "not asked again at once"
    clock.now += 10
    assert (await tokens.token()).value == "token-1"
    assert source.fetched == 3
    clock.now += 5
    with pytest.raises(ConnectionFailedError, match="down"):
        await tokens.token()
    source.failure = None
    assert (await tokens.token()).value == "token-5"


class Hanging:
    """A source whose second token does not come until the test says so."""

    def __init__(self, clock: WallClock) -> None:
        self.go_on = threading.Event()
        self.asked = threading.Event()
        self._calls = 0
        self._clock = clock

    def __call__(self) -> Token:
        self._calls += 1
        if self._calls == 2:
            self.asked.set()
            self.go_on.wait()
        return Token(value=f"token-{self._calls}", expires_at=self._clock.now + 100)


async def end_of_its_call(tokens: CachedTokens) -> None:
    assert tokens._call is not None
    await asyncio.to_thread(tokens._call.exception)


async def about_to_hang() -> tuple[WallClock, Hanging, CachedTokens]:
    """A token that lives for 15 seconds more, and is to be fetched anew."""
    clock = WallClock()
    source = Hanging(clock)
    tokens = CachedTokens(source, wall_clock=clock, clock=clock)
    await tokens.token()
    clock.now += 85
    return clock, source, tokens


@on_loop
async def test_a_refresh_that_hangs_leaves_the_old_token_until_it_expires(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, source, tokens = await about_to_hang()
    try:
        with pytest.MonkeyPatch.context() as impatient:
            impatient.setattr(oauth, "_REFRESH_LIMIT", 0.02)
            async with asyncio.timeout(10):
                assert (await tokens.token()).value == "token-1"
    finally:
        source.go_on.set()
    assert "the old one serves on" in caplog.text
    await end_of_its_call(tokens)
    clock.now += 10
    assert (await tokens.token()).value == "token-2", "which nobody waited for"
    clock.now += 85
    assert (await tokens.token()).value == "token-3"


@on_loop
async def test_a_source_that_hangs_is_called_once_however_many_give_up() -> None:
    """Each call would leave a thread, and connections are tried again and again."""
    clock, source, tokens = await about_to_hang()
    clock.now += 15  # the old one is over
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await tokens.token()
    source.go_on.set()
    assert (await tokens.token()).value == "token-2"


@on_loop
async def test_a_source_that_never_returns_is_called_again_ever_more_seldom() -> None:
    clock, go_on = WallClock(), threading.Event()
    began: list[float] = []

    def source() -> Token:
        began.append(clock.now - start)
        go_on.wait()
        return Token(value="late", expires_at=clock.now + 100)

    start = clock.now
    tokens = CachedTokens(source, wall_clock=clock, clock=clock)
    for _ in range(130):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await tokens.token()
        clock.now += 10
    go_on.set()
    assert (await tokens.token()).value == "late"
    assert began == [0, 20, 60, 140, 300, 600, 900, 1200], "never more than five minutes"


@pytest.mark.parametrize("what", ["a failure", "a token that has expired since"])
@on_loop
async def test_what_nobody_waited_for_and_is_of_no_use_is_not_the_next_ones(what: str) -> None:
    clock, go_on = WallClock(), threading.Event()
    calls: list[int] = []

    def source() -> Token:
        calls.append(len(calls))
        if len(calls) == 1:
            go_on.wait()
            if what == "a failure":
                raise ConnectionFailedError("down")
            return Token(value="old", expires_at=clock.now + 100)
        return Token(value="new", expires_at=clock.now + 100)

    tokens = CachedTokens(source, wall_clock=clock, clock=clock)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await tokens.token()
    go_on.set()
    await end_of_its_call(tokens)
    clock.now += 3600
    assert (await tokens.token()).value == "new"


@on_loop
async def test_nor_does_a_connection_that_gives_up_sooner_have_the_next_one_wait() -> None:
    _, source, tokens = await about_to_hang()
    try:
        first = asyncio.create_task(tokens.token())
        await asyncio.to_thread(source.asked.wait)
        first.cancel()
        await asyncio.wait([first])
        async with asyncio.timeout(10):
            assert (await tokens.token()).value == "token-1"
    finally:
        source.go_on.set()


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
@on_loop
async def test_a_token_lives_as_long_where_the_wall_clock_is_set(jump: float) -> None:
    """Set back, it must not make a dead token serve on, nor set forth, a new one for each login."""
    wall, clock = WallClock(), WallClock()
    source = Source(wall)
    tokens = CachedTokens(source, wall_clock=wall, clock=clock)
    await tokens.token()
    wall.now += jump
    for passed, expected in [(79, 1), (1, 2), (79, 2), (1, 3)]:
        clock.now += passed
        assert (await tokens.token()).value == f"token-{expected}"


@pytest.mark.parametrize("life", [0.0, -5.0, float("nan")])
@on_loop
async def test_a_token_that_comes_expired_is_refused(life: float) -> None:
    clock = WallClock()
    tokens = CachedTokens(
        lambda: Token(value="t", expires_at=clock.now + life), wall_clock=clock, clock=clock
    )
    with pytest.raises(AuthenticationFailedError, match="clock"):
        await tokens.token()


# --- oauth_cb ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "extensions"),
    [
        (("t", 5), {}),
        (("t", 5.0, "principal"), {}),
        (("t", 5.0, None, None), {}),
        (("t", Decimal(5)), {}),
        (("t", 5.0, "principal", {"a": "b"}), {"a": "b"}),
    ],
)
def test_the_callback_gets_its_configuration_and_returns_what_confluents_does(
    answer: tuple[Any, ...], extensions: dict[str, str]
) -> None:
    configs: list[str | None] = []

    def callback(config: str | None) -> tuple[Any, ...]:
        configs.append(config)
        return answer

    for config in ("principal=me", None):
        token = callback_tokens(callback, config)()
        assert (token.value, token.expires_at, token.extensions) == ("t", 5.0, extensions)
    assert configs == ["principal=me", None]


class Untold:
    """An object that can't be made a text, and says a secret instead."""

    def __str__(self) -> str:
        raise ValueError(SECRET)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "t",
        (),
        (SECRET,),
        (SECRET, "soon"),
        (SECRET, "5"),
        (5, SECRET),
        (SECRET, 10**400),
        (SECRET, 5, "p", ["x"]),
        (SECRET, 5, "p", {"x": Untold()}),
        (SECRET, 5, "p", {}, "more"),
    ],
)
def test_a_callback_that_returns_nonsense_is_told_the_contract(answer: Any) -> None:
    with pytest.raises(AuthenticationFailedError, match="must return") as caught:
        callback_tokens(lambda _: answer, None)()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("error", [RuntimeError(SECRET), StopIteration(SECRET), SystemExit(1)])
@on_loop
async def test_a_callback_that_raises_fails_the_authentication(error: BaseException) -> None:
    def callback(_: str | None) -> tuple[Any, ...]:
        raise error

    tokens = CachedTokens(callback_tokens(callback, ""), wall_clock=WallClock(), clock=WallClock())
    with pytest.raises(AuthenticationFailedError, match=type(error).__name__) as caught:
        await tokens.token()
    assert SECRET not in "".join(traceback.format_exception(caught.value)), "also not as its cause"


def test_a_token_is_not_shown() -> None:
    token = Token(value=SECRET, expires_at=1.0, extensions={"a": SECRET})
    assert SECRET not in repr(token)


# --- OIDC ----------------------------------------------------------------------------------


class Endpoint:
    """A token endpoint; ``answers`` holds what it says next, as status and body."""

    def __init__(self, server: HTTPServer, scheme: str) -> None:
        self.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/token"
        self.requests: list[tuple[dict[str, str], dict[str, list[str]]]] = []
        self.answer: tuple[int, bytes] = (200, b"")
        self.headers: dict[str, str] = {}


@contextmanager
def endpoint(*, tls: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            form = urllib.parse.parse_qs(body.decode())
            there.requests.append((dict(self.headers), form))
            status, content = there.answer
            self.send_response(status)
            for name, value in there.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    class Server(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that breaks the handshake off is no news."""

        def get_request(self) -> tuple[socket.socket, Any]:
            accepted, address = super().get_request()
            return (tls.wrap_socket(accepted, server_side=True) if tls else accepted), address

    with Server(("127.0.0.1", 0), Handler) as server:
        there = Endpoint(server, "https" if tls else "http")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield there
        finally:
            server.shutdown()
            thread.join()


def oidc(there: Endpoint, **changes: Any) -> Callable[[], Token]:
    values = {
        "token_endpoint_url": there.url,
        "client_id": "me",
        "client_secret": SECRET,
        **changes,
    }
    return oidc_tokens(OidcSettings(**values), wall_clock=WallClock())


def jwt(claims: object) -> str:
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{middle}.c2ln"


def test_client_credentials_are_exchanged_for_a_token() -> None:
    with endpoint() as there:
        there.answer = (200, b'{"access_token": "t", "expires_in": 300, "token_type": "Bearer"}')
        token = oidc(there, scope="a b", extensions={"logicalCluster": "lkc"})()
    assert (token.value, token.expires_at) == ("t", 1_000_300.0)
    assert token.extensions == {"logicalCluster": "lkc"}
    ((headers, form),) = there.requests
    assert form == {"grant_type": ["client_credentials"], "scope": ["a b"]}
    basic = headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(basic).decode() == f"me:{SECRET}"


@pytest.mark.parametrize(
    ("body", "expires_at"),
    [
        ({"access_token": jwt({"exp": 2_000_000}), "expires_in": "60"}, 1_000_060.0),
        ({"access_token": jwt({"exp": 2_000_000})}, 2_000_000.0),
    ],
)
def test_a_life_is_found_in_the_answer_or_in_the_token(
    body: dict[str, Any], expires_at: float
) -> None:
    with endpoint() as there:
        there.answer = (200, json.dumps(body).encode())
        assert oidc(there)().expires_at == expires_at


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no access_token"),
        (b"<html>", "no access_token"),
        (b"[]", "no access_token"),
        (b'{"access_token": 5}', "no access_token"),
        (b'{"access_token": "hush"}', "no expires_in"),
        (b'{"access_token": "a.!.b"}', "no expires_in"),
        (b'{"access_token": "a.\xc3\xa4.b"}', "no expires_in"),
        (f'{{"access_token": "{jwt([])}"}}'.encode(), "no expires_in"),
        (b'{"access_token": "hush", "expires_in": "soon"}', "no expires_in"),
        (b'{"access_token": "hush", "expires_in": 1e999}', "no expires_in"),
    ],
)
def test_an_answer_without_a_token_is_named(body: bytes, said: str) -> None:
    with endpoint() as there:
        there.answer = (200, body)
        with pytest.raises(AuthenticationFailedError, match=said) as caught:
            oidc(there)()
    assert there.url in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, AuthenticationFailedError),
        (401, AuthenticationFailedError),
        (429, ConnectionFailedError),
        (503, ConnectionFailedError),
    ],
)
def test_a_refusal_is_told_in_the_endpoints_words(status: int, kind: type[Exception]) -> None:
    with endpoint() as there:
        said = {"error": "invalid_client", "error_description": f"wrong\nsecret {SECRET}"}
        there.answer = (status, json.dumps(said).encode())
        with pytest.raises(kind, match=rf"{status}: invalid_client: wrong secret \*\*\*"):
            oidc(there)()
        there.answer = (status, b"<html>")
        with pytest.raises(kind, match=f"answered {status}"):
            oidc(there)()


@pytest.mark.parametrize("shown", range(1, len(SECRET) + 1))
def test_a_refusal_that_is_cut_short_shows_no_part_of_the_secret(shown: int) -> None:
    """An endpoint may repeat what it was sent, in a text that is longer than an error's."""
    with endpoint() as there:
        # 300 characters are told.
        there.answer = (400, json.dumps({"error": "." * (300 - shown) + SECRET}).encode())
        with pytest.raises(AuthenticationFailedError) as caught:
            oidc(there)()
    assert f".{SECRET[0]}" not in str(caught.value)


def test_an_answer_that_is_cut_short_is_no_failed_authentication() -> None:
    with endpoint() as there:
        there.answer = (200, b'{"access_token": "hush", "expi')
        there.headers = {"Content-Length": "60"}  # the first of two counts
        with pytest.raises(ConnectionFailedError, match="in the middle of its answer") as caught:
            oidc(there)()
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's may be this machine's own."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("named", "serves"),
    [
        ({"ALL_PROXY": "http://{proxy}"}, True),
        ({"all_proxy": "{proxy}"}, True),
        ({"all_proxy": "http://127.0.0.1:1", "http_proxy": "http://{proxy}"}, True),
        ({"all_proxy": "http://{proxy}", "no_proxy": "idp.invalid"}, False),
        ({"all_proxy": "socks5://{proxy}"}, False),
    ],
)
def test_the_proxy_that_the_environment_names_is_asked_as_librdkafka_asks_it(
    named: dict[str, str], serves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_proxies(monkeypatch)
    with endpoint() as there:
        proxy = urllib.parse.urlsplit(there.url).netloc
        for name, value in named.items():
            monkeypatch.setenv(name, value.format(proxy=proxy))
        there.answer = (200, b'{"access_token": "t", "expires_in": 60}')
        fetch = oidc(there, token_endpoint_url="http://idp.invalid/token")
        if serves:
            assert fetch().value == "t"
        else:
            with pytest.raises(ConnectionFailedError, match="cannot be reached"):
                fetch()
    assert len(there.requests) == serves


@pytest.mark.parametrize("name", ["https_proxy", "all_proxy"])
def test_through_a_proxy_every_secret_goes_to_the_endpoint_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """urllib takes one that it has seen before for a request without TLS, from the third on."""
    without_proxies(monkeypatch)
    asked: list[bytes] = []

    def refuse(listener: socket.socket) -> None:
        for _ in range(3):
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener, endpoint() as there:
        monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
        proxy = threading.Thread(target=refuse, args=(listener,), daemon=True)
        proxy.start()
        fetch = oidc(there, token_endpoint_url="https://idp.invalid/token")
        for _ in range(3):
            with pytest.raises(ConnectionFailedError, match="cannot be reached"):
                fetch()
        proxy.join(30)
    assert [one.splitlines()[0] for one in asked] == 3 * [b"CONNECT idp.invalid:443 HTTP/1.0"]
    assert not any(b"Authorization" in one for one in asked)


@pytest.mark.parametrize("name", ["http_proxy", "all_proxy"])
def test_a_socks_proxy_is_librdkafkas_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxies(monkeypatch)
    monkeypatch.setenv(name, "SOCKS5h://127.0.0.1:1")
    with endpoint() as there:
        there.answer = (200, b'{"access_token": "t", "expires_in": 60}')
        assert oidc(there)().value == "t"


def test_a_redirect_to_what_is_no_url_fails_as_other_answers_do() -> None:
    with endpoint() as there:
        there.answer = (302, b"")
        there.headers = {"Location": "http://[broken"}
        with pytest.raises(ConnectionFailedError, match=r"token endpoint .* Invalid IPv6 URL"):
            oidc(there)()


def test_a_redirect_is_not_followed_with_the_secret() -> None:
    with endpoint() as there, endpoint() as elsewhere:
        there.answer = (302, b"")
        there.headers = {"Location": elsewhere.url}
        with pytest.raises(AuthenticationFailedError, match="302"):
            oidc(there)()
        assert elsewhere.requests == []


def test_an_endpoint_that_is_not_there_is_named() -> None:
    with endpoint() as there:
        pass
    with pytest.raises(ConnectionFailedError, match="refused"):
        oidc(there)()


def test_tls_to_the_endpoint_has_its_own_authorities() -> None:
    with endpoint(tls=broker_context()) as there:
        there.answer = (200, b'{"access_token": "t", "expires_in": 300}')
        assert oidc(there, https_ca_pem=authority_pem())().value == "t"
        with pytest.raises(AuthenticationFailedError, match=r"https\.ca\.location"):
            oidc(there)()


@pytest.mark.parametrize("url", ["ftp://host/token", "file:///etc/passwd", "token"])
def test_other_schemes_are_refused(url: str) -> None:
    settings = OidcSettings(token_endpoint_url=url, client_id="me", client_secret=SECRET)
    with pytest.raises(ConfigurationError, match="http"):
        oidc_tokens(settings, wall_clock=WallClock())


@pytest.mark.parametrize(
    "url",
    ["https://.example/token", f"https://{'a' * 64}.example/t", "https://h/tök", "https://[::1/t"],
)
def test_a_url_that_can_not_be_asked_is_refused_before_the_first_login(url: str) -> None:
    """A login would raise what nobody expects of one."""
    settings = OidcSettings(token_endpoint_url=url, client_id="me", client_secret=SECRET)
    with pytest.raises(ConfigurationError, match="neither an https nor an http URL"):
        oidc_tokens(settings, wall_clock=WallClock())


@pytest.mark.parametrize("host", ["h", "[::1]:8443"])
def test_a_url_with_a_password_is_refused_and_not_shown(host: str) -> None:
    """urllib's error shows it, as a port that is no number, and each failed login would log it."""
    settings = OidcSettings(
        token_endpoint_url=f"https://me:{SECRET}@{host}/token", client_id="me", client_secret="s"
    )
    with pytest.raises(ConfigurationError, match=r"client\.secret") as refused:
        oidc_tokens(settings, wall_clock=WallClock())()
    assert SECRET not in str(refused.value)


def test_an_unreadable_authority_of_the_endpoint_is_named() -> None:
    settings = OidcSettings(
        token_endpoint_url="https://h/t",
        client_id="me",
        client_secret=SECRET,
        https_ca_location="/no/such/file",
    )
    with pytest.raises(ConfigurationError, match=r"https\.ca") as caught:
        oidc_tokens(settings, wall_clock=WallClock())
    assert caught.value.key == "https.ca.location"
    assert SECRET not in repr(settings)


@given(st.text(max_size=30))
def test_any_text_may_be_a_token_without_harm(text: str) -> None:
    assert _jwt_expiry(f"a.{text}.b") is None


@on_loop
async def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    clock = WallClock()
    with endpoint() as there:
        there.answer = (200, b'{"access_token": "hush-token", "expires_in": 100}')
        source = oidc_tokens(
            OidcSettings(token_endpoint_url=there.url, client_id="me", client_secret=SECRET),
            wall_clock=clock,
        )
        tokens = CachedTokens(source, wall_clock=clock, clock=clock)
        await tokens.token()
        clock.now += 90
        there.answer = (500, json.dumps({"error": SECRET}).encode())
        await tokens.token()
    assert "not refreshed" in caplog.text
    assert "hush" not in caplog.text
