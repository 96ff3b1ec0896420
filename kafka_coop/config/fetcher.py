"""What librdkafka is given: the user's own keys, less those of the membership.

librdkafka fetches for a group that it never joins and never commits for. It still must be
told ``group.id``: confluent-kafka demands one.

``max.poll.interval.ms`` is among the keys taken out. librdkafka enforces it by a timer that
subscribe() starts, which is never called; a consumer that only assigns may poll as late as it
likes. It is measured by the membership instead.

With ``group.protocol=consumer`` (KIP-848) librdkafka is the member and gets these keys, too.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kafka_coop.config.known import OWN_PREFIX
from kafka_coop.config.values import Values

_MEMBERSHIP = frozenset(
    {
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
    }
)

_COMMITTING = frozenset(
    {
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
        "on_commit",
    }
)

_FORCED = {"enable.auto.commit": False, "enable.auto.offset.store": False}

# librdkafka pauses the fetching of a partition for so long whenever its queue is full: with its
# default of 1000, catching up on small records runs at an eighth of what it does with 10. The
# queue's memory stays bounded by queued.max.messages.kbytes.
_BETTER_DEFAULTS = {"fetch.queue.backoff.ms": 10}

_LONGEST_RECONNECT = timedelta(seconds=1)
"""Java's default. With librdkafka's 10 s a broker that has restarted is left alone for as long,
and its partitions are silent: librdkafka doubles its wait with each refused connection, and begins
anew only 10 s after the last attempt, however well that went."""


def fetcher_config(values: Values, *, logger: Any | None) -> dict[str, Any]:
    """The configuration of the fetching `confluent_kafka.Consumer`. Secrets inside."""
    ours = values.choice("group.protocol") == "classic"
    taken_out = _COMMITTING | {"logger"} | (_MEMBERSHIP if ours else frozenset())
    own = {
        key: value
        for key, value in values.raw.items()
        if key not in taken_out and not key.startswith(OWN_PREFIX)
    }
    logged = {} if logger is None else {"logger": logger}
    theirs = {} if ours else {"group.protocol": "consumer"}
    longest = longest_reconnect(values) // timedelta(milliseconds=1)
    better = {**_BETTER_DEFAULTS, "reconnect.backoff.max.ms": longest}
    return {**better, **own, **logged, **_FORCED, **theirs}


def longest_reconnect(values: Values) -> timedelta:
    """``reconnect.backoff.max.ms``, which is never less than ``reconnect.backoff.ms``."""
    if values.given_value("reconnect.backoff.max.ms") is not None:
        return values.duration("reconnect.backoff.max.ms")
    return max(_LONGEST_RECONNECT, values.duration("reconnect.backoff.ms"))
