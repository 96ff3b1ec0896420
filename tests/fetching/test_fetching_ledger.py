"""What the ledger expects is what was settled, moved on by what was noted."""

from __future__ import annotations

import hypothesis.strategies as st
from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as NativePartition
from fetching_support import record
from hypothesis import given

from kafka_coop.fetching.ledger import DeliveryLedger
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import TopicPartition


def test_positions_are_due_at_first() -> None:
    assert DeliveryLedger().room <= 0


@given(
    settled=st.dictionaries(st.integers(0, 3), st.integers(0, 100)),
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), min_size=1), max_size=5
    ),
)
def test_the_last_word_on_a_partition_counts(
    settled: dict[int, int], batches: list[list[tuple[int, int]]]
) -> None:
    ledger = DeliveryLedger()
    ledger.settle(NativePartition("t", p, offset) for p, offset in settled.items())
    for batch in batches:
        ledger.note([record(p, offset) for p, offset in batch])
    model = settled | {p: offset + 1 for batch in batches for p, offset in batch}
    found = {of.partition: at.offset for of, at in ledger.expected().items()}
    assert found == model


def test_settling_forgets_what_was_noted() -> None:
    ledger = DeliveryLedger()
    ledger.settle([])
    ledger.note([record(0, 5)])
    ledger.settle([NativePartition("t", 1, 8, leader_epoch=3)])
    assert ledger.expected() == {
        TopicPartition("t", 1): OffsetAndMetadata(offset=8, leader_epoch=3)
    }


def test_partitions_without_a_position_and_errors_are_left_out() -> None:
    ledger = DeliveryLedger()
    ledger.settle([NativePartition("t", 0)])
    error = KafkaError(KafkaError._PARTITION_EOF)
    ledger.note([Message(topic="t", partition=1, offset=9, error=error)])
    assert ledger.expected() == {}


def test_the_epoch_is_that_of_the_last_record() -> None:
    ledger = DeliveryLedger()
    ledger.settle([])
    ledger.note([record(0, 5, epoch=1), record(0, 6, epoch=2)])
    assert ledger.expected()[TopicPartition("t", 0)].leader_epoch == 2


def test_large_records_make_positions_due_sooner() -> None:
    def records_kept(size: int) -> int:
        ledger = DeliveryLedger()
        ledger.settle(NativePartition("t", p, 0) for p in range(1000))
        count = 0
        while ledger.room > 0:
            ledger.note([record(0, count, value=bytes(size))])
            count += 1
        return count

    assert records_kept(0) <= 4096
    assert records_kept(1 << 20) * (1 << 20) <= 5 << 20
    assert records_kept(1 << 24) >= 1


def test_positions_are_due_after_invalidation() -> None:
    ledger = DeliveryLedger()
    ledger.settle([])
    assert ledger.room > 0
    ledger.invalidate()
    assert ledger.room <= 0


def test_offsets_that_go_back_are_told_of() -> None:
    """librdkafka's position does not go back with them: with a log that has been made anew."""
    ledger = DeliveryLedger()
    ledger.settle([NativePartition("t", 0, 100), NativePartition("t", 1, 7)])
    assert not ledger.note([record(0, 100)])
    assert not ledger.note([record(0, 101), record(1, 7), record(0, 109)])
    assert ledger.note([record(0, 0), record(0, 9)])
    assert not ledger.note([record(0, 10)]), "from here on it goes on"
    assert ledger.note([record(2, 0), record(1, 0)])
    error = KafkaError(KafkaError._PARTITION_EOF)
    assert not ledger.note([Message(topic="t", partition=0, offset=3, error=error)])
    ledger.settle([NativePartition("t", 0)])
    assert not ledger.note([record(0, 0)]), "it may have been sought"
