"""What a task does: reads ranges of partitions, in a Python worker on an executor.

Workers live on from task to task, and so do their consumers, by partition: the next batch goes
on where the last one ended, with what librdkafka has prefetched meanwhile. They are kept in this
module, which a worker imports once; a reader is unpickled for each task anew.
"""

from __future__ import annotations

import gc
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import zip_longest
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message
from pyspark.sql.datasource import InputPartition

from kafka_coop.config import parse
from kafka_coop.fetching.native import position_at
from kafka_coop.fetching.ranges import (
    NoProgressError,
    OffsetsGoneError,
    RangeFetcher,
    UnreadableError,
)
from kafka_coop.spark.admission import Part, gather, split
from kafka_coop.spark.errors import DataLossError, MembershipError, SparkSourceError
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.options import ReadOptions
from kafka_coop.spark.records import record_batches
from kafka_coop.spark.refusals import unread
from kafka_coop.spark.schema import arrow_schema
from kafka_coop.spark.tickets import Ticket, TicketOffice
from kafka_coop.spark.worker import spare_collections
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")

_KEPT: Final = 16
"""Consumers that an idle worker keeps. Each has threads, connections, and a queue."""

_APART: Final = 8
"""A task of more partitions reads them with one consumer, unless their ranges are long: to make a
consumer for each takes longer than to read some thousand records."""

_AHEAD: Final = 20_000

_DEFAULTS: Final = {
    "queued.max.messages.kbytes": "16384",
    "queued.min.messages": str(_AHEAD),
}
"""Unless the user says otherwise. How far librdkafka reads ahead, in messages and in bytes, also
beyond a range's end: lost where another worker gets the partition's next range, as it comes on a
cluster. 20,000 suffice: what they hold takes longer to process than to fetch, and twice as
many were slower, as less of it is in the processor's caches. An answer has Kafka's default of one
megabyte of a partition. Four save requests, but nothing of an answer is read before all of it is
there, and with a query's first batch that cost more."""

_OF_MANY: Final = {
    **_DEFAULTS,
    "fetch.message.max.bytes": "262144",
    "fetch.wait.max.ms": "100",
}
"""Those of the consumer that reads short ranges of many partitions. An answer has so much of each;
with more, most of it would lie beyond the ranges. While the broker has an answer wait for records
of the last task's partitions, it is asked for no others."""

_CHOICE: Final = 200
"""A batch of more tasks has them planned: each looks at all ranges that nobody has yet."""

_NO_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # the names of confluent's public constants
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)

_NO_IDS: Final[Mapping[str, str]] = {}

_Kafka = tuple[tuple[str, str], ...]
_Key = tuple[_Kafka, timedelta, TopicPartition | None]
_idle: OrderedDict[_Key, RangeFetcher] = OrderedDict()
_ids: dict[tuple[_Kafka, str], str] = {}
"""Which topic it was that has a name, when it was last read with these properties."""


class RangeTask(InputPartition):
    """One task's part of a batch.

    Args:
        parts: What to read, where that is decided when the batch is planned.
        ticket: Else: what to read is told to the task that has it, where it runs.
        ids: Which topics these are, as far as brokers tell.

    Attributes:
        ids: As above.
    """

    def __init__(
        self, *parts: Part, ticket: Ticket | None = None, ids: Mapping[str, str] = _NO_IDS
    ) -> None:
        super().__init__(parts or ticket)
        self._parts = parts
        self._ticket = ticket
        self.ids = ids

    def parts(self) -> tuple[Part, ...]:
        """What to read.

        Raises:
            MembershipError: Nobody tells.
        """
        return self._parts if self._ticket is None else self._ticket.redeem()


def tasks_of(
    ranges: Mapping[TopicPartition, Range],
    options: ReadOptions,
    office: TicketOffice | None = None,
    *,
    ids: Mapping[str, str] = _NO_IDS,
) -> list[RangeTask]:
    """The tasks of a batch that reads these ranges.

    Args:
        ranges: What it reads.
        options: The source's.
        office: Where the tasks' workers learn what to read; None: that is decided here.
        ids: Which topics these are, as far as brokers tell.
    """
    topics = {of.topic for of in ranges}
    ids = {topic: id_ for topic, id_ in ids.items() if topic in topics}
    parts = split(ranges, min_tasks=options.min_tasks, max_records=options.max_records)
    portions = gather(parts, options.max_tasks)
    if office is not None and office.is_open and 1 < len(portions) <= _CHOICE:
        return [RangeTask(ticket=ticket, ids=ids) for ticket in office.issue(portions)]
    return [RangeTask(*portion, ids=ids) for portion in portions]


def read_task(options: ReadOptions, task: RangeTask) -> Iterator[pa.RecordBatch]:
    """Reads a task's ranges.

    Raises:
        DataLossError: A part of it is gone, and ``failOnDataLoss`` is true.
        MembershipError: Nothing came within ``kafkaConsumer.pollTimeoutMs``, or nobody tells what
            the task is to read.
        SparkSourceError: The brokers refuse; the text names the partition and the option.
    """
    schema = arrow_schema(headers=options.headers)
    _forget_others(options, task.ids)
    turns = _turns(task.parts())
    for ranges, following in zip_longest(turns, turns[1:]):
        fetcher = _take(options, ranges)
        try:
            if following is not None and following.keys() != ranges.keys():
                _prepare(options, following)
            records = _records(options, fetcher, ranges)
            yield from _without_collections(record_batches(records, schema))
        except BaseException:
            # Also GeneratorExit: the task was ended early, and the next one begins elsewhere.
            fetcher.close()
            raise
        _keep(options, ranges, fetcher)
    spare_collections()


def _turns(parts: Sequence[Part]) -> list[dict[TopicPartition, range]]:
    """What one consumer reads, and then the next."""
    count = len({of for of, _ in parts})
    if count <= _APART or sum(span.size for _, span in parts) > count * _AHEAD:
        return [{of: range(*span)} for of, span in parts]
    ranges: dict[TopicPartition, range] = {}
    for of, span in parts:  # those of one partition follow on each other
        ranges[of] = range(ranges[of].start if of in ranges else span.start, span.stop)
    return [ranges]


def _prepare(options: ReadOptions, ranges: Mapping[TopicPartition, range]) -> None:
    """Has the next turn's records fetched while this one's are read."""
    fetcher = _take(options, ranges)
    _keep(options, ranges, fetcher)
    fetcher.go_to({of: span.start for of, span in ranges.items()})


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


def _take(options: ReadOptions, partitions: Collection[TopicPartition]) -> RangeFetcher:
    """The one that is kept, or a new one; it is the caller's to keep or to close."""
    if (kept := _idle.pop(_key(options, partitions), None)) is not None:
        return kept
    defaults = _DEFAULTS if len(partitions) == 1 else _OF_MANY
    return RangeFetcher({**defaults, **parse(options.kafka).fetcher}, doubt=options.doubt)


def _forget_others(options: ReadOptions, ids: Mapping[str, str]) -> None:
    """Closes what has read topics that were made anew since.

    A consumer that stands at an offset of the one before would go on there with what it has
    prefetched, which is the other topic's.
    """
    kafka = _kafka_of(options)
    others = {topic for topic, id_ in ids.items() if _ids.get((kafka, topic), id_) != id_}
    _ids.update({(kafka, topic): id_ for topic, id_ in ids.items()})
    for key in [*_idle] if others else []:
        its, _, of = key
        if its == kafka and (of is None or of.topic in others):
            _idle.pop(key).close()


def _keep(
    options: ReadOptions, partitions: Collection[TopicPartition], fetcher: RangeFetcher
) -> None:
    key = _key(options, partitions)
    if (other := _idle.pop(key, None)) is not None:
        other.close()
    _idle[key] = fetcher
    while len(_idle) > _KEPT:
        _idle.popitem(last=False)[1].close()


def _key(options: ReadOptions, partitions: Collection[TopicPartition]) -> _Key:
    """A partition has a consumer of its own; of many, which change from task to task, all one."""
    of = next(iter(partitions)) if len(partitions) == 1 else None
    return _kafka_of(options), options.doubt, of


def _kafka_of(options: ReadOptions) -> _Kafka:
    return tuple(sorted(options.kafka.items()))


def _records(
    options: ReadOptions, fetcher: RangeFetcher, ranges: Mapping[TopicPartition, range]
) -> Iterator[tuple[TopicPartition, list[Message]]]:
    left = dict(ranges)
    while True:
        try:
            for of, records in fetcher.read(left, patience=options.poll_timeout):
                left[of] = range(position_at(records[-1]) + 1, left[of].stop)
                yield of, records  # and whoever takes them empties the list
        except NoProgressError as error:
            if not _skip_shrunk(options, fetcher, left, error):
                raise MembershipError(
                    f"{error}: are the brokers reachable from the executors? Option "
                    "kafkaConsumer.pollTimeoutMs says how long to wait"
                ) from None
        except UnreadableError as error:
            raise SparkSourceError(unread(error.args[0], error.of, options)) from None
        except OffsetsGoneError as error:
            left[error.of] = _after_loss(options, fetcher, error, left[error.of].stop)
        else:
            return


def _skip_shrunk(
    options: ReadOptions,
    fetcher: RangeFetcher,
    left: dict[TopicPartition, range],
    error: NoProgressError,
) -> bool:
    """Whether logs that are waited for end within their ranges: what lay beyond is gone.

    Only after the patience for records: until then a broker that is back may tell an old end.
    """
    if options.fail_on_data_loss:
        return False
    found = False
    for of in error.waited_for:
        try:
            end = fetcher.extent(of, options.poll_timeout)[1]
        except KafkaException as untold:
            if untold.args[0].code() not in _NO_TOPIC:
                break  # no others are asked for
            end = 0  # the topic was deleted
        if end < left[of].stop:
            _LOG.warning(
                "failOnDataLoss=false: %s:%d ends at %d, offsets up to %d are gone and skipped",
                *of,
                end,
                left[of].stop,
            )
            left[of] = range(0)
            found = True
    return found


def _after_loss(
    options: ReadOptions, fetcher: RangeFetcher, lost: OffsetsGoneError, stop: int
) -> range:
    """What is left to be read of a range that ends there, records being gone."""
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
        first = stop
    # The log may also end before the range does: then there is nothing to go on with.
    resumed = first if first > lost.offset else stop
    _LOG.warning(
        "failOnDataLoss=false: %s:%d offsets %d to %d are gone and skipped",
        *lost.of,
        lost.offset,
        min(resumed, stop),
    )
    return range(resumed, stop)
