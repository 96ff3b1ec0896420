"""The user's callbacks, kept out of librdkafka.

With confluent-kafka 2.16 an exception from a callback inside `consume` destroys the records
gathered so far, and leaves librdkafka in a state in which `close` may hang. A callback that asks
for topics or watermarks in there ends the process at the next callback, by an assertion in C, or
hangs it. So none runs there: what librdkafka calls only notes the call, which is made once it has
been left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_GUARDED = ("error_cb", "stats_cb", "throttle_cb")
"""``oauth_cb`` is not among them: confluent-kafka needs to see it fail, and reports that as an
authentication error."""


class CallbackGuard:
    """Calls callbacks later, and catches what they raise.

    Attributes:
        raised: The first exception since `serve`; later ones are consequences, or repeats.
        running: A callback is.
    """

    __slots__ = ("_due", "raised", "running")

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self.running = False
        self._due: deque[Callable[[], Any]] = deque()

    def guarded(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration, with its callbacks wrapped."""
        return dict(config) | {
            key: self._wrap(config[key]) for key in _GUARDED if config.get(key) is not None
        }

    def serve(self) -> None:
        """Runs the callbacks that are due. Outside of librdkafka, with every record in its place.

        Raises:
            RuntimeError: Called inside a callback: those that are due come after it.
            Exception: The first that was caught, if any was.
        """
        if self.running:
            raise RuntimeError("nothing can be fetched inside a callback")
        while self._due:
            self.run(self._due.popleft())
        if self.raised is not None:
            raised, self.raised = self.raised, None
            raise raised

    def end(self) -> None:
        """For a consumer that is closed: whatever is due could ask nothing of it any more.

        Raises:
            Exception: As `serve`.
        """
        self._due.clear()
        self.serve()

    def run(self, what: Callable[[], Any]) -> bool:
        """Calls, and keeps what is raised for `serve`. Returns whether nothing was."""
        outer = self.running
        try:
            self.running = True
            what()
            return True  # noqa: TRY300  # a Ctrl-C behind it is caught, too
        except BaseException as raised:  # noqa: BLE001  # it is raised again by `serve`
            self.raised = self.raised or raised
            return False
        finally:
            self.running = outer

    def later(self, what: Callable[[], Any]) -> None:
        """Has it called by `serve`: outside of librdkafka."""
        self._due.append(what)

    def _wrap(self, callback: Callable[..., Any]) -> Callable[..., None]:
        return lambda *arguments: self.later(lambda: callback(*arguments))
