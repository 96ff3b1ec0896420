"""What the query has read is not there any more, or is not what it was: told with its remedy."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException

from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.spark.errors import CheckpointError, DataLossError
from kafka_coop.spark.offsets import SourceOffset
from kafka_coop.spark.options import StreamOptions
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")


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
    if not went:
        return True
    pause = options.retry_interval.total_seconds()
    try:
        deleted = deleted_among({of.topic for of in went}, logs, pause)
    except KafkaException:
        return not options.fail_on_data_loss  # it would only be logged, which may be left out
    _refuse_deleted(deleted, options)
    return True


def refuse_deleted_since(
    checkpoint: SourceOffset, there: Collection[str], logs: LogOffsets, options: StreamOptions
) -> frozenset[str]:
    """A topic may be deleted while no query runs; a pattern then matches one less.

    Args:
        checkpoint: Of which partitions something was held, and what there was before.
        there: The topics that the options ask for, and that there are.
        logs: Who knows the others.
        options: ``failOnDataLoss``, and what ``subscribe`` names.

    Returns:
        Those that were, where ``failOnDataLoss`` is false.

    Raises:
        DataLossError: One is gone, and ``failOnDataLoss`` is true.
        KafkaException: No broker answers.
    """
    known = checkpoint.read_topics | (checkpoint.topics.keys() & {*options.topics})
    lacking = {topic for topic in known - {*there} if options.asks_for(topic)}
    deleted = deleted_among(lacking, logs, options.retry_interval.total_seconds())
    _refuse_deleted(deleted, options)
    return deleted


def _refuse_deleted(topics: Collection[str], options: StreamOptions) -> None:
    if not topics:
        return
    what = (
        f"{', '.join(sorted(topics))}: the query or its group has read it, and it was deleted (or "
        "may not be described any more); what was not read is gone"
    )
    if options.fail_on_data_loss:
        raise DataLossError(f"{what}. To go on with the other topics, set failOnDataLoss=false")
    _LOG.warning("failOnDataLoss=false: %s", what)
