"""A scripted Kafka broker on a loopback port, and a loop that tolerates no loose ends.

The broker side is written with kio alone, so that a mistake in the client's own encoding
cannot cancel itself out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import io
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, ParamSpec, Self

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i32

from kafka_coop.config import ConnectionSettings
from kafka_coop.protocol.messages import Heartbeat, JoinGroup, Node
from kafka_coop.types import Generation, MemberId

P = ParamSpec("P")

JOIN_GROUP, HEARTBEAT, METADATA = 11, 12, 3
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36

RANGES: Mapping[int, tuple[int, int]] = {
    METADATA: (0, 9),
    JOIN_GROUP: (0, 7),
    HEARTBEAT: (0, 4),
    SASL_HANDSHAKE: (0, 1),
    API_VERSIONS: (0, 3),
    SASL_AUTHENTICATE: (0, 2),
}

SOON = timedelta(seconds=20)
"""A limit that a healthy test never reaches."""

HEARTBEAT_REQUEST = Heartbeat(
    group_id="g", generation=Generation(1), member_id=MemberId("m"), instance_id=None
)

JOIN_REQUEST = JoinGroup(
    group_id="g",
    session_timeout=timedelta(seconds=45),
    rebalance_timeout=timedelta(minutes=5),
    member_id=MemberId("m"),
    instance_id=None,
    protocols=(),
)


def on_loop(
    test: Callable[P, Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Runs a test on a fresh loop; tasks left over and errors that nobody saw fail it."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        complaints: list[str] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(
                lambda _loop, context: complaints.append(repr(context))
            )
            await test(*args, **kwargs)
            gc.collect()  # what was lost complains when it is collected
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left over: {left}"

        asyncio.run(main())
        gc.collect()
        assert not complaints, complaints

    return run


def settings(**changes: Any) -> ConnectionSettings:
    values: dict[str, Any] = {
        "bootstrap": (("127.0.0.1", 1),),
        "connect_timeout": SOON,
        "reconnect_backoff": timedelta(milliseconds=1),
        "reconnect_backoff_max": timedelta(milliseconds=1),
    }
    return ConnectionSettings(**values | changes)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as the broker sees it."""

    api_key: int
    version: int
    correlation: int
    client_id: str | None
    body: Any


class Visitor:
    """One client's connection, seen from the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> Received:
        length = int.from_bytes(await self._reader.readexactly(4), "big")
        payload = await self._reader.readexactly(length)
        key = int.from_bytes(payload[:2], "big")
        version = int.from_bytes(payload[2:4], "big")
        schema = load_request_schema(key, version)
        header, header_size = entity_reader(schema.__header_schema__)(payload, 0)
        body, body_size = entity_reader(schema)(payload, header_size)
        assert header_size + body_size == len(payload), "bytes are missing or left"
        return Received(
            api_key=key,
            version=version,
            correlation=header.correlation_id,
            client_id=header.client_id,
            body=body,
        )

    def answer(self, to: Received, *, version: int | None = None, **fields: Any) -> None:
        self.raw(answer_frame(to, version=version, **fields))

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def sent(self) -> None:
        await self._writer.drain()

    def cut(self) -> None:
        self._writer.close()

    def go_deaf(self) -> None:
        """Reads nothing more, TLS's goodbye included."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()

    async def left(self) -> None:
        """Returns once the client has closed; whatever else it sends is dropped."""
        while await self._reader.read(1 << 16):
            pass

    async def greet(self, ranges: Mapping[int, tuple[int, int]] = RANGES) -> Received:
        request = await self.request()
        assert request.api_key == API_VERSIONS
        self.answer(request, api_keys=api_keys(request.version, ranges))
        return request

    async def serve(self) -> None:
        """Answers everything with an answer full of zeros, until the client leaves."""
        while True:
            self.answer(await self.request())


def api_keys(version: int, ranges: Mapping[int, tuple[int, int]]) -> tuple[Any, ...]:
    kind: Any = load_payload_module(API_VERSIONS, version, EntityType.response).ApiVersion
    return tuple(
        kind(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()
    )


def answer_frame(to: Received, *, version: int | None = None, **fields: Any) -> bytes:
    schema: Any = load_response_schema(to.api_key, to.version if version is None else version)
    body = schema(**{**_zeros(schema), **fields})
    header = schema.__header_schema__(correlation_id=i32(to.correlation))
    payload = io.BytesIO()
    entity_writer(type(header))(payload, header)
    entity_writer(schema)(payload, body)
    content = payload.getvalue()
    return len(content).to_bytes(4, "big") + content


def _zeros(schema: Any) -> dict[str, Any]:
    zeros: dict[str, Any] = {}
    for each in dataclasses.fields(schema):
        if each.default is not dataclasses.MISSING:
            continue
        match each.metadata.get("kafka_type"):
            case None:
                zeros[each.name] = ()
            case "error_code":
                zeros[each.name] = ErrorCode.none
            case "string":
                zeros[each.name] = ""
            case "bytes":
                zeros[each.name] = b""
            case "timedelta_i32":
                zeros[each.name] = timedelta(0)
            case "bool":
                zeros[each.name] = False
            case _:
                zeros[each.name] = 0
    return zeros


Script = Callable[[Visitor], Awaitable[None]]


async def serve(visitor: Visitor) -> None:
    """The script of a broker in good health."""
    await visitor.greet()
    await visitor.serve()


class FakeBroker:
    """Listens; every connection runs the script. A script that fails fails the test."""

    def __init__(self, script: Script = serve, *, tls: ssl.SSLContext | None = None) -> None:
        self.visits = 0
        self._script = script
        self._tls = tls
        self._failures: list[BaseException] = []
        self._visits: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, ssl=self._tls, limit=1 << 24
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.node = Node(node_id=self.port, host="127.0.0.1", port=self.port)
        self.address = ("127.0.0.1", self.port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for visit in list(self._visits):
            visit.cancel()
        if self._visits:
            await asyncio.wait(self._visits)
        await self._server.wait_closed()
        # TLS handshakes that the client broke off end by themselves, and nobody else waits.
        accepting = [t for t in asyncio.all_tasks() if "_accept_connection2" in repr(t)]
        if accepting:
            await asyncio.wait(accepting)
        if self._failures:
            raise self._failures[0] from error

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.create_task(self._visit(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        try:
            await self._script(Visitor(reader, writer))
        except (asyncio.IncompleteReadError, OSError):
            pass  # the client left
        except Exception as error:  # noqa: BLE001  # raised where the test ends
            self._failures.append(error)
        finally:
            writer.transport.abort() if self._tls else writer.close()
