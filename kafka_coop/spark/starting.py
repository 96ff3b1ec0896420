"""Where to begin, and where to end: boundaries as options give them, made offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaException

from kafka_coop.config import parse
from kafka_coop.fetching.log_offsets import LogOffsets, LogsNotToldError
from kafka_coop.fetching.ranges import OffsetsGoneError, RangeFetcher
from kafka_coop.spark.errors import MembershipError, OptionError, names_of, no_answer
from kafka_coop.spark.option_values import EARLIEST, LATEST, Boundary
from kafka_coop.spark.options import ReadOptions
from kafka_coop.spark.refusals import refused_configuration
from kafka_coop.types import TopicPartition


def logs_of(options: ReadOptions) -> LogOffsets:
    """Who knows the logs that the options name.

    Raises:
        OptionError: librdkafka does not take a property: a file that is not there, say.
    """
    try:
        return LogOffsets(
            parse(options.kafka).fetcher,
            read_committed=options.read_committed,
            retries=options.retries,
            retry_interval=options.retry_interval,
        )
    except KafkaException as error:
        raise refused_configuration("client", error, options.kafka) from None


@contextmanager
def answering(options: ReadOptions) -> Iterator[None]:
    """Where nothing goes on without the brokers' answer.

    Raises:
        MembershipError: There was none, or they refuse it, after all the retries that the options
            ask for.
    """
    try:
        yield
    except KafkaException as raised:
        error = raised.args[0]
        if error.code() < 0:  # librdkafka's own: nobody answered
            why = no_answer(options.kafka["bootstrap.servers"], error.str())
        else:
            why = (
                f"the brokers don't tell of the logs of option {options.subscription}: "
                f"{error.str()}. Check the right to describe these topics, and that all of their "
                "partitions have leaders"
            )
        raise MembershipError(why) from None


def resolve(
    boundary: Boundary,
    partitions: Iterable[TopicPartition],
    logs: LogOffsets,
    *,
    latest_if_none: bool,
) -> dict[TopicPartition, int]:
    """The absolute offset of a boundary in each partition.

    Args:
        boundary: What the option says.
        partitions: Whose offsets are wanted.
        logs: Who knows the logs.
        latest_if_none: Where no record is as late as a timestamp: the log's end, or an error.

    Raises:
        OptionError: The option leaves a partition out, or there is no record so late.
        KafkaException: The brokers do not tell.
    """
    wanted = sorted(partitions)
    if boundary.timestamp is not None or boundary.timestamps is not None:
        times = (
            dict.fromkeys(wanted, boundary.timestamp)
            if boundary.timestamp is not None
            else _given(boundary.option, boundary.timestamps or {}, wanted)
        )
        return _at_times(boundary.option, times, logs, latest_if_none=latest_if_none)
    offsets = (
        dict.fromkeys(wanted, boundary.offset)
        if boundary.offset is not None
        else _given(boundary.option, boundary.offsets or {}, wanted)
    )
    found = {of: offset for of, offset in offsets.items() if offset >= 0}
    found |= logs.all_beginnings([of for of, offset in offsets.items() if offset == EARLIEST])
    found |= logs.all_ends([of for of, offset in offsets.items() if offset == LATEST])
    return found


def refuse_others(boundary: Boundary, partitions: Iterable[TopicPartition]) -> None:
    """Refuses a boundary that names what is not read: a topic is misspelt, or forgotten.

    Args:
        boundary: What the option says.
        partitions: All that the options ask for, those of other members included.

    Raises:
        OptionError: With the names.
    """
    named = {**(boundary.offsets or {}), **(boundary.timestamps or {})}
    if others := sorted(named.keys() - set(partitions)):
        names = names_of(others)
        raise OptionError(
            boundary.option,
            f"names {names}, which does not exist or is not read: correct it, or leave it out",
        )


_ALSO = {
    "startingOffsets": " (-2: earliest, -1: latest)",
    "endingOffsets": " (-1: latest)",
}
"""What may be said of a partition instead of an offset. Of times there is nothing of the kind."""


def _given(
    option: str, by_partition: Mapping[TopicPartition, int], wanted: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if missing := [of for of in wanted if of not in by_partition]:
        names = names_of(missing)
        raise OptionError(
            option,
            f"says nothing of {names}: name every partition{_ALSO.get(option, '')}",
        )
    return {of: by_partition[of] for of in wanted}


def _at_times(
    option: str, times: Mapping[TopicPartition, int], logs: LogOffsets, *, latest_if_none: bool
) -> dict[TopicPartition, int]:
    # First: a record that comes between the two questions is beyond these ends, and is not skipped.
    ends = logs.all_ends(times) if latest_if_none else {}
    found = logs.at_times(times)
    beyond = [of for of, offset in found.items() if offset is None]
    if beyond and not latest_if_none:
        of = beyond[0]
        raise OptionError(
            option,
            f"{of.topic}:{of.partition} has no record at or after {times[of]} ms: take an "
            "earlier time, or set startingOffsetsByTimestampStrategy=latest",
        )
    return {of: ends[of] if offset is None else offset for of, offset in found.items()}


def wanted_topics(
    options: ReadOptions, logs: LogOffsets, *, may_lack: Collection[str] = ()
) -> dict[str, int]:
    """The topics that the options ask for, with their numbers of partitions.

    Args:
        options: The source's.
        logs: Who knows.
        may_lack: Topics that ``subscribe`` may name although they are not there (any more).

    Raises:
        OptionError: A topic or a partition does not exist.
        MembershipError: No broker answers.
    """
    assigned = {of.topic for of in options.partitions}
    with answering(options):
        counts = logs.partition_counts({*options.topics, *assigned}, options.pattern)
    named = [topic for topic in options.topics if topic not in may_lack]
    for option, names in (("subscribe", named), ("assign", sorted(assigned))):
        if missing := [name for name in names if name not in counts]:
            raise OptionError(
                option,
                f"unknown topic {', '.join(missing)}: create it, or check the name and the "
                "right to describe it",
            )
    for of in options.partitions:
        if of.partition >= counts[of.topic]:
            raise OptionError(
                "assign",
                f"{of.topic} has no partition {of.partition}, only 0 to {counts[of.topic] - 1}",
            )
    return counts


def wanted_partitions(
    options: ReadOptions, counts: Mapping[str, int]
) -> tuple[TopicPartition, ...]:
    """All partitions that the options ask for, `wanted_topics` having been asked."""
    if options.partitions:
        return options.partitions
    return tuple(TopicPartition(t, n) for t, count in sorted(counts.items()) for n in range(count))


def horizon_start(
    of: TopicPartition,
    position: int,
    horizon: timedelta,
    *,
    logs: LogOffsets,
    config: Mapping[str, Any],
    patience: timedelta,
    doubt: timedelta,
) -> int:
    """Where the records begin that are at most ``horizon`` older than the last before a position.

    Measured by the records' timestamps, which need not be in order: a record that is older than
    one before it may be left out of the horizon's first part.

    Returns:
        An offset up to ``position``.

    Raises:
        LogsNotToldError: The brokers do not tell.
        NoProgressError: No record came in time.
    """
    try:
        last = _last_time_before(
            of, position, logs=logs, config=config, patience=patience, doubt=doubt
        )
    except KafkaException as error:
        raise LogsNotToldError(error.args[0], [of]) from error
    if last is None:
        return position
    since = max(0, last - horizon // timedelta(milliseconds=1))
    found = logs.at_times({of: since})[of]
    return position if found is None else min(found, position)


def _last_time_before(
    of: TopicPartition,
    position: int,
    *,
    logs: LogOffsets,
    config: Mapping[str, Any],
    patience: timedelta,
    doubt: timedelta,
) -> int | None:
    """The timestamp (ms) of the last record before a position; None: there is none."""
    first = logs.all_beginnings([of])[of]
    fetcher = RangeFetcher(config, doubt=doubt)
    try:
        back = 1
        while position > first:
            start = max(first, position - back)
            times = [
                message.timestamp()[1]
                for _, records in fetcher.read({of: range(start, position)}, patience=patience)
                for message in records
            ]
            if times:
                return times[-1]
            if start == first:
                return None
            back *= 16  # compaction, or the markers of transactions
    except OffsetsGoneError:
        return None  # deleted meanwhile
    finally:
        fetcher.close()
    return None
