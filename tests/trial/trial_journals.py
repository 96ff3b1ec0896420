"""Journals written by hand."""

from __future__ import annotations

from kafka_coop.testing.trial.journal import Event


def told(*lines: str, second: int = 1) -> list[Event]:
    """Events of ``A 1 0,1`` (assigned at time 1) and ``R 2 0 7`` (partition 0, offset 7).

    Args:
        lines: One an event.
        second: What their times are multiplied by.
    """
    events = []
    for line in lines:
        kind, at, *rest = line.split()
        numbers = tuple(int(n) for n in rest[0].split(",")) if rest else ()
        offset = int(rest[1]) if len(rest) > 1 else -1
        moment = round(float(at) * second)
        events.append(Event(kind=kind, at=moment, partitions=numbers, offset=offset))  # type: ignore[arg-type]  # a Kind
    return events
