"""A batch that was logged and died: what of it is ours to read again (docs/SPARK.md, claims)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.spark.errors import MembershipError, OptionError, name_of, names_of
from kafka_coop.spark.extents import Extents
from kafka_coop.spark.holdings import Committed, Holdings
from kafka_coop.spark.loss import position_within
from kafka_coop.spark.member import Member
from kafka_coop.spark.offsets import Range, SourceOffset
from kafka_coop.spark.options import StreamOptions
from kafka_coop.spark.starting import answering, wanted_partitions, wanted_topics
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")

_PAUSE = 0.1
"""Seconds between two looks at what other members have done."""


def replay(
    member: Member,
    planned: SourceOffset,
    end: Mapping[str, Any],
    options: StreamOptions,
    logs: LogOffsets,
) -> dict[TopicPartition, Range]:
    """The ranges of the batch, as far as they are ours to read; it is under way from here on.

    Args:
        member: Whose claim is still that of the checkpoint, or gone.
        planned: The end of the batch.
        end: The same as Spark logged it.
        options: The source's.
        logs: Who knows the logs.

    Raises:
        MembershipError: A partition is neither ours nor taken by anybody in time. Were the
            batch to become durable without it, the checkpoint would skip its records.
        OptionError: A partition of the batch is not asked for any more.
    """
    _refuse_unsubscribed(planned, options, logs)
    wanted = {of: span for of, span in planned.ranges.items() if span.size > 0}
    member.wait_for_assignment(options.patience)
    deadline = time.monotonic() + options.patience.total_seconds()
    while True:
        member.raise_failure()
        foreign = _foreign(member, wanted)
        committed = member.committed(foreign)
        unread = {of for of in foreign if not _taken(committed.get(of), planned, wanted[of])}
        if not unread:
            with member.changed:
                if _foreign(member, wanted) == foreign:
                    return _begin(member.holdings, planned, wanted, end)
        if time.monotonic() >= deadline:
            names = names_of(unread)
            raise MembershipError(
                f"the last batch is to be replayed and reads {names}, which the group "
                f"{planned.group!r} has given to another member that has not begun to read "
                f"it in {options.patience}: start the query again, or raise assignmentTimeout"
            )
        with member.changed:
            member.changed.wait(_PAUSE)


def refuse_loss(
    ranges: Mapping[TopicPartition, Range],
    options: StreamOptions,
    logs: LogOffsets,
    extents: Extents,
) -> None:
    """What is to be replayed and is in the logs no more is told before its tasks start.

    Raises:
        DataLossError: Unless ``failOnDataLoss`` is false: then the tasks skip it.
        MembershipError: The brokers don't tell.
    """
    if not options.fail_on_data_loss:
        return
    stops = {of: span.stop for of, span in ranges.items()}
    with answering(options):
        begins = logs.beginnings(ranges)
        ends = logs.ends(ranges, known=stops)
        reached = extents.reached_in_transactions(stops, ends)
    for of, span in ranges.items():
        end = span.stop if of in reached else ends.get(of, span.stop)
        log = Range(begins.get(of, 0), end)
        for offset in span:
            position_within(of, offset, log, options)


def _begin(
    holdings: Holdings,
    planned: SourceOffset,
    wanted: Mapping[TopicPartition, Range],
    end: Mapping[str, Any],
) -> dict[TopicPartition, Range]:
    """What nobody else has held since the batch was planned, just as it was planned.

    A partition that others have claimed is left out although it has come back. A replay before this
    one may have left it to them, and be in the sink: a sink that knows its batches by number would
    take this one for the same, and the records would never be there. The next batch has them.
    """
    ready = holdings.ready()
    unmoved = {of for of in ready if holdings.held[of].after == planned.run}
    ranges = {
        of: Range(ready[of], span.stop)
        for of, span in wanted.items()
        if of in unmoved and ready[of] < span.stop
    }
    if skipped := sorted(wanted.keys() - unmoved):
        _LOG.warning(
            "the replayed batch leaves out %s: other members have taken them over",
            ", ".join(map(name_of, skipped)),
        )
    holdings.begin(end, ranges)
    return ranges


def _foreign(member: Member, wanted: Mapping[TopicPartition, Range]) -> frozenset[TopicPartition]:
    with member.changed:
        ready = member.holdings.ready()
    return frozenset(of for of in wanted if of not in ready)


def _taken(committed: Committed | None, planned: SourceOffset, span: Range) -> bool:
    """Whether someone else reads it: has claimed it, or committed all of it."""
    if committed is None or committed.offset is None:
        return False
    return committed.run != planned.run or committed.offset >= span.stop


def _refuse_unsubscribed(planned: SourceOffset, options: StreamOptions, logs: LogOffsets) -> None:
    wanted = wanted_partitions(options, wanted_topics(options, logs, may_lack=planned.known_topics))
    read = {of for of, span in planned.ranges.items() if span.size > 0}
    if gone := sorted(read - set(wanted)):
        names = names_of(gone)
        raise OptionError(
            options.subscription,
            f"the last batch, which is to be replayed, reads {names}, which is deleted or not "
            "asked for any more: bring it back until that batch is done, or set "
            "checkpointLocation to a new folder",
        )
