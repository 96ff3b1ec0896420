"""SASL on a connection: logging in, being refused, and logging in again (KIP-368)."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from broker_harness import (
    HEARTBEAT,
    HEARTBEAT_REQUEST,
    JOIN_GROUP,
    JOIN_REQUEST,
    RANGES,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SOON,
    FakeBroker,
    Received,
    Visitor,
    on_loop,
    settings,
)
from kio.schema.errors import ErrorCode
from scramp import ScramException, ScramMechanism  # type: ignore[import-untyped]  # annotated nowhere

from kafka_coop.broker.connection import Connection
from kafka_coop.broker.security import Login, Security
from kafka_coop.config import ConnectionSettings, SaslSettings
from kafka_coop.errors import (
    AuthenticationFailedError,
    ConfigurationError,
    ConnectionFailedError,
    RequestFailedError,
    RequestTimedOutError,
    VersionNotSupportedError,
)
from kafka_coop.protocol.messages import GroupJoined, HeartbeatAcked

PASSWORD = "open sesame"
TOKEN = "hush-token"


def sasl(mechanism: str, **changes: Any) -> ConnectionSettings:
    values: dict[str, Any] = {"username": "alice", "password": PASSWORD, **changes}
    return settings(sasl=SaslSettings(mechanism=mechanism, **values))  # type: ignore[arg-type]  # by name


class Refused(Exception):  # noqa: N818  # an outcome of the broker's
    """The broker's side of a mechanism says no."""


# --- the broker's side of each mechanism ---------------------------------------------------


class Authenticator:
    """Takes the client's messages in turn; returns the answer, or raises `Refused`."""

    def __init__(self, mechanism: str) -> None:
        self.steps = list(
            getattr(self, "_" + mechanism.split("-", maxsplit=1)[0].lower())(mechanism)
        )

    def _plain(self, _: str) -> list[Callable[[bytes], bytes]]:
        def check(message: bytes) -> bytes:
            if message != f"\0alice\0{PASSWORD}".encode():
                raise Refused
            return b""

        return [check]

    def _scram(self, mechanism: str) -> list[Callable[[bytes], bytes]]:
        mech = ScramMechanism(mechanism)
        stored = {"alice": mech.make_auth_info(PASSWORD)}
        server = mech.make_server(stored.get)

        def first(message: bytes) -> bytes:
            server.set_client_first(message.decode())
            said: str = server.get_server_first()
            return said.encode()

        def last(message: bytes) -> bytes:
            try:
                server.set_client_final(message.decode())
            except ScramException as error:
                raise Refused from error
            said: str = server.get_server_final()
            return said.encode()

        return [first, last]

    def _oauthbearer(self, _: str) -> list[Callable[[bytes], bytes]]:
        def check(message: bytes) -> bytes:
            if f"auth=Bearer {TOKEN}".encode() in message.split(b"\x01"):
                return b""
            self.steps.append(fail)
            return b'{"status":"invalid_token"}'

        def fail(message: bytes) -> bytes:
            assert message == b"\x01"
            raise Refused

        return [check]


async def log_in(visitor: Visitor, mechanism: str, *, lifetime: float = 0.0) -> None:
    """Authenticates a client as a broker does, and says nothing more if it refuses."""
    handshake = await visitor.request()
    assert handshake.api_key == SASL_HANDSHAKE
    assert handshake.body.mechanism == mechanism
    visitor.answer(handshake, mechanisms=(mechanism,))
    authenticator = Authenticator(mechanism)
    while authenticator.steps:
        request = await visitor.request()
        assert request.api_key == SASL_AUTHENTICATE
        try:
            said = authenticator.steps.pop(0)(request.body.auth_bytes)
        except Refused:
            visitor.answer(
                request,
                error_code=ErrorCode.sasl_authentication_failed,
                error_message="Authentication failed: Invalid username or password",
            )
            await visitor.left()
            return
        ending: dict[str, Any] = (
            {"session_lifetime": timedelta(seconds=lifetime)} if request.version else {}
        )
        visitor.answer(request, auth_bytes=said, error_message=None, **ending)


def broker_with(mechanism: str, **more: Any) -> FakeBroker:
    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await log_in(visitor, mechanism, **more)
        await visitor.serve()

    return FakeBroker(script)


async def used(broker: FakeBroker, with_settings: ConnectionSettings) -> None:
    connection = await Connection.open(*broker.address, with_settings)
    answer = await connection.send(HEARTBEAT_REQUEST, timeout=SOON)
    assert isinstance(answer, HeartbeatAcked)
    connection.close()
    await connection.wait_closed()


async def refusal(broker: FakeBroker, with_settings: ConnectionSettings) -> RequestFailedError:
    with pytest.raises(RequestFailedError) as caught:
        await Connection.open(*broker.address, with_settings)
    text = str(caught.value)
    assert text.count(f"127.0.0.1:{broker.port}: ") == 1
    assert PASSWORD not in text
    assert "hush" not in text
    return caught.value


def token(_: str) -> tuple[Any, ...]:
    return TOKEN, 4e9


# --- logging in ----------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@on_loop
async def test_each_mechanism_logs_in(mechanism: str) -> None:
    async with broker_with(mechanism) as broker:
        await used(broker, sasl(mechanism, oauth_cb=token))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@on_loop
async def test_a_wrong_password_is_told_in_the_brokers_words(mechanism: str) -> None:
    async with broker_with(mechanism) as broker:
        error = await refusal(broker, sasl(mechanism, password="hush, a guess"))
        assert isinstance(error, AuthenticationFailedError)
        assert "Invalid username or password" in str(error)


@on_loop
async def test_a_token_that_the_broker_refuses_fails() -> None:
    async with broker_with("OAUTHBEARER") as broker:
        error = await refusal(broker, sasl("OAUTHBEARER", oauth_cb=lambda _: ("hush", 4e9)))
        assert isinstance(error, AuthenticationFailedError)


@on_loop
async def test_a_callback_that_raises_fails_the_connection() -> None:
    def callback(_: str) -> tuple[Any, ...]:
        raise RuntimeError("hush")

    async with broker_with("OAUTHBEARER") as broker:
        error = await refusal(broker, sasl("OAUTHBEARER", oauth_cb=callback))
        assert isinstance(error, AuthenticationFailedError)
        assert "oauth_cb raised RuntimeError" in str(error)
        assert "hush" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": ("B", "A")},
            "it offers A, B",
        ),
        ({"error_code": ErrorCode.illegal_sasl_state}, "does not use SASL"),
        ({"error_code": ErrorCode.unknown_server_error}, "unknown_server_error"),
    ],
)
@on_loop
async def test_a_refused_handshake_says_what_to_set(answer: dict[str, Any], said: str) -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        visitor.answer(await visitor.request(), **answer)
        await visitor.left()

    async with FakeBroker(script) as broker:
        error = await refusal(broker, sasl("PLAIN"))
        assert isinstance(error, AuthenticationFailedError)
        assert said in str(error)


@on_loop
async def test_a_broker_that_cuts_during_sasl_points_to_its_log() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await visitor.request()

    async with FakeBroker(script) as broker:
        error = await refusal(broker, sasl("PLAIN"))
        assert isinstance(error, ConnectionFailedError)
        assert "broker's log" in str(error)


@on_loop
async def test_a_broker_without_sasl_authenticate_is_too_old() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet({k: v for k, v in RANGES.items() if k != SASL_AUTHENTICATE})
        visitor.answer(await visitor.request(), mechanisms=("PLAIN",))
        await visitor.left()

    async with FakeBroker(script) as broker:
        assert isinstance(await refusal(broker, sasl("PLAIN")), VersionNotSupportedError)


@pytest.mark.parametrize(
    ("mechanism", "missing", "key"),
    [
        ("PLAIN", {"username": None}, "sasl.username"),
        ("SCRAM-SHA-256", {"password": None}, "sasl.password"),
        ("OAUTHBEARER", {}, "oauth_cb"),
    ],
)
def test_missing_credentials_are_named_before_anything_is_sent(
    mechanism: str, missing: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Security.of(sasl(mechanism, **missing))
    assert caught.value.key == key


# --- logging in again ----------------------------------------------------------------------


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a connection does not sleep ({seconds})")


class Sessions:
    """A broker with sessions of 100 s. It notes every request; the test may hold the answers."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.holding = asyncio.Event()
        self.holding.set()
        self.arrived = asyncio.Event()
        self.logins = 0
        self.left = asyncio.Event()

    async def __call__(self, visitor: Visitor) -> None:
        await visitor.greet()
        await self._log_in(visitor, None)
        try:
            while True:
                request = await visitor.request()
                if request.api_key == SASL_HANDSHAKE:
                    await self._log_in(visitor, request)
                    continue
                self.seen.append(request.api_key)
                self.arrived.set()
                await self.holding.wait()
                visitor.answer(request)
        finally:
            self.left.set()

    async def _log_in(self, visitor: Visitor, handshake: Received | None) -> None:
        visitor.answer(handshake or await visitor.request(), mechanisms=("PLAIN",))
        request = await visitor.request()
        # Nothing but this may come between: a broker would cut the connection.
        assert request.api_key == SASL_AUTHENTICATE
        if request.body.auth_bytes == f"\0alice\0{PASSWORD}".encode():
            visitor.answer(request, session_lifetime=timedelta(seconds=100))
            self.logins += 1
            self.seen.append(SASL_AUTHENTICATE)
        else:
            visitor.answer(request, error_code=ErrorCode.sasl_authentication_failed)


async def opened(broker: FakeBroker, clock: Clock, security: Security | None = None) -> Connection:
    return await Connection.open(*broker.address, sasl("PLAIN"), security=security, clock=clock)


async def beat(connection: Connection) -> None:
    assert isinstance(await connection.send(HEARTBEAT_REQUEST, timeout=SOON), HeartbeatAcked)


async def closed(connection: Connection) -> None:
    connection.close()
    await connection.wait_closed()


async def renewed(connection: Connection) -> None:
    """Returns once no re-authentication is under way."""
    if connection._reauthentication is not None:
        await asyncio.wait([connection._reauthentication])


@on_loop
async def test_a_session_is_renewed_after_85_percent_and_not_before() -> None:
    clock, sessions = Clock(), Sessions()
    async with FakeBroker(sessions) as broker:
        connection = await opened(broker, clock)
        for time, logins in [(84, 1), (85, 2), (160, 2), (171, 3)]:
            clock.time = time
            await beat(connection)
            await renewed(connection)
            assert sessions.logins == logins
        await closed(connection)
    assert broker.visits == 1


@on_loop
async def test_a_question_without_a_task_does_not_go_out_when_a_renewal_is_due() -> None:
    clock, sessions = Clock(), Sessions()
    async with FakeBroker(sessions) as broker:
        connection = await opened(broker, clock)
        outcomes: asyncio.Queue[object] = asyncio.Queue()

        def ask() -> bool:
            return connection.ask(HEARTBEAT_REQUEST, timeout=SOON, answered=outcomes.put_nowait)

        clock.time = 84
        assert ask()
        await outcomes.get()
        clock.time = 86
        assert not ask()
        await beat(connection)
        await renewed(connection)
        assert ask()
        await outcomes.get()
        await closed(connection)
    assert sessions.logins == 2


@on_loop
async def test_a_session_that_does_not_end_is_not_renewed() -> None:
    clock = Clock()
    async with broker_with("PLAIN", lifetime=0.0) as broker:
        connection = await opened(broker, clock)
        clock.time = 1e9
        await beat(connection)
        assert connection._reauthentication is None
        await closed(connection)


@on_loop
async def test_requests_after_the_end_wait_for_the_renewal() -> None:
    clock, sessions = Clock(), Sessions()
    async with FakeBroker(sessions) as broker:
        connection = await opened(broker, clock)
        clock.time = 150
        await asyncio.gather(*(beat(connection) for _ in range(5)))
        await closed(connection)
    assert sessions.seen == [SASL_AUTHENTICATE, SASL_AUTHENTICATE] + [HEARTBEAT] * 5


@on_loop
async def test_what_is_in_flight_is_answered_before_the_renewal_and_the_rest_after() -> None:
    clock, sessions = Clock(), Sessions()
    async with FakeBroker(sessions) as broker:
        connection = await opened(broker, clock)
        sessions.holding.clear()
        clock.time = 90
        first = asyncio.create_task(beat(connection))  # starts the renewal, and goes before it
        await sessions.arrived.wait()
        assert connection._held
        held = asyncio.create_task(beat(connection))
        await asyncio.sleep(0)
        assert connection.in_flight == 1
        sessions.holding.set()
        await asyncio.gather(first, held)
        await closed(connection)
    assert sessions.seen == [SASL_AUTHENTICATE, HEARTBEAT, SASL_AUTHENTICATE, HEARTBEAT]


@on_loop
async def test_a_parked_join_outlives_the_session() -> None:
    """A broker ends sessions when a request arrives, not by itself (KIP-368)."""
    clock, sessions = Clock(), Sessions()
    async with FakeBroker(sessions) as broker:
        connection = await opened(broker, clock)
        sessions.holding.clear()
        join = asyncio.create_task(connection.send(JOIN_REQUEST, timeout=SOON))
        await sessions.arrived.wait()
        clock.time = 500
        sessions.holding.set()
        assert isinstance(await join, GroupJoined)
        assert sessions.logins == 1
        await beat(connection)
        await closed(connection)
    assert sessions.seen == [SASL_AUTHENTICATE, JOIN_GROUP, SASL_AUTHENTICATE, HEARTBEAT]


@on_loop
async def test_a_request_held_too_long_times_out_and_harms_nobody() -> None:
    clock, sessions = Clock(), Sessions()
    async with FakeBroker(sessions) as broker:
        connection = await opened(broker, clock)
        sessions.holding.clear()
        join = asyncio.create_task(connection.send(JOIN_REQUEST, timeout=SOON))
        await sessions.arrived.wait()
        clock.time = 150
        with pytest.raises(RequestTimedOutError, match="not sent"):
            await connection.send(HEARTBEAT_REQUEST, timeout=timedelta(milliseconds=20))
        assert not connection.closed
        sessions.holding.set()
        assert isinstance(await join, GroupJoined)
        await renewed(connection)
        await beat(connection)
        await closed(connection)


@on_loop
async def test_a_new_password_serves_the_renewal() -> None:
    clock, sessions = Clock(), Sessions()
    security = Security.of(sasl("PLAIN", password="the old one"))
    assert security.login is not None
    async with FakeBroker(sessions) as broker:
        with pytest.raises(AuthenticationFailedError):
            await opened(broker, clock, security)
        security.login.set_credentials("alice", PASSWORD)
        connection = await opened(broker, clock, security)
        security.login.set_credentials("alice", "hush")
        clock.time = 150
        with pytest.raises(AuthenticationFailedError, match=f"127.0.0.1:{broker.port}") as caught:
            await beat(connection)
        assert "hush" not in str(caught.value)
        assert connection.closed
        await connection.wait_closed()


@on_loop
async def test_a_new_user_gets_a_new_connection() -> None:
    clock, sessions = Clock(), Sessions()
    security = Security.of(sasl("PLAIN"))
    assert security.login is not None
    async with FakeBroker(sessions) as broker:
        connection = await opened(broker, clock, security)
        security.login.set_credentials("bob", PASSWORD)
        clock.time = 90
        await beat(connection)  # the old session serves to its end
        await renewed(connection)
        assert connection.closed
        assert sessions.seen == [SASL_AUTHENTICATE, HEARTBEAT]
        with pytest.raises(ConnectionFailedError, match="user changed"):
            await beat(connection)
        await connection.wait_closed()


@on_loop
async def test_a_renewal_that_hangs_is_limited() -> None:
    clock = Clock()

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await log_in(visitor, "PLAIN", lifetime=100)
        await visitor.left()

    async with FakeBroker(script) as broker:
        limited = settings(
            sasl=SaslSettings(mechanism="PLAIN", username="alice", password=PASSWORD),
            connect_timeout=timedelta(seconds=1),
        )
        connection = await Connection.open(*broker.address, limited, clock=clock)
        clock.time = 150
        with pytest.raises(ConnectionFailedError, match="SASL authentication"):
            await beat(connection)
        await connection.wait_closed()


class Hanging:
    """An oauth_cb whose second call does not return until the test says so."""

    def __init__(self) -> None:
        self.calls = 0
        self.go_on = threading.Event()

    def __call__(self, _: str) -> tuple[Any, ...]:
        self.calls += 1
        if self.calls == 2:
            self.go_on.wait()
        return TOKEN, 90.0  # less than a session's, so that each login needs a new one


@on_loop
async def test_a_token_that_does_not_come_holds_nobody_back_for_ever() -> None:
    """An HTTP request without a timeout, whose flow a firewall has forgotten, never returns."""
    clock, callback = Clock(), Hanging()
    limited = sasl("OAUTHBEARER", oauth_cb=callback)
    limited = dataclasses.replace(limited, connect_timeout=timedelta(seconds=1))
    assert limited.sasl is not None
    login = Login(limited.sasl, wall_clock=lambda: 0.0, clock=clock.now)
    security = Security(tls=None, login=login)
    async with broker_with("OAUTHBEARER", lifetime=100) as broker:
        try:
            connection = await Connection.open(
                *broker.address, limited, security=security, clock=clock
            )
            clock.time = 150
            async with asyncio.timeout(10):
                with pytest.raises(ConnectionFailedError, match="oauth_cb"):
                    await beat(connection)
                await connection.wait_closed()
                clock.time += 20  # seconds for which it may yet return
                another = await Connection.open(
                    *broker.address, limited, security=security, clock=clock
                )
            await beat(another)
            await closed(another)
        finally:
            callback.go_on.set()


@on_loop
async def test_a_connection_that_waits_for_a_token_in_vain_does_not_blame_the_broker() -> None:
    stop = threading.Event()

    def callback(_: str) -> tuple[Any, ...]:
        stop.wait()
        return token(_)

    limited = sasl("OAUTHBEARER", oauth_cb=callback)
    limited = dataclasses.replace(limited, connect_timeout=timedelta(seconds=1))
    async with broker_with("OAUTHBEARER") as broker:
        error = await refusal(broker, limited)
        stop.set()
    assert isinstance(error, ConnectionFailedError)
    assert "oauth_cb, or the token endpoint, hangs" in str(error)
    assert "the broker hangs" not in str(error)


@on_loop
async def test_closing_ends_a_renewal() -> None:
    clock, sessions = Clock(), Sessions()
    async with FakeBroker(sessions) as broker:
        connection = await opened(broker, clock)
        sessions.holding.clear()
        clock.time = 90
        waiting = asyncio.create_task(beat(connection))
        await sessions.arrived.wait()
        renewal = connection._reauthentication
        assert renewal is not None
        await closed(connection)
        assert renewal.done()
        with pytest.raises(ConnectionFailedError):
            await waiting
        sessions.holding.set()
        await sessions.left.wait()


@on_loop
async def test_closing_does_not_wait_for_a_token() -> None:
    clock = Clock()
    asked, stop = threading.Event(), threading.Event()
    expiries = iter([1.0, 4e9])
    passed = iter([0.0, 1e6])

    def callback(_: str | None) -> tuple[Any, ...]:
        expires_at = next(expiries)
        if expires_at > 1:
            asked.set()
            stop.wait()
        return TOKEN, expires_at

    login = Login(
        SaslSettings(mechanism="OAUTHBEARER", oauth_cb=callback),
        wall_clock=lambda: 0.0,
        clock=lambda: next(passed),
    )
    async with broker_with("OAUTHBEARER", lifetime=100) as broker:
        connection = await opened(broker, clock, Security(tls=None, login=login))
        clock.time = 90
        await beat(connection)
        await asyncio.to_thread(asked.wait)
        await beat(connection)  # the old session serves while the token is fetched
        async with asyncio.timeout(10):
            await closed(connection)
        stop.set()


def test_a_login_shows_no_secret() -> None:
    login = Login(SaslSettings(mechanism="PLAIN", username="alice", password=PASSWORD))
    assert PASSWORD not in repr(login) + repr(login._settings)
    login.set_credentials("alice", "hush")
    assert "hush" not in repr(login._settings)
