"""A pause within the session takes nothing from a member, where nothing else is to blame. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.outcome import NANO, Injected, nanoseconds

PAUSE: Final = "member paused within its session"


def taken_by_pauses(
    faults: Sequence[Injected], journals: Mapping[str, Sequence[Event]], session: timedelta
) -> list[str]:
    """Who was told on_lost because of such a pause alone; each in words.

    Whatever a pause does to its member is heard of within a session after it. Where a fault of the
    brokers, of their network or of the same member was under way from a session before the pause
    on, it may have been that one, and nothing is said; what befalls other members is no excuse.
    """
    found = []
    for pause in _pauses(faults, journals):
        for event in journals[pause.member]:
            if event.kind != "L" or not event.partitions:
                continue
            if pause.at <= event.at <= _heard_by(pause, session) and not _is_excused(
                pause, event.at, faults, session
            ):
                after = (event.at - pause.at) / NANO
                found.append(f"{pause.member} lost {event.partitions} {after:.1f} s after its stop")
    return found


def alone(
    faults: Sequence[Injected], journals: Mapping[str, Sequence[Event]], session: timedelta
) -> int:
    """How many pauses nothing would have excused, whenever on_lost had come."""
    return sum(
        not _is_excused(pause, _heard_by(pause, session), faults, session)
        for pause in _pauses(faults, journals)
    )


def _pauses(
    faults: Sequence[Injected], journals: Mapping[str, Sequence[Event]]
) -> Iterator[Injected]:
    return (fault for fault in faults if fault.name == PAUSE and fault.member in journals)


def _heard_by(pause: Injected, session: timedelta) -> int:
    return pause.excuses_until + nanoseconds(session)


def _is_excused(
    pause: Injected, lost_at: int, faults: Sequence[Injected], session: timedelta
) -> bool:
    return any(
        fault.at <= lost_at and _heard_by(fault, session) >= pause.at
        for fault in faults
        if fault is not pause and (fault.member == pause.member or not fault.member)
    )
