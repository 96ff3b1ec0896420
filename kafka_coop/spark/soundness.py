"""What would make a query's results wrong: told with its remedy, and the query stops."""

from __future__ import annotations

from collections.abc import Collection

from kafka_coop.spark.errors import MembershipError, names_of
from kafka_coop.spark.neighbours import Shared
from kafka_coop.spark.offsets import TakenOver
from kafka_coop.spark.options import StreamOptions
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.types import TopicPartition

_KEEPING_TOGETHER = frozenset({"range", "stream-join-sticky"})
"""Strategies that give all topics' partitions of one number to one member: ``range`` where topics
have equally many, and all members read the same topics."""

_KEEPS_STATE = (
    "keeps state, which stays in its checkpoint: results would be wrong. {give} the query a group "
    "of its own; or, if it joins or removes duplicates and does not aggregate, set replayHorizon "
    "to the time that its state reaches back, with a sink that is idempotent (docs/SPARK.md)"
)
_AGGREGATES = (
    "aggregates: what replayHorizon has it read again, it counts twice where the partition was "
    "here before, and in part where a window began before the horizon. {give} the query a group "
    "of its own, or aggregate what its sink has (docs/SPARK.md)"
)
_ELSEWHERE = "Set checkpointLocation to a new folder, for this one is the group's, and give"
_AFRESH = (
    "This checkpoint has gone on from there, and no option mends it: set checkpointLocation to a "
    "new folder, and give"
)


def refuse_competition(its: Rendezvous, group: str) -> None:
    """Two sources of one query divide the partitions between them.

    Raises:
        MembershipError: There are two.
    """
    if its.is_in_competition():
        raise MembershipError(
            f"two sources of the query are members of the group {group!r} and "
            "read the same topics: what one of them reads, the other does not. A frame that is "
            "joined with itself is one source where each side renames its columns (select with "
            "aliases), and two where they have the same. Rename them, or give each source a "
            "kafka.group.id of its own; and set checkpointLocation to a new folder, for what this "
            "one has is read in part (docs/SPARK.md)"
        )


def refuse_moved_state(
    moved: Collection[TopicPartition], its: Rendezvous, options: StreamOptions
) -> None:
    """Partitions moved, and the query's state did not move with them.

    Raises:
        MembershipError: It keeps state for which that is wrong.
    """
    if moved and (why := _wrong(_coming(options), its)):
        raise MembershipError(
            f"{names_of(moved)} moved between this query and other members of the group "
            f"{options.group!r}, and the query {why.format(give=_ELSEWHERE)}"
        )


def refuse_shared_state(shared: Shared, its: Rendezvous, options: StreamOptions) -> None:
    """Others have partitions of the same topics: of what is counted, each has a part.

    Nothing need have moved: members that come to a new group together divide it in its first round.
    And what is not wrong yet will be, with the first partition that moves.

    Args:
        shared: What other members of the group have of the topics.
        its: What is known of the query.
        options: The source's.

    Raises:
        MembershipError: They have some, and the query keeps state for which that is wrong.
    """
    if not shared.partitions:
        return
    theirs = (
        f"other members of the group {options.group!r} have {names_of(shared.partitions)} of the "
        "topics that the query reads"
    )
    if why := _wrong(_coming(options), its):
        raise MembershipError(f"{theirs}, and the query {why.format(give=_ELSEWHERE)}")
    if its.is_joining() and shared.strategy not in _KEEPING_TOGETHER:
        raise MembershipError(
            f"{theirs}, the query joins streams, and {shared.strategy} may give partitions of one "
            "number to two members, whose records then never meet: set "
            "kafka.partition.assignment.strategy=stream-join-sticky for all members of the group "
            "(docs/SPARK.md)"
        )


def refuse_taken_state(taken: TakenOver, its: Rendezvous, options: StreamOptions) -> None:
    """The checkpoint has batches of partitions that came from others, and its query keeps state.

    It need not have been known when they came: a query is known to keep state by its first
    progress. After that its claims are its own, and a run that goes on from them sees nothing move.

    Raises:
        MembershipError: What the state has of them is wrong, and stays so.
    """
    if why := _wrong(taken, its):
        raise MembershipError(
            "partitions came to this query from other members of the group "
            f"{options.group!r}, and the query {why.format(give=_AFRESH)}"
        )


def _coming(options: StreamOptions) -> TakenOver:
    """How partitions come that others have read."""
    replays = options.horizon is not None
    return TakenOver(bare=not replays, replayed=replays)


def _wrong(taken: TakenOver, its: Rendezvous) -> str:
    """What partitions that came so make wrong; empty: nothing."""
    if taken.bare and its.is_stateful():
        return _KEEPS_STATE
    if taken.replayed and its.is_aggregating():
        return _AGGREGATES
    return ""
