"""The topics that librdkafka has heard of.

It asks for a topic's leaders when a partition of it is first assigned, and then looks at that
partition again only half a second later, or a whole one: most of a moved partition's gap, if
its new owner is a new member. Asked beforehand, by whatever asks for the topic's metadata, it
fetches within milliseconds. (`python -m benchmarks.rebalance` shows it.)

An answer takes as long as the fetch that is parked on the same connection, up to
``fetch.wait.max.ms``: so nothing is asked of which librdkafka fetches something already. A member
that could not ask when it started, or did so long ago, would else wait with a moved partition in
its hands.

Not in another thread: confluent-kafka lets one call at a time into a consumer, and a `poll` in
slices leaves no gap for the other caller, who waits for seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaException

_GOOD_FOR = 300.0
"""Seconds. librdkafka forgets what it does not fetch after ``metadata.max.age.ms``, 900 s."""

_BY_ITSELF = 2.0
"""Seconds after which librdkafka has asked by itself for a topic that it was to fetch."""

_RETRY = 0.2
_LONGEST_RETRY = 5.0
"""Seconds between two questions while no broker answers; doubled each time."""

_MISSING_FOR = 5.0
"""Seconds for which a topic that does not exist is not asked for again, unless it is to be fetched.
A member that owns nothing asks with every slice of a poll."""

_ONE_BY_ONE = 16
"""More topics than this are asked for at once, with all the others of the cluster."""


class Acquaintance:
    """Has librdkafka ask for topics.

    Args:
        ask: `confluent_kafka.Consumer.list_topics`: a topic or None for all, and the time-out.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        ask: Callable[[str | None, float], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._met: dict[str, float] = {}
        self._missing: dict[str, float] = {}
        self._fetched_since: dict[str, float] = {}
        self._failures = 0
        self._not_before = float("-inf")

    def strangers(self, topics: Iterable[str], *, exist: bool = False) -> tuple[str, ...]:
        """Those that librdkafka may not know, and may be asked for now."""
        now = self._clock()
        if now < self._not_before:
            return ()
        strangers = [t for t in topics if not self._knows(t, now)]
        return tuple(t for t in strangers if exist or not self._is_missing(t, now))

    def _knows(self, topic: str, now: float) -> bool:
        met = now - self._met.get(topic, float("-inf")) <= _GOOD_FOR
        return met or now - self._fetched_since.get(topic, now) > _BY_ITSELF

    def _is_missing(self, topic: str, now: float) -> bool:
        return now - self._missing.get(topic, float("-inf")) <= _MISSING_FOR

    def fetches(self, topics: Iterable[str]) -> None:
        """Is told, after every change, of which topics librdkafka fetches something now."""
        now, current = self._clock(), set(topics)
        for gone in self._fetched_since.keys() - current:
            if now - self._fetched_since.pop(gone) > _BY_ITSELF:
                self._met[gone] = now
        for new in current - self._fetched_since.keys():
            self._fetched_since[new] = now

    def meet(self, topics: Iterable[str], timeout: float, *, exist: bool = False) -> None:
        """Waits until librdkafka knows these topics; never raises.

        Milliseconds where it has a connection. Without an answer in time a partition is
        fetched all the same, when librdkafka gets to it.

        Args:
            topics: Their names.
            timeout: Seconds, for each question; the first that is not answered is the last.
            exist: It is known that they do, whatever was told of them before.
        """
        strangers = self.strangers(topics, exist=exist)
        for question in strangers if len(strangers) <= _ONE_BY_ONE else (None,):
            try:
                answer = self._ask(question, timeout)
            except KafkaException:
                wait = min(_RETRY * 2**self._failures, _LONGEST_RETRY)
                self._not_before = self._clock() + wait
                self._failures = min(self._failures + 1, 10)
                return
            self._failures = 0
            there = [t for t, told in answer.topics.items() if told.error is None]
            asked = strangers if question is None else (question,)
            now = self._clock()
            self._met.update(dict.fromkeys(there, now))
            self._missing.update(dict.fromkeys(set(asked).difference(there), now))
