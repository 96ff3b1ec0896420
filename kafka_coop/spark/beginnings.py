"""Where to begin partitions of which the checkpoint knows nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from kafka_coop.config import parse
from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.spark.extents import Extents
from kafka_coop.spark.holdings import Committed
from kafka_coop.spark.loss import position_within
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.option_values import EARLIEST, Boundary
from kafka_coop.spark.options import StreamOptions
from kafka_coop.spark.remembered import Remembered
from kafka_coop.spark.starting import horizon_start, resolve
from kafka_coop.types import TopicPartition


class Beginnings:
    """Of what others have read, or nobody yet. Called by the member's thread.

    Args:
        options: The source's.
        logs: Who knows the logs.
        extents: Who knows how far transactions reach in them.
        remembered: Which topics the checkpoint was begun with.
    """

    def __init__(
        self,
        options: StreamOptions,
        logs: LogOffsets,
        extents: Extents,
        remembered: Remembered,
    ) -> None:
        self._options = options
        self._logs = logs
        self._extents = extents
        self._remembered = remembered
        self._fetching = parse(options.kafka).fetcher

    def __call__(self, came: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
        """Where each is begun.

        A committed offset wins over startingOffsets. What was not there when the checkpoint was
        begun is read from its beginning, as the built-in source does: else the records between a
        partition's creation and its discovery would be skipped.

        Raises:
            DataLossError, KafkaException, LogsNotToldError, NoProgressError, OptionError
        """
        options = self._options
        positions = {of: c.offset for of, c in came.items() if c.offset is not None}
        if options.horizon is not None:
            positions |= {
                of: horizon_start(
                    of,
                    offset,
                    options.horizon,
                    logs=self._logs,
                    config=self._fetching,
                    patience=options.poll_timeout,
                    doubt=options.doubt,
                )
                for of, offset in positions.items()
                if came[of].has_been_read
            }
        fresh = [of for of in came if of not in positions]
        topics = self._remembered.topics
        new = [of for of in fresh if of.partition >= topics.get(of.topic, 0)]
        old = [of for of in fresh if of not in new]
        earliest = Boundary(option="startingOffsets", offset=EARLIEST)
        solve = functools.partial(resolve, logs=self._logs, latest_if_none=options.latest_if_none)
        begins = solve(options.starting, old)
        return positions | solve(earliest, new) | begins | self._within_the_logs(begins)

    def _within_the_logs(self, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """An offset of startingOffsets that the log does not have is told before it is claimed.

        Once committed it would go before the option, however that is corrected, and records would
        be skipped as soon as the log has grown to there.
        """
        named = self._options.starting.offsets or {}
        given = {of: at for of, at in begins.items() if named.get(of) == at}
        if not given:
            return {}
        first, last = self._logs.all_beginnings(given), self._logs.all_ends(given)
        if beyond := {of: at for of, at in given.items() if at > last[of]}:
            # By the first answer; a broker that is back from a crash tells another later.
            last |= self._logs.ends(beyond, known=beyond)
        reached = self._extents.reached_in_transactions(given, last)
        found = {}
        for of, at in given.items():
            log = Range(first[of], max(first[of], at if of in reached else last[of]))
            found[of] = position_within(of, at, log, self._options)
        return found
