"""Whether the brokers speak KIP-848 as it was released.

librdkafka 2.16 that is to be a member by it looks for a coordinator for ever where no broker does:
it raises nothing, and its user polls in vain. Versions are told before a login, so one short
connection shows it. Where brokers know the protocol and have it switched off, librdkafka is
refused, and tells that itself.

It is a courtesy: what keeps it from its answer keeps nobody from anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from kafka_coop.broker.connection import Connection
from kafka_coop.broker.event_loop import run_in_own_loop
from kafka_coop.broker.security import Security
from kafka_coop.broker.tls import ssl_context
from kafka_coop.config import ConnectionSettings
from kafka_coop.errors import (
    AuthenticationFailedError,
    RequestFailedError,
    VersionNotSupportedError,
)
from kafka_coop.protocol.messages import address

_log = logging.getLogger(__name__)

_CONSUMER_GROUP_HEARTBEAT: Final = 68
_VERSION: Final = 1
"""librdkafka's only one. Kafka 3.7 to 3.9 tell of version 0, a preview's."""

_AGAIN: Final = timedelta(seconds=1)
"""Until all brokers are asked again where none answered, at least."""


class Inquiry:
    """Asks the bootstrap servers, one after the other, until one answers; in a thread of its own.

    That one stands for all: where brokers are being upgraded, the first may be an old one.

    Args:
        settings: How to reach them. The login is left out.
        answered: Called by that thread at its end, once: with the error to tell the user; None:
            there is none, or it could not be learned.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        answered: Callable[[VersionNotSupportedError | None], None],
    ) -> None:
        self._settings = settings
        self._answered = answered
        self._ended = False
        self._cancel: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-coop-inquiry", daemon=True)

    def start(self) -> None:
        """Begins to ask. Once."""
        self._thread.start()

    def end(self) -> None:
        """Nobody wants the answer any more. Any thread, any number of times."""
        self._ended = True
        if (cancel := self._cancel) is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                cancel()

    def join(self, timeout: timedelta) -> None:
        """Waits until the thread has ended, if it was started."""
        if self._thread.is_alive():
            self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        why_not = None
        try:
            why_not = run_in_own_loop(self._until_ended())
        except asyncio.CancelledError:
            pass  # nobody wants to know
        except Exception as error:  # noqa: BLE001  # whatever it is: nothing may depend on it
            _log.debug("whether the brokers know KIP-848 could not be learned: %s", error)
        self._answered(why_not)

    async def _until_ended(self) -> VersionNotSupportedError | None:
        task = asyncio.current_task()
        assert task is not None, "a runner makes one"
        self._cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        if self._ended:  # before there was anything to cancel
            return None
        return await self._ask()

    async def _ask(self) -> VersionNotSupportedError | None:
        tls = None if self._settings.tls is None else ssl_context(self._settings.tls)
        security = Security(tls=tls, login=None)
        while True:
            for host, port in self._settings.bootstrap:
                try:
                    return await _asked(host, port, self._settings, security)
                except AuthenticationFailedError:
                    # It would be so again. librdkafka, with another TLS than Python's, may well
                    # be let in; if not, it says so.
                    return None
                except RequestFailedError:
                    continue  # librdkafka tells of those
            pause = max(_AGAIN, self._settings.reconnect_backoff_max)
            await asyncio.sleep(pause.total_seconds())


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
        f"group.protocol=consumer: the broker {address(host, port)} does not speak KIP-848, which "
        "came with Apache Kafka 4.0: upgrade it, or set group.protocol=classic, the default"
    )
