"""Whether the group of a benchmark is settled, by the logs of its members.

The logs are those of `benchmarks.rebalance_member`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_coop.planning.table import runs
from kafka_coop.types import Partitions


@dataclass(slots=True)
class MemberLog:
    """One member's log, read on as it grows.

    Attributes:
        path: Where it is; there is no file before the member is ready for signals.
        ready: Whether there is one.
        owned: The partitions that callbacks have brought and not taken away.
        delivered: Those of them that have delivered a record since they came.
    """

    path: Path
    ready: bool = False
    owned: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    _read: int = 0

    def read_on(self) -> None:
        """Reads what was written since. A line not yet whole is left for the next time."""
        if not self.path.exists():
            return
        self.ready = True
        with self.path.open("rb") as log:
            log.seek(self._read)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        for line in whole.decode().splitlines():
            match line.split():
                case [_, "+", which]:
                    self.owned |= _numbers(which)
                case [_, "-", which]:
                    self.owned -= _numbers(which)
                    self.delivered -= _numbers(which)
                case [_, "r", partition, *_] if int(partition) in self.owned:
                    self.delivered.add(int(partition))

    def __str__(self) -> str:
        if not self.ready:
            return "is not ready"
        silent = self.owned - self.delivered
        return f"owns {_shown(self.owned)}" + (f", silent: {_shown(silent)}" if silent else "")


def settled(members: Mapping[int, MemberLog], partitions: int) -> bool:
    """Whether these members share all partitions evenly, and deliver whatever they own."""
    owned = sorted(p for member in members.values() for p in member.owned)
    sizes = [len(member.owned) for member in members.values()]
    return (
        owned == list(range(partitions))
        and max(sizes) - min(sizes) <= 1
        and all(member.delivered == member.owned for member in members.values())
    )


def _numbers(which: str) -> set[int]:
    return {int(number) for number in which.split(",")}


def _shown(partitions: set[int]) -> str:
    return runs(Partitions({"partitions": sorted(partitions)})) if partitions else "nothing"
