"""The group as its members' reports describe it. No clock, process or terminal here."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_coop.demo.delays import Total, merged
from kafka_coop.demo.reports import Called, Committed, Exposition, Progress, Rebalanced, Report


class State(enum.Enum):
    """Where a member is in its life."""

    STARTING = "starting"
    JOINED = "joined"
    KILLED = "killed"
    LEFT = "left"


@dataclass(slots=True)
class MemberView:
    """One member.

    Attributes:
        owned: The sum of its callbacks' deltas.
        rate: Records a second between its last two reports.
        heard_at: When the last of these came.
        exposition: Its metrics before it left; None of one that was killed.
    """

    number: int
    pid: int
    state: State = State.STARTING
    role: str = ""
    generation: int = -1
    owned: frozenset[int] = frozenset()
    processed: int = 0
    rate: float = 0.0
    heard_at: float = 0.0
    arrivals: Mapping[str, Total] = field(default_factory=dict)
    exposition: str | None = None

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.state in {State.STARTING, State.JOINED}


class Group:
    """All members by name, in the order of their start.

    Args:
        partitions: How many the topic has.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.members: dict[str, MemberView] = {}
        self._committed: dict[int, int] = {}

    def started(self, name: str, pid: int) -> None:
        """A member's process was started."""
        self.members[name] = MemberView(number=len(self.members) + 1, pid=pid)

    def ended(self, name: str, state: State) -> None:
        """A member's process is over: it was killed or has left."""
        member = self.members[name]
        member.state, member.owned, member.rate, member.role = state, frozenset(), 0.0, ""

    def heard(self, name: str, report: Report, now: float) -> None:
        """Takes in what a member told, at ``now`` seconds."""
        member = self.members[name]
        match report:
            case Called(callback="on_assign") if member.alive:
                member.owned |= frozenset(report.partitions)
            case Called():
                member.owned -= frozenset(report.partitions)
            case Rebalanced(error=None) if member.alive:
                member.state = State.JOINED
                member.generation, member.role = report.generation, report.role
            case Progress():
                _advance(member, report, now)
            case Committed():
                for partition, offset in report.offsets.items():
                    was = self._committed.get(partition, 0)
                    self._committed[partition] = max(was, offset)
            case Exposition():
                member.exposition = report.text
            case _:
                pass

    @property
    def committed(self) -> int:
        """Records that the group has committed (its offsets begin at 0)."""
        return sum(self._committed.values())

    @property
    def arrivals(self) -> dict[str, Total]:
        """Delays by destination so far, repeats included."""
        return merged(member.arrivals for member in self.members.values())

    def owners(self) -> list[int | None]:
        """For each partition the number of the member that owns it."""
        owner: dict[int, int] = {p: m.number for m in self.members.values() for p in m.owned}
        return [owner.get(partition) for partition in range(self.partitions)]

    def settled(self, size: int) -> bool:
        """Whether so many members share all partitions."""
        owners = self.owners()
        return None not in owners and len(set(owners)) == size

    def leader(self) -> str | None:
        """The member that led the latest round, if it is alive."""
        leaders = [
            (member.generation, name)
            for name, member in self.members.items()
            if member.alive and member.role == "leader"
        ]
        return max(leaders)[1] if leaders else None

    def committed_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """Where the group would go on with these partitions."""
        return {partition: self._committed.get(partition, 0) for partition in sorted(partitions)}

    def has_committed(self, ends: Mapping[int, int]) -> bool:
        """Whether the group has committed everything up to these offsets."""
        return all(self._committed.get(partition, 0) >= end for partition, end in ends.items())


def _advance(member: MemberView, report: Progress, now: float) -> None:
    if member.alive and now > member.heard_at > 0:
        member.rate = (report.processed - member.processed) / (now - member.heard_at)
    member.heard_at = now
    member.processed = report.processed
    member.arrivals = report.arrivals
