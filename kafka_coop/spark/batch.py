"""``spark.read.format("kafka_coop")``: ranges of offsets, planned once, read in parallel.

Membership plays no part: a batch reads what its options name, whoever owns it, and commits nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.spark.errors import DataLossError, MembershipError, OptionError, name_of, names_of
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.option_values import LATEST
from kafka_coop.spark.options import BatchOptions
from kafka_coop.spark.reading import RangeTask, read_task, tasks_of
from kafka_coop.spark.starting import (
    answering,
    logs_of,
    refuse_others,
    resolve,
    wanted_partitions,
    wanted_topics,
)
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")


class BatchReader(DataSourceReader):
    """A batch between two boundaries.

    Args:
        options: The source's.
    """

    def __init__(self, options: BatchOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The tasks of the batch.

        Raises:
            OptionError: A topic or partition does not exist, or the end is before the beginning.
            DataLossError: Offsets are gone, and ``failOnDataLoss`` is true.
            MembershipError: The brokers do not tell; or a transaction is open before an offset.
        """
        logs = logs_of(self._options)
        with answering(self._options):
            ranges = _ranges(self._options, logs)
            ids = logs.topic_ids({of.topic for of in ranges}, timeout=_PATIENCE)
            return list(tasks_of(ranges, self._options, ids=ids)) or [_NOTHING]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task's ranges, on an executor."""
        assert isinstance(partition, RangeTask), "partitions() makes no others"
        return read_task(self._options, partition)


_NOTHING = RangeTask()
"""Spark would make a task of its own of no tasks at all."""

_PATIENCE = 1.0
"""Seconds for the topics' ids; without them topics pass for what they were."""


def _ranges(options: BatchOptions, logs: LogOffsets) -> dict[TopicPartition, Range]:
    partitions = wanted_partitions(options, wanted_topics(options, logs))
    for boundary in (options.starting, options.ending):
        refuse_others(boundary, partitions)
    starts = resolve(options.starting, partitions, logs, latest_if_none=options.latest_if_none)
    # A time that no record has reached yet ends where the log does.
    stops = resolve(options.ending, partitions, logs, latest_if_none=True)
    _refuse_inverted(options, starts, stops)
    first, last = logs.all_beginnings(partitions), logs.all_ends(partitions)
    named = options.starting.offsets or {}
    # What was the first record may be gone by now: that is no offset which the user has to mend.
    starts = {of: at if named.get(of) == at else max(at, first[of]) for of, at in starts.items()}
    _refuse_open_transactions(logs, last, starts, stops)
    ranges = {}
    for of in partitions:
        asked = Range(starts[of], max(starts[of], stops[of]))
        there = Range(max(asked.start, first[of]), min(asked.stop, last[of]))
        if not all(first[of] <= at <= last[of] for at in (starts[of], stops[of])):
            _lost(options, of, asked, Range(first[of], last[of]))
        ranges[of] = Range(there.start, max(there.start, there.stop))
    return ranges


def _refuse_open_transactions(
    logs: LogOffsets,
    last: Mapping[TopicPartition, int],
    *asked: Mapping[TopicPartition, int],
) -> None:
    """What is not committed yet is not gone: who left it out would never read it."""
    highest = {of: max(offsets[of] for offsets in asked) for of in last}
    beyond = {of: at for of, at in highest.items() if at > last[of]}
    if not (open_ones := logs.reaching(beyond) if beyond else frozenset()):
        return
    of = min(open_ones)
    raise MembershipError(
        f"{names_of(open_ones)}: a transaction that is open keeps back what comes after it, of "
        f"{name_of(of)} from {last[of]} on, and {beyond[of]} is asked for. Read it when that is "
        "over, or what is not committed, too: kafka.isolation.level=read_uncommitted"
    )


def _refuse_inverted(
    options: BatchOptions, starts: dict[TopicPartition, int], stops: dict[TopicPartition, int]
) -> None:
    """An end before the beginning is a slip, where the user wrote both as offsets."""
    if options.ending.offset == LATEST or options.starting.offsets is None:
        return
    for of, start in starts.items():
        if options.ending.offsets is not None and stops[of] < start:
            raise OptionError(
                options.ending.option,
                f"{of.topic}:{of.partition} ends at {stops[of]}, before it begins "
                f"({options.starting.option}: {start})",
            )


def _lost(options: BatchOptions, of: TopicPartition, asked: Range, there: Range) -> None:
    text = (
        f"{of.topic}:{of.partition} has the offsets {there.start} to {there.stop}, and "
        f"{asked.start} to {asked.stop} are asked for"
    )
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{text}: correct {options.starting.option} or {options.ending.option}, or set "
            "failOnDataLoss=false to read what there is"
        )
    _LOG.warning("failOnDataLoss=false: %s", text)
