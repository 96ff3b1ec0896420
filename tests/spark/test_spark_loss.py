from __future__ import annotations

import logging

import pytest

from kafka_coop.spark.errors import DataLossError
from kafka_coop.spark.loss import position_within
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.options import StreamOptions, stream_options
from kafka_coop.types import TopicPartition

OF = TopicPartition("orders", 0)
LOG = Range(10, 20)


def options(**more: str) -> StreamOptions:
    given = {"kafka.bootstrap.servers": "h:1", "kafka.group.id": "g", "subscribe": "orders"}
    return stream_options(given | more)


@pytest.mark.parametrize("position", [10, 15, 20])
def test_what_the_log_has_is_read(position: int) -> None:
    assert position_within(OF, position, LOG, options()) == position


@pytest.mark.parametrize(("position", "told"), [(9, "begins at 10"), (21, "ends at 20")])
def test_what_it_has_not_is_told_with_the_option_and_the_remedy(position: int, told: str) -> None:
    with pytest.raises(DataLossError, match=f"orders:0 {told}.*failOnDataLoss=false.*reset"):
        position_within(OF, position, LOG, options())


@pytest.mark.parametrize("position", [9, 21])
def test_a_start_that_the_user_gave_is_to_be_corrected(position: int) -> None:
    given = options(startingOffsets=f'{{"orders":{{"0":{position}}}}}')
    with pytest.raises(DataLossError, match="Correct startingOffsets"):
        position_within(OF, position, LOG, given)


@pytest.mark.parametrize(("position", "nearest"), [(9, 10), (21, 20)])
def test_where_that_may_be_it_goes_on_with_what_there_is(
    position: int, nearest: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kafka_coop.spark"):
        found = position_within(OF, position, LOG, options(failOnDataLoss="false"))
    assert found == nearest
    assert "failOnDataLoss=false" in caplog.text
