"""What a task does: reads ranges of partitions, in a Python worker on an executor.

Workers live on from task to task, and so do their consumers, by partition: the next batch goes
on where the last one ended, with what librdkafka has prefetched meanwhile. They are kept in this
module, which a worker imports once; a reader is unpickled for each task anew.
"""

from __future__ import annotations

import gc
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message
from pyspark.sql.datasource import InputPartition

from kafka_coop.config import parse
from kafka_coop.fetching.ranges import NoProgressError, OffsetsGoneError, RangeFetcher
from kafka_coop.spark.admission import Part, gather, split
from kafka_coop.spark.errors import DataLossError, MembershipError
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.options import ReadOptions
from kafka_coop.spark.records import record_batches
from kafka_coop.spark.schema import arrow_schema
from kafka_coop.spark.worker import spare_collections
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")

_KEPT: Final = 16
"""Consumers that an idle worker keeps; a task with more partitions makes all of them anew. Each
has threads, connections, and a queue of at most `_DEFAULTS`' size."""

_DEFAULTS: Final = {
    "queued.max.messages.kbytes": "16384",
    "queued.min.messages": "20000",
    "fetch.message.max.bytes": "4194304",
}
"""Unless the user says otherwise. How far librdkafka reads ahead, in messages and in bytes, also
beyond a range's end: lost where another worker gets the partition's next range, and workers get
them as it comes. 20,000 suffice: what they hold takes longer to process than to fetch, and twice as
many were slower, as less of it is in the processor's caches. Four megabytes an answer, where
Kafka's default is one: fewer requests for the same records."""

_NO_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # the names of confluent's public constants
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)

_Key = tuple[tuple[tuple[str, str], ...], timedelta, TopicPartition]
_idle: OrderedDict[_Key, RangeFetcher] = OrderedDict()


class RangeTask(InputPartition):
    """One task's part of a batch.

    Args:
        parts: What to read, one after the other.
    """

    def __init__(self, *parts: Part) -> None:
        super().__init__(parts)
        self.parts = parts


def tasks_of(ranges: Mapping[TopicPartition, Range], options: ReadOptions) -> list[RangeTask]:
    """The tasks of a batch that reads these ranges."""
    parts = split(ranges, min_tasks=options.min_tasks, max_records=options.max_records)
    return [RangeTask(*some) for some in gather(parts, options.max_tasks)]


def read_task(options: ReadOptions, task: RangeTask) -> Iterator[pa.RecordBatch]:
    """Reads a task's ranges.

    Raises:
        DataLossError: A part of it is gone, and ``failOnDataLoss`` is true.
        MembershipError: Nothing came within ``kafkaConsumer.pollTimeoutMs``.
        KafkaException: The brokers refuse.
    """
    for (of, span), following in zip_longest(task.parts, task.parts[1:]):
        fetcher = _take(options, of)
        try:
            if following is not None and following[0] != of:
                _prepare(options, *following)
            yield from _without_collections(_batches(options, fetcher, of, span))
        except BaseException:
            # Also GeneratorExit: the task was ended early, and the next one begins elsewhere.
            fetcher.close()
            raise
        _keep(options, of, fetcher)
    spare_collections()


def _batches(
    options: ReadOptions, fetcher: RangeFetcher, of: TopicPartition, span: Range
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(headers=options.headers)
    return record_batches(_records(options, fetcher, of, span), of.topic, of.partition, schema)


def _prepare(options: ReadOptions, of: TopicPartition, span: Range) -> None:
    """Has the next part fetched while this one is read."""
    fetcher = _take(options, of)
    _keep(options, of, fetcher)
    fetcher.go_to(of, span.start)


def _without_collections(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Switches the cyclic garbage collector off while a batch is made.

    Ten thousand messages are ten thousand objects that it tracks, and none is part of a cycle:
    walking them again and again was two thirds of a task's CPU time.
    """
    while True:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            batch = next(batches)
        except StopIteration:
            return
        finally:
            if was_enabled:
                gc.enable()
        yield batch


def _take(options: ReadOptions, of: TopicPartition) -> RangeFetcher:
    """The one that is kept, or a new one; it is the caller's to keep or to close."""
    kept = _idle.pop(_key(options, of), None)
    return kept or RangeFetcher(_fetcher_config(options.kafka), doubt=options.doubt)


def _keep(options: ReadOptions, of: TopicPartition, fetcher: RangeFetcher) -> None:
    key = _key(options, of)
    if (other := _idle.pop(key, None)) is not None:
        other.close()
    _idle[key] = fetcher
    while len(_idle) > _KEPT:
        _idle.popitem(last=False)[1].close()


def _key(options: ReadOptions, of: TopicPartition) -> _Key:
    return tuple(sorted(options.kafka.items())), options.doubt, of


def _fetcher_config(kafka: Mapping[str, str]) -> dict[str, Any]:
    return {**_DEFAULTS, **parse(kafka).fetcher}


def _records(
    options: ReadOptions, fetcher: RangeFetcher, of: TopicPartition, span: Range
) -> Iterator[list[Message]]:
    start = span.start
    while start < span.stop:
        try:
            yield from fetcher.read(of, start, span.stop, patience=options.poll_timeout)
        except NoProgressError as error:
            if not options.fail_on_data_loss and _has_shrunk(options, fetcher, of, span):
                return
            raise MembershipError(
                f"{error}: are the brokers reachable from the executors? Option "
                "kafkaConsumer.pollTimeoutMs says how long to wait"
            ) from None
        except OffsetsGoneError as error:
            start = _after_loss(options, fetcher, error, span)
        else:
            return


def _has_shrunk(
    options: ReadOptions, fetcher: RangeFetcher, of: TopicPartition, span: Range
) -> bool:
    """Whether the log ends within a range that is to be read: what it had beyond is gone.

    Only after the patience for records: until then a broker that is back may tell an old end.
    """
    try:
        end = fetcher.extent(of, options.poll_timeout)[1]
    except KafkaException:
        return False
    if end < span.stop:
        _LOG.warning(
            "failOnDataLoss=false: %s:%d ends at %d, offsets up to %d are gone and skipped",
            *of,
            end,
            span.stop,
        )
    return end < span.stop


def _after_loss(
    options: ReadOptions, fetcher: RangeFetcher, lost: OffsetsGoneError, span: Range
) -> int:
    """Where to go on, records being gone."""
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{lost}: it was deleted (retention, a topic made anew, an unclean election) before "
            f"it was read. To go on with what there is, set failOnDataLoss=false"
        ) from None
    try:
        first = fetcher.extent(lost.of, options.poll_timeout)[0]
    except KafkaException as error:
        if error.args[0].code() not in _NO_TOPIC:
            raise  # what is there is not known: the task is tried again, and skips nothing
        first = span.stop
    # The log may also end before the range does: then there is nothing to go on with.
    resumed = first if first > lost.offset else span.stop
    _LOG.warning(
        "failOnDataLoss=false: %s:%d offsets %d to %d are gone and skipped",
        *lost.of,
        lost.offset,
        min(resumed, span.stop),
    )
    return resumed
