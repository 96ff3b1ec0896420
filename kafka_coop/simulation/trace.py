"""What happened in a run, one short line each, to be read by a person."""

from __future__ import annotations

from kafka_coop.types import Partitions


class Trace:
    """Lines in the order of virtual time."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, now: float, who: str, what: str) -> None:
        """Adds a line: when, who, what."""
        self.lines.append(f"{now:9.4f}  {who:<10} {what}")

    def __str__(self) -> str:
        return "\n".join(self.lines)


def briefly(partitions: Partitions) -> str:
    """The partitions as ``orders[0,1,4] clicks[2]``."""
    return " ".join(f"{t}[{','.join(map(str, a.tolist()))}]" for t, a in partitions.items()) or "∅"
