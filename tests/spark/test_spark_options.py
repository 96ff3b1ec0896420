from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.spark.errors import OptionError
from kafka_coop.spark.option_values import EARLIEST, LATEST
from kafka_coop.spark.options import batch_options, sink_options, stream_options
from kafka_coop.spark.starting import logs_of
from kafka_coop.types import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
STREAM = {**SERVERS, "kafka.group.id": "g", "subscribe": "orders"}
ASSIGN = {**SERVERS, "kafka.group.id": "g", "assign": '{"orders":[0]}'}
BATCH = {**SERVERS, "subscribe": "orders"}
SINK = {**SERVERS, "topic": "orders"}
Reader = Callable[[dict[str, str]], Any]


def without(options: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in names}


@pytest.mark.parametrize(
    ("read", "options", "option", "told"),
    [
        (stream_options, without(STREAM, "kafka.bootstrap.servers"), "kafka.bootstrap.servers", ""),
        (stream_options, without(STREAM, "kafka.group.id"), "kafka.group.id", "missing"),
        (stream_options, without(STREAM, "subscribe"), "subscribe", "none is"),
        (stream_options, STREAM | {"assign": '{"a":[0]}'}, "assign", "assign and subscribe"),
        (
            stream_options,
            STREAM | {"maxOffsetPerTrigger": "1"},
            "maxOffsetPerTrigger",
            "maxOffsets",
        ),
        (stream_options, STREAM | {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "between"),
        (stream_options, STREAM | {"maxOffsetsPerTrigger": "x"}, "maxOffsetsPerTrigger", "whole"),
        (
            stream_options,
            STREAM | {"maxOffsetsPerTrigger": "1_000"},
            "maxOffsetsPerTrigger",
            "digi",
        ),
        (
            stream_options,
            STREAM | {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"},
            "minOffsetsPerTrigger",
            "maxOffsetsPerTrigger=1",
        ),
        (stream_options, STREAM | {"maxTriggerDelay": "5m"}, "maxTriggerDelay", "without min"),
        (
            stream_options,
            STREAM | {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"},
            "maxTriggerDelay",
            "15m",
        ),
        (stream_options, STREAM | {"failOnDataLoss": "yes"}, "failOnDataLoss", "true nor false"),
        (stream_options, STREAM | {"endingOffsets": "latest"}, "endingOffsets", "spark.read"),
        (stream_options, STREAM | {"groupIdPrefix": "x"}, "groupIdPrefix", "kafka.group.id"),
        (
            stream_options,
            STREAM | {"kafka.auto.offset.reset": "latest"},
            "kafka.auto.offset.reset",
            "startingOffsets",
        ),
        (
            stream_options,
            STREAM | {"kafka.sesion.timeout.ms": "1"},
            "kafka.sesion.timeout.ms",
            "did",
        ),
        (
            stream_options,
            STREAM | {"kafka.session.timeout.ms": "never"},
            "kafka.session.timeout.ms",
            "never",
        ),
        (
            stream_options,
            STREAM | {"kafka.partition.assignment.strategy": "stickiest"},
            "kafka.partition.assignment.strategy",
            "stickiest",
        ),
        (stream_options, STREAM | {"startingOffsets": "begin"}, "startingOffsets", "earliest"),
        (stream_options, STREAM | {"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets", "-2"),
        (stream_options, STREAM | {"startingOffsets": '{"a":[1]}'}, "startingOffsets", "object"),
        (stream_options, STREAM | {"startingOffsets": '{"a":' * 2000}, "startingOffsets", "JSON"),
        (stream_options, STREAM | {"startingTimestamp": "-1"}, "startingTimestamp", "between"),
        (stream_options, STREAM | {"subscribe": " , "}, "subscribe", "no topic"),
        (stream_options, STREAM | {"subscribe": "a/b"}, "subscribe", "a/b"),
        (
            stream_options,
            without(STREAM, "subscribe") | {"subscribePattern": "("},
            "subscribePattern",
            "regular",
        ),
        (stream_options, without(STREAM, "subscribe") | {"assign": '{"a":0}'}, "assign", "list"),
        (
            stream_options,
            STREAM | {"staticMembership": "true", "kafka.group.instance.id": "i"},
            "staticMembership",
            "contradicts",
        ),
        (
            stream_options,
            STREAM | {"staticMembership": "true", "kafka.coop.watchdog": "true"},
            "staticMembership",
            "contradicts kafka.coop.watchdog",
        ),
        (stream_options, ASSIGN | {"staticMembership": "true"}, "staticMembership", "no group"),
        (
            stream_options,
            STREAM | {"startingOffsets": '{"a":{"0":9223372036854775808}}'},
            "startingOffsets",
            "to 9223372036854775807, got 9223372036854775808",
        ),
        (
            stream_options,
            STREAM | {"startingOffsets": '{"a":{"2147483648":0}}'},
            "startingOffsets",
            "'2147483648' is no partition of a",
        ),
        (
            stream_options,
            STREAM | {"startingOffsets": '{"a":{"%s":0}}' % ("9" * 5000)},
            "startingOffsets",
            "is no partition of a",
        ),
        (
            stream_options,
            without(STREAM, "subscribe") | {"subscribePattern": "(?x)orders #all"},
            "subscribePattern",
            "no regular expression",
        ),
        (
            stream_options,
            without(STREAM, "subscribe") | {"subscribePattern": "(?au)orders"},
            "subscribePattern",
            "no regular expression",
        ),
        (
            stream_options,
            without(STREAM, "subscribe") | {"subscribePattern": "a(?i)b"},
            "subscribePattern",
            "no regular expression",
        ),
        (
            stream_options,
            ASSIGN | {"kafka.group.instance.id": "i"},
            "kafka.group.instance.id",
            "no group",
        ),
        (
            stream_options,
            ASSIGN | {"kafka.partition.assignment.strategy": "range"},
            "kafka.partition.assignment.strategy",
            "no group",
        ),
        (
            stream_options,
            STREAM | {"startingOffsetsByTimestampStrategy": "latest"},
            "startingOffsetsByTimestampStrategy",
            "startingTimestamp",
        ),
        (
            stream_options,
            STREAM | {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "now"},
            "startingOffsetsByTimestampStrategy",
            "neither error nor latest",
        ),
        (stream_options, STREAM | {"minPartitions": "0"}, "minPartitions", "between"),
        (stream_options, STREAM | {"maxPartitions": "none"}, "maxPartitions", "whole"),
        (
            stream_options,
            STREAM | {"minPartitions": "5", "maxPartitions": "4"},
            "maxPartitions",
            "below minPartitions, 5",
        ),
        (
            batch_options,
            BATCH | {"maxRecordsPerPartition": "5", "maxPartitions": "4"},
            "maxPartitions",
            "remove one",
        ),
        (stream_options, STREAM | {"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition", "1"),
        (stream_options, STREAM | {"includeHeaders": "1"}, "includeHeaders", "true nor false"),
        (
            stream_options,
            STREAM | {"kafkaConsumer.pollTimeoutMs": "0"},
            "kafkaConsumer.pollTimeoutMs",
            "between",
        ),
        (
            stream_options,
            STREAM | {"fetchOffset.numRetries": "-1"},
            "fetchOffset.numRetries",
            "between",
        ),
        (
            stream_options,
            STREAM | {"fetchOffset.retryIntervalMs": "soon"},
            "fetchOffset.retryIntervalMs",
            "whole",
        ),
        (stream_options, STREAM | {"metricsPort": "65536"}, "metricsPort", "between"),
        (stream_options, STREAM | {"assignmentTimeout": "never"}, "assignmentTimeout", "duration"),
        (
            stream_options,
            STREAM | {"assignmentTimeout": "9" * 5000},
            "assignmentTimeout",
            "duration",
        ),
        (stream_options, STREAM | {"assignmentTimeout": "200000d"}, "assignmentTimeout", "36500d"),
        (stream_options, STREAM | {"replayHorizon": "9" * 20 + "d"}, "replayHorizon", "too long"),
        (
            batch_options,
            BATCH | {"startingTimestamp": "20", "endingTimestamp": "10"},
            "endingTimestamp",
            "before startingTimestamp",
        ),
        (
            batch_options,
            BATCH
            | {
                "startingOffsetsByTimestamp": '{"a":{"0":5,"1":20}}',
                "endingOffsetsByTimestamp": '{"a":{"0":5,"1":19}}',
            },
            "endingOffsetsByTimestamp",
            "19 is before startingOffsetsByTimestamp, 20",
        ),
        (stream_options, STREAM | {"replayHorizon": "0s"}, "replayHorizon", "zero"),
        (stream_options, STREAM | {"topic": "a"}, "topic", "sink"),
        (batch_options, BATCH | {"startingOffsets": "latest"}, "startingOffsets", "latest"),
        (batch_options, BATCH | {"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets", "earliest"),
        (
            batch_options,
            BATCH | {"maxOffsetsPerTrigger": "1"},
            "maxOffsetsPerTrigger",
            "readStream",
        ),
        (sink_options, SINK | {"subscribe": "a"}, "subscribe", "read"),
        (sink_options, SINK | {"topic": "a,b"}, "topic", "'a,b' is no single topic: name one, or"),
        (sink_options, SINK | {"topic": " "}, "topic", "'' is no topic name"),
        (sink_options, SINK | {"topic": "a/b"}, "topic", "'a/b' is no topic name"),
        (sink_options, SINK | {"transactional": "true"}, "transactional", "transactional.id"),
        (
            sink_options,
            SINK | {"kafka.transactional.id": "t"},
            "kafka.transactional.id",
            "transactional=true",
        ),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(
    read: Reader, options: dict[str, str], option: str, told: str
) -> None:
    with pytest.raises(OptionError) as raised:
        read(options)
    assert raised.value.option == option
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("read", "given", "key", "value", "told"),
    [
        (stream_options, STREAM, "acks", "all", "for a producer, and nothing is written"),
        (stream_options, STREAM, "transactional.id", "t", "for a producer"),
        (stream_options, STREAM, "enable.idempotence", "true", "for a producer"),
        (batch_options, BATCH, "compression.type", "lz4", "for a producer"),
        (batch_options, BATCH, "group.instance.id", "i", "which joins no group: remove it"),
        (batch_options, BATCH, "partition.assignment.strategy", "range", "joins no group"),
        (batch_options, BATCH, "group.protocol", "classic", "joins no group"),
        (batch_options, BATCH, "enable.auto.commit", "true", "is refused: batches commit"),
        (stream_options, STREAM, "auto.commit.enable", "true", "is refused: batches commit"),
        (stream_options, STREAM, "group.remote.assignor", "range", "assignment.strategy instead"),
        (sink_options, SINK, "group.id", "g", "for a consumer, and a sink has none: remove it"),
        (sink_options, SINK, "auto.offset.reset", "latest", "for a consumer"),
        (sink_options, SINK, "isolation.level", "read_committed", "for a consumer"),
        (sink_options, SINK, "enable.idempotence", "false", "producers are idempotent. Remove it"),
        (sink_options, SINK, "key.serializer", "S", "keys are bytes"),
        (stream_options, STREAM, "group.protocol", "consumer", "Remove it, or set it to classic"),
    ],
)
def test_a_property_that_would_be_ignored_is_refused(
    read: Reader, given: dict[str, str], key: str, value: str, told: str
) -> None:
    with pytest.raises(OptionError) as raised:
        read(given | {f"kafka.{key}": value})
    assert raised.value.option == f"kafka.{key}"
    assert repr(value) in str(raised.value)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("ackss", "is no producer's property: did you mean kafka.acks?"),
        ("linger.sm", "did you mean kafka.linger.ms?"),
        ("bootstrap.server", "did you mean kafka.bootstrap.servers?"),
        ("zzz", "remove it"),
        ("default.topic.config", "is no producer's property"),
        ("max.request.size", "is refused: Java's name for it: set message.max.bytes instead"),
        ("buffer.memory", "set queue.buffering.max.kbytes instead"),
        ("max.block.ms", "librdkafka has no such limit: remove it"),
        ("partitioner.class", "set partitioner instead"),
        ("compression.zstd.level", "set compression.level instead"),
        ("sasl.jaas.config", "set sasl.mechanisms, sasl.username and sasl.password instead"),
        ("ssl.truststore.location", "and set ssl.ca.location"),
        ("ssl.truststore.password", "remove it"),
    ],
)
def test_what_is_no_producers_property_is_told_before_a_producer_is_made(
    key: str, told: str
) -> None:
    with pytest.raises(OptionError) as raised:
        sink_options(SINK | {f"kafka.{key}": "hunter2"})
    assert raised.value.option == f"kafka.{key}"
    assert told in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_consumers_property_is_never_suggested_to_a_producer() -> None:
    with pytest.raises(OptionError, match=r"kafka\.transactional\.id") as raised:
        sink_options(SINK | {"kafka.transactional.ids": "t"})
    assert "isolation.level" not in str(raised.value)
    with pytest.raises(OptionError) as raised:
        sink_options(SINK | {"kafka.fetch.max.byte": "1"})
    assert "fetch.max.bytes" not in str(raised.value)


def test_a_plugins_property_is_left_to_librdkafka() -> None:
    plugin = {"kafka.plugin.library.paths": "monitoring", "kafka.monitoring.port": "1"}
    assert "monitoring.port" in sink_options(SINK | plugin).kafka
    with pytest.raises(OptionError, match=r"message\.max\.bytes"):
        sink_options(SINK | plugin | {"kafka.max.request.size": "1"})


def test_javas_producers_properties_are_told_where_something_is_read_too() -> None:
    with pytest.raises(OptionError, match=r"set message\.max\.bytes instead") as raised:
        stream_options(STREAM | {"kafka.max.request.size": "1"})
    assert raised.value.option == "kafka.max.request.size"


def test_a_static_member_is_classic_too() -> None:
    new = {"kafka.group.protocol": "consumer", "staticMembership": "true"}
    with pytest.raises(OptionError, match=r"option kafka\.group\.protocol: 'consumer'"):
        stream_options(STREAM | new)
    assert stream_options(STREAM | new | {"kafka.group.protocol": "Classic"}).static


def test_what_a_role_has_or_both_have_is_taken() -> None:
    both = {"kafka.client.id": "c", "kafka.message.max.bytes": "2000000"}
    assert stream_options(STREAM | both | {"kafka.session.timeout.ms": "9000"}).kafka.keys() >= {
        "client.id",
        "message.max.bytes",
        "session.timeout.ms",
    }
    assert batch_options(BATCH | both | {"kafka.group.id": "acl"}).group == "acl"
    own = {"kafka.acks": "all", "kafka.enable.idempotence": "True", "kafka.linger.ms": "5"}
    assert sink_options(SINK | both | own).kafka["linger.ms"] == "5"


@pytest.mark.parametrize(
    ("read", "given", "option"),
    [
        (stream_options, STREAM, "path"),
        (batch_options, BATCH, "path"),
        (sink_options, SINK, "path"),
        (stream_options, STREAM, "checkpointLocation"),
        (batch_options, BATCH, "queryName"),
        (batch_options, BATCH, "groupIdPrefix"),
    ],
)
def test_what_spark_or_another_source_takes_is_not_ignored(
    read: Reader, given: dict[str, str], option: str
) -> None:
    with pytest.raises(OptionError, match=r"'x' (has no meaning|is)") as raised:
        read(given | {option.lower(): "x"})
    assert raised.value.option == option


def test_what_spark_tells_a_sink_is_no_option_of_its() -> None:
    sink_options(SINK | {"checkpointLocation": "/c", "queryName": "q"})


@pytest.mark.parametrize(
    ("over", "name", "value"),
    [
        ({"startingTimestamp": "1"}, "startingOffsets", "nonsense"),
        ({"startingTimestamp": "1"}, "startingOffsetsByTimestamp", "{}"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":1}}'}, "startingOffsets", "nonsense"),
        ({"endingTimestamp": "1"}, "endingOffsets", "nonsense"),
    ],
)
def test_what_is_overridden_is_read_too(over: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(OptionError) as raised:
        batch_options(BATCH | over | {name: value})
    assert raised.value.option == name


def test_no_secret_is_told() -> None:
    secret = {"kafka.sasl.pasword": "hunter2", "kafka.sasl.username": "u"}
    with pytest.raises(OptionError, match=r"sasl\.password") as raised:
        stream_options(STREAM | secret)
    assert "hunter2" not in str(raised.value)
    secret = {"kafka.sasl.password": "hunter2", "kafka.sasl.username": "u"}
    assert "hunter2" not in repr(stream_options(STREAM | secret | SASL))
    assert "hunter2" not in repr(sink_options(SINK | secret))


SASL = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanisms": "PLAIN"}


@given(st.sampled_from(["subscribe", "maxOffsetsPerTrigger", "kafka.group.id"]), st.randoms())
def test_names_have_no_case(name: str, random: Any) -> None:
    spelt = "".join(random.choice([c.lower(), c.upper()]) for c in name)
    options = STREAM | {"maxOffsetsPerTrigger": "7"}
    assert stream_options(without(options, name) | {spelt: options[name]}) == stream_options(
        options
    )


def test_defaults_are_the_builtin_sources() -> None:
    stream, batch = stream_options(STREAM), batch_options(BATCH)
    assert (stream.starting.offset, batch.starting.offset, batch.ending.offset) == (
        LATEST,
        EARLIEST,
        LATEST,
    )
    assert stream.fail_on_data_loss
    assert not stream.headers
    assert stream.poll_timeout == timedelta(seconds=120)
    assert stream.max_delay == timedelta(minutes=15)


def test_a_timestamp_goes_before_timestamps_before_offsets() -> None:
    by_offset = {"startingOffsets": '{"orders":{"0":23,"1":-2}}'}
    by_times = by_offset | {"startingOffsetsByTimestamp": '{"orders":{"0":5}}'}
    by_time = by_times | {"startingTimestamp": "7"}
    zero = TopicPartition("orders", 0)
    offsets = {zero: 23, TopicPartition("orders", 1): EARLIEST}
    assert stream_options(STREAM | by_offset).starting.offsets == offsets
    assert stream_options(STREAM | by_times).starting.timestamps == {zero: 5}
    assert stream_options(STREAM | by_time).starting.timestamp == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15m", timedelta(minutes=15)),
        ("15 min", timedelta(minutes=15)),
        ("250", timedelta(milliseconds=250)),
        ("250ms", timedelta(milliseconds=250)),
        ("2H", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
    ],
)
def test_durations_are_read_as_spark_does(text: str, expected: timedelta) -> None:
    options = STREAM | {"minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    assert stream_options(options).max_delay == expected


def test_a_pattern_matches_whole_names_as_in_java() -> None:
    options = stream_options(without(STREAM, "subscribe") | {"subscribePattern": "a|b.*"})
    assert options.pattern == "^(?:a|b.*)$"


@pytest.mark.parametrize(
    ("topic", "matches"), [("ORDERS", True), ("Returns", True), ("orders-2", False)]
)
def test_flags_may_stand_in_front_of_a_pattern_as_in_java(topic: str, matches: bool) -> None:
    given = {"subscribePattern": "(?i)orders|returns"}
    pattern = stream_options(without(STREAM, "subscribe") | given).pattern
    assert pattern is not None
    assert bool(re.match(pattern, topic)) == matches


@pytest.mark.parametrize(
    ("kafka", "option"),
    [
        ({"kafka.ssl.ca.location": "/nowhere.pem"}, "kafka.ssl.ca.location"),
        ({"kafka.ssl.certificate.location": "/nowhere.pem"}, "kafka.ssl.certificate.location"),
        ({"kafka.ssl.cipher.suites": "none-such"}, "kafka.ssl.cipher.suites"),
        ({"kafka.ssl.ca.pem": "nothing"}, "kafka.ssl.ca.pem"),
        (
            {"kafka.ssl.keystore.location": "/nowhere", "kafka.ssl.keystore.password": "secret"},
            "kafka.ssl.keystore.location",
        ),
    ],
)
def test_what_librdkafka_refuses_is_told_by_its_option(kafka: dict[str, str], option: str) -> None:
    options = batch_options(BATCH | {"kafka.security.protocol": "ssl"} | kafka)
    with pytest.raises(OptionError, match=r"configuration is refused.*Correct it") as raised:
        logs_of(options)
    assert raised.value.option == option
    assert "secret" not in str(raised.value)
