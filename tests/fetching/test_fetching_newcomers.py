"""A backlog keeps nobody waiting, and comes complete and in order all the same."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import patch

import confluent_kafka
import hypothesis.strategies as st
import pytest
from confluent_kafka import Message
from fetching_stand_in import StandIn
from fetching_support import offsets, record
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.fetching.native import partition_of
from kafka_coop.fetching.newcomers import Newcomers
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import NO_PARTITIONS, Partitions, TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))
AT_ITS_END, FROM_THE_START = OffsetAndMetadata(offset=100), OffsetAndMetadata(offset=0)


def fetcher_of(log: dict[int, list[Message]], prefetch: int = 500) -> tuple[Fetcher, StandIn]:
    with patch.object(confluent_kafka, "Consumer", StandIn):
        fetcher = Fetcher({}, prefetch=prefetch)
    native = cast(StandIn, fetcher._consumer)
    native.log = log
    return fetcher, native


def log_of(*records: int) -> dict[int, list[Message]]:
    return {p: [record(p, offset, epoch=7) for offset in range(n)] for p, n in enumerate(records)}


def grow(native: StandIn, of: TopicPartition) -> None:
    log = native.log[of.partition]
    log.append(record(of.partition, len(log), epoch=7))


def read(fetcher: Fetcher, count: int) -> list[Message]:
    found = [fetcher.next(0) for _ in range(count)]
    return [message for message in found if message is not None]


def of_whom(messages: list[Message]) -> list[TopicPartition]:
    return [partition_of(message) for message in messages]


class TestABacklog:
    def test_what_was_there_before_overtakes_it(self) -> None:
        fetcher, native = fetcher_of(log_of(100, 100))
        fetcher.add({A: AT_ITS_END})
        fetcher.add({B: FROM_THE_START})
        first = read(fetcher, 3)
        grow(native, A)
        rest = read(fetcher, 200)
        assert of_whom(first) == [B, B, B]
        assert A in of_whom(rest)[:10]
        assert offsets(first + rest) == {A: [100], B: list(range(100))}

    def test_so_it_does_in_batches_of_the_users_size(self) -> None:
        fetcher, native = fetcher_of(log_of(100, 100))
        fetcher.add({A: AT_ITS_END})
        fetcher.add({B: FROM_THE_START})
        first = fetcher.take(30, 0)
        grow(native, A)
        second = fetcher.take(30, 0)
        assert of_whom(first) == [B] * 30
        assert of_whom(second) == [A] + [B] * 29
        assert offsets(second + fetcher.take(50, 0))[B] == list(range(30, 100))

    def test_two_of_them_come_by_turns(self) -> None:
        fetcher, _ = fetcher_of(log_of(100, 100, 100))
        fetcher.add({A: AT_ITS_END})
        fetcher.add({B: FROM_THE_START, C: FROM_THE_START})
        assert {B, C} == set(of_whom(read(fetcher, 10)))

    def test_more_of_them_than_come_at_once_come_by_turns_too(self) -> None:
        fetcher, _ = fetcher_of(log_of(100, *[40] * 30))
        fetcher.add({A: AT_ITS_END})
        fetcher.add({TopicPartition("t", p): FROM_THE_START for p in range(1, 31)})
        assert len(set(of_whom(read(fetcher, 30)))) == 30

    def test_no_more_of_it_is_held_than_a_few_batches(self) -> None:
        fetcher, native = fetcher_of(log_of(100, 10_000), prefetch=20)
        fetcher.add({A: AT_ITS_END})
        fetcher.add({B: FROM_THE_START})
        read(fetcher, 1_000)
        assert native.upcoming[1] <= 1_000 + 8 * 20

    def test_of_large_records_no_more_is_held_than_a_few_megabytes_and_one_batch(self) -> None:
        """Small ones at the ends of batches would have as many asked for as if all were small."""
        fetcher, native = fetcher_of(log_of(100, 3_000, 3_000), prefetch=50)
        large = bytes(1 << 20)
        native.log[1] = [record(1, offset, value=large) for offset in range(300)]
        fetcher.add({A: AT_ITS_END})
        fetcher.add({B: FROM_THE_START, C: FROM_THE_START})
        for _ in range(100):
            read(fetcher, 1)
            held = fetcher._buffer.aside.get(B, [])
            assert sum(map(len, held)) <= 8 * (1 << 20) + 50 * len(large)

    def test_what_is_held_of_it_while_it_is_paused_has_the_others_come_no_slower(self) -> None:
        fetcher, native = fetcher_of(log_of(2_000, 2_000), prefetch=50)
        fetcher.add({A: AT_ITS_END})
        fetcher.add({B: FROM_THE_START})
        read(fetcher, 1_200)
        fetcher.pause(Partitions.of([B]))
        assert len(fetcher._buffer) > 350, "as many as may be held"
        before = native.upcoming[0]
        fetcher.take(50, 0)
        fetcher.take(1, 0)
        assert native.upcoming[0] == before + 50

    def test_where_nobody_was_before_nobody_waits(self) -> None:
        fetcher, native = fetcher_of(log_of(100, 100))
        fetcher.add({A: AT_ITS_END, B: FROM_THE_START})
        read(fetcher, 3)
        grow(native, A)
        assert of_whom(read(fetcher, 98))[-1] == A

    def test_it_goes_on_waiting_when_another_partition_is_resumed(self) -> None:
        fetcher, native = fetcher_of(log_of(100, 100))
        fetcher.add({A: AT_ITS_END})
        fetcher.add({B: FROM_THE_START})
        read(fetcher, 3)
        fetcher.pause(Partitions.of([A]))
        grow(native, A)
        fetcher.resume(Partitions.of([A]))
        assert A in of_whom(read(fetcher, 10))

    def test_their_positions_are_behind_what_was_delivered(self) -> None:
        fetcher, _ = fetcher_of(log_of(100, 30, 30))
        fetcher.add({A: AT_ITS_END})
        fetcher.add({B: FROM_THE_START, C: FROM_THE_START})
        expected = {B: (0, -1), C: (0, -1)}
        for _ in range(40):
            (message,) = read(fetcher, 1)
            expected[partition_of(message)] = (message.offset() or 0) + 1, 7
            positions = fetcher.positions(Partitions.of([B, C]))
            assert {of: (at.offset, at.leader_epoch) for of, at in positions.items()} == expected


class TestNewcomers:
    def test_they_have_caught_up_when_all_there_was_has_been_delivered(self) -> None:
        newcomers = Newcomers()
        newcomers.come(Partitions.of([B]), beside=Partitions.of([A]))
        newcomers.saw([record(1, 0)], all_there_was=False, held={})
        assert newcomers.partitions == Partitions.of([B])
        newcomers.saw([], all_there_was=True, held={B: []})
        assert newcomers.partitions == Partitions.of([B])
        newcomers.saw([], all_there_was=True, held={})
        assert newcomers.partitions == NO_PARTITIONS

    def test_in_mid_backlog_nobody_is_looked_through_in_vain(self) -> None:
        """For every few records, that is: to find that all stay cost more than to deliver these."""
        newcomers = Newcomers()
        newcomers.come(Partitions.of([B]), beside=Partitions.of([A]))
        before = newcomers.partitions
        newcomers.saw([record(0, 0), record(1, 0)], all_there_was=False, held={})
        assert newcomers.partitions is before

    def test_one_of_which_nothing_has_come_yet_may_have_a_backlog(self) -> None:
        newcomers = Newcomers()
        newcomers.come(Partitions.of([B, C]), beside=Partitions.of([A]))
        newcomers.saw([record(1, 0)], all_there_was=True, held={})
        newcomers.saw([record(0, 0)], all_there_was=True, held={})
        assert newcomers.partitions == Partitions.of([C])

    def test_one_that_others_pass_by_again_and_again_has_none(self) -> None:
        newcomers = Newcomers()
        newcomers.come(Partitions.of([B, C]), beside=Partitions.of([A]))
        for batch in range(20):
            newcomers.saw([record(0, n) for n in range(500)], all_there_was=False, held={C: []})
            assert (B in newcomers.partitions) == (batch < 9)
        assert newcomers.partitions == Partitions.of([C])

    @pytest.mark.parametrize("beside", [NO_PARTITIONS, Partitions.of([B])])
    def test_they_are_none_beside_each_other(self, beside: Partitions) -> None:
        newcomers = Newcomers()
        newcomers.partitions = beside
        newcomers.come(Partitions.of([C]), beside=beside)
        assert newcomers.partitions == beside


subsets = st.sets(st.sampled_from([A, B, C])).map(Partitions.of)


class FetcherMachine(RuleBasedStateMachine):
    """Partitions come, go, pause and are sought in mid-backlog: each delivers all, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.fetcher, self.native = fetcher_of(log_of(200, 200, 200), prefetch=60)
        self.upcoming: dict[TopicPartition, int] = {}

    def delivered(self, messages: list[Message]) -> None:
        for message in messages:
            of = partition_of(message)
            assert of not in self.fetcher.paused()
            assert message.offset() == self.upcoming[of]
            self.upcoming[of] += 1

    @rule(partitions=subsets, offset=st.integers(0, 200))
    def add(self, partitions: Partitions, offset: int) -> None:
        fresh = [of for of in partitions if of not in self.upcoming]
        self.fetcher.add({of: OffsetAndMetadata(offset=offset) for of in fresh})
        self.upcoming |= dict.fromkeys(fresh, offset)

    @rule(partitions=subsets)
    def remove(self, partitions: Partitions) -> None:
        self.fetcher.remove(partitions & self.fetcher.assignment())
        self.upcoming = {of: at for of, at in self.upcoming.items() if of not in partitions}

    @rule(partitions=subsets)
    def pause(self, partitions: Partitions) -> None:
        self.fetcher.pause(partitions)

    @rule(partitions=subsets)
    def resume(self, partitions: Partitions) -> None:
        self.fetcher.resume(partitions)

    @rule(held=st.booleans())
    def hold(self, held: bool) -> None:
        self.fetcher.hold(held)

    @precondition(lambda self: self.upcoming)
    @rule(data=st.data(), offset=st.integers(0, 200))
    def seek(self, data: Any, offset: int) -> None:
        of = data.draw(st.sampled_from(sorted(self.upcoming)))
        self.fetcher.seek(of, offset)
        self.upcoming[of] = offset

    @rule(of=st.sampled_from([A, B, C]))
    def grow(self, of: TopicPartition) -> None:
        grow(self.native, of)

    @rule(count=st.integers(1, 15))
    def read(self, count: int) -> None:
        self.delivered(read(self.fetcher, count))

    @rule(count=st.integers(0, 15))
    def take(self, count: int) -> None:
        self.delivered(self.fetcher.take(count, 0))

    @invariant()
    def positions_are_behind_what_was_delivered(self) -> None:
        known = self.fetcher.positions(self.fetcher.assignment())
        assert {of: at.offset for of, at in known.items()} == self.upcoming

    def teardown(self) -> None:
        self.fetcher.hold(False)
        self.fetcher.resume(self.fetcher.assignment())
        for _ in range(1_000):
            self.delivered([*read(self.fetcher, 1), *self.fetcher.take(1, 0)])
        for of, at in self.upcoming.items():
            assert at == max(at, len(self.native.log[of.partition])), "a record is left"
        super().teardown()


TestAnyOrderOfEvents = FetcherMachine.TestCase
