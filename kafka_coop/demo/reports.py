"""What a member tells the demo, one JSON object a line on its standard output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias

from kafka_coop.demo.delays import Total

CallbackName: TypeAlias = Literal["on_assign", "on_revoke", "on_lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A rebalance callback was called with these partitions."""

    callback: CallbackName
    partitions: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalanced:
    """A round as kafka_coop's log has it (`kafka_coop.metrics.log.rebalance_fields`).

    Attributes:
        members: How many the group has; None on followers.
        gained, given_up, lost, kept: Numbers of partitions.
        total, phases: Seconds.
    """

    generation: int
    role: str
    members: int | None
    reason: str
    error: str | None
    gained: int
    given_up: int
    lost: int
    kept: int
    follow_up: bool
    total: float
    phases: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of_log(cls, fields: Mapping[str, Any]) -> Rebalanced:
        """From the attribute ``kafka_coop`` of the log record."""
        return cls(
            generation=fields["generation"],
            role=fields["role"],
            members=fields["members"],
            reason=fields["reason"],
            error=fields["error"],
            gained=_count(fields["assigned"]),
            given_up=_count(fields["revoked"]),
            lost=_count(fields["lost"]),
            kept=fields["kept"],
            follow_up=fields["follow_up"],
            total=fields["total_seconds"],
            phases={phase: t for phase, t in fields["phases_seconds"].items() if t > 0},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many records were processed since the start, and the arrivals' delays so far."""

    processed: int
    arrivals: dict[str, Total]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The coordinator has taken these offsets, by partition; they are the next to read."""

    offsets: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """The member's metrics before it leaves, as Prometheus would scrape them."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something went wrong, and the member goes on."""

    text: str


Report: TypeAlias = Called | Rebalanced | Progress | Committed | Exposition | Warned

_KINDS: Final[dict[str, type[Report]]] = {
    kind.__name__: kind for kind in (Called, Rebalanced, Progress, Committed, Exposition, Warned)
}


def encode(report: Report) -> str:
    """One line, its end included."""
    return json.dumps({"kind": type(report).__name__, **asdict(report)}) + "\n"


def decode(line: str) -> Report:
    """Undoes `encode`.

    Raises:
        ValueError: It is no report: something else wrote to the member's standard output.
    """
    try:
        fields = json.loads(line)
        report = _KINDS[fields.pop("kind")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"not a report: {line[:200]!r}") from None
    # JSON has neither integers as keys nor named tuples.
    match report:
        case Committed():
            return Committed(offsets={int(p): offset for p, offset in report.offsets.items()})
        case Progress():
            totals = {airport: Total(*total) for airport, total in report.arrivals.items()}
            return Progress(processed=report.processed, arrivals=totals)
        case _:
            return report


def _count(by_topic: Mapping[str, list[int]]) -> int:
    return sum(map(len, by_topic.values()))
