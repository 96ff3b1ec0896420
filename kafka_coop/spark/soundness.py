"""What would make a query's results wrong: told with its remedy, and the query stops."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException

from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.spark.errors import CheckpointError, DataLossError, MembershipError, names_of
from kafka_coop.spark.offsets import SourceOffset, TakenOver
from kafka_coop.spark.options import StreamOptions
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")

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
            "kafka.group.id of its own (docs/SPARK.md)"
        )


def refuse_moved_state(
    moved: Collection[TopicPartition], its: Rendezvous, options: StreamOptions
) -> None:
    """Partitions moved, and the query's state did not move with them.

    Raises:
        MembershipError: It keeps state for which that is wrong.
    """
    if not moved:
        return
    replays = options.horizon is not None
    how = TakenOver(bare=not replays, replayed=replays)
    if why := _wrong(how, its):
        raise MembershipError(
            f"{names_of(moved)} moved between this query and other members of the group "
            f"{options.group!r}, and the query {why.format(give='Give')}"
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


def _wrong(taken: TakenOver, its: Rendezvous) -> str:
    """What partitions that came so make wrong; empty: nothing."""
    if taken.bare and its.is_stateful():
        return _KEEPS_STATE
    if taken.replayed and its.is_aggregating():
        return _AGGREGATES
    return ""


def refuse_another_cluster(checkpoint: SourceOffset, here: str) -> None:
    """Topics of the same names have other records there, at these offsets.

    Raises:
        CheckpointError: The checkpoint is of another cluster than the one that is here.
    """
    if checkpoint.cluster and here and checkpoint.cluster != here:
        raise CheckpointError(
            f"the checkpoint is of the cluster {checkpoint.cluster}, and "
            f"kafka.bootstrap.servers leads to the cluster {here}, where its offsets mean "
            "nothing: set the option back, or set checkpointLocation to a new folder"
        )


def refuse_other_topics(made_anew: Mapping[str, str], options: StreamOptions) -> None:
    """Topics were deleted and made anew: what was not read of the old ones is gone.

    Args:
        made_anew: Their names, and the ids under which they were read.
        options: ``failOnDataLoss``: else they are begun from their beginnings.

    Raises:
        DataLossError: There are some, and it is true.
    """
    if not made_anew:
        return
    names = ", ".join(f"{topic} (id {id_} before)" for topic, id_ in sorted(made_anew.items()))
    what = f"deleted and made anew since the query read it: {names}"
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}; what was not read before is gone, and positions there mean nothing now. To "
            "begin the new topic from its beginning, set failOnDataLoss=false"
        )
    _LOG.warning("failOnDataLoss=false: %s; begun from its beginning", what)


def deleted_among(topics: Collection[str], logs: LogOffsets, pause: float) -> frozenset[str]:
    """Those of them that are not there.

    Asked twice: a broker that has just started may not know them yet.

    Args:
        topics: The names.
        logs: Who knows.
        pause: Seconds between the two.

    Raises:
        KafkaException: No broker answers.
    """
    deleted = frozenset(topics) - logs.partition_counts(topics).keys()
    if deleted:
        time.sleep(pause)
        deleted -= logs.partition_counts(deleted).keys()
    return deleted


def refuse_deleted_topics(
    went: Collection[TopicPartition], logs: LogOffsets, options: StreamOptions
) -> bool:
    """Partitions went: to others, or with their topic, which leaves no log to tell of it.

    Returns:
        Whether that is known. False: no broker answers, and it is to be asked again.

    Raises:
        DataLossError: A topic is gone, and ``failOnDataLoss`` is true.
    """
    if not went or not options.fail_on_data_loss:
        return True
    try:
        deleted = deleted_among(
            {of.topic for of in went}, logs, options.retry_interval.total_seconds()
        )
    except KafkaException:
        return False
    if deleted:
        raise DataLossError(
            f"{', '.join(sorted(deleted))}: the query read from it, and it was deleted (or may "
            "not be described any more); what was not read is gone. To go on with the other "
            "topics, set failOnDataLoss=false"
        )
    return True
