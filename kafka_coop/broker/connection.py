"""One authenticated connection to one broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from kafka_coop.broker.authentication import authenticate
from kafka_coop.broker.clock import Clock, LoopClock
from kafka_coop.broker.diagnosis import Peer, Stage, again, at, too_slow
from kafka_coop.broker.dial import dial
from kafka_coop.broker.sasl import Conversation
from kafka_coop.broker.security import Login, Security
from kafka_coop.broker.wire import Answered, Behind, Wire
from kafka_coop.config import ConnectionSettings
from kafka_coop.errors import (
    ConnectionFailedError,
    RequestFailedError,
    RequestTimedOutError,
    VersionNotSupportedError,
)
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import ApiVersionsAnswer, GetApiVersions, Request, Response
from kafka_coop.protocol.requests import choose_version, preload

_log = logging.getLogger(__name__)

_API_VERSIONS = 3
"""The version of ApiVersions we open with; brokers before 2.4 are asked again with 0."""

_REAUTHENTICATE_AT = 0.85
"""The part of a session after which it is renewed: the Java client's earliest."""

_SHORTEST_SESSION = 1.0
"""Seconds. Brokers refuse to renew a younger session (KIP-368)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """A SASL login and when it ends, in seconds of the connection's clock."""

    username: str | None
    renew_at: float = float("inf")
    ends_at: float = float("inf")


class Connection:
    """A connection on which requests are pipelined. Made by `open`.

    **Cancellation and timeouts.** A request that was written and is then given up, by timeout
    or by cancelling its task, closes the connection: the broker answers in order, so all that
    follows would wait behind an answer that nobody wants. Everything else in flight fails with
    it. That is also how a parked JoinGroup is aborted, and why it gets a connection of its own
    (`kafka_coop.broker.pool`). One given up before it was written harms nobody.

    **Re-authentication (KIP-368).** When 85 % of the session is over, the next request to be
    sent starts it. First the credentials are got, which may mean asking a token endpoint;
    requests go on meanwhile, as long as the session lasts. Then new requests are held, those in
    flight are waited for, and the login is repeated. Nothing is done by a timer: a broker ends a
    session only when a request arrives after its end, and even then it takes a login first, so an
    idle connection or one with a parked JoinGroup loses nothing by waiting. A request sent behind
    a parked JoinGroup waits for its answer, as it would at the broker.

    All methods belong to the event loop's thread.
    """

    def __init__(
        self, wire: Wire, settings: ConnectionSettings, login: Login | None, clock: Clock
    ) -> None:
        self._wire = wire
        self._settings = settings
        self._login = login
        self._clock = clock
        self._ranges: Mapping[int, tuple[int, int]] = {}
        self._session = _Session(username=None)
        self._reauthentication: asyncio.Task[None] | None = None
        self._held = False

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        settings: ConnectionSettings,
        *,
        security: Security | None = None,
        clock: Clock | None = None,
        probed: bool = False,
    ) -> Connection:
        """Connects, by TCP and TLS, agrees on versions and authenticates.

        Args:
            host: A name or an address.
            port: The broker's port.
            settings: Of these, ``connect_timeout`` limits everything here together.
            security: Shared by a client's connections; None: built from the settings.
            clock: Measures sessions.
            probed: Whether the kernel is to look after the flow, whatever
                ``socket.keepalive.enable`` says (`kafka_coop.broker.keepalive`).

        Raises:
            RequestFailedError: No connection. Its text names the broker and a remedy.
            ConfigurationError: ``security`` is None and cannot be built.
        """
        security = security or Security.of(settings)
        peer = Peer(
            host=host,
            port=port,
            tls=security.tls is not None,
            sasl=security.login is not None,
        )
        wire = Wire(
            peer,
            client_id=settings.client_id,
            max_frame_bytes=settings.receive_message_max_bytes,
            greeting=True,
        )
        connection = cls(wire, settings, security.login, clock or LoopClock())
        limit = settings.connect_timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                await dial(wire, settings, security.tls, probed=probed)
                await connection._greet()
        except BaseException as error:
            late = too_slow(peer, wire.stage, limit)
            connection.close()
            await wire.gone()
            if isinstance(error, TimeoutError):
                raise late from None
            raise
        wire.stage = Stage.UNPROVEN
        wire.greeted()
        _log.debug("%s: connected", peer)
        return connection

    @property
    def closed(self) -> bool:
        """Whether no request can be sent any more."""
        return self._wire.error is not None

    @property
    def in_flight(self) -> int:
        """Requests that were sent and not answered."""
        return self._wire.in_flight

    def knows(self, api: int) -> bool:
        """Whether the broker knows requests of this API key, in some version."""
        return api in self._ranges

    def offers(self, api: int, version: int) -> bool:
        """Whether the broker knows requests of this API key in this version."""
        lowest, highest = self._ranges.get(api, (0, -1))
        return lowest <= version <= highest

    async def send(
        self,
        request: Request,
        *,
        timeout: timedelta,  # noqa: ASYNC109  # closes
        behind: Behind | None = None,
    ) -> Response:
        """Sends a request and returns its answer, errors inside it uninterpreted.

        Any number may be sent at once; the broker answers them in order.

        Args:
            request: What to send, in the newest version that both sides speak.
            timeout: From the call to the answer.
            behind: What is to be sent right behind it, with nothing in between. Its answer is not
                waited for; where the request can't be sent, it is not either, and is not told of.

        Raises:
            RequestTimedOutError: No answer in time; the connection is closed.
            VersionNotSupportedError: No common version; the connection lives on.
            RequestFailedError: The connection failed; what the request did is unknown.
        """
        name = type(request).__name__
        answer: asyncio.Future[Response] | None = None
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._admitted()
                answer = self._wire.submit(request, self._version_of(request))
                if behind is not None:
                    self._follow(behind)
                return await answer
        except TimeoutError:
            error = self._late(name, timeout, sent=answer is not None)
            if answer is not None:
                self._wire.fail(error)
            raise again(error) from None
        except asyncio.CancelledError:
            if answer is not None:
                self._fail(f"the connection was closed with its request {name}, which was given up")
            raise

    def _follow(self, behind: Behind) -> None:
        try:
            version = self._version_of(behind.request)
        except VersionNotSupportedError as error:
            asyncio.get_running_loop().call_soon(behind.answered, error)
        else:
            self._wire.write(behind.request, version, behind.answered)

    def ask(self, request: Request, *, timeout: timedelta, answered: Answered) -> bool:
        """Sends a request at once, if it can be; ``answered`` takes what comes of it, later.

        What `send` is to a task, without one: for what is sent many times a second.

        Returns:
            False: nothing was sent, and `send` says why or waits for what is in the way.
        """
        if self.closed or self._login_due():
            return False
        try:
            version = self._version_of(request)
        except VersionNotSupportedError:
            return False

        def late() -> None:
            self._wire.fail(self._late(type(request).__name__, timeout, sent=True))

        def in_time(outcome: Response | RequestFailedError) -> None:
            limit.cancel()
            answered(outcome)

        limit = asyncio.get_running_loop().call_later(timeout.total_seconds(), late)
        self._wire.write(request, version, in_time)
        return True

    def close(self) -> None:
        """Closes at once. What is in flight fails with a ConnectionFailedError."""
        self._fail("the connection was closed by this client")
        if self._reauthentication is not None:
            self._reauthentication.cancel()

    async def wait_closed(self) -> None:
        """Returns once a closed connection's socket is gone and nothing of it runs."""
        if self._reauthentication is not None:
            await asyncio.wait([self._reauthentication])
        await self._wire.gone()

    def _fail(self, why: str) -> None:
        self._wire.fail(ConnectionFailedError(f"{self._wire.peer}: {why}"))

    def _late(self, name: str, limit: timedelta, *, sent: bool) -> RequestTimedOutError:
        seconds = limit.total_seconds()
        what = (
            f"{name} was not answered within {seconds:g} s, and the connection is closed; the "
            f"broker hangs or is overloaded, or the network drops packets"
            if sent
            else f"{name} was not sent within {seconds:g} s, held back by a re-authentication; "
            f"the token's source is slow, or a parked JoinGroup is in front of it"
        )
        return RequestTimedOutError(f"{self._wire.peer}: {what}")

    # --- versions --------------------------------------------------------------------------

    def _version_of(self, request: Request) -> int:
        try:
            return choose_version(request, self._ranges)
        except VersionNotSupportedError as error:
            raise at(self._wire.peer, error) from error

    async def _exchange(self, request: Request) -> Response:
        return await self._wire.submit(request, self._version_of(request))

    async def _greet(self) -> None:
        answer = await self._api_versions(_API_VERSIONS)
        if answer.error is ErrorCode.unsupported_version:
            answer = await self._api_versions(0)
        if answer.error is not ErrorCode.none:
            raise VersionNotSupportedError(
                f"{self._wire.peer}: the broker refused ApiVersions: {answer.error.name}"
            )
        self._ranges = answer.ranges
        preload(answer.ranges)
        if self._login is not None:
            self._wire.stage = Stage.PREPARING_LOGIN
            username, conversation = await self._conversation(self._login)
            self._wire.stage = Stage.AUTHENTICATING
            self._session = await self._log_in(self._login, username, conversation)

    async def _api_versions(self, version: int) -> ApiVersionsAnswer:
        answer = await self._wire.submit(GetApiVersions(), version)
        assert isinstance(answer, ApiVersionsAnswer)
        return answer

    # --- sessions --------------------------------------------------------------------------

    async def _conversation(self, login: Login) -> tuple[str | None, Conversation]:
        """A conversation and the user that it logs in."""
        try:
            return login.username, await login.conversation()
        except RequestFailedError as error:
            raise at(self._wire.peer, error) from error.__cause__

    async def _log_in(
        self, login: Login, username: str | None, conversation: Conversation
    ) -> _Session:
        began = self._clock.now()  # the broker's count begins later, so ours ends no later
        try:
            lifetime = await authenticate(self._exchange, login.mechanism, conversation)
        except RequestFailedError as error:
            raise at(self._wire.peer, error) from error.__cause__
        seconds = lifetime.total_seconds()
        if seconds <= 0:
            return _Session(username=username)
        return _Session(
            username=username,
            renew_at=began + max(seconds * _REAUTHENTICATE_AT, _SHORTEST_SESSION),
            ends_at=began + seconds,
        )

    def _login_due(self) -> bool:
        """Whether a request must wait for a login, or is to start one."""
        return self._held or self._clock.now() >= self._session.renew_at

    async def _admitted(self) -> None:
        """Returns when a request may be written. Starts the re-authentication when it is due."""
        if (
            self._reauthentication is None
            and self._clock.now() >= self._session.renew_at
            and not self.closed
        ):
            self._reauthentication = asyncio.create_task(self._reauthenticate())
        while self._reauthentication is not None and (
            self._held or self._clock.now() >= self._session.ends_at
        ):
            await asyncio.wait([self._reauthentication])

    async def _reauthenticate(self) -> None:
        login = self._login
        assert login is not None, "sessions end under SASL alone"
        limit = self._settings.connect_timeout.total_seconds()
        stage = Stage.PREPARING_LOGIN
        try:
            # Limited, too: an oauth_cb that hangs would hold this connection's requests back for
            # ever, and all other logins with them, which wait for the same token.
            async with asyncio.timeout(limit):
                username, conversation = await self._conversation(login)
            self._held = True
            await self._wire.settled()
            if username != self._session.username:
                # Brokers refuse a change of user on a connection.
                self._fail("the connection was closed because the SASL user changed")
                return
            stage = Stage.AUTHENTICATING
            async with asyncio.timeout(limit):
                self._session = await self._log_in(login, username, conversation)
        except TimeoutError:
            self._wire.fail(too_slow(self._wire.peer, stage, limit))
        except RequestFailedError as error:
            self._wire.fail(error)
        finally:
            self._held = False
            self._reauthentication = None
