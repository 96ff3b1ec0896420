"""Whether the brokers know KIP-848 at all.

librdkafka 2.16 that is to be a member by it looks for a coordinator for ever where no broker knows
the protocol: it raises nothing, and its user polls in vain. Versions are told before a login, so
one short connection shows it. Where brokers know it and have it switched off, librdkafka is
refused, and tells that itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from kafka_coop.broker.connection import Connection
from kafka_coop.broker.security import Security
from kafka_coop.broker.tls import ssl_context
from kafka_coop.config import ConnectionSettings
from kafka_coop.errors import ConfigurationError, RequestFailedError, VersionNotSupportedError

_CONSUMER_GROUP_HEARTBEAT: Final = 68
_VERSION: Final = 1
"""librdkafka's only one. Kafka 3.7 to 3.9 tell of version 0, an early one."""
_AGAIN: Final = 1.0
"""Seconds until all brokers are asked again where none answered."""


class Inquiry:
    """Asks the bootstrap servers, one after the other, until one answers; in a thread of its own.

    Args:
        settings: How to reach them. The login is left out.
        answered: Called by that thread with the error to tell the user; None: there is none.
            Not called where it was stopped before there was an answer.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        answered: Callable[[VersionNotSupportedError | None], None],
    ) -> None:
        self._settings = settings
        self._answered = answered
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-coop-inquiry", daemon=True)

    def start(self) -> None:
        """Begins to ask. Once."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def stop(self, timeout: timedelta) -> None:
        """Gives up, and waits for the thread's end. A second call does nothing."""
        if self._loop is None:
            return
        with contextlib.suppress(RuntimeError):  # it has just ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        assert self._loop is not None
        try:
            self._loop.run_until_complete(self._until_stopped())
        finally:
            self._loop.close()

    async def _until_stopped(self) -> None:
        asking = asyncio.create_task(self._ask())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({asking, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not asking.done():
            asking.cancel()
            await asyncio.wait({asking})
            return
        self._answered(asking.result())

    async def _ask(self) -> VersionNotSupportedError | None:
        try:
            tls = None if self._settings.tls is None else ssl_context(self._settings.tls)
        except ConfigurationError:
            return None  # librdkafka reads the same files, and tells of them
        security = Security(tls=tls, login=None)
        while True:
            for host, port in self._settings.bootstrap:
                try:
                    return await _asked(host, port, self._settings, security)
                except RequestFailedError:
                    continue  # librdkafka tells of those
            await asyncio.sleep(_AGAIN)


async def _asked(
    host: str, port: int, settings: ConnectionSettings, security: Security
) -> VersionNotSupportedError | None:
    connection = await Connection.open(host, port, settings, security=security)
    knows = connection.offers(_CONSUMER_GROUP_HEARTBEAT, _VERSION)
    connection.close()
    await connection.wait_closed()
    if knows:
        return None
    return VersionNotSupportedError(
        f"group.protocol=consumer: the broker {host}:{port} does not know KIP-848: it takes Apache "
        "Kafka 4.0 or newer. Upgrade it, or set group.protocol=classic, the default"
    )
