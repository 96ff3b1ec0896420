"""PollClock against a model that keeps every poll."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_support import Bench

from kafka_coop.metrics.polls import MAX_WINDOW_SECONDS, PollClock

SECONDS = st.integers(min_value=0, max_value=40_000).map(lambda n: n / 128)
"""Sums of these are exact."""
POLLS = st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=30)
"""Seconds outside poll(), then inside."""


def run(clock: PollClock, polls: list[tuple[float, float]], start: float) -> list[float]:
    """Carries the polls out; returns when each began."""
    begins: list[float] = []
    now = start
    for outside, inside in polls:
        now += outside
        clock.entered(now)
        begins.append(now)
        now += inside
        clock.left(now)
    return begins


@settings(deadline=None)
@given(polls=POLLS, start=SECONDS)
def test_the_figures_are_those_of_the_polls(polls: list[tuple[float, float]], start: float) -> None:
    clock = PollClock()
    begins = run(clock, polls, start)
    gaps = [later - earlier for earlier, later in pairwise(begins)]
    end = begins[-1] + polls[-1][1]
    reading = clock.read(end + 1)
    assert reading.gaps == len(gaps)
    assert reading.gaps_sum == sum(gaps)
    assert reading.idle == sum(inside for _, inside in polls)
    assert reading.last == end


@settings(deadline=None)
@given(polls=POLLS, start=SECONDS)
def test_the_maximum_is_a_recent_gap_and_no_gap_of_the_last_window_exceeds_it(
    polls: list[tuple[float, float]], start: float
) -> None:
    clock = PollClock()
    begins = run(clock, polls, start)
    ended = [(later, later - earlier) for earlier, later in pairwise(begins)]
    recent = [g for at, g in ended if at > begins[-1] - MAX_WINDOW_SECONDS]
    possible = [g for at, g in ended if at > begins[-1] - 2 * MAX_WINDOW_SECONDS]
    reading = clock.read(begins[-1])
    assert reading.gap_max >= max(recent, default=0)
    assert reading.gap_max in possible or not ended


@settings(deadline=None)
@given(
    polls=POLLS,
    scrapes=st.lists(st.tuples(SECONDS, SECONDS), max_size=30),
)
def test_idle_time_never_steps_back(
    polls: list[tuple[float, float]], scrapes: list[tuple[float, float]]
) -> None:
    """Scrapes fall into the waits, and see a time later than the one poll() then leaves with.

    That order is what happens where the polling thread takes the time, loses the processor to
    the scrape, and writes afterwards.
    """
    clock = PollClock()
    now, seen = 0.0, 0.0
    for n, (outside, inside) in enumerate(polls):
        now += outside
        clock.entered(now)
        now += inside
        late = scrapes[n][0] if n < len(scrapes) else 0.0
        idle = clock.read(now + late).idle
        assert idle >= seen
        seen = idle
        clock.left(now)
        idle = clock.read(now).idle
        assert idle >= seen
        seen = idle


def test_never_polled() -> None:
    reading = PollClock().read(5.0)
    assert (reading.last, reading.gaps, reading.gaps_sum, reading.idle) == (None, 0, 0.0, 0.0)


def test_who_waits_in_poll_is_not_late_and_is_idle() -> None:
    clock = PollClock()
    clock.entered(10.0)
    assert clock.read(310.0).last == 310.0
    assert clock.read(310.0).idle == 300.0
    clock.left(320.0)
    assert clock.read(350.0).last == 320.0
    assert clock.read(350.0).idle == 310.0


@pytest.mark.parametrize("inner", [1, 2])
def test_nested_polls_count_as_one(inner: int) -> None:
    clock = PollClock()
    clock.entered(1.0)
    for _ in range(inner):
        clock.entered(2.0)
    clock.left(3.0)
    for _ in range(inner):
        clock.left(4.0)
    reading = clock.read(5.0)
    assert (reading.idle, reading.gaps, reading.last) == (2.0, 0, 3.0)


def test_as_prometheus_sees_it() -> None:
    bench = Bench()
    member = bench.member()
    begin = bench.clocks.steady
    for entered, left in [(0, 1), (4, 6), (7, 7.5)]:
        member.polls.entered(begin + entered)
        member.polls.left(begin + left)
    bench.clocks.advance(10)
    assert bench.value("kafka_coop_poll_interval_seconds_sum") == 7
    assert bench.value("kafka_coop_poll_interval_seconds_count") == 2
    assert bench.value("kafka_coop_poll_interval_max_seconds") == 4
    assert bench.value("kafka_coop_poll_interval_limit_seconds") == 300
    assert bench.value("kafka_coop_poll_idle_seconds_total") == 3.5
    last = bench.value("kafka_coop_last_poll_timestamp_seconds")
    assert last is not None
    assert timedelta(seconds=bench.clocks.wall - last) == timedelta(seconds=2.5)


def test_one_poll_is_no_interval() -> None:
    bench = Bench()
    member = bench.member()
    member.polls.entered(bench.clocks.steady)
    assert bench.value("kafka_coop_poll_interval_max_seconds") is None
    assert bench.value("kafka_coop_poll_interval_seconds_count") == 0


def test_polls_on_the_short_way_are_seen_by_their_moment_alone() -> None:
    polls = PollClock()
    seen = 0.0
    polls.last_seen = lambda: seen
    polls.entered(1.0)
    seen = 1.9  # while it waits there
    polls.left(2.0)
    seen = 7.0  # a poll that found a record waiting
    assert polls.read(8.0).last == 7.0
    polls.entered(9.0)
    polls.left(9.0)
    assert polls.read(9.0).gap_max == 2.0
    seen = 8.9
    polls.entered(10.0)
    assert polls.read(10.0)[1:4] == (2, 3.0, 2.0)
