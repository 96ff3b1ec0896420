"""From a host name to a connected socket: resolving, TCP, TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace
from typing import Any, TypeAlias

from kafka_coop.broker.blocking import run_blocking
from kafka_coop.broker.diagnosis import Peer, Stage, cut, tls_failed, unreachable, unresolved
from kafka_coop.broker.keepalive import probe
from kafka_coop.broker.tls import shown_by
from kafka_coop.broker.wire import Wire
from kafka_coop.config import ConnectionSettings

_Address: TypeAlias = tuple[Any, ...]
"""A socket address as its family writes it."""

_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}


async def dial(
    wire: Wire, settings: ConnectionSettings, tls: ssl.SSLContext | None, *, probed: bool
) -> None:
    """Connects a wire to its peer. The caller limits the whole with ``connect_timeout``.

    Args:
        wire: What to connect.
        settings: How.
        tls: None: plaintext.
        probed: Whether the kernel is to look after the flow (`kafka_coop.broker.keepalive`).

    Raises:
        ConnectionFailedError: No address could be reached, or it does not speak TLS.
        AuthenticationFailedError: One side refused the other's certificate.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + settings.connect_timeout.total_seconds()
    wire.stage = Stage.RESOLVING
    addresses = await _resolve(wire.peer, settings)
    wire.stage = Stage.CONNECTING
    sock = await _connect_any(wire.peer, addresses, settings, deadline)
    if probed:
        probe(sock)
    if tls is not None:
        wire.stage = Stage.TLS_HANDSHAKE
        wire.peer = replace(wire.peer, identity=shown_by(tls))
    try:
        await loop.create_connection(
            lambda: wire,
            sock=sock,
            ssl=tls,
            server_hostname=wire.peer.host if tls else None,
            # asyncio's own limit, of 60 s, would end it before a longer connect_timeout, as if it
            # had been cut.
            ssl_handshake_timeout=settings.connect_timeout.total_seconds() if tls else None,
        )
    except ssl.SSLError as error:
        raise tls_failed(wire.peer, error) from error
    except OSError as error:
        raise cut(wire.peer, wire.stage, error) from error


async def _resolve(
    peer: Peer, settings: ConnectionSettings
) -> list[tuple[socket.AddressFamily, _Address]]:
    family = _FAMILIES[settings.address_family]
    try:
        found = await run_blocking(
            lambda: socket.getaddrinfo(peer.host, peer.port, family, socket.SOCK_STREAM),
            name="kafka_coop-resolve",
        )
    except OSError as error:
        raise unresolved(peer, error) from error
    except UnicodeError as error:  # a label that IDNA cannot encode, an empty or overlong one
        raise unresolved(peer, OSError(str(error))) from error
    return [(each[0], each[4]) for each in found]


async def _connect_any(
    peer: Peer,
    addresses: list[tuple[socket.AddressFamily, _Address]],
    settings: ConnectionSettings,
    deadline: float,
) -> socket.socket:
    """The first address that answers.

    Each may take an equal share of the time left, so that one that drops packets does not
    starve those behind it.
    """
    loop = asyncio.get_running_loop()
    failures: list[tuple[str, OSError]] = []
    for tried, (family, address) in enumerate(addresses):
        share = max(0.0, deadline - loop.time()) / (len(addresses) - tried)
        try:
            async with asyncio.timeout(share):
                return await _connect(family, address, settings)
        except OSError as error:  # TimeoutError is one
            failures.append((str(address[0]), error))
    raise unreachable(peer, failures)


async def _connect(
    family: socket.AddressFamily, address: _Address, settings: ConnectionSettings
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)  # noqa: FBT003  # the socket module's own signature
        # asyncio disables Nagle's algorithm on sockets that name TCP as their protocol; this one
        # names none, so that the setting holds.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(settings.nagle_disable))
        if settings.keepalive:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
