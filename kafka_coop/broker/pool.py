"""The cluster's brokers, as connections to send requests on."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from kafka_coop.broker.backoff import ReconnectBackoff
from kafka_coop.broker.clock import Clock, LoopClock
from kafka_coop.broker.connection import Connection
from kafka_coop.broker.diagnosis import Peer
from kafka_coop.broker.hedging import patiences
from kafka_coop.broker.line import Line
from kafka_coop.broker.security import Security
from kafka_coop.broker.wire import Answered, Behind
from kafka_coop.config import ConnectionSettings
from kafka_coop.errors import (
    AuthenticationFailedError,
    ConfigurationError,
    ConnectionFailedError,
    RequestFailedError,
    RequestTimedOutError,
    VersionNotSupportedError,
)
from kafka_coop.protocol.messages import ClusterMetadata, Node, Request, Response

_log = logging.getLogger(__name__)

T = TypeVar("T")

_Address: TypeAlias = tuple[str, int]

MAIN_LANE = "main"
JOIN_LANE = "join"
"""For JoinGroup, which the broker parks until the round is complete: whatever else were sent
on its connection would wait behind it.

No heartbeats go over it but those that would wait behind something else: between rounds and while a
JoinGroup is parked nothing does, for minutes. Were its flow forgotten on the way, the next
JoinGroup would be lost, and the group would wait for this member until the rebalance timeout,
though the main lane is in good health. So the kernel probes it, whatever
``socket.keepalive.enable`` says. A new connection for each round would do between rounds, but not
for a parked JoinGroup, and its handshakes would lengthen every gap."""


class Brokers:
    """Connections to a cluster, made when needed: one per address and lane.

    Knows nothing of the group protocol; errors inside answers are not interpreted, and no
    request is sent twice. All methods belong to one event loop's thread.

    Args:
        settings: The connections'.
        rng: Shuffles brokers and spreads backoffs.
        clock: What backoffs and sessions are measured with.

    Raises:
        ConfigurationError: Certificates cannot be read, credentials or bootstrap servers are
            missing. Files are read here, so it blocks for as long.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        rng: random.Random | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not settings.bootstrap:
            raise ConfigurationError("bootstrap.servers", "bootstrap.servers names no broker")
        self._settings = settings
        self._rng = rng or random.Random()  # noqa: S311  # it spreads load, it keeps no secret
        self._clock = clock or LoopClock()
        self._security = Security.of(settings)
        self._nodes: dict[int, _Address] = {}
        self._lines: dict[tuple[_Address, str], Line] = {}
        self._backoffs: dict[_Address, ReconnectBackoff] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._outage = False

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Takes these for later logins, re-authentications included; PLAIN and SCRAM alone.

        A connection whose user changed is closed when its session is due to be renewed.
        """
        if self._security.login is not None:
            self._security.login.set_credentials(username, password)

    def learn(self, metadata: ClusterMetadata) -> None:
        """Takes the cluster's brokers from its metadata.

        Connections to addresses that are no broker's any more are closed, those in use when
        the next metadata finds them unused. The next after that forgets such an address.
        """
        self._nodes = {
            node_id: (node.host, node.port) for node_id, node in sorted(metadata.brokers.items())
        }
        self._drop_strays()

    async def request_any(self, request: Request, *, timeout: timedelta) -> Response:  # noqa: ASYNC109  # shared by several attempts
        """Sends a request that any broker can answer.

        Tries a live connection first, then the brokers known from metadata, then the bootstrap
        servers, in random order, those that failed the last time after the others; each once,
        until one answers. Where one is silent, the next is asked beside it
        (`kafka_coop.broker.hedging`): a broker that died without a word, or whose flow a firewall
        dropped, has a connection that looks live, and comes first. It would take all the time
        there is, while a whole group waits for what its leader asks.

        Raises:
            RequestFailedError: None did. An AuthenticationFailedError among the causes decides
                the type, or a VersionNotSupportedError, for these need the operator.
        """
        outcome = await self._first_answer(request, timeout.total_seconds())
        if not isinstance(outcome, RequestFailedError):
            self._outage = False
            return outcome
        if not self._outage and not self._closed:
            # Whoever asked tries again and again, and tells nobody: once an outage, it is told
            # why, be it brokers that are down or settings that can't work.
            self._outage = True
            _log.warning("no broker answers: %s", outcome)
        raise outcome

    async def request_node(
        self,
        node: Node,
        request: Request,
        *,
        lane: str = MAIN_LANE,
        timeout: timedelta,  # noqa: ASYNC109  # closes
        behind: Behind | None = None,
    ) -> Response:
        """Sends a request to one broker.

        Args:
            node: The broker. Connections are kept by address, so one that has moved gets a
                new one.
            request: What to send.
            lane: Requests of one lane share a connection and are answered in order.
            timeout: For backoff, connecting and the answer together.
            behind: What is to be sent right behind it (`Connection.send`).

        Raises:
            RequestTimedOutError: No answer in time; if it was sent, its connection is closed.
            RequestFailedError: See `kafka_coop.broker.connection.Connection`. The request is
                not sent again; whether it took effect is unknown.
        """
        address = (node.host, node.port)
        return await self._line(address, lane).request(request, timeout=timeout, behind=behind)

    def ask_node(
        self, node: Node, request: Request, *, timeout: timedelta, answered: Answered
    ) -> bool:
        """Sends a request to one broker on a connection that stands: one that nobody waits for.

        A broker takes up a connection's next request when it has answered the one before, and that
        may be a commit which waits for its replicas. A heartbeat behind it would miss the session
        of a member that is well. So it goes over the main lane, or over the other one where only
        that is free.

        Args:
            node: The broker.
            request: What to send.
            timeout: For the answer; it closes the connection.
            answered: Takes the answer, or why there is none, once, in a later turn of the loop.

        Returns:
            False: nothing was sent, and ``answered`` will not be called: use `request_node`.
        """
        address = node.host, node.port
        main, other = (self._lines.get((address, lane)) for lane in (MAIN_LANE, JOIN_LANE))
        if main is None:
            return False
        if not main.users or other is None or other.users or not other.live:
            return main.ask(request, timeout=timeout, answered=answered)

        def concluded(outcome: Response | RequestFailedError) -> None:
            if isinstance(outcome, RequestTimedOutError) and main.users:
                # Both are silent: the broker's host is gone, or what was between has forgotten its
                # flows. Whoever looks for the coordinator now must not wait behind the dead.
                main.drop()
            answered(outcome)

        return other.ask(request, timeout=timeout, answered=concluded)

    def knows(self, node: Node, api: int) -> bool:
        """Whether a broker is known to know requests of this API key: one we are connected with."""
        address = node.host, node.port
        return any(line.knows(api) for (to, _), line in self._lines.items() if to == address)

    def drop(self, node: Node, lane: str) -> None:
        """Closes a lane's connection, if there is one; its requests fail at once.

        The way to abort a parked JoinGroup. The next request connects anew, without backoff.
        """
        line = self._lines.get(((node.host, node.port), lane))
        if line is not None:
            line.drop()

    async def close(self) -> None:
        """Closes all connections. Requests under way fail, later ones too."""
        self._closed = True
        await asyncio.gather(*(line.close() for line in self._lines.values()))
        while self._tasks:
            await asyncio.wait(self._tasks)

    # --- any broker ------------------------------------------------------------------------

    async def _first_answer(
        self, request: Request, seconds: float
    ) -> Response | RequestFailedError:
        """The first answer that comes, or why none does.

        Who is still silent then is left to its timeout, which finds the dead ones. Cancelling
        would close the connection, and where a broker is merely slow, heartbeats and commits may
        be under way on it.
        """
        deadline = self._clock.now() + seconds
        growing = patiences(seconds)
        patience = next(growing)
        untried = self._candidates()
        asked: set[asyncio.Task[Response | RequestFailedError]] = set()
        failures: list[RequestFailedError] = []
        try:
            while True:
                left = deadline - self._clock.now()
                if left <= 0 and (asked or failures):
                    untried.clear()
                if untried:
                    asked.add(self._spawn(self._attempt(untried.pop(0), request, left)))
                if not asked:
                    return _none_answered(request, failures)
                done = await self._done(asked, patience if untried else None)
                if not done:
                    patience = next(growing)
                for each in done:
                    asked.discard(each)
                    outcome = each.result()
                    if not isinstance(outcome, RequestFailedError):
                        return outcome
                    failures.append(outcome)
        except asyncio.CancelledError:
            for each in asked:
                each.cancel()
            raise

    async def _attempt(
        self, address: _Address, request: Request, seconds: float
    ) -> Response | RequestFailedError:
        """Returns errors as values: where another was quicker, nobody is left to catch."""
        try:
            line = self._line(address, MAIN_LANE)
            return await line.request(request, timeout=timedelta(seconds=seconds))
        except RequestFailedError as error:
            return error

    async def _done(
        self, asked: set[asyncio.Task[T]], patience: float | None
    ) -> set[asyncio.Task[T]]:
        """Those that are done, once one is; none, when the patience with them ends."""
        waited = None if patience is None else self._spawn(self._clock.sleep(patience))
        try:
            done, _ = await asyncio.wait(
                {*asked, waited} if waited else asked, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if waited is not None:
                waited.cancel()
        return asked & done

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Remembers a task until it has ended, for `close` to wait for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- lines -----------------------------------------------------------------------------

    def _line(self, address: _Address, lane: str) -> Line:
        host, port = address
        if self._closed:
            raise ConnectionFailedError(f"{Peer(host=host, port=port)}: this client was closed")
        line = self._lines.get((address, lane))
        if line is None:
            line = self._lines[address, lane] = Line(
                address=str(Peer(host=host, port=port)),
                connect=lambda: Connection.open(
                    host,
                    port,
                    self._settings,
                    security=self._security,
                    clock=self._clock,
                    probed=lane == JOIN_LANE,
                ),
                backoff=self._backoff(address),
                clock=self._clock,
                max_idle=self._settings.connections_max_idle,
            )
        return line

    def _backoff(self, address: _Address) -> ReconnectBackoff:
        backoff = self._backoffs.get(address)
        if backoff is None:
            backoff = self._backoffs[address] = ReconnectBackoff(
                base=self._settings.reconnect_backoff,
                maximum=self._settings.reconnect_backoff_max,
                rng=self._rng,
            )
        return backoff

    def _candidates(self) -> list[_Address]:
        """Every address once, best first."""
        live = sorted(
            (line.users, address)
            for (address, lane), line in self._lines.items()
            if lane == MAIN_LANE and line.live
        )
        now = self._clock.now()
        others = [*self._shuffled(self._nodes.values()), *self._shuffled(self._settings.bootstrap)]
        others.sort(key=lambda address: self._backoff(address).rank(now))
        return list(dict.fromkeys([*(address for _, address in live), *others]))

    def _shuffled(self, addresses: Iterable[_Address]) -> list[_Address]:
        shuffled = sorted(set(addresses))
        self._rng.shuffle(shuffled)
        return shuffled

    def _drop_strays(self) -> None:
        """Closes what leads nowhere any more; what is left of nothing is forgotten.

        Where brokers' addresses change with each restart, they would else add up.
        """
        known = {*self._nodes.values(), *self._settings.bootstrap}
        for key, line in tuple(self._lines.items()):
            if key[0] in known or line.users:
                continue
            line.drop()
            if line.empty:  # else `close` has to wait for it
                del self._lines[key]
        known.update(address for address, _ in self._lines)
        self._backoffs = {a: b for a, b in self._backoffs.items() if a in known}


def _none_answered(request: Request, failures: list[RequestFailedError]) -> RequestFailedError:
    if len(failures) == 1:
        return failures[0]
    kind: type[RequestFailedError] = ConnectionFailedError
    for candidate in (AuthenticationFailedError, VersionNotSupportedError, RequestTimedOutError):
        if any(isinstance(each, candidate) for each in failures):
            kind = candidate
            break
    causes = "; ".join(str(each) for each in failures)
    error = kind(f"no broker answered {type(request).__name__}: {causes}")
    error.__cause__ = failures[-1]
    return error
