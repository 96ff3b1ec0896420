"""What each error code means for a commit, and for the search of a starting position.

What the same code says of the *membership* is in `kafka_coop.membership.responses`: a commit
that is refused with UNKNOWN_MEMBER_ID fails here and resets the member there.
"""

from __future__ import annotations

import enum

from kafka_coop.protocol.error_codes import ErrorCode, Table


class Reaction(enum.Enum):
    """What is done about one partition's error."""

    DONE = "nothing: it worked"
    RETRY = "try again after a backoff, until the deadline"
    RETRY_BRIEFLY = "try again a few times: a deleted topic answers so forever (KAFKA-16224)"
    REDISCOVER = "the coordinator is elsewhere: look for it, then try again"
    REJUDGE = "the membership is in question: tell it, then see what is still ours"
    RAISE = "give up with the error"


E = ErrorCode
R = Reaction

COMMIT = Table(
    {
        E.none: R.DONE,
        E.unknown_topic_or_partition: R.RETRY_BRIEFLY,
        E.coordinator_load_in_progress: R.RETRY,
        E.coordinator_not_available: R.REDISCOVER,
        E.not_coordinator: R.REDISCOVER,
        E.request_timed_out: R.REDISCOVER,
        # Between JoinGroup and SyncGroup nothing can be committed. What is still ours
        # after the round is committed then, under the new generation: a commit loop that
        # meets a rebalance must neither fail nor lose its assignment (librdkafka#4059).
        E.rebalance_in_progress: R.REJUDGE,
        E.illegal_generation: R.REJUDGE,
        E.unknown_member_id: R.REJUDGE,
        E.fenced_instance_id: R.REJUDGE,
    },
    otherwise=R.RAISE,  # 12, 28, 29, 30 and whatever comes
)

OFFSET_FETCH = Table(
    {
        E.none: R.DONE,
        E.coordinator_not_available: R.REDISCOVER,
        E.not_coordinator: R.REDISCOVER,
        E.unstable_offset_commit: R.RETRY,
        E.unknown_topic_or_partition: R.RAISE,
        **{
            e: R.RETRY
            for e in E
            if e.retriable
            and e
            not in (
                E.coordinator_not_available,
                E.not_coordinator,
                E.unknown_topic_or_partition,
            )
        },
    },
    otherwise=R.RAISE,  # 29, 30 and whatever comes
)

LIST_OFFSETS = Table(
    {E.none: R.DONE, **{e: R.RETRY for e in E if e.retriable}},
    otherwise=R.RAISE,
)
"""Sent to partition leaders: a stale leader is a reason to look again, so to retry."""
