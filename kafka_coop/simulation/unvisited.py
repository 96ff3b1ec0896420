"""Cells of the member's table that schedules may leave unvisited, each with its reason.

A schedule visits what users, brokers and time bring about in the box. These cells it visits never,
or once in thousands of runs: they are there because a driver may get there all the same, and the
membership's own tests give the machine such events one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from kafka_coop.membership.events import (
    AssignmentComputed,
    Close,
    CommitRefused,
    CoordinatorLost,
    CoordinatorWanted,
    Drain,
    EnforceRebalance,
    Event,
    JoinAnswered,
    LeaveAnswered,
    MetadataAnswered,
    Polled,
    StepDone,
    StepWithdrawn,
    Subscribe,
    SyncAnswered,
    Tick,
    Unsubscribe,
)
from kafka_coop.membership.states import State

Cell: TypeAlias = tuple[State, type[Event]]

S = State

ENOUGH = 20_000
"""Schedules that visit every cell but these."""

_ROUND = (S.LEADING, S.SYNCING, S.ADOPTING, S.STABLE)

_REASONS: tuple[tuple[str, Mapping[type[Event], tuple[State, ...]]], ...] = (
    (
        "no deadline runs out of the group, and the box polls and ticks for deadlines alone",
        {Polled: (S.UNSUBSCRIBED, S.CLOSED), Tick: (S.UNSUBSCRIBED,)},
    ),
    (
        "who withdraws a step waits until it is back, before it joins",
        {StepWithdrawn: (S.JOINING, *_ROUND)},
    ),
    (
        "an aborted JoinGroup is not answered; one that was, and is read after a stop, is rare",
        {JoinAnswered: (S.UNSUBSCRIBED, S.UNJOINED, S.PREPARING, *_ROUND, S.CLOSED)},
    ),
    (
        "a connection keeps its order: a SyncGroup is answered before the JoinGroup behind it",
        {SyncAnswered: (S.LEADING, S.ADOPTING, S.STABLE)},
    ),
    (
        "evicted while SyncGroup is out, and held up on the way to the next JoinGroup: rare",
        {SyncAnswered: (S.UNJOINED, S.PREPARING)},
    ),
    (
        "LeaveGroup fails when its patience ends, and not later; a round does not fit in before",
        {LeaveAnswered: (S.UNSUBSCRIBED, S.JOINING, *_ROUND, S.CLOSED)},
    ),
    (
        "an assignor that is slower than its round, which another one has followed: rare",
        {
            AssignmentComputed: (
                S.UNJOINED,
                S.PREPARING,
                S.JOINING,
                S.SYNCING,
                S.ADOPTING,
                S.STABLE,
                S.CLOSED,
            )
        },
    ),
    (
        "close() finishes the step that the user is at first",
        {Close: (S.PREPARING, S.ADOPTING)},
    ),
    (
        "a commit has to fail in the milliseconds of a round's one step: rare",
        {
            CoordinatorLost: (S.LEADING, S.SYNCING),
            CoordinatorWanted: (S.SYNCING,),
            CommitRefused: (S.UNJOINED, S.ADOPTING),
        },
    ),
    (
        "nothing is committed out of the group, and what was under way is answered before: rare",
        {CommitRefused: (S.UNSUBSCRIBED,), CoordinatorLost: (S.UNSUBSCRIBED,)},
    ),
    (
        "who has asked to leave asks once more, within the milliseconds that leaving takes: rare",
        {Drain: (S.UNSUBSCRIBED, S.LEAVING), Unsubscribe: (S.LEAVING,)},
    ),
    (
        "asked in another thread, or after a Ctrl-C, within the milliseconds that closing takes",
        dict.fromkeys((Subscribe, Unsubscribe, Close, Drain, EnforceRebalance), (S.CLOSED,)),
    ),
    (
        "a process ends within a hop of its close()",
        {
            CommitRefused: (S.CLOSED,),
            CoordinatorLost: (S.CLOSED,),
            CoordinatorWanted: (S.CLOSED,),
            MetadataAnswered: (S.CLOSED,),
            StepDone: (S.CLOSED,),
        },
    ),
)


def _by_cell() -> Iterator[tuple[Cell, str]]:
    for reason, cells in _REASONS:
        for event, states in cells.items():
            for state in states:
                yield (state, event), reason


UNVISITED: Mapping[Cell, str] = dict(_by_cell())
"""Cell -> why."""
