"""One structured event per rebalance, through standard logging."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from kafka_coop.assignors.figures import PlanFigures
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.metrics.families import Phase
from kafka_coop.metrics.member import phases_of
from kafka_coop.types import Partitions

_ZERO: Final = timedelta(0)
_SECOND: Final = timedelta(seconds=1)
_CALLBACKS: Final[Mapping[Phase, str]] = {
    "revoke": "on_revoke",
    "assigned": "on_assign",
    "lost": "on_lost",
}
"""Phases that are a callback go by its name: ``lost`` alone is a number of partitions."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/+-]+")


def log_rebalance(logger: logging.Logger, record: RebalanceRecord) -> None:
    """Logs one round: INFO, or WARNING where it failed.

    The message is one line of ``key=value`` pairs; parts of the round that did not occur are
    left out. The log record's attribute ``kafka_coop`` holds `rebalance_fields`, for handlers
    that write JSON.
    """
    level = logging.INFO if record.error is None else logging.WARNING
    if logger.isEnabledFor(level):
        logger.log(
            level, "%s", rebalance_message(record), extra={"kafka_coop": rebalance_fields(record)}
        )


def rebalance_message(record: RebalanceRecord) -> str:
    """The round on one line, whatever names and texts of brokers are in it."""
    event = "rebalance" if record.error is None else "rebalance failed"
    return " ".join((event, *(f"{key}={value}" for key, value in _pairs(record))))


def _pairs(record: RebalanceRecord) -> Iterator[tuple[str, str]]:
    yield "group", _quoted(record.group_id)
    yield "client", _quoted(record.client_id)
    yield "generation", str(record.generation)
    yield "role", record.role.value
    if record.protocol_name is not None:
        yield "assignor", _quoted(record.protocol_name)
    if record.members is not None:
        yield "members", str(record.members)
    yield "reason", _quoted(record.reason)
    if record.error is not None:
        yield "error", _quoted(record.error)
    yield "moved", f"+{len(record.assigned)}/-{len(record.revoked)}"
    if record.lost:
        yield "lost", str(len(record.lost))
    yield "kept", str(len(record.kept))
    if record.attempts > 1:
        yield "attempts", str(record.attempts)
    if record.follow_up:
        yield "follow_up", "yes"
    if record.plan is not None:
        yield from _planned(record.plan)
    yield "total", _duration(record.total)
    for phase, duration in phases_of(record).items():
        if duration > _ZERO:
            yield _CALLBACKS.get(phase, phase), _duration(duration)


def _planned(plan: PlanFigures) -> Iterator[tuple[str, str]]:
    if plan.moved:
        yield "planned_moves", str(plan.moved)
        yield "fewest_moves", str(plan.fewest)
    if plan.recalled:
        yield "recalled", str(plan.recalled)


def rebalance_fields(record: RebalanceRecord) -> dict[str, Any]:
    """The round as JSON-able values, all keys always present. Durations in seconds."""
    return {
        "event": "rebalance",
        "outcome": "completed" if record.error is None else "failed",
        "group": record.group_id,
        "client_id": record.client_id,
        "member_id": record.member_id,
        "generation": int(record.generation),
        "role": record.role.value,
        "assignor": record.protocol_name,
        "cooperative": record.cooperative,
        "members": record.members,
        "reason": record.reason,
        "error": record.error,
        "attempts": record.attempts,
        "follow_up": record.follow_up,
        "plan": None if record.plan is None else asdict(record.plan),
        "assigned": _by_topic(record.assigned),
        "revoked": _by_topic(record.revoked),
        "lost": _by_topic(record.lost),
        "kept": len(record.kept),
        "total_seconds": record.total.total_seconds(),
        "phases_seconds": {p: d.total_seconds() for p, d in phases_of(record).items()},
    }


def _by_topic(partitions: Partitions) -> dict[str, list[int]]:
    return {topic: indices.tolist() for topic, indices in partitions.items()}


def _quoted(text: str) -> str:
    """As it is where it can be told from its surroundings, else as an ASCII JSON string.

    ASCII, since U+0085 and U+2028 end a line for some readers, and a broker's text could so
    forge a line of the log.
    """
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _duration(value: timedelta) -> str:
    seconds = value.total_seconds()
    return f"{seconds:.2f}s" if value >= _SECOND else f"{seconds * 1000:.4g}ms"
