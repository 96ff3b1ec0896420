"""The metadata watch: which topics there are, and whether that has changed.

The leader watches the union of all members' subscriptions (a leader may not be subscribed to
the topic that grows, librdkafka#4533), a member with regular expressions watches every topic,
others their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from kafka_coop.errors import RequestFailedError
from kafka_coop.membership.backoff import backoff
from kafka_coop.membership.effects import Effect, SendMetadata
from kafka_coop.membership.events import MetadataAnswered
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import ClusterMetadata, GetMetadata, TopicMetadata
from kafka_coop.types import Cluster, Partitions

_MISSING_TOPICS_PACE = 30.0
"""The slowest pace, in seconds, at which topics that do not exist yet are looked for."""

_NO_TOPICS: Mapping[str, TopicMetadata] = {}


class Watch:
    """The latest metadata, what it is asked for, and when it is asked again."""

    def __init__(self, settings: MemberSettings, new_token: Callable[[], int]) -> None:
        self._settings = settings
        self._new_token = new_token
        self._wanted: tuple[str, ...] | None = ()
        self._flying: tuple[int, float, tuple[str, ...] | None] | None = None
        self._latest: ClusterMetadata | None = None
        self._asked_for: tuple[str, ...] | None = ()
        self._asked_at = float("-inf")
        self._failures = 0
        self._misses = 0
        self._next = float("inf")

    def want(self, topics: Iterable[str] | None, now: float) -> None:
        """From now on these topics are watched; None: all of them."""
        wanted = None if topics is None else tuple(sorted(set(topics)))
        if wanted == self._wanted:
            return
        self._wanted = wanted
        # An answer under way is no longer wanted. It may come while we are out of the group,
        # where nobody takes it: a member that then subscribed anew would wait for it forever.
        self._flying = None
        self._misses = 0
        self._next = now if wanted is None or wanted else float("inf")

    def fetch(self, now: float) -> tuple[Effect, ...]:
        """Asks, unless just that is being asked already, or asking failed too lately."""
        if self._flying is not None and self._flying[2] == self._wanted:
            return ()
        if self._failures and now < self._next:
            return ()
        token = self._new_token()
        self._flying = (token, now, self._wanted)
        request = GetMetadata(
            topics=self._wanted,
            allow_auto_topic_creation=self._settings.allow_auto_create_topics,
        )
        return (SendMetadata(token=token, request=request),)

    def refresh_if_due(self, now: float) -> tuple[Effect, ...]:
        """Asks when it is time to."""
        due = self.deadline()
        return self.fetch(now) if due is not None and now >= due else ()

    def answered(self, event: MetadataAnswered, now: float) -> bool:
        """Takes an answer in. Returns whether there is news to look at."""
        if self._flying is None or event.token != self._flying[0]:
            return False
        _, asked_at, asked_for = self._flying
        self._flying = None
        if isinstance(event.answer, RequestFailedError):
            self._next = now + self._pause(self._failures)
            self._failures += 1
            return False
        self._failures = 0
        self._latest, self._asked_at, self._asked_for = event.answer, asked_at, asked_for
        self._next = now + self._settings.metadata_max_age.total_seconds()
        if self._is_missing_topics():
            # Like topic.metadata.refresh.fast.interval.ms: somebody may be creating them.
            wait = min(0.25 * 2.0 ** min(self._misses, 10), _MISSING_TOPICS_PACE)
            self._next = min(self._next, now + wait)
            self._misses += 1
        return True

    def covers(self, topics: Iterable[str], *, since: float) -> bool:
        """Whether what we know of all these topics was asked for no earlier than ``since``."""
        if self._latest is None or self._asked_at < since:
            return False
        return self._asked_for is None or set(topics) <= set(self._asked_for)

    def everything_known(self, *, since: float) -> bool:
        """Whether all topics were asked for, no earlier than ``since``."""
        return self._latest is not None and self._asked_for is None and self._asked_at >= since

    def matching(self, patterns: Iterable[re.Pattern[str]]) -> tuple[str, ...]:
        """Existing topics that a pattern matches from their start, internal ones excepted."""
        compiled = tuple(patterns)
        return tuple(
            name
            for name, topic in sorted(self._topics().items())
            if _exists(topic) and not topic.is_internal and any(p.match(name) for p in compiled)
        )

    def cluster(self, topics: Iterable[str]) -> Cluster:
        """What an assignor may know of these topics; those that do not exist are left out."""
        known = self._topics()
        found = {t: known[t] for t in sorted(set(topics)) if t in known and _exists(known[t])}
        racks = self._latest.racks if self._latest is not None else {}
        return Cluster(
            partitions={name: len(t.partitions) for name, t in found.items()},
            replica_racks={name: _racks_of(t, racks) for name, t in found.items()}
            if any(racks.values())
            else None,
        )

    def counts(self, topics: Iterable[str]) -> Mapping[str, int]:
        """How many partitions each of these topics has; those that do not exist are left out."""
        known = self._topics()
        return {t: len(known[t].partitions) for t in topics if t in known and _exists(known[t])}

    def vanished(self, owned: Partitions, *, since: float) -> Partitions:
        """Those of ``owned`` that are known not to exist any more.

        By what was asked for since they came, at ``since``: older metadata may not know yet what
        the leader gave us, of a topic that has grown.
        """
        known = self._topics() if self._asked_at >= since else _NO_TOPICS
        gone: dict[str, list[int]] = {}
        for topic, indices in owned.items():
            seen = known.get(topic)
            if seen is not None:
                count = len(seen.partitions) if _exists(seen) else 0
                really = seen.error in (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
                gone[topic] = [i for i in indices.tolist() if really and i >= count]
        return Partitions(gone)

    def errors(self, topics: Iterable[str]) -> dict[str, int]:
        """Which of these topics can't be had, with Kafka's error codes."""
        known = self._topics()
        return {
            t: int(known[t].error)
            for t in sorted(set(topics))
            if t in known and known[t].error is not ErrorCode.none
        }

    def deadline(self) -> float | None:
        """When to ask next; None while an answer is awaited or nothing is wanted."""
        if self._flying is not None or self._next == float("inf"):
            return None
        return self._next

    def _topics(self) -> Mapping[str, TopicMetadata]:
        return _NO_TOPICS if self._latest is None else self._latest.topics

    def _is_missing_topics(self) -> bool:
        known = self._topics()
        wanted = self._asked_for or ()
        return any(t not in known or not _exists(known[t]) for t in wanted)

    def _pause(self, attempt: int) -> float:
        s = self._settings
        return backoff(attempt, base=s.retry_backoff, cap=s.retry_backoff_max, seed=s.seed)


def _exists(topic: TopicMetadata) -> bool:
    return topic.error is ErrorCode.none and bool(topic.partitions)


def _racks_of(topic: TopicMetadata, racks: Mapping[int, str | None]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(sorted({r for n in p.replica_nodes if (r := racks.get(n))})) for p in topic.partitions
    )
