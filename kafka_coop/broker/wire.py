"""One socket's requests and answers, matched by correlation id."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kafka_coop.broker.diagnosis import Peer, Stage, again, cut
from kafka_coop.broker.frames import FrameSplitter, frame
from kafka_coop.errors import ConnectionFailedError, MalformedDataError, RequestFailedError
from kafka_coop.protocol.messages import OffsetCommit, Request, Response
from kafka_coop.protocol.requests import decode_response, encode_request

_CORRELATION_BYTES = 4
_LARGEST_CORRELATION = 0x7FFF_FFFF
_NO_LINGERING = struct.pack("ii", 1, 0)

Answered: TypeAlias = Callable[[Response | RequestFailedError], None]
"""Takes the outcome of a request, once, in the event loop and in no call of ours to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A request that goes right behind another one, on its connection.

    Brokers process it when they have answered that one. What comes of it, ``answered`` takes.
    """

    request: Request
    answered: Answered


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFlight:
    request: Request
    version: int
    answered: Answered


class Wire(asyncio.Protocol):
    """Requests in, answers out, on a transport that asyncio drives.

    It fails once and for good: whatever goes wrong closes the socket and fails every request
    in flight, each with an error of its own. No task is involved, so none can be left over.

    Args:
        peer: The broker.
        client_id: In each request.
        max_frame_bytes: Of an answer.
        greeting: Before `greeted` it must be small.

    Attributes:
        peer: The broker.
        stage: How far the connection has come; set by who opens it.
        error: Why it failed; None while it lives.
    """

    def __init__(
        self, peer: Peer, *, client_id: str, max_frame_bytes: int, greeting: bool = False
    ) -> None:
        self.peer = peer
        self.stage = Stage.RESOLVING
        self.error: RequestFailedError | None = None
        self._client_id = client_id
        self._splitter = FrameSplitter(max_bytes=max_frame_bytes, greeting=greeting)
        self._transport: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] | None = None
        self._in_flight: dict[int, _InFlight] = {}
        self._nothing_in_flight = asyncio.Event()
        self._last_correlation = 0

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return len(self._in_flight)

    @property
    def _failed(self) -> bool:
        return self.error is not None

    def submit(self, request: Request, version: int) -> asyncio.Future[Response]:
        """Writes a request.

        Returns:
            Its answer to come. Whoever cancels it must `fail` the wire.

        Raises:
            RequestFailedError: The wire has failed before.
        """
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def answered(outcome: Response | RequestFailedError) -> None:
            if answer.done():
                return
            if isinstance(outcome, RequestFailedError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        self.write(request, version, answered)
        return answer

    def write(self, request: Request, version: int, answered: Answered) -> None:
        """Writes a request; ``answered`` takes what comes of it.

        No future and no task: each would cost another turn of the event loop.

        Raises:
            RequestFailedError: The wire has failed before.
        """
        if self.error is not None:
            raise again(self.error)
        assert self._transport is not None, "connected before it is given out"
        correlation = (self._last_correlation + 1) & _LARGEST_CORRELATION
        payload = encode_request(
            request, version=version, correlation_id=correlation, client_id=self._client_id
        )
        self._last_correlation = correlation
        self._in_flight[correlation] = _InFlight(
            request=request, version=version, answered=answered
        )
        self._nothing_in_flight.clear()
        self._transport.write(frame(payload))

    def greeted(self) -> None:
        """The broker is who it is to be, and its answers may be as large as they like."""
        self._splitter.greeted()

    async def settled(self) -> None:
        """Returns once nothing is in flight, answered or failed."""
        while self._in_flight:
            await self._nothing_in_flight.wait()

    def fail(self, error: RequestFailedError) -> None:
        """Closes the socket; all that is in flight fails with copies of the error."""
        if self.error is not None:
            return
        self.error = error
        in_flight, self._in_flight = self._in_flight, {}
        self._nothing_in_flight.set()
        for waiting in in_flight.values():
            # Not now: whoever fails a wire may be in the middle of something.
            asyncio.get_running_loop().call_soon(waiting.answered, again(error))
        if self._transport is not None:
            if any(isinstance(waiting.request, OffsetCommit) for waiting in in_flight.values()):
                _recall_what_is_under_way(self._transport)
            # Not close(): under TLS that waits for the broker's goodbye.
            self._transport.abort()

    async def gone(self) -> None:
        """Returns once the socket is closed, after `fail`."""
        if self._gone is not None:
            await asyncio.wait([self._gone])

    # --- called by asyncio -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected, and TLS stands."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._gone = asyncio.get_running_loop().create_future()
        self.stage = Stage.NEGOTIATING
        if self.error is not None:  # failed while it was being connected
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Answers everything that the data completes."""
        if self.error is not None:
            return
        self._splitter.feed(data)
        try:
            for payload in self._splitter.frames():
                self._answer(payload)
                if self._failed:  # the answer made somebody close us
                    return
        except MalformedDataError as error:
            failure = ConnectionFailedError(f"{self.peer}: unreadable answer: {error}")
            failure.__cause__ = error
            self.fail(failure)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by whichever end."""
        if self.error is None:
            failure = cut(self.peer, self.stage, exc, unfinished=self._splitter.unfinished)
            failure.__cause__ = exc
            self.fail(failure)
        assert self._gone is not None, "connection_made came first"
        self._gone.set_result(None)

    def _answer(self, payload: bytes) -> None:
        correlation = int.from_bytes(payload[:_CORRELATION_BYTES], "big", signed=True)
        waiting = self._in_flight.get(correlation)
        if waiting is None:
            raise MalformedDataError(f"it answers no request of ours (correlation {correlation})")
        _, response = decode_response(waiting.request, version=waiting.version, payload=payload)
        # Only now: were decoding to raise, the request must still be there to be failed.
        del self._in_flight[correlation]
        if self.stage is Stage.UNPROVEN:
            self.stage = Stage.PROVEN
        if not self._in_flight:
            self._nothing_in_flight.set()
        waiting.answered(response)


def _recall_what_is_under_way(transport: asyncio.Transport) -> None:
    """What the kernel has not sent, or the broker not acknowledged, is not to arrive any more.

    It would go on sending after the socket is closed, for minutes: once the network is back, a
    commit that was given up would arrive behind the later ones of another connection, with the same
    member and generation, and take the group back. (What has arrived can't be recalled, and a
    request that nobody could repeat is better late than never: a LeaveGroup.)
    """
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):  # it is closed
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
