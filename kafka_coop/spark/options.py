"""The options of the source and of the sink: names, meaning, contradictions. Pure.

Names and meaning are the built-in Kafka source's; docs/SPARK.md has the table. Names are
case-insensitive, as everywhere in Spark. Each function refuses what is wrong before anything is
connected, with the option's name and the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from kafka_coop.config import parse
from kafka_coop.config.known import closest
from kafka_coop.errors import ConfigurationError
from kafka_coop.spark import option_values as values
from kafka_coop.spark.errors import OptionError
from kafka_coop.spark.kafka_keys import OF_MEMBERS, PREFIX, Use, require_producers, require_use
from kafka_coop.spark.option_values import EARLIEST, LATEST, Boundary
from kafka_coop.types import TopicPartition, is_matched

_GROUP: Final = "kafka.group.id"
_OFFSETS_EXAMPLE: Final = '{"orders":{"0":23,"1":-2}} (-2: earliest, -1: latest)'
_TIMES_EXAMPLE: Final = '{"orders":{"0":1700000000000}} (ms since 1970)'
_STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_STARTING_TIMES: Final = _STARTING[:2]
_ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")

_READ = Use.STREAM | Use.BATCH

OPTIONS: Final[Mapping[str, Use]] = {
    "assign": _READ,
    "subscribe": _READ,
    "subscribePattern": _READ,
    "startingOffsets": _READ,
    "startingTimestamp": _READ,
    "startingOffsetsByTimestamp": _READ,
    "startingOffsetsByTimestampStrategy": _READ,
    "endingOffsets": Use.BATCH,
    "endingTimestamp": Use.BATCH,
    "endingOffsetsByTimestamp": Use.BATCH,
    "failOnDataLoss": _READ,
    "maxOffsetsPerTrigger": Use.STREAM,
    "minOffsetsPerTrigger": Use.STREAM,
    "maxTriggerDelay": Use.STREAM,
    "minPartitions": _READ,
    "maxPartitions": _READ,
    "maxRecordsPerPartition": _READ,
    "includeHeaders": _READ | Use.SINK,
    "kafkaConsumer.pollTimeoutMs": _READ,
    "fetchOffset.numRetries": _READ,
    "fetchOffset.retryIntervalMs": _READ,
    "staticMembership": Use.STREAM,
    "assignmentTimeout": Use.STREAM,
    "replayHorizon": Use.STREAM,
    "metricsPort": Use.STREAM,
    "topic": Use.SINK,
    "transactional": Use.SINK,
}
"""Every option without the prefix ``kafka.``, and where it has a meaning."""

_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark tells a sink for its own purposes."""

_ELSEWHERE: Final = "is for writeStream, not for what it reads: move it"

_NO_OPTIONS: Final[Mapping[str, str]] = {
    "groupIdPrefix": f"is refused: a stream is a member of the group {_GROUP}. Remove it",
    "path": (
        "has no meaning, and comes of load(…), save(…) or start(…): leave it out there. Options "
        "subscribe, subscribePattern and assign say what is read, and topic where it is written"
    ),
    "checkpointLocation": _ELSEWHERE,
    "queryName": _ELSEWHERE,
}
"""What others take, or Spark, and where it goes."""

_SPARK_DEFAULTS: Final = {"max.poll.interval.ms": "1800000"}
"""A partition is handed over between batches, and these may last longer than the five minutes
after which a consumer that does not answer is expelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What the stream and the batch reader have in common. Secrets in ``kafka``.

    Exactly one of ``topics``, ``pattern`` and ``partitions`` is given.
    """

    kafka: Mapping[str, str] = field(repr=False)
    """``kafka.*`` without the prefix."""
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    starting: Boundary
    latest_if_none: bool = False
    """``startingOffsetsByTimestampStrategy``: no record is so late. Else that is an error."""
    fail_on_data_loss: bool = True
    min_tasks: int | None = None
    max_tasks: int | None = None
    max_records: int | None = None
    headers: bool = False
    poll_timeout: timedelta = timedelta(seconds=120)
    retries: int = 3
    retry_interval: timedelta = timedelta(milliseconds=1000)

    @property
    def subscription(self) -> str:
        """The option that says what is read."""
        if self.partitions:
            return "assign"
        return "subscribePattern" if self.pattern else "subscribe"

    def asks_for(self, topic: str) -> bool:
        """Whether the topic is among what is read, if it is there."""
        if self.pattern is not None:
            return is_matched(topic, self.pattern)
        return topic in self.topics or any(of.topic == topic for of in self.partitions)

    @property
    def doubt(self) -> timedelta:
        """How long a log's end that lies before what was read from it is asked for again."""
        return self.retries * self.retry_interval

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out (librdkafka's default)."""
        return self.kafka.get("isolation.level", "read_committed").lower() == "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions(ReadOptions):
    """Of ``readStream``."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay: timedelta = timedelta(minutes=15)
    static: bool = False
    patience: timedelta = timedelta(minutes=2)
    """``assignmentTimeout``: for the first assignment, and for what a replay waits for."""
    horizon: timedelta | None = None
    """``replayHorizon``: how far before its position a partition that came is read again."""
    metrics_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions(ReadOptions):
    """Of ``read``."""

    ending: Boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Of ``write`` and ``writeStream``. Secrets in ``kafka``."""

    kafka: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    headers: bool = False
    transactional: bool = False


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Reads the options of ``readStream``.

    Raises:
        OptionError: One is unknown, wrong or missing, or contradicts another.
    """
    options = _Options(given, Use.STREAM)
    if not options.kafka.get("group.id"):
        raise OptionError(_GROUP, "is missing: set it to the consumer group that the query joins")
    static = options.read("staticMembership", values.flag, default=False)
    if static and "group.instance.id" in options.kafka:
        raise OptionError(
            "staticMembership", "contradicts kafka.group.instance.id: give one of them"
        )
    watchdog = f"{PREFIX}coop.watchdog"
    if static and values.flag(watchdog, options.kafka.get("coop.watchdog", "false")):
        raise OptionError(
            "staticMembership",
            f"contradicts {watchdog}: the group is to wait for the restart of a static member",
        )
    common = _common(options)
    if options.has("assign"):
        _refuse_membership(options, static=static)
    least = options.read("minOffsetsPerTrigger", values.integer, default=None)
    most = options.read("maxOffsetsPerTrigger", values.integer, default=None)
    if least is not None and most is not None and least > most:
        raise OptionError(
            "minOffsetsPerTrigger",
            f"{least} is more than maxOffsetsPerTrigger={most}: no batch would be large enough",
        )
    delay = options.read("maxTriggerDelay", values.duration, default=timedelta(minutes=15))
    if options.has("maxTriggerDelay") and least is None:
        raise OptionError(
            "maxTriggerDelay",
            f"{options.text('maxTriggerDelay')!r} has no meaning without minOffsetsPerTrigger: "
            "give both, or remove it",
        )
    return StreamOptions(
        **common,
        starting=_boundary(options, _STARTING, Boundary(option="startingOffsets", offset=LATEST)),
        max_offsets=most,
        min_offsets=least,
        max_delay=delay,
        static=static,
        patience=_positive(options, "assignmentTimeout", timedelta(minutes=2)),
        horizon=_positive(options, "replayHorizon", None),
        metrics_port=options.read("metricsPort", _port, default=None),
    )


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Reads the options of ``read``.

    Raises:
        OptionError: One is unknown, wrong or missing, or contradicts another.
    """
    options = _Options(given, Use.BATCH)
    starting = _boundary(options, _STARTING, Boundary(option="startingOffsets", offset=EARLIEST))
    ending = _boundary(options, _ENDING, Boundary(option="endingOffsets", offset=LATEST))
    _refuse_offset(starting, LATEST, "a batch that begins at the end has no records")
    _refuse_offset(ending, EARLIEST, "a batch that ends at the beginning has no records")
    _refuse_inverted_times(starting, ending)
    return BatchOptions(**_common(options), starting=starting, ending=ending)


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Reads the options of ``write`` and ``writeStream``.

    Raises:
        OptionError: One is unknown, wrong or missing, or contradicts another.
    """
    options = _Options(given, Use.SINK)
    transactional = options.read("transactional", values.flag, default=False)
    if transactional and not options.kafka.get("transactional.id"):
        raise OptionError(
            "transactional", "needs kafka.transactional.id: a name that no other query uses"
        )
    if not transactional and "transactional.id" in options.kafka:
        raise OptionError(
            "kafka.transactional.id",
            f"{options.kafka['transactional.id']!r} has no meaning without transactional=true: set "
            "that, or remove it",
        )
    return SinkOptions(
        kafka=options.kafka,
        topic=options.read("topic", values.topic_name, default=None),
        headers=options.read("includeHeaders", values.flag, default=False),
        transactional=transactional,
    )


def _refuse_membership(options: _Options, *, static: bool) -> None:
    """With ``assign`` no group is joined: what speaks of being a member is a misunderstanding."""
    given = {"staticMembership": "true"} if static else {}
    given |= {f"{PREFIX}{key}": options.kafka[key] for key in OF_MEMBERS if key in options.kafka}
    if given:
        name, value = next(iter(given.items()))
        raise OptionError(
            name,
            f"{value!r} has no meaning with assign, which joins no group: subscribe, or remove it",
        )


class _Options:
    """The given options, by their lower-case names, each known to have a meaning here."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        known = {name.lower(): name for name in OPTIONS}
        self._given: dict[str, str] = {}
        self.kafka: dict[str, str] = {}
        for key, value in given.items():
            lower = key.lower()
            if lower.startswith(PREFIX):
                name = lower.removeprefix(PREFIX)
                require_use(name, value, use)
                self.kafka[name] = value
            elif lower in known:
                _check_use(known[lower], use)
                self._given[lower] = value
            elif not (use is Use.SINK and lower in _SPARKS_OWN):
                raise OptionError(*_unknown(key, value))
        if use is Use.SINK:
            require_producers(self.kafka)  # what is read, parse checks
        if not self.kafka.get("bootstrap.servers"):
            raise OptionError("kafka.bootstrap.servers", "is missing: give at least one host:port")

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def read(self, name: str, reader: Callable[[str, str], Any], *, default: Any) -> Any:
        text = self.text(name)
        return default if text is None else reader(name, text)


def _common(options: _Options) -> dict[str, Any]:
    kafka = {"group.id": "kafka_coop-batch", **_SPARK_DEFAULTS, **options.kafka}
    chosen = [name for name in _SUBSCRIPTIONS if options.has(name)]
    if len(chosen) != 1:
        found = f"and {' and '.join(chosen)} are given" if chosen else "and none is"
        raise OptionError(
            chosen[0] if chosen else "subscribe",
            f"exactly one of {', '.join(_SUBSCRIPTIONS)} is needed, {found}",
        )
    _check_consumer(kafka)
    strategy = options.read("startingOffsetsByTimestampStrategy", _strategy, default="error")
    if options.has("startingOffsetsByTimestampStrategy") and not any(
        map(options.has, _STARTING_TIMES)
    ):
        raise OptionError(
            "startingOffsetsByTimestampStrategy",
            f"has no meaning without {' or '.join(_STARTING_TIMES)}: give one of them",
        )
    return {
        "kafka": kafka,
        "group": kafka["group.id"],
        "topics": options.read("subscribe", values.topic_names, default=()),
        "pattern": options.read("subscribePattern", values.pattern, default=None),
        "partitions": options.read("assign", values.assigned, default=()),
        "latest_if_none": strategy == "latest",
        "fail_on_data_loss": options.read("failOnDataLoss", values.flag, default=True),
        **_division(options),
        "headers": options.read("includeHeaders", values.flag, default=False),
        "poll_timeout": _milliseconds(options, "kafkaConsumer.pollTimeoutMs", 120_000, least=1),
        "retries": options.read("fetchOffset.numRetries", _count, default=3),
        "retry_interval": _milliseconds(options, "fetchOffset.retryIntervalMs", 1000, least=0),
    }


def _division(options: _Options) -> dict[str, int | None]:
    """How a batch is divided among tasks; ``maxPartitions`` may contradict the rest."""
    least = options.read("minPartitions", values.integer, default=None)
    most = options.read("maxPartitions", values.integer, default=None)
    each = options.read("maxRecordsPerPartition", values.integer, default=None)
    if most is not None and each is not None:
        raise OptionError(
            "maxPartitions",
            f"{most} tasks can't be the most, and maxRecordsPerPartition the most of each of them: "
            "remove one of the two",
        )
    if most is not None and least is not None and least > most:
        raise OptionError("maxPartitions", f"{most} is below minPartitions, {least}: raise it")
    return {"min_tasks": least, "max_tasks": most, "max_records": each}


def _check_consumer(kafka: Mapping[str, str]) -> None:
    """Whether a consumer can be made of ``kafka.*``, without making one."""
    try:
        parse(kafka)
    except ConfigurationError as error:
        raise OptionError(f"{PREFIX}{error.key}", str(error)) from None


def _check_use(name: str, use: Use) -> None:
    if use in OPTIONS[name]:
        return
    where = {
        Use.STREAM: "spark.readStream",
        Use.BATCH: "spark.read",
        Use.SINK: "a sink (write, writeStream)",
    }
    allowed = " and ".join(text for one, text in where.items() if one in OPTIONS[name])
    raise OptionError(name, f"is for {allowed}, not for {where[use]}: remove it")


def _unknown(key: str, value: str) -> tuple[str, str]:
    """Its name, and the problem."""
    lower = key.lower()
    for name, problem in _NO_OPTIONS.items():
        if name.lower() == lower:
            return name, f"{value!r} {problem}"
    names = {name.lower(): name for name in OPTIONS}
    if alike := closest(lower, names):
        return key, f"is no option: did you mean {' or '.join(names[one] for one in alike)}?"
    return key, (
        "is no option: options of Kafka's clients begin with 'kafka.'; docs/SPARK.md has ours"
    )


def _boundary(options: _Options, names: tuple[str, str, str], default: Boundary) -> Boundary:
    """Where to begin, or to end: a timestamp for all goes before timestamps before offsets.

    What is overridden so is read, too: it may be wrong.
    """
    timestamp, timestamps, offsets = names
    found = [
        options.read(name, read, default=None)
        for name, read in ((timestamp, _at_time), (timestamps, _at_times), (offsets, _at_offsets))
    ]
    return next((one for one in found if one is not None), default)


def _at_time(option: str, text: str) -> Boundary:
    return Boundary(option=option, timestamp=values.integer(option, text, least=0))


def _at_times(option: str, text: str) -> Boundary:
    times = values.by_partition(option, text, example=_TIMES_EXAMPLE, least=0)
    return Boundary(option=option, timestamps=times)


def _at_offsets(option: str, text: str) -> Boundary:
    words = {"earliest": EARLIEST, "latest": LATEST}
    if (word := text.strip().lower()) in words:
        return Boundary(option=option, offset=words[word])
    if not text.lstrip().startswith("{"):
        raise OptionError(
            option, f"{text!r} is neither earliest, latest nor JSON as {_OFFSETS_EXAMPLE}"
        )
    by_partition = values.by_partition(option, text, example=_OFFSETS_EXAMPLE, least=EARLIEST)
    return Boundary(option=option, offsets=by_partition)


def _refuse_offset(boundary: Boundary, refused: int, why: str) -> None:
    word = {EARLIEST: "earliest (-2)", LATEST: "latest (-1)"}[refused]
    if boundary.offset == refused or refused in (boundary.offsets or {}).values():
        raise OptionError(boundary.option, f"can't be {word}: {why}")


def _refuse_inverted_times(starting: Boundary, ending: Boundary) -> None:
    """Offsets are compared when it is known what `EARLIEST` and `LATEST` stand for."""
    starts, ends = starting.timestamps or {}, ending.timestamps or {}
    pairs = [
        (starts.get(of, starting.timestamp), ends.get(of, ending.timestamp))
        for of in starts.keys() | ends.keys()
    ]
    for start, end in pairs or [(starting.timestamp, ending.timestamp)]:
        if start is not None and end is not None and end < start:
            raise OptionError(
                ending.option, f"{end} is before {starting.option}, {start}: exchange them"
            )


def _strategy(option: str, text: str) -> Literal["error", "latest"]:
    match text.strip().lower():
        case "error":
            return "error"
        case "latest":
            return "latest"
    raise OptionError(option, f"{text!r} is neither error nor latest")


def _count(option: str, text: str) -> int:
    return values.integer(option, text, least=0, most=1000)


def _port(option: str, text: str) -> int:
    return values.integer(option, text, least=1, most=65_535)


def _milliseconds(options: _Options, name: str, default: int, *, least: int) -> timedelta:
    def read(option: str, text: str) -> int:
        return values.integer(option, text, least=least, most=86_400_000)

    return timedelta(milliseconds=options.read(name, read, default=default))


def _positive(options: _Options, name: str, default: timedelta | None) -> Any:
    given = options.read(name, values.duration, default=default)
    if given == timedelta(0):
        raise OptionError(name, "can't be zero: leave it out, or give a time such as 30s")
    return given


def canonical(offset: Mapping[str, Any]) -> str:
    """An offset as text, to compare offsets by, whatever the order of their keys."""
    return json.dumps(offset, sort_keys=True)
