"""The verdict on a run: from its journals and what its result has recorded. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.liveness import (
    MACHINE,
    RECONNECT,
    Wait,
    blame,
    ownerless,
    silences,
    too_long,
)
from kafka_coop.testing.trial.member import LONGEST_TRANSACTION
from kafka_coop.testing.trial.outcome import (
    KILL,
    NANO,
    OTHERS_HEARTBEAT,
    Injected,
    Result,
    nanoseconds,
)
from kafka_coop.testing.trial.pauses import alone, taken_by_pauses
from kafka_coop.testing.trial.slow_users import slow_revocations
from kafka_coop.testing.trial.verdict import Stop, judge, miscommitted, prefixes, tenures

_FATAL: Final = "KafkaError{FATAL"
_FOR_LONG: Final = ("member paused at the session's edge", "member paused beyond its session")


def assess(result: Result, journals: Mapping[str, Sequence[Event]]) -> None:
    """Fills in what the judge finds. A verdict that is there already is written over."""
    transactions = bool(result.plan["transactions"])
    deaf = result.session + (LONGEST_TRANSACTION if transactions else timedelta(0))
    unheard = {  # others have no lease
        name: nanoseconds(deaf) for name in journals if name not in result.others
    }
    verdict = judge(
        journals,
        result.ends,
        killed=result.killed,
        stops=stops(result.faults),
        unheard=unheard,
    )
    result.processes = len(journals)
    result.produced, result.processed = verdict.produced, verdict.processed
    result.repeated, result.handovers = verdict.repeated, verdict.handovers
    result.overlaps = [str(o) for o in verdict.overlaps]
    result.strays = len(verdict.strays)
    result.late, late_of_others = _counted(verdict.late, result.others)
    result.in_hand, in_others_hands = _counted(verdict.in_hand, result.others)
    result.late_of_others = late_of_others + in_others_hands
    result.lost = len(verdict.lost)
    if transactions:
        # A kill between commit and journal leaves no line, and a commit's answer that comes late
        # one that is late: the output is judged.
        result.late = result.in_hand = result.lost = 0
    if result.committed is not None:
        processed = result.ends if transactions else prefixes(journals)
        result.miscommitted = miscommitted(result.committed, result.ends, processed)
    pauses = result.faults, journals, result.session
    result.taken_by_pauses, result.lone_pauses = taken_by_pauses(*pauses), alone(*pauses)
    result.slow, result.outlived, result.evicted_slow = slow_revocations(journals)
    result.fatal = _fatal(journals, result.others)
    _assess_waits(result, journals)


def _fatal(journals: Mapping[str, Sequence[Event]], others: Container[str]) -> list[str]:
    """Errors after which a member of ours is none any more, as its user was told.

    What a producer says of its transaction has other words before it.
    """
    return [
        f"{name}: {event.text}"
        for name, events in journals.items()
        if name not in others
        for event in events
        if event.kind == "E" and event.text.startswith(_FATAL)
    ]


def _counted(records: Sequence[tuple[str, Event]], others: Container[str]) -> tuple[int, int]:
    """How many are of ours, and of others."""
    of_others = sum(name in others for name, _ in records)
    return len(records) - of_others, of_others


def _assess_waits(result: Result, journals: Mapping[str, Sequence[Event]]) -> None:
    # The fault came first, the end of the process a moment later: the wait is the fault's.
    killed = result.killed | {f.member: f.at for f in result.faults if f.name == KILL}
    stopped = stops(result.faults)
    held = [t for name, events in journals.items() for t in tenures(name, events, killed, stopped)]
    without, quiet = ownerless(held, result.born()), silences(journals, result.born())
    limits = (result.faults, result.session)
    slack = MACHINE + (LONGEST_TRANSACTION if result.plan["transactions"] else timedelta(0))
    if result.others:  # they hear of a round by a heartbeat, and of its follow-up by another
        slack += 2 * OTHERS_HEARTBEAT
    result.longest_ownerless, result.longest_silence = _longest(without), _longest(quiet)
    result.ownerless_too_long = too_long(without, *limits, slack)
    result.silent_too_long = too_long(quiet, *limits, slack + RECONNECT)
    result.faults = [
        replace(fault, silent=silent, ownerless=nobodys)
        for fault, silent, nobodys in zip(
            result.faults,
            blame(result.faults, quiet),
            blame(result.faults, without),
            strict=True,
        )
    ]


def _longest(waits: Sequence[Wait]) -> float:
    return max((wait.lasting for wait in waits), default=0) / NANO


def stops(faults: Sequence[Injected]) -> list[Stop]:
    """Those at the session's edge or beyond: only then can somebody else have begun meanwhile."""
    return [
        Stop(
            member=fault.member,
            since=fault.at,
            until=(until := fault.at + int(fault.lasting * NANO)),
            over=max(until, fault.until),
        )
        for fault in faults
        if fault.name in _FOR_LONG
    ]
