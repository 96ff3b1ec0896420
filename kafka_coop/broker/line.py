"""The way to one address for one purpose: a connection when one is needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from kafka_coop.broker.backoff import ReconnectBackoff
from kafka_coop.broker.clock import Clock
from kafka_coop.broker.connection import Connection
from kafka_coop.broker.diagnosis import again
from kafka_coop.broker.wire import Answered, Behind
from kafka_coop.errors import ConnectionFailedError, RequestFailedError, RequestTimedOutError
from kafka_coop.protocol.messages import Request, Response

_log = logging.getLogger(__name__)


class Line:
    """At most one connection to an address, and at most one attempt to make it.

    Callers that find no connection share the attempt; one that gives up does not spoil it for
    the others. After a failure the next attempt waits for the backoff, and so do its callers,
    as long as their timeouts allow.

    Args:
        address: For errors' texts.
        connect: Opens a connection; raises RequestFailedError.
        backoff: The address's own, shared by its lines.
        clock: What the backoff is measured and waited with.
        max_idle: How long a connection may go unused; zero: for ever.
    """

    def __init__(
        self,
        *,
        address: str,
        connect: Callable[[], Awaitable[Connection]],
        backoff: ReconnectBackoff,
        clock: Clock,
        max_idle: timedelta,
    ) -> None:
        self._address = address
        self._connect = connect
        self._backoff = backoff
        self._clock = clock
        self._max_idle = max_idle.total_seconds()
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection | RequestFailedError] | None = None
        self._finishing: set[asyncio.Task[Any]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._users = 0
        self._last_used = 0.0
        self._last_failure: RequestFailedError | None = None

    @property
    def live(self) -> bool:
        """Whether a request would be written at once."""
        return self._connection is not None and not self._connection.closed

    def knows(self, api: int) -> bool:
        """`Connection.knows` of the connection that stands; False: none does."""
        return self.live and self._connection is not None and self._connection.knows(api)

    @property
    def users(self) -> int:
        """Requests under way, those that wait for a connection included."""
        return self._users

    @property
    def empty(self) -> bool:
        """Whether nothing is left of it: no request, no connection, and none that still ends."""
        return not (self._users or self._connection or self._opening or self._finishing)

    @property
    def delay(self) -> float:
        """Seconds of backoff before a connection would be tried."""
        return 0.0 if self.live else self._backoff.delay(self._clock.now())

    async def request(
        self,
        request: Request,
        *,
        timeout: timedelta,  # noqa: ASYNC109  # closes
        behind: Behind | None = None,
    ) -> Response:
        """Sends a request, connecting first where needed.

        Args:
            request: What to send.
            timeout: For backoff, connecting and the answer together.
            behind: See `Connection.send`.

        Raises:
            RequestFailedError: See `Connection.open` and `Connection.send`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout.total_seconds()
        self._use()
        try:
            connection = await self._connected_within(request, timeout)
            left = timedelta(seconds=max(0.0, deadline - loop.time()))
            return await self._sent(connection, request, left, behind)
        finally:
            self._release()

    def ask(self, request: Request, *, timeout: timedelta, answered: Answered) -> bool:
        """Sends a request on the connection that stands; ``answered`` takes what comes of it.

        Returns:
            False: nothing was sent; `request` connects first, or waits for a login.
        """
        connection = self._connection
        if connection is None:
            return False

        def concluded(outcome: Response | RequestFailedError) -> None:
            self._conclude(connection, outcome)
            self._release()
            answered(outcome)

        if not connection.ask(request, timeout=timeout, answered=concluded):
            return False
        self._use()
        return True

    def drop(self) -> None:
        """Closes the connection, or ends the attempt to make one; its callers fail.

        Without effect on the backoff: it was no failure of the broker's.
        """
        if self._opening is not None:
            self._opening.cancel()
            self._finish(self._opening)
            self._opening = None
        self._discard()

    async def close(self) -> None:
        """Drops all, and returns once nothing of it is left."""
        self.drop()
        self._stop_idle_timer()
        if self._finishing:
            await asyncio.wait(self._finishing)

    # --- connecting ------------------------------------------------------------------------

    async def _connected_within(self, request: Request, limit: timedelta) -> Connection:
        seconds = limit.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._connected()
        except TimeoutError:
            last = f"; the last failure: {self._last_failure}" if self._last_failure else ""
            raise RequestTimedOutError(
                f"{self._address}: no connection for {type(request).__name__} within "
                f"{seconds:g} s{last}"
            ) from self._last_failure

    async def _connected(self) -> Connection:
        if self._connection is not None:
            if not self._connection.closed:
                return self._connection
            self._discard()
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        opening = self._opening
        # Not awaited itself: a caller that is cancelled would cancel it for all.
        await asyncio.wait([opening])
        if opening.cancelled():
            raise ConnectionFailedError(f"{self._address}: connecting was given up by this client")
        match opening.result():
            case Connection() as connection:
                return connection
            case error:
                raise again(error)

    async def _open(self) -> Connection | RequestFailedError:
        """Returns errors as values: when every caller has given up, nobody is left to catch."""
        try:
            wait = self._backoff.delay(self._clock.now())
            if wait > 0:
                await self._clock.sleep(wait)
            self._connection = await self._connect()
        except RequestFailedError as error:
            self._failed(error)
            return error
        finally:
            if self._opening is asyncio.current_task():  # else it was dropped
                self._opening = None
        return self._connection

    async def _sent(
        self, connection: Connection, request: Request, limit: timedelta, behind: Behind | None
    ) -> Response:
        try:
            answer = await connection.send(request, timeout=limit, behind=behind)
        except RequestFailedError as error:
            self._conclude(connection, error)
            raise
        self._conclude(connection, answer)
        return answer

    def _conclude(self, connection: Connection, outcome: Response | RequestFailedError) -> None:
        if not isinstance(outcome, RequestFailedError):
            self._backoff.succeeded()
            self._last_failure = None
        elif connection.closed and connection is self._connection:
            # Of many that fail with one connection, the first counts.
            self._discard()
            self._failed(outcome)

    def _failed(self, error: RequestFailedError) -> None:
        _log.debug("%s", error)
        self._last_failure = error
        self._backoff.failed(self._clock.now())

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            self._finish(asyncio.create_task(connection.wait_closed()))

    def _finish(self, task: asyncio.Task[Any]) -> None:
        """Remembers a task that is about to end until it has, for `close` to wait for."""
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    # --- idleness --------------------------------------------------------------------------

    def _use(self) -> None:
        self._users += 1

    def _release(self) -> None:
        self._users -= 1
        self._last_used = asyncio.get_running_loop().time()
        if self._idle_timer is None and self._max_idle > 0 and self.live:
            self._watch_idleness(self._max_idle)

    def _watch_idleness(self, seconds: float) -> None:
        """One timer looks again when it was too early: set for each use, it would cost more."""
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(seconds, self._drop_if_idle)

    def _drop_if_idle(self) -> None:
        self._idle_timer = None
        idle_for = asyncio.get_running_loop().time() - self._last_used
        if self._users > 0:
            return  # the last of them to be done sets the timer anew
        if idle_for >= self._max_idle:
            self.drop()
        else:
            self._watch_idleness(self._max_idle - idle_for)

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
