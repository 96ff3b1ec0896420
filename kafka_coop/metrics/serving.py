"""Metrics and health over HTTP, in one line: ``serve(consumer, 9100)``."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kafka_coop.closeable import Closeable
from kafka_coop.errors import ConfigurationError

_log: Final = logging.getLogger(__name__)

_OK: Final = 200
_NOT_FOUND: Final = 404
_NOT_WELL: Final = 503
_JSON: Final = "application/json"
_ANY_IPV6: Final = "::"
_MOST_PORTS: Final = 65535


class Condition(Protocol):
    """What `kafka_coop.CoopConsumer.health` returns."""

    @property
    def live(self) -> bool:
        """Whether a restart would not help."""

    @property
    def ready(self) -> bool:
        """Whether it does its work."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-able values."""


@runtime_checkable
class Observed(Protocol):
    """A consumer, as far as this module knows it."""

    @property
    def registry(self) -> CollectorRegistry:
        """Where its metrics are."""

    def health(self, max_lag: int | None = None) -> Condition:
        """Whether it is well."""


class _Server(ThreadingHTTPServer):
    """http.server's, without its question for this machine's name in the DNS.

    Nothing here needs the answer, and where no name server answers, it takes minutes.
    """

    daemon_threads = True

    def __init__(
        self, address: Any, family: socket.AddressFamily, handler: type[BaseHTTPRequestHandler]
    ) -> None:
        self.address_family = family
        super().__init__(address, handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6 and self.server_address[0] == _ANY_IPV6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  # socketserver's
        """Logs what went wrong with one request; socketserver would print it to stderr.

        A probe that ran out of patience hangs up amid the answer: that is no news.
        """
        if not isinstance(sys.exception(), ConnectionError):
            _log.exception("metrics or health of %s: no answer", client_address)


class _Together:
    """Several registries as one: a family that many have stands once, as the formats demand."""

    def __init__(self, registries: Iterable[Collector]) -> None:
        self._registries = registries

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for registry in self._registries:
            for found in registry.collect():
                known = families.get(found.name)
                if known is None:
                    # A copy: a collector may give out the same object again and again.
                    known = families[found.name] = copy.copy(found)
                    known.samples = []
                known.samples += found.samples
        return families.values()


class MetricsServer(Closeable):
    """Serves until `close`, or for as long as its ``with`` block runs.

    | path | answer |
    |---|---|
    | ``/metrics`` | the registries' metrics, in Prometheus' text format or OpenMetrics |
    | ``/health`` | every consumer's health as JSON; 503 unless all are ready |
    | ``/live`` | the same; 503 unless all are live |

    Attributes:
        port: Where it listens: the system's choice where 0 was asked for.
    """

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.port: int = server.server_address[1]
        self._thread = threading.Thread(
            target=server.serve_forever, name=f"kafka-coop-metrics-{self.port}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops serving. A second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(
    consumers: Observed | Iterable[Observed],
    port: int,
    *,
    host: str = "",
    max_lag: int | None = None,
) -> MetricsServer:
    """Serves metrics and health of consumers from threads of its own.

    Args:
        consumers: One, or several of this process. Registries that they share are served once.
        port: 0: any that is free.
        host: The address to listen on, IPv4 or IPv6, or a name; empty: all of both.
        max_lag: A consumer with more records to come is not ready.

    Raises:
        ConfigurationError: The port can't be had.
    """
    # A consumer is iterable itself: going through it would be polling it.
    several: Sequence[Observed] = (
        (consumers,) if isinstance(consumers, Observed) else tuple(consumers)
    )
    if not 0 <= port <= _MOST_PORTS:
        raise ConfigurationError("port", f"port must be between 0 and {_MOST_PORTS}, not {port!r}")
    try:
        server = _listening(host, port, _handler(several, max_lag))
    except OSError as error:
        raise ConfigurationError(
            "port", f"can't serve metrics on {host or '*'}:{port}: {error}; choose another port"
        ) from None
    return MetricsServer(server)


def _listening(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> _Server:
    """On all addresses where no host is named: in some clusters pods have IPv6 ones alone.

    A name that stands for addresses of both families is taken as ever, for its IPv4 one.
    """
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # a kernel may know IPv6, and have no address of it
            return _Server((_ANY_IPV6, port), socket.AF_INET6, handler)
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return _Server(address, family, handler)


def _handler(consumers: Sequence[Observed], max_lag: int | None) -> type[BaseHTTPRequestHandler]:
    def conditions() -> list[Condition]:
        return [consumer.health(max_lag) for consumer in consumers]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # http.server's name
            path = urlsplit(self.path).path
            if path == "/metrics":
                self._metrics()
            elif path == "/health":
                self._health(lambda c: c.ready)
            elif path == "/live":
                self._health(lambda c: c.live)
            else:
                self._answer(_NOT_FOUND, "text/plain", b"/metrics, /health or /live\n")

        def _metrics(self) -> None:
            encoder, content_type = choose_encoder(self.headers.get("Accept", ""))
            wanted = parse_qs(urlsplit(self.path).query).get("name[]")
            registries = {id(c.registry): c.registry for c in consumers}.values()
            body = encoder(
                _Together([r.restricted_registry(wanted) if wanted else r for r in registries])
            )
            self._answer(_OK, content_type, body)

        def _health(self, well: Callable[[Condition], bool]) -> None:
            found = conditions()
            status = _OK if all(map(well, found)) else _NOT_WELL
            body = json.dumps({"consumers": [c.as_dict() for c in found]}).encode()
            self._answer(status, _JSON, body + b"\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """A scrape every few seconds is no news."""

    return Handler
