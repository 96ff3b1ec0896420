"""Every option of the table: misspelt, and with a value that it can't have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_coop.spark.errors import OptionError
from kafka_coop.spark.kafka_keys import Use
from kafka_coop.spark.options import OPTIONS, batch_options, sink_options, stream_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
READERS: dict[Use, tuple[Callable[[dict[str, str]], Any], dict[str, str]]] = {
    Use.STREAM: (stream_options, {**SERVERS, "kafka.group.id": "g", "subscribe": "orders"}),
    Use.BATCH: (batch_options, {**SERVERS, "subscribe": "orders"}),
    Use.SINK: (sink_options, {**SERVERS, "topic": "orders"}),
}
SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")

BAD: dict[str, tuple[str, str]] = {
    "assign": ('{"or/ders":[0]}', "or/ders"),
    "subscribe": ("or/ders", "or/ders"),
    "subscribePattern": ("orders(", "orders("),
    "startingOffsets": ('{"orders":{"0":-3}}', "-3"),
    "startingTimestamp": ("-17", "-17"),
    "startingOffsetsByTimestamp": ('{"orders":{"0":-17}}', "-17"),
    "startingOffsetsByTimestampStrategy": ("sometimes", "sometimes"),
    "endingOffsets": ('{"orders":{"0":-3}}', "-3"),
    "endingTimestamp": ("-17", "-17"),
    "endingOffsetsByTimestamp": ('{"orders":{"0":-17}}', "-17"),
    "failOnDataLoss": ("perhaps", "perhaps"),
    "maxOffsetsPerTrigger": ("-17", "-17"),
    "minOffsetsPerTrigger": ("-17", "-17"),
    "maxTriggerDelay": ("soon", "soon"),
    "minPartitions": ("-17", "-17"),
    "maxPartitions": ("-17", "-17"),
    "maxRecordsPerPartition": ("-17", "-17"),
    "includeHeaders": ("perhaps", "perhaps"),
    "kafkaConsumer.pollTimeoutMs": ("-17", "-17"),
    "fetchOffset.numRetries": ("-17", "-17"),
    "fetchOffset.retryIntervalMs": ("-17", "-17"),
    "staticMembership": ("perhaps", "perhaps"),
    "assignmentTimeout": ("soon", "soon"),
    "replayHorizon": ("soon", "soon"),
    "metricsPort": ("70000", "70000"),
    "topic": ("or/ders", "or/ders"),
    "transactional": ("perhaps", "perhaps"),
}
"""A value that each can't have, and what the error says of it. A new option needs one here."""

USES = [(name, use) for name, uses in OPTIONS.items() for use in Use if use in uses]


def given(name: str, value: str, use: Use) -> dict[str, str]:
    """It, and what else is needed."""
    _, others = READERS[use]
    if name in SUBSCRIPTIONS:
        others = {key: its for key, its in others.items() if key not in SUBSCRIPTIONS}
    return {**others, name: value}


def test_every_option_of_the_table_has_a_value_that_it_cant_have() -> None:
    assert BAD.keys() == OPTIONS.keys()


@pytest.mark.parametrize(("name", "use"), USES)
def test_a_value_that_it_cant_have_is_told_with_the_options_name(name: str, use: Use) -> None:
    read, _ = READERS[use]
    value, told = BAD[name]
    with pytest.raises(OptionError) as raised:
        read(given(name, value, use))
    assert raised.value.option == name
    assert name in str(raised.value)
    assert told in str(raised.value)


@pytest.mark.parametrize(("name", "use"), USES)
def test_whichever_letter_is_left_out_its_name_is_suggested(name: str, use: Use) -> None:
    read, others = READERS[use]
    for n in range(len(name)):
        misspelt = name[:n] + name[n + 1 :]
        if misspelt.lower() in {known.lower() for known in OPTIONS}:
            continue  # another option's
        with pytest.raises(OptionError) as raised:
            read({**others, misspelt: "1"})
        assert raised.value.option == misspelt
        _, asked, suggested = str(raised.value).partition("did you mean ")
        assert asked, f"{misspelt}: {raised.value}"
        assert name in suggested.removesuffix("?").split(" or "), f"{misspelt}: {suggested}"
