"""``write`` and ``writeStream`` to Kafka: a producer of librdkafka's in each task.

Producers are idempotent: what librdkafka retries is written once, in order. A task that Spark
retries writes again: a sink can't know what its predecessor wrote. With ``transactional=true``
each task writes in one transaction, so that readers of committed records see all of an attempt or
none of it. An attempt fences those before it that are still open. One that has committed it can't
undo, and an attempt commits before Spark's commit coordinator is asked which of several may: that
comes after `write_task`. So an attempt that begins after another's commit writes a second time
(speculation, an executor that was lost between the commit and its report). A batch as a whole is
not atomic: Kafka can't prepare a transaction in one process and commit it in another.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_coop.config.known import KNOWN, closest
from kafka_coop.membership.failures import LOCAL_FATAL
from kafka_coop.spark.errors import OptionError, SparkSourceError, no_answer
from kafka_coop.spark.options import SinkOptions
from kafka_coop.spark.refusals import refused_configuration, unwritten
from kafka_coop.spark.worker import spare_collections

_DEFAULTS: Final = {
    "enable.idempotence": "true",
    "linger.ms": "20",
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
}
"""Unless the user says otherwise. A key goes to the partition to which Java's producer, and with it
the built-in sink, would send it: topics that are joined by key stay so."""

_DELIVERY_TIMEOUTS: Final = ("delivery.timeout.ms", "message.timeout.ms")

_PATIENCE: Final = 60.0
"""Seconds for one call of a transaction; the messages' own is ``delivery.timeout.ms``."""

_FAREWELL: Final = 5.0
"""Seconds that a producer gets to tell what became of the records it was made to forget."""

_SLICE: Final = 0.1
"""Seconds of one call that serves callbacks. From 0.2 on confluent-kafka (2.16) makes several of
one, and goes on where a fatal error, such as being fenced by a newer attempt, has been set as
Python's. The delivery callbacks behind it run with that: whatever looks for an error finds one that
is not its own. That ends as a SystemError, as no error at all, or the process."""

_METADATA_TIMEOUT: Final = 30.0

_NO_TOPIC: Final = "?"
"""No topic can have this name, so brokers make none of it. To ask for nothing in particular is to
ask for all topics, and a sink is made with each batch of a ``foreachBatch``."""

_CREATION_TIME: Final = 5.0
"""Seconds that brokers get to make a topic, where they do that of themselves."""

_PAUSE: Final = 0.2

_PASSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})

_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001  # the names of confluent's public constants

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_COLUMNS: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
    "headers": (ArrayType,),
}


class SinkError(SparkSourceError):
    """Records could not be written."""


class _Sink:
    """One write of a DataFrame, as the driver sees it; its tasks get a copy.

    Args:
        options: The sink's.
        schema: Of what is written.

    Raises:
        OptionError: An option is wrong, the topic is unknown, or the schema does not fit.
        SinkError: No broker answers.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        require_columns(options, schema)
        require_brokers(options)
        self._options = options
        self._names = tuple(schema.names)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes one task's rows and waits until all are acknowledged.

        Raises:
            SinkError: One was not.
        """
        return write_task(self._options, self._names, iterator)


class BatchSink(_Sink, DataSourceArrowWriter):
    """``write``."""


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """``writeStream``."""


def require_columns(options: SinkOptions, schema: StructType) -> None:
    """Refuses what can't be written, before a task starts.

    Raises:
        OptionError: A column is missing, unknown or of the wrong type.
    """
    for column in schema.fields:
        allowed = _COLUMNS.get(column.name)
        if allowed is None:
            alike = closest(column.name, _COLUMNS)
            hint = f"did you mean {alike[0]}?" if alike else f"columns are {', '.join(_COLUMNS)}"
            raise OptionError("schema", f"column {column.name!r} can't be written: {hint}")
        if not isinstance(column.dataType, allowed):
            kinds = " or ".join(kind.typeName() for kind in allowed)
            raise OptionError(
                "schema",
                f"column {column.name} is {column.dataType.simpleString()}: cast it to {kinds}",
            )
    names = set(schema.names)
    if "value" not in names:
        raise OptionError("schema", "there is no column value: name one so, or select … as value")
    if options.topic is None and "topic" not in names:
        raise OptionError("topic", "is missing, and there is no column topic: give one of them")
    if "headers" in names:
        if not options.headers:
            raise OptionError("includeHeaders", "is false, and there is a column headers: set it")
        given = schema["headers"].dataType
        if given.simpleString() != _HEADERS.simpleString():
            raise OptionError(
                "schema",
                f"column headers is {given.simpleString()}: make it {_HEADERS.simpleString()}",
            )


def require_brokers(options: SinkOptions) -> None:
    """Refuses a producer that librdkafka does not take, or that can't write to the topic.

    A topic that the brokers make when they are asked for it is made. Those that the column names
    are known to the tasks alone: then any answer will do.

    Raises:
        OptionError: A property is wrong, or the topic is unknown.
        SinkError: No broker answers.
    """
    try:
        producer = Producer(_config(options, "check"))
    except (KafkaException, TypeError, ValueError) as error:
        raise refused_configuration("producer", error, options.kafka) from None
    if options.topic is None:
        _topic_error(producer, _NO_TOPIC, options)
    else:
        _require_topic(producer, options.topic, options)


def _require_topic(producer: Producer, topic: str, options: SinkOptions) -> None:
    deadline = time.monotonic() + _CREATION_TIME
    while (error := _topic_error(producer, topic, options)) is not None:
        if error.code() not in _PASSING or time.monotonic() >= deadline:
            raise OptionError(
                "topic",
                f"{topic} can't be written to ({error.str()}): create it, or check the name and "
                "the right to write to it",
            )
        time.sleep(_PAUSE)


def _topic_error(producer: Producer, topic: str, options: SinkOptions) -> KafkaError | None:
    try:
        metadata = producer.list_topics(topic, timeout=_METADATA_TIMEOUT)
    except KafkaException as error:
        raise SinkError(
            no_answer(options.kafka["bootstrap.servers"], error.args[0].str())
        ) from None
    problem: KafkaError | None = metadata.topics[topic].error
    return problem


def _config(options: SinkOptions, task: str) -> dict[str, Any]:
    config: dict[str, Any] = {**_DEFAULTS, **options.kafka}
    if options.transactional:
        config["transactional.id"] = f"{options.kafka['transactional.id']}-{task}"
    return config


def _delivery_timeout(kafka: Mapping[str, str]) -> float:
    """In seconds."""
    given = next((kafka[name] for name in _DELIVERY_TIMEOUTS if name in kafka), None)
    return float(given or KNOWN["message.timeout.ms"].default or 0) / 1000


def write_task(
    options: SinkOptions, names: tuple[str, ...], batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Writes one task's rows, all acknowledged or an error.

    Raises:
        SinkError: A record was not written; how many, and why the first.
    """
    outbox = _Outbox(options)
    try:
        for batch in batches:
            outbox.write(batch, names)
        outbox.commit()
    except BaseException:
        outbox.abort()
        raise
    spare_collections()
    return WriterCommitMessage()


class _Outbox:
    """One task's producer, and how its records fared."""

    def __init__(self, options: SinkOptions) -> None:
        self._topic = options.topic
        self._transactional = options.transactional
        self._failed = 0
        self._first: tuple[str, KafkaError] | None = None
        self._delivery_timeout = _delivery_timeout(options.kafka)
        self._producer = Producer(_config(options, _task_name(options.topic)))
        if self._transactional:
            # The same name as an attempt of this task before: that one is fenced by this call.
            self._tell(self._producer.init_transactions)
            self._producer.begin_transaction()

    def write(self, batch: pa.RecordBatch, names: tuple[str, ...]) -> None:
        columns = {name: _values(name, batch.column(n)) for n, name in enumerate(names)}
        count = batch.num_rows
        empty = [None] * count
        for topic, key, value, partition, timestamp, headers in zip(
            columns.get("topic", empty),
            columns.get("key", empty),
            columns["value"],
            columns.get("partition", empty),
            columns.get("timestamp", empty),
            columns.get("headers", empty),
            strict=True,
        ):
            to = self._topic or topic
            if to is None:
                raise SinkError("a row has no topic: set option topic, or fill the column topic")
            record: dict[str, Any] = {"key": key, "value": value}
            if partition is not None:
                record["partition"] = _partition(to, partition)
            if timestamp is not None:
                record["timestamp"] = _timestamp(to, timestamp)
            if headers:
                record["headers"] = _headers(to, headers)
            self._produce(to, record)
        self._raise_failure()

    def commit(self) -> None:
        """Waits for every acknowledgement."""
        self._flush()
        self._raise_failure()
        if self._transactional:
            self._tell(self._producer.commit_transaction)

    def abort(self) -> None:
        """Nothing more is written; an open transaction is aborted."""
        self._producer.purge()
        if self._transactional:
            # Else the next attempt fences it, or the broker's timeout ends it.
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(_PATIENCE)
        # A record whose callback never ran holds it, it holds this, and this the producer: its
        # threads and connections would stay with the worker for good.
        for _ in range(2):  # a fatal error is raised once, in front of what is behind it
            with contextlib.suppress(SinkError):
                self._flush(_FAREWELL)

    def _produce(self, topic: str, record: dict[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(topic, on_delivery=self._delivered, **record)
            except BufferError:
                # A full queue: let some be acknowledged.
                self._serve(lambda: self._producer.poll(_SLICE))
            except KafkaException as error:
                if error.args[0].code() == LOCAL_FATAL:
                    # Which one, such as being fenced, its callback tells.
                    self._flush(_FAREWELL)
                    self._raise_failure()
                why = unwritten(error.args[0])
                raise SinkError(f"a record for {topic} is refused: {why}") from error
            else:
                self._serve(lambda: self._producer.poll(0))
                return

    def _flush(self, at_most: float = math.inf) -> None:
        """Serves callbacks until each record's own has run, or for so many seconds.

        Raises:
            SinkError: A fatal error. Callbacks behind it are left for the next call.
        """
        deadline = time.monotonic() + at_most
        while self._serve(lambda: self._producer.flush(_SLICE)) and time.monotonic() < deadline:
            pass

    def _serve(self, callbacks: Callable[[], int]) -> int:
        """A call of the producer's that serves callbacks, for `_SLICE` at most; what it returns.

        Raises:
            SinkError: A fatal error, which no callback tells.
        """
        try:
            return callbacks()
        except KafkaException as error:
            raise SinkError(f"the producer can't go on: {unwritten(error.args[0])}") from None

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed += 1
            self._first = self._first or (str(message.topic()), error)

    def _raise_failure(self) -> None:
        if self._first is not None:
            topic, error = self._first
            if self._transactional and error.code() in _PURGED:
                # A transaction that failed takes its records along; why, the next call of it says.
                self._tell(self._producer.commit_transaction)
            raise SinkError(
                f"{self._failed} records were not written, the first, for topic {topic}, because: "
                f"{unwritten(error)}"
            )

    def _tell(self, call: Callable[[float], Any]) -> None:
        """A call of a transaction, again while it may, for as long as a record may take."""
        deadline = time.monotonic() + self._delivery_timeout
        while True:
            try:
                call(_PATIENCE)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise SinkError(f"transaction: {unwritten(error.args[0])}") from error
                if time.monotonic() >= deadline:
                    raise SinkError(
                        f"transaction: no success in {self._delivery_timeout:g} s "
                        f"(kafka.delivery.timeout.ms): {error}"
                    ) from error
            else:
                return


def _values(name: str, column: pa.Array) -> list[Any]:
    """A column's; times are milliseconds since 1970, exactly."""
    if name == "timestamp":
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _partition(topic: str, number: int) -> int:
    """To librdkafka, -1 is any."""
    if number < 0:
        raise SinkError(f"a row for {topic} has partition {number}: make it null for any partition")
    return number


def _timestamp(topic: str, at: int) -> int:
    """Librdkafka takes 0 for now, and Kafka -1 for none; Java's producer takes nothing below 0."""
    if at <= 0:
        raise SinkError(
            f"a row for {topic} has timestamp {at} (ms since 1970), which a record can't have: "
            "make it null for the time of writing, or 1 ms or more after 1970 began"
        )
    return at


def _headers(topic: str, given: list[dict[str, Any] | None]) -> list[tuple[str, bytes | None]]:
    headers = [(one["key"], one["value"]) for one in given if one is not None]
    if len(headers) < len(given) or any(key is None for key, _ in headers):
        raise SinkError(f"a row for {topic} has a header without a key: give it one, or remove it")
    return headers


def _task_name(topic: str | None) -> str:
    """The same for each attempt at a task of a query or a job, and for no other.

    A stream's query id, the topic of its options, and its task's number. What tells writes of one
    ``foreachBatch`` apart has to outlive the run: a batch that is replayed fences what the run
    before left open. The stage is another then, and each batch would leave names with the brokers;
    so writes to one topic at a time share theirs (docs/SPARK.md). A batch's stage and number:
    batches begin anew.
    """
    context = TaskContext.get()
    if context is None:
        return uuid.uuid4().hex
    query = context.getLocalProperty("sql.streaming.queryId")
    scope = f"{query}-{topic or ''}" if query else f"batch-{context.stageId()}"
    digest = hashlib.sha256(scope.encode()).hexdigest()[:12]
    return f"{digest}-{context.partitionId()}"
