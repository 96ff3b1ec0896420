"""What a scenario's steps do to which process, and when."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from kafka_coop.simulation.planner.ownership import Floats, Ints
from kafka_coop.simulation.planner.scenario import Plan, RollingDeploy, ScaleOut, ZoneLoss


class Kind(enum.Enum):
    """What happens to a process."""

    START = "members start"
    CLOSE = "members leave"
    CRASH = "members die"
    EXPIRE = "sessions run out"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Incident:
    """Something happens to one process. Ordered by time.

    Attributes:
        comes_back: It is no part of the scenario: a member that has missed a round joins again.
    """

    at: float
    process: int
    kind: Kind = Kind.START
    comes_back: bool = False

    def __post_init__(self) -> None:
        """Times are plain floats, so that they print as such."""
        assert isinstance(self.at, float)


@dataclass(slots=True)
class Fates:
    """Every process of a run, numbered in the order of their starting.

    Attributes:
        incidents: Sorted by time.
        row_of: The row of each process: a restarted member's next process has its former one's.
        zone_of: The zone of each.
    """

    incidents: list[Incident]
    row_of: Ints
    zone_of: Ints


def fates(plan: Plan) -> Fates:
    """What becomes of whom: the same for every client that is compared."""
    dice = np.random.default_rng(plan.seed)
    row_of = list(range(plan.members))
    running: dict[int, int] = {row: row for row in row_of}
    incidents: list[Incident] = []
    rows = plan.members

    def start(row: int, at: float) -> None:
        running[row] = len(row_of)
        incidents.append(Incident(at=at, process=len(row_of), kind=Kind.START))
        row_of.append(row)

    for step in sorted(plan.steps, key=lambda s: s.at):
        match step:
            case ScaleOut():
                for at in _spread(dice, step.at, step.within, step.more(len(running))):
                    start(rows, at)
                    rows += 1
            case ZoneLoss():
                for row in [r for r in running if r % plan.zones == step.zone]:
                    lost = running.pop(row)
                    incidents.append(Incident(at=step.at, process=lost, kind=Kind.CRASH))
            case RollingDeploy():
                order = dice.permutation(sorted(running)).tolist()
                size = max(1, round(len(order) * step.batch))
                for number, first in enumerate(range(0, len(order), size)):
                    batch = order[first : first + size]
                    begins = step.at + number * step.every
                    closing = _spread(dice, begins, step.within, len(batch))
                    for row, at in zip(batch, closing, strict=True):
                        incidents.append(Incident(at=at, process=running[row], kind=Kind.CLOSE))
                        start(row, at + step.down)
    known = np.array(row_of)
    return Fates(
        incidents=sorted(incidents, key=lambda i: (i.at, i.process)),
        row_of=known,
        zone_of=known % plan.zones,
    )


def _spread(dice: np.random.Generator, begins: float, within: float, count: int) -> list[float]:
    times: Floats = begins + within * np.sort(dice.random(count))
    return [float(t) for t in times]
