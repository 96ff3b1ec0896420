"""`LoadMeter`: rates as they were, forgotten as they age."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from kafka_coop import plan
from kafka_coop.assignors import LoadAwareSticky
from kafka_coop.loads import LoadMeter, ProgressMeter
from kafka_coop.protocol.marks import SubscriptionMarks, split_marks
from kafka_coop.types import (
    Assignment,
    Generation,
    GroupMetadata,
    Partitions,
    Subscription,
    TopicPartition,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = Partitions({"t": [0, 1]})


@dataclass
class Message:
    at: TopicPartition
    size: int = 100
    failed: bool = False

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.partition

    def error(self) -> object:
        return "an error" if self.failed else None

    def __len__(self) -> int:
        return self.size


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(meter: LoadMeter, clock: Clock, seconds: int, **per_second: int) -> None:
    for _ in range(seconds):
        clock.now += 1
        for name, count in per_second.items():
            meter.note([Message(TopicPartition("t", int(name[1:])))] * count)


@pytest.mark.parametrize(("unit", "size"), [("records", 1), ("bytes", 100)])
def test_a_steady_rate_is_measured_as_it_is(unit: str, size: int) -> None:
    clock = Clock()
    meter = LoadMeter(unit, clock=clock)  # type: ignore[arg-type]  # parametrised
    meter(BOTH)
    run(meter, clock, 600, p0=30, p1=6)
    assert meter(BOTH) == pytest.approx({T0: 30 * size, T1: 6 * size}, rel=0.02)


def test_the_recent_past_counts_most() -> None:
    clock = Clock()
    meter = LoadMeter(half_life=timedelta(seconds=60), clock=clock)
    meter(BOTH)
    run(meter, clock, 1200, p0=10)
    run(meter, clock, 60, p0=30)
    assert meter(BOTH)[T0] == pytest.approx(20, rel=0.05), "half new, half old"


def test_a_partition_without_records_is_idle_not_unknown() -> None:
    clock = Clock()
    meter = LoadMeter(clock=clock)
    assert meter(BOTH) == {}
    run(meter, clock, 10, p0=5)
    assert meter(BOTH) == pytest.approx({T0: 5, T1: 0}, abs=0.1)


def test_what_has_just_come_is_unknown_however_long_the_meter_runs() -> None:
    clock = Clock()
    meter = LoadMeter(clock=clock)
    meter(Partitions({"t": [0]}))
    run(meter, clock, 3, p0=5)
    clock.now += 0.5
    meter.note([Message(T1)] * 10)
    clock.now += 0.5
    assert meter(BOTH).keys() == {T0}, "half a second says nothing of a rate"
    run(meter, clock, 2, p1=20)
    assert meter(BOTH)[T1] == pytest.approx(20, rel=0.05)


def test_what_is_not_owned_any_more_is_forgotten() -> None:
    clock = Clock()
    meter = LoadMeter(clock=clock)
    meter(BOTH)
    run(meter, clock, 10, p0=5, p1=5)
    assert meter(Partitions({"t": [1]})).keys() == {T1}
    assert meter(BOTH).keys() == {T1}, "and is measured anew"
    clock.now += 10
    assert meter(BOTH)[T0] == 0


def test_errors_are_no_load() -> None:
    clock = Clock()
    meter = LoadMeter(clock=clock)
    meter(BOTH)
    clock.now += 10
    meter.note([Message(T0, failed=True)] * 100)
    assert meter(BOTH) == {T0: 0, T1: 0}


def test_it_is_what_the_strategy_publishes() -> None:
    clock = Clock()
    meter = LoadMeter(clock=clock)
    member = LoadAwareSticky(meter)
    member.on_assignment(Assignment(partitions=BOTH), GroupMetadata(group_id="g"))
    member.subscription_user_data(("t",))
    run(meter, clock, 60, p0=8, p1=2)
    marks = split_marks(member.subscription_user_data(("t",)))[1]
    assert isinstance(marks, SubscriptionMarks)
    assert marks.load == pytest.approx({T0: 8, T1: 2}, rel=0.05)


def test_a_round_that_lasted_does_not_make_idle_what_it_gave() -> None:
    clock = Clock()
    meter = LoadMeter(clock=clock)
    member = LoadAwareSticky(meter)
    member.subscription_user_data(("t",))
    clock.now += 3  # as long as a broker waits with a group's first round
    member.on_assignment(Assignment(partitions=BOTH), GroupMetadata(group_id="g"))
    clock.now += 0.1
    marks = split_marks(member.subscription_user_data(("t",)))[1]
    assert isinstance(marks, SubscriptionMarks)
    assert not marks.load
    run(meter, clock, 10, p0=5)
    marks = split_marks(member.subscription_user_data(("t",)))[1]
    assert isinstance(marks, SubscriptionMarks)
    assert marks.load == pytest.approx({T0: 5, T1: 0}, abs=0.1)


def test_a_measure_without_records_knows_what_is_idle_since_it_came() -> None:
    clock = Clock()
    meter = LoadMeter(clock=clock)
    member = LoadAwareSticky(meter)
    member.on_assignment(Assignment(partitions=BOTH), GroupMetadata(group_id="g"))
    clock.now += 60
    assert meter(BOTH) == {T0: 0, T1: 0}


def test_a_plan_does_not_make_a_meter_forget() -> None:
    clock = Clock()
    meter = LoadMeter(clock=clock)
    meter(BOTH)
    run(meter, clock, 60, p0=8, p1=2)
    group = {
        m: Subscription(topics=("t",), owned=Partitions({"t": [p]}), generation=Generation(1))
        for m, p in (("a", 0), ("b", 1))
    }
    said = plan(LoadAwareSticky(meter), {"t": 2}, group)
    assert [m.load_before for m in said.by_member] == pytest.approx([8, 2], rel=0.05)
    assert meter(BOTH) == pytest.approx({T0: 8, T1: 2}, rel=0.05)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="unit is 'lag'; 'records' or 'bytes' is needed"):
        LoadMeter("lag")  # type: ignore[arg-type]  # the error is the test
    with pytest.raises(ValueError, match="half_life is 0:00:00"):
        LoadMeter(half_life=timedelta())


class Log:
    """Where a consumer stands in each partition, and how long it takes to say so."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at: dict[TopicPartition, int] = {T0: 1_000_000, T1: 0}
        self.takes = 0.0

    def __call__(self) -> dict[TopicPartition, int]:
        self._clock.now += self.takes
        return dict(self.at)


def follow(meter: ProgressMeter, clock: Clock, log: Log, seconds: int, **per_second: int) -> None:
    meter.follow(log)
    for _ in range(seconds):
        clock.now += 1
        for name, count in per_second.items():
            log.at[TopicPartition("t", int(name[1:]))] += count
        meter.follow(log)


def test_progress_is_measured_as_records_are() -> None:
    clock = Clock()
    meter, log = ProgressMeter(clock=clock), Log(clock)
    assert meter(BOTH) == {}, "nothing is known of what was only seen once"
    follow(meter, clock, log, 600, p0=30)
    assert meter(BOTH) == pytest.approx({T0: 30, T1: 0})
    assert meter(Partitions({"t": [1]})) == {T1: 0}


def test_a_partition_that_comes_back_did_not_consume_what_others_did() -> None:
    clock = Clock()
    meter, log = ProgressMeter(clock=clock), Log(clock)
    follow(meter, clock, log, 10, p0=5, p1=5)
    was = log.at.pop(T0)
    follow(meter, clock, log, 10, p1=5)
    assert meter(BOTH).keys() == {T1}
    log.at[T0] = was + 1_000_000
    follow(meter, clock, log, 10, p0=7, p1=5)
    assert meter(BOTH) == pytest.approx({T0: 7, T1: 5})


def test_a_seek_is_no_progress() -> None:
    clock = Clock()
    meter, log = ProgressMeter(clock=clock), Log(clock)
    follow(meter, clock, log, 10, p0=5, p1=5)
    log.at[T0] += 1_000_000
    meter.restart(T0)
    follow(meter, clock, log, 10, p0=5, p1=5)
    log.at[T1] -= 10  # backwards, in whatever way
    follow(meter, clock, log, 10, p0=5, p1=5)
    assert meter(BOTH) == pytest.approx({T0: 5, T1: 5}, rel=0.01)


def test_it_looks_more_seldom_the_longer_that_takes() -> None:
    clock = Clock()
    meter, log = ProgressMeter(clock=clock), Log(clock)
    meter.follow(log)
    assert meter.due == clock.now + 1
    log.takes = 0.02  # ten thousand partitions
    meter.follow(log)
    assert meter.due == pytest.approx(clock.now + 20)


def test_the_users_own_measure_goes_before_the_consumers() -> None:
    own, unasked = LoadMeter(), ProgressMeter()
    assert not LoadAwareSticky(own).measure_with(unasked)
    assert LoadAwareSticky().measure_with(unasked)
