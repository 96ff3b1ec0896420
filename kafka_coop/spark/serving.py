"""The member's metrics over HTTP, from the reader's process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from prometheus_client import start_http_server

from kafka_coop.spark.errors import OptionError

_FREED_WITHIN: Final = 5.0
"""Seconds. ``query.stop()`` does not wait for the reader's process, which may still listen when the
query's next run has begun."""

_PAUSE: Final = 0.1


def serve_metrics(port: int) -> Callable[[], None]:
    """Serves them from now on.

    Returns:
        What ends it, and sets the port free.

    Raises:
        OptionError: The port is taken.
    """
    deadline = time.monotonic() + _FREED_WITHIN
    while True:
        try:
            server, thread = start_http_server(port)
            break
        except OSError as error:
            if time.monotonic() >= deadline:
                raise OptionError(
                    "metricsPort", f"{port} can't be listened on ({error.strerror}): take another"
                ) from None
            time.sleep(_PAUSE)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
