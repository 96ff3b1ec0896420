"""The buffer against a model that keeps every record by itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from confluent_kafka import KafkaError, Message
from fetching_support import record
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_coop.fetching.buffer import RecordBuffer
from kafka_coop.fetching.native import partition_of
from kafka_coop.types import Partitions, TopicPartition

PARTITIONS = [TopicPartition("t", n) for n in range(3)]
subsets = st.sets(st.sampled_from(PARTITIONS)).map(Partitions.of)


class BufferMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = RecordBuffer()
        self.produced = dict.fromkeys(PARTITIONS, 0)
        self.waiting: dict[TopicPartition, list[int]] = {of: [] for of in PARTITIONS}
        self.aside: dict[TopicPartition, list[int]] = {of: [] for of in PARTITIONS}
        self.paused: set[TopicPartition] = set()

    def exhausted(self) -> bool:
        return self.buffer.index >= len(self.buffer.records)

    def patient(self) -> Partitions:
        """Those of which records are held back while they are not paused."""
        return Partitions.of(of for of in self.buffer.aside if of not in self.paused)

    @precondition(exhausted)
    @rule(of=st.lists(st.sampled_from(PARTITIONS), max_size=12), patient=subsets)
    def take_in(self, of: list[TopicPartition], patient: Partitions) -> None:
        batch: list[Message] = []
        for one in of:
            if one not in self.paused:
                batch.append(record(one.partition, self.produced[one]))
                self.waiting[one].append(self.produced[one])
                self.produced[one] += 1
        patient = Partitions.of(p for p in patient if p not in self.paused) | self.patient()
        buffer = self.buffer
        buffer.records, buffer.index, buffer.aside, buffer.behind = buffer.taking_in(
            batch, patient, size=2, few=1
        )
        assert self.exhausted() == (not any(self.waiting.values()))
        held = [of for of in buffer.aside if of in patient]
        assert not held or len(buffer.records) - buffer.index >= 2

    @precondition(lambda self: self.exhausted() and not self.patient())
    @rule(of=st.lists(st.sampled_from(PARTITIONS), max_size=12))
    def refill(self, of: list[TopicPartition]) -> None:
        batch: list[Message] = []
        for one in of:
            if one not in self.paused:  # librdkafka delivers nothing of a paused partition
                batch.append(record(one.partition, self.produced[one]))
                self.waiting[one].append(self.produced[one])
                self.produced[one] += 1
        self.buffer.index = 0
        self.buffer.records = batch

    @precondition(lambda self: not self.exhausted())
    @rule()
    def deliver(self) -> None:
        message = self.buffer.records[self.buffer.index]
        self.buffer.index += 1
        of = partition_of(message)
        assert self.waiting[of].pop(0) == message.offset()
        assert self.buffer.delivered()[of] is message

    @rule(partitions=subsets)
    def pause(self, partitions: Partitions) -> None:
        fresh = Partitions.of(of for of in partitions if of not in self.paused)
        self.paused.update(fresh)
        delivered = self.buffer.delivered()
        self.buffer.set_aside(fresh)
        assert self.buffer.delivered() == delivered
        for of in fresh:
            self.aside[of], self.waiting[of] = self.waiting[of], []

    @rule(partitions=subsets)
    def resume(self, partitions: Partitions) -> None:
        stopped = Partitions.of(of for of in partitions if of in self.paused)
        self.paused.difference_update(stopped)
        self.buffer.give_back(stopped)
        for of in stopped:
            self.waiting[of] = self.aside[of] + self.waiting[of]
            self.aside[of] = []

    @rule(partitions=subsets)
    def remove(self, partitions: Partitions) -> None:
        self.buffer.drop(partitions)
        self.paused.difference_update(partitions)
        for of in partitions:
            self.waiting[of], self.aside[of] = [], []
        assert self.buffer.delivered().keys().isdisjoint(partitions)

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.paused.clear()
        for of in PARTITIONS:
            self.waiting[of], self.aside[of] = [], []
        assert self.buffer.delivered() == {}

    @invariant()
    def holds_just_what_waits(self) -> None:
        upcoming = {of: message.offset() for of, message in self.buffer.waiting().items()}
        both = {of: self.aside[of] + self.waiting[of] for of in PARTITIONS}
        assert upcoming == {of: offsets[0] for of, offsets in both.items() if offsets}
        assert len(self.buffer) == sum(map(len, both.values()))


TestBuffer = BufferMachine.TestCase


def test_errors_are_in_nobodys_way() -> None:
    buffer = RecordBuffer()
    eof = Message(topic="t", partition=0, offset=9, error=KafkaError(KafkaError._PARTITION_EOF))
    buffer.records = [eof, record(0, 9), eof]
    assert buffer.waiting()[PARTITIONS[0]].error() is None
    buffer.index = 1
    assert buffer.delivered() == {}
    buffer.index = 3
    assert buffer.delivered()[PARTITIONS[0]].offset() == 9


def test_an_error_without_a_partition_is_nobodys() -> None:
    buffer = RecordBuffer()
    buffer.records = [Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))]
    buffer.set_aside(Partitions({"t": [0]}))
    buffer.drop(Partitions({"t": [0]}))
    assert len(buffer.records) == 1


@pytest.mark.parametrize("partitions", range(1, 13))
@pytest.mark.parametrize("uneven", [False, True])
def test_no_more_comes_in_than_goes_out_of_what_is_held_back(partitions: int, uneven: bool) -> None:
    """Whatever the number of partitions does not divide: a long backlog would be held whole."""
    buffer = RecordBuffer()
    patient = Partitions({"t": range(partitions)})
    backlog = (record(0 if uneven and n > 60 else n % partitions, n) for n in itertools.count())
    for size in [60, *[10] * 100]:
        batch = list(itertools.islice(backlog, size))
        buffer.records, buffer.index, buffer.aside, buffer.behind = buffer.taking_in(
            batch, patient, size=1, few=10
        )
        buffer.index = len(buffer.records)
        assert len(buffer) <= 50


class Looked(list[Message]):
    """Counts how many of its messages are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[Message]:
        for message in super().__iter__():
            self.looked_at += 1
            yield message


def test_where_a_partition_stands_is_told_without_looking_through_all_that_is_held_of_it() -> None:
    buffer = RecordBuffer()
    of = PARTITIONS[0]
    held = Looked(record(0, n) for n in range(1, 4_000))
    buffer.aside = {of: held}
    assert buffer.waiting()[of].offset() == 1
    assert held.looked_at == 1
    buffer.records = [record(0, 0)]
    assert buffer.waiting()[of].offset() == 0, "the batch has the older ones"
