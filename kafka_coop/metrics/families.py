"""The metric families that count events as they happen.

Conventions of Prometheus: base units, ``_total`` on counters, and a histogram wherever Java's
client has a windowed average and maximum: histograms can be summed over members.

Every label below has a closed set of values, all of them bound when a member appears: a
counter that starts at zero shows its first increment to ``rate()``, and the number of series
is known beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeAlias, get_args

from prometheus_client import Counter, Histogram

from kafka_coop.protocol.error_codes import ErrorCode

PREFIX: Final = "kafka_coop_"
MEMBER_LABELS: Final = ("group", "client_id")

Phase: TypeAlias = Literal[
    "prepare", "join", "assign", "sync", "revoke", "commit", "assigned", "lost"
]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
"""The parts of a rebalance (`kafka_coop.membership.record.RebalanceRecord`), in their order."""

Change: TypeAlias = Literal["assigned", "revoked", "lost"]
CHANGES: Final[tuple[Change, ...]] = get_args(Change)
"""What can become of a partition here, and the callback that says so."""

Moves: TypeAlias = Literal["made", "fewest"]
MOVES: Final[tuple[Moves, ...]] = get_args(Moves)
"""What a plan takes from owners, and the least that any with these loads would."""

OTHER_REASON: Final = "other"
COMMIT_FAILURES: Final = (
    *(
        code.name
        for code in (
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.request_timed_out,
            ErrorCode.offset_metadata_too_large,
            ErrorCode.coordinator_load_in_progress,
            ErrorCode.coordinator_not_available,
            ErrorCode.not_coordinator,
            ErrorCode.illegal_generation,
            ErrorCode.unknown_member_id,
            ErrorCode.rebalance_in_progress,
            ErrorCode.invalid_commit_offset_size,
            ErrorCode.topic_authorization_failed,
            ErrorCode.group_authorization_failed,
            ErrorCode.fenced_instance_id,
        )
    ),
    OTHER_REASON,
)
"""Why a commit failed: what OffsetCommit can be answered with. illegal_generation is also what is
not ours to commit and is never sent, request_timed_out also that no coordinator answered."""

REQUEST_BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Seconds, for requests that a broker answers at once."""

ROUND_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Seconds, for whatever waits for other members or for the user: up to the default
``max.poll.interval.ms``, which bounds a round."""

ROUNDS_BUCKETS: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 10.0)


def _histogram(
    name: str, text: str, *labels: str, buckets: tuple[float, ...] = ROUND_BUCKETS
) -> Histogram:
    return Histogram(PREFIX + name, text, (*MEMBER_LABELS, *labels), buckets=buckets, registry=None)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(PREFIX + name, text, (*MEMBER_LABELS, *labels), registry=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFamilies:
    """One registry's families. None is registered by itself: their collector is, as one."""

    rebalance_latency: Histogram = field(
        default_factory=partial(
            _histogram,
            "rebalance_latency_seconds",
            "Completed rebalance rounds: from the first wish to join until the last callback.",
        )
    )
    rebalance_phase: Histogram = field(
        default_factory=partial(
            _histogram,
            "rebalance_phase_seconds",
            "The parts of completed rebalance rounds; a part that did not occur is not observed.",
            "phase",
        )
    )
    rebalance_rounds: Histogram = field(
        default_factory=partial(
            _histogram,
            "rebalance_rounds",
            "Rounds until a rebalance settled (KIP-429: two where partitions moved).",
            buckets=ROUNDS_BUCKETS,
        )
    )
    rebalance_failures: Counter = field(
        default_factory=partial(
            _counter, "rebalance_failures_total", "Rebalance rounds that ended without assignment."
        )
    )
    join_attempts: Counter = field(
        default_factory=partial(
            _counter, "join_attempts_total", "JoinGroup requests sent, retries included."
        )
    )
    moved_partitions: Counter = field(
        default_factory=partial(
            _counter, "moved_partitions_total", "Partitions that came or went.", "kind"
        )
    )
    planned_moves: Counter = field(
        default_factory=partial(
            _counter,
            "planned_moves_total",
            "Partitions that plans of this leader take from their owners, and the fewest possible.",
            "kind",
        )
    )
    unowned_seconds: Counter = field(
        default_factory=partial(
            _counter,
            "unowned_partition_seconds_total",
            "Partitions times seconds between being taken away and given, as their leader saw it.",
        )
    )
    join_latency: Histogram = field(
        default_factory=partial(
            _histogram,
            "join_latency_seconds",
            "From a round's first JoinGroup until one was granted.",
        )
    )
    sync_latency: Histogram = field(
        default_factory=partial(
            _histogram, "sync_latency_seconds", "SyncGroup requests that were granted."
        )
    )
    heartbeat_latency: Histogram = field(
        default_factory=partial(
            _histogram,
            "heartbeat_latency_seconds",
            "Heartbeats that were acknowledged.",
            buckets=REQUEST_BUCKETS,
        )
    )
    heartbeat_failures: Counter = field(
        default_factory=partial(
            _counter, "heartbeat_failures_total", "Heartbeats refused, or without an answer."
        )
    )
    commit_latency: Histogram = field(
        default_factory=partial(
            _histogram,
            "commit_latency_seconds",
            "Offset commits that succeeded.",
            buckets=REQUEST_BUCKETS,
        )
    )
    commit_failures: Counter = field(
        default_factory=partial(
            _counter, "commit_failures_total", "Offset commits given up.", "reason"
        )
    )
    callback_latency: Histogram = field(
        default_factory=partial(
            _histogram, "callback_latency_seconds", "The user's rebalance callbacks.", "callback"
        )
    )
    callback_failures: Counter = field(
        default_factory=partial(
            _counter, "callback_failures_total", "Rebalance callbacks that raised.", "callback"
        )
    )
