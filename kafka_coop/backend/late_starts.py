"""Where librdkafka's member begins, where that was not told in time for on_assign.

A transaction may have to decide on an offset first, a leader may be away: that takes as long as it
takes. So a thread goes on asking, by a consumer beside the member's, which others poll meanwhile.
Both are there while something is searched for: for good, where a partition does not exist or its
topic is not ours to see.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

import confluent_kafka

from kafka_coop.backend.mailbox import StartsFound, newly_found
from kafka_coop.fetching.group_starts import look_up
from kafka_coop.offsets.starts import Starts
from kafka_coop.types import Generation, Partitions

_LOOK = timedelta(seconds=1)
_LONGEST_LOOK = timedelta(seconds=2)
"""For one search, twice as long each time that nothing is told, for brokers that are far away.
Whoever closes may have to wait for the end of it."""

_AGAIN = timedelta(seconds=0.1)
"""Between two questions, each of which may be refused at once."""

_REFUSED = 5.0
"""Seconds until what was refused is asked for again."""

_AFTER_A_FAILURE = timedelta(seconds=1)


@dataclass(slots=True)
class _Searched:
    search: Starts
    generation: Generation
    still_wanted: Callable[[Partitions], Partitions]
    refused_until: float
    """On the monotonic clock."""

    def prepare(self) -> None:
        """Gives up what is not wanted, and asks for what was refused once it is time."""
        self.search.keep(self.still_wanted)
        if (now := time.monotonic()) >= self.refused_until:
            self.search.ask_again()
            self.refused_until = now + _REFUSED


class LateStarts:
    """One consumer's.

    Args:
        aside: Opens the consumer that is asked.
        found: Told of what was, by the thread.
        name: Of the thread.
        logger: Of failures that nobody expects.
    """

    def __init__(
        self,
        aside: Callable[[], closing[confluent_kafka.Consumer]],
        found: Callable[[StartsFound], None],
        name: str,
        logger: logging.Logger,
    ) -> None:
        self._aside = aside
        self._found = found
        self._name = name
        self._log = logger
        self._lock = threading.RLock()  # a signal handler may assign by hand
        self._ended = threading.Event()
        self._searched: list[_Searched] = []
        self._idle = True
        self._thread: threading.Thread | None = None

    def go_on(
        self,
        search: Starts,
        generation: Generation,
        still_wanted: Callable[[Partitions], Partitions],
    ) -> None:
        """Asks for what this search has still to ask for. Any thread."""
        with self._lock:
            due = time.monotonic() + _REFUSED
            self._searched.append(_Searched(search, generation, still_wanted, due))
            # One that an exception (Ctrl-C) kept from starting is not alive.
            if self._idle or self._thread is None or not self._thread.is_alive():
                self._idle = False
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Nobody wants to know any more. Any thread, any number of times."""
        self._ended.set()

    def join(self, timeout: timedelta) -> None:
        """Waits until the thread has ended, if there is one."""
        if (thread := self._thread) is not None and thread.is_alive():
            thread.join(timeout.total_seconds())

    def _run(self) -> None:
        while not self._is_done():
            try:
                with self._aside() as consumer:
                    self._ask(consumer)
            except Exception:  # noqa: BLE001  # whatever it is: it may pass, and somebody waits
                self._log.exception("where partitions start can't be asked for")
                self._ended.wait(_AFTER_A_FAILURE.total_seconds())

    def _ask(self, consumer: confluent_kafka.Consumer) -> None:
        look = _LOOK
        while wanted := self._wanted():
            told = [self._ask_for(searched, consumer, look) for searched in wanted]
            look = _LOOK if any(told) else min(2 * look, _LONGEST_LOOK)
            self._ended.wait(_AGAIN.total_seconds())

    def _ask_for(
        self, searched: _Searched, consumer: confluent_kafka.Consumer, look: timedelta
    ) -> bool:
        if self._ended.is_set():
            return False
        look_up(consumer, searched.search, look, leaders_apart=True)
        if (found := newly_found(searched.search, searched.generation)) is None:
            return False
        self._found(found)
        return True

    def _wanted(self) -> list[_Searched]:
        """What there is to ask for."""
        with self._lock:
            for searched in self._searched:
                searched.prepare()
            left = [s for s in self._searched if not s.search.settled]
            self._searched = [] if self._ended.is_set() else left
            return list(self._searched)

    def _is_done(self) -> bool:
        """Whether the thread ends: who wants to know more from then on starts another."""
        with self._lock:
            self._idle = not self._searched or self._ended.is_set()
            return self._idle
