"""A pause within the session takes nothing from a member, where nothing else is to blame. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.outcome import NANO, Injected

PAUSE: Final = "member paused within its session"


def taken_by_pauses(
    faults: Sequence[Injected], journals: Mapping[str, Sequence[Event]], session: timedelta
) -> list[str]:
    """Who was told on_lost because of such a pause alone; each in words.

    Whatever a pause does to its member is heard of within a session after it. Where another fault
    was under way from a session before the pause on, it may have been that one, and nothing is
    said; but others' pauses are no excuse.
    """
    within = session // timedelta(microseconds=1) * 1000
    found = []
    for pause in faults:
        if pause.name != PAUSE:
            continue
        last = pause.excuses_until + within
        for event in journals.get(pause.member, ()):
            if event.kind != "L" or not event.partitions or not pause.at <= event.at <= last:
                continue
            others = (f for f in faults if f is not pause and _may_be_it(f, pause))
            if not any(f.at <= event.at and f.excuses_until + within >= pause.at for f in others):
                after = (event.at - pause.at) / NANO
                found.append(f"{pause.member} lost {event.partitions} {after:.1f} s after its stop")
    return found


def _may_be_it(fault: Injected, pause: Injected) -> bool:
    return fault.name != PAUSE or fault.member == pause.member
