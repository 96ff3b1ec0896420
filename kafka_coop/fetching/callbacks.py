"""The user's callbacks, kept from raising through librdkafka.

With confluent-kafka 2.16 an exception from a callback inside `consume` destroys the records
gathered so far, and leaves librdkafka in a state in which `close` may hang. So none gets
there: the exception waits until librdkafka has been left, and is raised then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_GUARDED = ("error_cb", "stats_cb", "throttle_cb")
"""``oauth_cb`` is not among them: confluent-kafka needs to see it fail, and reports that as an
authentication error."""


class CallbackGuard:
    """Catches what callbacks raise.

    Attributes:
        raised: The first exception since `reraise`; later ones are consequences, or repeats.
        running: A callback is.
    """

    __slots__ = ("raised", "running")

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self.running = False

    def guarded(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration, with its callbacks wrapped."""
        return dict(config) | {
            key: self._wrap(config[key]) for key in _GUARDED if config.get(key) is not None
        }

    def reraise(self) -> None:
        """Raises what was caught, if anything was.

        Raises:
            RuntimeError: Called inside a callback. librdkafka has in hand what it gathers for
                the call around this one: nothing can be fetched in between.
        """
        if self.running:
            raise RuntimeError("nothing can be fetched inside a callback")
        if self.raised is not None:
            raised, self.raised = self.raised, None
            raise raised

    def run(self, what: Callable[[], Any]) -> None:
        """Calls, and keeps what is raised for `reraise`."""
        outer = self.running
        try:
            self.running = True
            what()
        except BaseException as raised:  # noqa: BLE001  # it is raised again by `reraise`
            self.raised = self.raised or raised
        finally:
            self.running = outer

    def _wrap(self, callback: Callable[..., Any]) -> Callable[..., None]:
        return lambda *arguments: self.run(lambda: callback(*arguments))
