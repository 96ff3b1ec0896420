"""The member's states, the edges between them, and which handler meets which event.

Everything that decides what may follow what is in this module. A pair of state and event
without a cell is an error of whoever drives the machine: it raises and changes nothing.

Java's names for the four middle states: UNJOINED and PREPARING are its UNJOINED; JOINING its
PREPARING_REBALANCE; LEADING and SYNCING its COMPLETING_REBALANCE; ADOPTING and STABLE its
STABLE.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kafka_coop.membership.events import (
    AssignmentComputed,
    Close,
    CommitRefused,
    CoordinatorAnswered,
    CoordinatorLost,
    CoordinatorWanted,
    Drain,
    EnforceRebalance,
    Event,
    HeartbeatAnswered,
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


class State(enum.Enum):
    """Where a member stands with its group."""

    UNSUBSCRIBED = "wants no group"
    UNJOINED = "wants to join, and gathers what that takes"
    PREPARING = "the user's thread gives partitions up before the join"
    JOINING = "JoinGroup is out"
    LEADING = "elected leader: metadata, then the assignor"
    SYNCING = "SyncGroup is out"
    ADOPTING = "the user's thread gives up what went to others"
    STABLE = "in the group, nothing to do"
    LEAVING = "the user's thread gives everything up, then LeaveGroup"
    CLOSED = "gone for good"

    # Members are told apart by identity; Enum's own hash is a call of Python for each look-up.
    __hash__ = object.__hash__


S = State

EDGES: Mapping[State, frozenset[State]] = {
    S.UNSUBSCRIBED: frozenset({S.UNJOINED, S.CLOSED}),
    S.UNJOINED: frozenset({S.PREPARING, S.JOINING, S.LEAVING}),
    S.PREPARING: frozenset({S.UNJOINED, S.LEAVING}),
    S.JOINING: frozenset({S.LEADING, S.SYNCING, S.UNJOINED, S.LEAVING}),
    S.LEADING: frozenset({S.SYNCING, S.UNJOINED, S.LEAVING}),
    S.SYNCING: frozenset({S.ADOPTING, S.STABLE, S.UNJOINED, S.LEAVING}),
    S.ADOPTING: frozenset({S.STABLE, S.UNJOINED, S.LEAVING}),
    S.STABLE: frozenset({S.UNJOINED, S.LEAVING}),
    S.LEAVING: frozenset({S.UNSUBSCRIBED, S.CLOSED}),
    S.CLOSED: frozenset(),
}

OUT = frozenset({S.UNSUBSCRIBED, S.CLOSED})
"""Nothing is wanted of the group."""

MEMBER = frozenset(State) - OUT - {S.LEAVING}
"""In the group, or on the way into it."""

ALL = frozenset(State)


def _cells(
    *rows: tuple[type[Event], frozenset[State] | set[State], str],
) -> Mapping[tuple[State, type[Event]], str]:
    cells: dict[tuple[State, type[Event]], str] = {}
    for event, states, handler in rows:
        for state in states:
            if (state, event) in cells:
                raise AssertionError(f"two cells for {state} and {event.__name__}")
            cells[state, event] = handler
    return cells


_ASKED = (Subscribe, Unsubscribe, Close, Drain, EnforceRebalance)

CELLS: Mapping[tuple[State, type[Event]], str] = _cells(
    # The user. A closed member does nothing more: a second thread, the last on_commit, or a `close`
    # after one that a Ctrl-C ended may have asked before they could know.
    (Subscribe, {S.UNSUBSCRIBED}, "begin"),
    (Subscribe, MEMBER, "resubscribe"),
    (Subscribe, {S.LEAVING}, "resubscribe_after_leaving"),
    (Unsubscribe, MEMBER, "leave"),
    (Unsubscribe, {S.UNSUBSCRIBED}, "nothing"),
    (Unsubscribe, {S.LEAVING}, "unsubscribe_after_leaving"),
    (Close, {S.UNSUBSCRIBED}, "close_at_once"),
    (Close, MEMBER | {S.LEAVING}, "close"),
    *((asked, {S.CLOSED}, "nothing") for asked in _ASKED),
    (Drain, MEMBER, "drain"),
    (Drain, {S.UNSUBSCRIBED, S.LEAVING}, "nothing"),
    (EnforceRebalance, MEMBER, "enforce_rebalance"),
    (EnforceRebalance, {S.UNSUBSCRIBED, S.LEAVING}, "nothing"),
    (Polled, ALL, "polled"),
    # The user's thread answers for its steps, whatever happened meanwhile.
    (StepDone, MEMBER | {S.UNSUBSCRIBED, S.LEAVING}, "step_done"),
    (StepDone, {S.CLOSED}, "nothing"),  # an on_assign that was slower than LeaveGroup
    (StepWithdrawn, MEMBER | {S.LEAVING}, "step_withdrawn"),
    # Brokers. Answers that are not awaited any more are told apart by their tokens.
    (CoordinatorAnswered, ALL, "coordinator_answered"),
    (MetadataAnswered, MEMBER, "metadata_answered"),
    (MetadataAnswered, OUT | {S.LEAVING}, "nothing"),
    (JoinAnswered, {S.JOINING}, "join_answered"),
    (JoinAnswered, {S.LEAVING}, "join_answered_while_leaving"),
    (JoinAnswered, ALL - {S.JOINING, S.LEAVING}, "nothing"),
    (SyncAnswered, {S.SYNCING}, "sync_answered"),
    (SyncAnswered, ALL - {S.SYNCING}, "nothing"),
    (HeartbeatAnswered, MEMBER | {S.LEAVING}, "heartbeat_answered"),
    (HeartbeatAnswered, OUT, "nothing"),
    (LeaveAnswered, {S.LEAVING}, "leave_answered"),
    (LeaveAnswered, ALL - {S.LEAVING}, "nothing"),
    (CommitRefused, MEMBER | {S.LEAVING}, "commit_refused"),
    (CommitRefused, OUT, "nothing"),
    (CoordinatorLost, ALL, "coordinator_lost"),
    (CoordinatorWanted, ALL, "coordinator_wanted"),
    # The leader's own work.
    (AssignmentComputed, {S.LEADING}, "assignment_computed"),
    (AssignmentComputed, ALL - {S.LEADING}, "nothing"),
    (Tick, ALL, "tick"),
)
