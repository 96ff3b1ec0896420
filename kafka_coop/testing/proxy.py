"""A TCP proxy that does to connections what networks do: slowness, stalls, silence, cuts.

It runs an event loop in a thread of its own. Faults are set from any thread and hold for
connections that are open and for those to come, until `Proxy.heal`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from kafka_coop.broker.event_loop import new_loop
from kafka_coop.closeable import Closeable

_CHUNK: Final = 1 << 14
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_ZERO: Final = timedelta(0)
_API_KEY: Final = struct.Struct(">4xh")
"""A request's second field, behind its length."""
_PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How the network is. The default: as if there were no proxy.

    Attributes:
        latency: Added to each chunk, each way.
        jitter: Up to so much more, at random.
        loss: How likely a chunk is held up by `retransmit`: TCP has no loss that its users see,
            but what a lost packet costs them.
        retransmit: What a lost chunk waits for.
        bandwidth: Bytes a second, each way and connection; None: no limit.
        silent: Connections stay open and are accepted, and nothing passes: a half-open
            connection, a firewall that forgot.
        refusing: New connections are closed at once.

    Raises:
        ValueError: A time is negative, a loss is no probability, or nothing at all is let through.
    """

    latency: timedelta = _ZERO
    jitter: timedelta = _ZERO
    loss: float = 0.0
    retransmit: timedelta = timedelta(milliseconds=400)
    bandwidth: int | None = None
    silent: bool = False
    refusing: bool = False

    def __post_init__(self) -> None:
        """Here rather than in the loop of a proxy, where each connection would end by it."""
        for name in ("latency", "jitter", "retransmit"):
            if (time := getattr(self, name)) < _ZERO:
                raise ValueError(f"{name} is {time}; a time can't be negative")
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss is {self.loss}; a probability is between 0 and 1")
        if self.bandwidth is not None and self.bandwidth <= 0:
            raise ValueError(f"bandwidth is {self.bandwidth}; for none at all there is `silent`")


class Proxy(Closeable):
    """Stands before one address, for as long as the ``with`` block runs.

    Args:
        host, port: Whom it stands before; need not listen yet.
        listen: The port to listen on at 127.0.0.1; 0: any.
        seed: For what happens at random.
    """

    def __init__(self, host: str, port: int, *, listen: int = 0, seed: int = 0) -> None:
        self._upstream = (host, port)
        self._random = random.Random(seed)  # noqa: S311  # chance, no secret
        self._weather = Weather()
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._links: set[_Link] = set()
        self._visits: set[asyncio.Task[None]] = set()
        self._cutting = 0
        self._awaited: list[Straggler] = []
        self._loop = new_loop()
        self._listener = socket.create_server(("127.0.0.1", listen), backlog=128)
        self.port: Final[int] = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name=f"proxy of {port}", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    def set(self, weather: Weather) -> None:
        """From now on the network is so."""

        def change() -> None:
            self._weather = weather
            self._changed.set()
            self._changed = asyncio.Event()

        self._call(change)

    def heal(self) -> None:
        """From now on nothing is in the way, and no cut to come. Bytes held back pass on."""
        self.cut_mid_frame(0)
        self.set(Weather())

    def reset(self) -> None:
        """Cuts all connections with a TCP reset, as a router or a crashed kernel does."""
        self._call(self._cut_all)

    def hold_back(self, api_key: int) -> Straggler:
        """The next request of a kind waits until it is released; all others pass.

        Its connection waits with it. Who sent it may give up and send it anew over another: then
        it arrives twice, and the first after the second, as on a network that is slow for once.

        Args:
            api_key: Which; of requests that TCP delivers together the first is looked at.
        """
        straggler = Straggler(api_key, self._call)
        self._call(lambda: self._awaited.append(straggler))
        return straggler

    def cut_mid_frame(self, connections: int = 1) -> None:
        """Cuts the next connections that carry an answer, halfway through a chunk of it."""

        def change() -> None:
            self._cutting = connections

        self._call(change)

    def close(self) -> None:
        """Cuts everything and stops listening. A second call does nothing."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._closing.set)
        if threading.current_thread() is self._thread:
            return  # collected here, with its cluster: the loop ends by itself
        self._thread.join()
        self._listener.close()

    def _call(self, change: Callable[[], object]) -> None:
        if self._closing.is_set():
            raise RuntimeError("the proxy is closed")
        done = threading.Event()

        def run() -> None:
            try:
                change()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener)
        await self._closing.wait()
        # From here on nothing is accepted. What was, asyncio makes a connection of, in a task that
        # leaks it where it is cancelled, or finds its server closed.
        self._loop.remove_reader(self._listener)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for visit in self._visits:
                visit.cancel()
            await asyncio.wait(others)
        server.close()
        await asyncio.sleep(0)  # what was cut is closed with the next turn

    def _cut_all(self) -> None:
        for link in tuple(self._links):
            link.cut()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called at once: a task that is cancelled before it began could not cut anything."""

        def over(visit: asyncio.Task[None]) -> None:
            self._visits.discard(visit)
            _abort(writer)

        visit = self._loop.create_task(self._join(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(over)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._weather.refusing:
            return
        try:
            there = await asyncio.open_connection(*self._upstream)
        except OSError:
            return
        link = _Link(writer, there[1])
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(reader, there[1], link, answers=False),
                self._pump(there[0], writer, link, answers=True),
            )
        finally:
            link.cut()
            self._links.discard(link)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        link: _Link,
        *,
        answers: bool,
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(_CHUNK):
                await self._weathered(len(chunk))
                if answers and self._cutting > 0:
                    self._cutting -= 1
                    sink.write(chunk[: max(1, len(chunk) // 2)])
                    await sink.drain()
                    break
                if answers:
                    link.answered.set()
                if not answers and (straggler := self._straggler(chunk)) is not None:
                    await straggler.arrive(sink, chunk, link)
                    continue
                sink.write(chunk)
                await sink.drain()
        link.end()

    def _straggler(self, chunk: bytes) -> Straggler | None:
        """Whether that is the beginning of a request that is to wait; the one that it is."""
        if not self._awaited or len(chunk) < _API_KEY.size:
            return None
        (key,) = _API_KEY.unpack_from(chunk)
        found = next((s for s in self._awaited if s.api_key == key), None)
        if found is not None:
            self._awaited.remove(found)
        return found

    async def _weathered(self, size: int) -> None:
        while self._weather.silent:
            await self._changed.wait()
        weather = self._weather
        wait = weather.latency + weather.jitter * self._random.random()
        if self._random.random() < weather.loss:
            wait += weather.retransmit
        if weather.bandwidth:
            wait += timedelta(seconds=size / weather.bandwidth)
        if wait > _ZERO:
            await asyncio.sleep(wait.total_seconds())


class Straggler:
    """A request that is late: `Proxy.hold_back`. Its methods may be called from any thread."""

    def __init__(self, api_key: int, call: Callable[[Callable[[], object]], None]) -> None:
        self.api_key: Final = api_key
        self._call = call
        self._held = threading.Event()
        self._released = asyncio.Event()
        self._over = threading.Event()

    def wait_until_held(self) -> None:
        """Returns once it is here.

        Raises:
            TimeoutError: Nobody has sent such a request for a minute.
        """
        if not self._held.wait(_PATIENCE):
            raise TimeoutError(f"no request {self.api_key} has come")

    def release(self) -> None:
        """Lets it go on, whether its sender still waits or not; returns when it is answered.

        Raises:
            TimeoutError: It was not, for a minute, nor was its connection closed.
        """
        self._call(self._released.set)
        if not self._over.wait(_PATIENCE):
            raise TimeoutError(f"the late request {self.api_key} was not answered")

    async def arrive(self, sink: asyncio.StreamWriter, request: bytes, link: _Link) -> None:
        """Called in the proxy's loop when it is here; returns when it is answered."""
        self._held.set()
        await self._released.wait()
        try:
            sink.write(request)
            await sink.drain()
            await link.answer()
        finally:
            self._over.set()


class _Link:
    """Both halves of one connection."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._both = (near, far)
        self.answered = asyncio.Event()
        """An answer has come by, or none will any more."""
        self._over = False

    async def answer(self) -> None:
        """Returns with the next answer, or at the connection's end."""
        if not self._over:
            self.answered.clear()
            await self.answered.wait()

    def end(self) -> None:
        """In order: what was written is still sent."""
        self._over = True
        self.answered.set()
        for writer in self._both:
            writer.close()

    def cut(self) -> None:
        for writer in self._both:
            _abort(writer)


def _abort(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
