"""Which properties of Kafka's clients the options ``kafka.*`` may set, by what they are for. Pure.

librdkafka ignores a property of the other role, and a task's consumer one of a member. Here both
are refused: what is ignored without a word is a setting that somebody relies on.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from kafka_coop.config.known import KNOWN, REFUSED, closest
from kafka_coop.config.properties import Kind, Role
from kafka_coop.spark.errors import OptionError

PREFIX: Final = "kafka."


class Use(enum.Flag):
    """What the data source is used for."""

    STREAM = enum.auto()
    BATCH = enum.auto()
    SINK = enum.auto()


_DURABLE: Final = "batches commit when they are durable: remove it"

_REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "set startingOffsets instead",
    "key.deserializer": "keys are bytes: remove it and cast the column key",
    "value.deserializer": "values are bytes: remove it and cast the column value",
    "key.serializer": "keys are bytes: remove it and cast the column key",
    "value.serializer": "values are bytes: remove it and cast the column value",
    "enable.auto.commit": _DURABLE,
    "auto.commit.enable": _DURABLE,
    "auto.commit.interval.ms": _DURABLE,
    "enable.auto.offset.store": _DURABLE,
    "offset.store.method": _DURABLE,
    "offset.store.path": _DURABLE,
    "offset.store.sync.interval.ms": _DURABLE,
    "interceptor.classes": "interceptors are Java's: remove it",
    "enable.partition.eof": "the source needs it for itself: remove it",
    "group.remote.assignor": (
        "the broker assigns where group.protocol=consumer, which the source can't use: set "
        "kafka.partition.assignment.strategy instead"
    ),
}
"""Whatever the value."""

OF_MEMBERS: Final = (
    "group.instance.id",
    "partition.assignment.strategy",
    "group.protocol",
    "coop.watchdog",
)
"""Who a member is, and how it is assigned to. How patient it is (``session.timeout.ms``, …) may
be among options that a query and a batch share."""

_NOT_TEXT: Final = frozenset({Kind.CALLABLE, Kind.OBJECT, Kind.DEDICATED})
"""Whoever makes the client tells of these: no option can hold one."""

_PLUGINS: Final = "plugin.library.paths"

_TRUE: Final = frozenset({"true", "t", "1"})
"""As librdkafka reads it."""


def require_use(name: str, value: str, use: Use) -> None:
    """Refuses a property that means nothing there, or that the source needs for itself.

    Args:
        name: The property's, in lower case and without the prefix.
        value: What the user wrote. No secret is told: those are of both roles.
        use: What the options are for.

    Raises:
        OptionError: It is one of them.
    """
    if problem := _ignored(name, use) or _misused(name, value):
        raise OptionError(f"{PREFIX}{name}", f"{value!r} {problem}")


def require_producers(kafka: Mapping[str, str]) -> None:
    """Refuses what is no property of librdkafka's: a misspelt one, or Java's.

    Where something is read, `kafka_coop.config.parse` does. No value is told: it may be a secret,
    under a misspelt name.

    Args:
        kafka: The ``kafka.*`` options of a sink, without their prefix.

    Raises:
        OptionError: One is none.
    """
    for name in kafka:
        if remedy := REFUSED.get(name):
            raise OptionError(f"{PREFIX}{name}", f"is refused: {remedy}")
        # A plugin has properties of its own, which librdkafka alone can judge.
        if name not in KNOWN and not kafka.get(_PLUGINS):
            raise OptionError(f"{PREFIX}{name}", f"is no producer's property: {_suggestion(name)}")


def _suggestion(name: str) -> str:
    candidates = (
        known.name
        for known in KNOWN.values()
        if known.role is not Role.CONSUMER and known.kind not in _NOT_TEXT
    )
    if alike := closest(name, candidates):
        return f"did you mean {' or '.join(f'{PREFIX}{one}' for one in alike)}?"
    return "remove it (librdkafka's CONFIGURATION.md lists them)"


def _ignored(name: str, use: Use) -> str | None:
    known = KNOWN.get(name)
    role = None if known is None or known.kind in _NOT_TEXT else known.role
    if use is Use.SINK and role is Role.CONSUMER:
        return "is for a consumer, and a sink has none: remove it"
    if use is not Use.SINK and role is Role.PRODUCER:
        return "is for a producer, and nothing is written here: remove it, or set it on the sink"
    if use is Use.BATCH and name in OF_MEMBERS:
        return "has no meaning for spark.read, which joins no group: remove it"
    return None


def _misused(name: str, value: str) -> str | None:
    if remedy := _REFUSED.get(name):
        return f"is refused: {remedy}"
    if name == "enable.idempotence" and value.strip().lower() not in _TRUE:
        return "is refused: the sink's producers are idempotent. Remove it, or set it to true"
    if name == "group.protocol" and value.strip().lower() != "classic":
        # Spark's thread asks for the member's id and commits; librdkafka lets one thread in at a
        # time (docs/MIGRATION.md), and would have on_revoke wait there for what Spark runs next.
        return (
            "can't be had: librdkafka would be the member, and a hand-over, which waits for the "
            "end of a batch, would lock out what ends it. Remove it, or set it to classic"
        )
    return None
