"""What librdkafka does rarely, from a stand-in that does it on demand.

It swallows the records of a `consume` that raises, stops partitions late, and refuses to seek
in what it has yet to start.
"""

from __future__ import annotations

from typing import cast

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from fetching_stand_in import InterruptionError, StandIn
from fetching_support import offsets, read, record

from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Partitions, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = Partitions.of([A, B])


@pytest.fixture
def fetcher(monkeypatch: pytest.MonkeyPatch) -> Fetcher:
    monkeypatch.setattr(confluent_kafka, "Consumer", StandIn)
    fetcher = Fetcher({})
    fetcher.add({A: OffsetAndMetadata(offset=0), B: OffsetAndMetadata(offset=50)})
    return fetcher


def stand_in(fetcher: Fetcher) -> StandIn:
    return cast(StandIn, fetcher._consumer)


def swallow(fetcher: Fetcher, n: int) -> None:
    """Loses `n` records to an exception."""
    stand_in(fetcher).consume_raises = True
    with pytest.raises(InterruptionError):
        fetcher.take(n, 0)
    stand_in(fetcher).consume_raises = False


def positions(fetcher: Fetcher) -> dict[TopicPartition, int]:
    return {of: at.offset for of, at in fetcher.positions(BOTH).items()}


class TestSwallowedRecords:
    @pytest.mark.parametrize("taken_before", [0, 1, 3])
    def test_are_fetched_again(self, fetcher: Fetcher, taken_before: int) -> None:
        before = [m for _ in range(taken_before) for m in fetcher.take(8, 0)]
        swallow(fetcher, 8)
        delivered = 4 * taken_before
        assert positions(fetcher) == {A: delivered, B: 50 + delivered}
        assert offsets(before + fetcher.take(40, 0)) == {
            A: list(range(delivered + 20)),
            B: list(range(50, 50 + delivered + 20)),
        }

    def test_what_is_buffered_stays_and_comes_first(self, fetcher: Fetcher) -> None:
        fetcher._batches.size = 8
        first = read(fetcher, 2)
        swallow(fetcher, 20)
        assert offsets(first + fetcher.take(26, 0)) == {
            A: list(range(14)),
            B: list(range(50, 64)),
        }

    @pytest.mark.parametrize("seeks", [0, 1])
    def test_even_if_a_second_exception_strikes_meanwhile(
        self, fetcher: Fetcher, seeks: int
    ) -> None:
        first = fetcher.take(8, 0)
        stand_in(fetcher).seeks_until_raising = seeks
        swallow(fetcher, 8)
        stand_in(fetcher).seeks_until_raising = -1
        assert positions(fetcher) == {A: 4, B: 54}
        assert offsets(first + fetcher.take(8, 0)) == {A: list(range(8)), B: list(range(50, 58))}

    def test_of_a_partition_added_again_from_its_new_start(self, fetcher: Fetcher) -> None:
        fetcher.take(8, 0)
        fetcher.remove(Partitions.of([A]))
        fetcher.add({A: OffsetAndMetadata(offset=30)})
        swallow(fetcher, 8)
        assert positions(fetcher) == {A: 30, B: 54}

    def test_of_a_partition_that_was_sought_from_there(self, fetcher: Fetcher) -> None:
        fetcher.take(8, 0)
        fetcher.seek(A, 30)
        swallow(fetcher, 8)
        assert positions(fetcher) == {A: 30, B: 54}

    def test_of_a_partition_that_was_paused_from_where_it_was(self, fetcher: Fetcher) -> None:
        fetcher.take(8, 0)
        fetcher.pause(BOTH)
        fetcher.resume(BOTH)
        swallow(fetcher, 8)
        assert positions(fetcher) == {A: 4, B: 54}


class TestStopping:
    """librdkafka shows the old position of a partition until it has stopped it."""

    def test_a_partition_added_again_stands_at_its_new_start(self, fetcher: Fetcher) -> None:
        fetcher.take(8, 0)
        fetcher.discard()
        fetcher.add({A: OffsetAndMetadata(offset=2)})
        assert positions(fetcher) == {A: 2}

    def test_a_paused_partition_that_is_sought_stands_there(self, fetcher: Fetcher) -> None:
        fetcher.take(8, 0)
        fetcher.pause(BOTH)
        fetcher.seek(A, 2)
        assert positions(fetcher) == {A: 2, B: 54}
        fetcher.resume(BOTH)
        assert positions(fetcher) == {A: 2, B: 54}


class TestStarting:
    def test_a_partition_that_has_yet_to_start_can_be_sought(self, fetcher: Fetcher) -> None:
        stand_in(fetcher).not_started = True
        fetcher.seek(A, 20)
        assert positions(fetcher) == {A: 20, B: 50}
        assert offsets(fetcher.take(4, 0)) == {A: [20, 21], B: [50, 51]}

    def test_one_that_is_not_fetched_can_not(self, fetcher: Fetcher) -> None:
        stand_in(fetcher).not_started = True
        with pytest.raises(KafkaException):
            fetcher.seek(TopicPartition("t", 2), 0)
        assert fetcher.assignment() == BOTH


def test_a_position_before_a_gap_is_behind_the_record_delivered(fetcher: Fetcher) -> None:
    # With the offset after the gap and the epoch before it, a log that changed leaders inside
    # the gap would look truncated (KIP-320).
    del stand_in(fetcher).log[0][3:]
    stand_in(fetcher).log[0] += [record(0, offset, epoch=9) for offset in range(10, 13)]
    fetcher.pause(Partitions.of([B]))
    read(fetcher, 3)
    assert fetcher.positions(BOTH)[A] == OffsetAndMetadata(offset=3, leader_epoch=7)
    read(fetcher, 1)
    assert fetcher.positions(BOTH)[A] == OffsetAndMetadata(offset=11, leader_epoch=9)
