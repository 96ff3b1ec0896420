"""What a scenario's steps do to which process, and when."""

from __future__ import annotations

import enum
from collections.abc import Iterator
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

    def __lt__(self, other: Kind) -> bool:
        """In the order of writing: of one moment, and of one process."""
        order = list(Kind)
        return order.index(self) < order.index(other)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Action:
    """What a step does to whoever runs in a row, or is to run there.

    Attributes:
        down: Of one that closes: seconds until it starts again.
    """

    at: float
    row: int
    kind: Kind
    down: float = 0.0


def fates(plan: Plan) -> Fates:
    """What becomes of whom: the same for every client that is compared.

    Steps may overlap: what one has begun, the next finds as it is by then.
    """
    row_of = list(range(plan.members))
    running = {row: row for row in row_of}
    starts: dict[int, float] = {}
    lost: set[int] = set()
    ends: list[Incident] = []

    def start(row: int, at: float) -> None:
        running[row] = process = len(row_of)
        row_of.append(row)
        if row not in lost:
            starts[process] = at

    def is_up(row: int, at: float) -> bool:
        return row not in lost and row in running and starts.get(running[row], -1.0) < at

    for action in sorted(_actions(plan), key=lambda a: a.at):
        row, at = action.row, action.at
        if up := is_up(row, at) and action.kind is not Kind.START:
            ends.append(Incident(at=at, process=running[row], kind=action.kind))
        match action.kind:
            case Kind.START:
                start(row, at)
            case Kind.CLOSE if up:
                start(row, at + action.down)
            case Kind.CRASH:
                if not up:
                    starts.pop(running.get(row, -1), None)  # it never comes up
                lost.add(row)
    begun = [Incident(at=at, process=process) for process, at in starts.items()]
    known = np.array(row_of)
    return Fates(
        incidents=sorted([*begun, *ends], key=lambda i: (i.at, i.process)),
        row_of=known,
        zone_of=known % plan.zones,
    )


def _actions(plan: Plan) -> Iterator[_Action]:
    """What the steps do, in the order of the steps: that of the dice."""
    dice = np.random.default_rng(plan.seed)
    rows, most = set(range(plan.members)), plan.members
    for step in sorted(plan.steps, key=lambda s: s.at):
        match step:
            case ScaleOut():
                for at in _spread(dice, step.at, step.within, step.more(len(rows))):
                    yield _Action(at=at, row=most, kind=Kind.START)
                    rows.add(most)
                    most += 1
            case ZoneLoss():
                gone = {row for row in rows if row % plan.zones == step.zone}
                yield from (_Action(at=step.at, row=row, kind=Kind.CRASH) for row in sorted(gone))
                rows -= gone
            case RollingDeploy():
                order = dice.permutation(sorted(rows)).tolist()
                size = max(1, round(len(order) * step.batch))
                for number, first in enumerate(range(0, len(order), size)):
                    batch = order[first : first + size]
                    begins = step.at + number * step.every
                    closing = _spread(dice, begins, step.within, len(batch))
                    for row, at in zip(batch, closing, strict=True):
                        yield _Action(at=at, row=row, kind=Kind.CLOSE, down=step.down)


def _spread(dice: np.random.Generator, begins: float, within: float, count: int) -> list[float]:
    times: Floats = begins + within * np.sort(dice.random(count))
    return [float(t) for t in times]
