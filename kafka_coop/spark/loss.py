"""Offsets that the log has no more, or not yet: what to do about them. Pure."""

from __future__ import annotations

import logging

from kafka_coop.spark.errors import DataLossError, name_of
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.options import StreamOptions
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")


def position_within(of: TopicPartition, position: int, log: Range, options: StreamOptions) -> int:
    """Where to go on in a log that may not reach to the position.

    Args:
        of: The partition.
        position: The next offset to be read.
        log: What the partition has: from its first record to its end.
        options: ``failOnDataLoss``, and what ``startingOffsets`` says.

    Returns:
        The position, or the end of the log that is nearest to it.

    Raises:
        DataLossError: It is outside the log, and ``failOnDataLoss`` is true.
    """
    if log.start <= position <= log.stop:
        return position
    name, option = name_of(of), options.starting.option
    if position > log.stop:
        nearest, word = log.stop, "end"
        what = (
            f"{name} ends at {log.stop}, before the position {position}: the topic was made anew, "
            "or lost records in an unclean election"
        )
    else:
        nearest, word = log.start, "beginning"
        what = (
            f"{name} begins at {log.start}, after the position {position}: the records between "
            "were deleted (retention, a topic made anew) before they were read"
        )
    if not options.fail_on_data_loss:
        _LOG.warning("failOnDataLoss=false: %s; going on from there", what)
        return nearest
    remedy = f"To go on from its {word}, set failOnDataLoss=false; or reset the group's offsets"
    if (options.starting.offsets or {}).get(of) == position:
        remedy = f"Correct {option}, or set failOnDataLoss=false to go on from its {word}"
    raise DataLossError(f"{what}. {remedy}")
