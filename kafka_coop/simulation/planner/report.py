"""What a run came to: numbers, a table, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from kafka_coop.simulation.planner.group import CoarseGroup
from kafka_coop.simulation.planner.scenario import Plan


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True)


class Gaps(_Figures):
    """For how long partitions had no owner, in all, seconds: those that ever had none."""

    partitions: int
    p50: float
    p99: float
    longest: float


class Load(_Figures):
    """Requests a second at the group's coordinator. ``resting``: heartbeats of a stable group."""

    resting: float
    mean: float
    peak: float


class Result(_Figures):
    """How one kind of client fared.

    Attributes:
        rounds: Generations; ``interrupted`` of them assigned nobody.
        moved, minimum: Partitions that changed owners, and how many had to.
        stopped: How often an owner stopped, over all partitions.
        record_bytes: The group's record in the log, at its largest: about twice what is
            assigned, and everybody's topics. The broker's limit for it is message.max.bytes
            of its offsets topic.
        lasted: Seconds until the last assignment.
    """

    client: str
    rounds: int
    interrupted: int
    moved: int
    minimum: int
    stopped: int
    gaps: Gaps
    load: Load
    record_bytes: int
    lasted: float


def result_of(group: CoarseGroup) -> Result:
    """Sums a finished run up."""
    owned = group.ownership
    gaps = owned.unowned[owned.unowned > 0]
    p50, p99, longest = (
        (float(x) for x in np.quantile(gaps, (0.5, 0.99, 1.0))) if gaps.size else (0.0, 0.0, 0.0)
    )
    load = group.traffic.per_second(group.ends)
    return Result(
        client=group.client.name,
        rounds=len(group.rounds),
        interrupted=sum(r.interrupted for r in group.rounds),
        moved=owned.moved,
        minimum=owned.minimum,
        stopped=owned.stopped,
        gaps=Gaps(partitions=int(gaps.size), p50=p50, p99=p99, longest=longest),
        load=Load(resting=group.resting_load, mean=float(load.mean()), peak=float(load.max())),
        record_bytes=group.record_bytes,
        lasted=group.ends,
    )


_HEAD = (
    "client",
    "rounds",
    "moved",
    "minimum",
    "stops",
    "unowned p50 s",
    "p99 s",
    "max s",
    "requests/s",
    "peak",
    "record MB",
)


def table(results: Sequence[Result]) -> str:
    """The results side by side, for a terminal."""
    rows = [_HEAD, *(_row(result) for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _row(r: Result) -> tuple[str, ...]:
    rounds = f"{r.rounds}" + (f" ({r.interrupted} in vain)" if r.interrupted else "")
    return (
        r.client,
        rounds,
        f"{r.moved:,}",
        f"{r.minimum:,}",
        f"{r.stopped:,}",
        f"{r.gaps.p50:.3f}",
        f"{r.gaps.p99:.3f}",
        f"{r.gaps.longest:.3f}",
        f"{r.load.mean:,.0f}",
        f"{r.load.peak:,.0f}",
        f"{r.record_bytes / 1e6:.1f}",
    )


def _line(row: Iterable[str], widths: Sequence[int]) -> str:
    first, *rest = (
        f"{c:<{w}}" if i == 0 else f"{c:>{w}}"
        for i, (c, w) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join([first, *rest]).rstrip()


def as_json(plan: Plan, groups: Sequence[CoarseGroup], results: Sequence[Result]) -> dict[str, Any]:
    """Everything, for programs. Times are seconds since the beginning."""
    return {
        "scenario": plan.model_dump(mode="json"),
        "clients": [
            {
                **result.model_dump(mode="json"),
                "generations": [
                    {
                        "opened": r.opened,
                        "joined": r.joined,
                        "assigned": r.assigned,
                        "reason": r.reason,
                        "members": r.members,
                        "stopped": r.stopped,
                        "gained": r.gained,
                        "interrupted": r.interrupted,
                    }
                    for r in group.rounds
                ],
                "requests_per_second": group.traffic.per_second(group.ends).round(1).tolist(),
                "timeline": {
                    "rows": list(group.timeline.rows),
                    "spans": [
                        [s.row, s.phase.name.lower(), round(s.start, 4), round(s.end, 4)]
                        for s in group.timeline.spans
                    ],
                },
            }
            for group, result in zip(groups, results, strict=True)
        ],
    }
