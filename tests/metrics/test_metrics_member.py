"""What the driver and the façade report, read back from the exposition."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_support import Bench

from kafka_coop.assignors.figures import PlanFigures
from kafka_coop.client.observer import LoggingObserver
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.metrics.families import CHANGES, COMMIT_FAILURES, PHASES
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.metrics.scrape import MemberSnapshot
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, TopicPartition

MS = timedelta(milliseconds=1)
ROUND = RebalanceRecord(group_id="orders", client_id="rdkafka", total=40 * MS, join=25 * MS)
NAMES = {
    "joined": "join",
    "synced": "sync",
    "heartbeat": "heartbeat",
    "committed": "commit",
}


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(("method", "name"), NAMES.items())
def test_an_answered_request_is_observed_in_seconds(bench: Bench, method: str, name: str) -> None:
    report: Callable[[timedelta], None] = getattr(bench.member(), method)
    report(1500 * MS)
    report(500 * MS)
    assert bench.value(f"kafka_coop_{name}_latency_seconds_count") == 2
    assert bench.value(f"kafka_coop_{name}_latency_seconds_sum") == 2.0
    assert bench.value(f"kafka_coop_{name}_latency_seconds_bucket", le="0.5") == 1
    assert bench.value(f"kafka_coop_{name}_latency_seconds_bucket", le="+Inf") == 2


def test_counters_start_at_zero_so_that_the_first_increment_shows(bench: Bench) -> None:
    bench.member()
    for reason in COMMIT_FAILURES:
        assert bench.value("kafka_coop_commit_failures_total", reason=reason) == 0
    for kind in CHANGES:
        assert bench.value("kafka_coop_moved_partitions_total", kind=kind) == 0
        assert bench.value("kafka_coop_callback_failures_total", callback=kind) == 0
    assert bench.value("kafka_coop_rebalance_failures_total") == 0
    assert bench.value("kafka_coop_heartbeat_failures_total") == 0


def test_a_failed_heartbeat_is_counted_and_does_not_look_like_life(bench: Bench) -> None:
    member = bench.member()
    member.heartbeat_failed()
    assert bench.value("kafka_coop_heartbeat_failures_total") == 1
    assert bench.value("kafka_coop_heartbeat_latency_seconds_count") == 0
    assert bench.value("kafka_coop_last_heartbeat_timestamp_seconds") is None


def test_last_heartbeat_is_when_the_acknowledged_one_was_sent(bench: Bench) -> None:
    member = bench.member()
    answered_at = bench.clocks.wall
    member.heartbeat(250 * MS)
    bench.clocks.advance(9)
    member.heartbeat_failed()
    assert bench.value("kafka_coop_last_heartbeat_timestamp_seconds") == answered_at - 0.25


def test_ages_survive_a_wall_clock_that_is_set(bench: Bench) -> None:
    member = bench.member()
    member.heartbeat(timedelta(0))
    bench.clocks.advance(10)
    bench.clocks.wall += 3600  # NTP, or an operator
    last = bench.value("kafka_coop_last_heartbeat_timestamp_seconds")
    assert last is not None
    assert bench.clocks.wall - last == 10


@settings(deadline=None)
@given(reason=st.one_of(st.sampled_from(COMMIT_FAILURES), st.text()))
def test_no_text_makes_a_new_series(reason: str) -> None:
    bench = Bench()
    bench.member().commit_failed(reason)
    series = bench.series("kafka_coop_commit_failures_total")
    assert len(series) == len(COMMIT_FAILURES)
    expected = reason if reason in COMMIT_FAILURES else "other"
    assert {dict(labels)["reason"] for labels, value in series.items() if value} == {expected}


@pytest.mark.parametrize("error", [ErrorCode.illegal_generation, ErrorCode.request_timed_out])
def test_a_failed_commit_counts_under_its_own_reason(bench: Bench, error: ErrorCode) -> None:
    observer = LoggingObserver(bench.member(), logging.getLogger(__name__))
    observer.commit(20 * MS, {TopicPartition("t", 0): error})
    assert bench.value("kafka_coop_commit_failures_total", reason=error.name) == 1
    assert bench.value("kafka_coop_commit_failures_total", reason="other") == 0


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("failed", [False, True])
def test_callbacks_by_kind(bench: Bench, *, kind: str, failed: bool) -> None:
    bench.member().callback(kind, 20 * MS, failed=failed)  # type: ignore[arg-type]  # parametrized
    assert bench.value("kafka_coop_callback_latency_seconds_sum", callback=kind) == 0.02
    for other in CHANGES:
        count = bench.value("kafka_coop_callback_latency_seconds_count", callback=other)
        assert count == (1 if other == kind else 0)
        failures = bench.value("kafka_coop_callback_failures_total", callback=other)
        assert failures == (1 if failed and other == kind else 0)


# --- rounds --------------------------------------------------------------------------------


def test_a_completed_round(bench: Bench) -> None:
    member = bench.member()
    member.rebalance(
        replace(
            ROUND,
            assigned=Partitions({"a": [0, 1, 2], "b": [7]}),
            revoked=Partitions({"a": [5]}),
            lost=Partitions({"b": [1, 2]}),
            kept=Partitions({"a": [9]}),
        )
    )
    assert bench.value("kafka_coop_rebalance_latency_seconds_count") == 1
    assert bench.value("kafka_coop_rebalance_latency_seconds_sum") == 0.04
    moved = {k: bench.value("kafka_coop_moved_partitions_total", kind=k) for k in CHANGES}
    assert moved == {"assigned": 4, "revoked": 1, "lost": 2}
    assert bench.value("kafka_coop_rebalance_failures_total") == 0
    assert bench.value("kafka_coop_last_rebalance_timestamp_seconds") == bench.clocks.wall


def test_every_phase_goes_to_its_own_series(bench: Bench) -> None:
    member = bench.member()
    durations = {phase: (n + 1) * MS for n, phase in enumerate(PHASES)}
    member.rebalance(
        replace(
            ROUND,
            prepare=durations["prepare"],
            join=durations["join"],
            assign=durations["assign"],
            sync=durations["sync"],
            revoke_callback=durations["revoke"],
            commit=durations["commit"],
            assigned_callback=durations["assigned"],
            lost_callback=durations["lost"],
        )
    )
    for phase, duration in durations.items():
        seconds = bench.value("kafka_coop_rebalance_phase_seconds_sum", phase=phase)
        assert seconds == duration.total_seconds()


def test_a_phase_that_did_not_occur_is_not_observed(bench: Bench) -> None:
    # Zeros would halve the average of the assignor's run on a member that leads every other round.
    bench.member().rebalance(ROUND)
    counts = {p: bench.value("kafka_coop_rebalance_phase_seconds_count", phase=p) for p in PHASES}
    assert {phase for phase, count in counts.items() if count} == {"join"}


def test_a_failed_round_counts_as_a_failure_and_for_what_it_cost(bench: Bench) -> None:
    member = bench.member()
    member.rebalance(replace(ROUND, error="fenced", lost=Partitions({"a": [1]}), attempts=3))
    assert bench.value("kafka_coop_rebalance_failures_total") == 1
    assert bench.value("kafka_coop_moved_partitions_total", kind="lost") == 1
    assert bench.value("kafka_coop_join_attempts_total") == 3
    assert bench.value("kafka_coop_rebalance_latency_seconds_count") == 0
    assert bench.value("kafka_coop_rebalance_phase_seconds_count", phase="join") == 0
    assert bench.value("kafka_coop_rebalance_rounds_count") == 0
    assert bench.value("kafka_coop_last_rebalance_timestamp_seconds") is None


def test_member_id_required_is_an_attempt_and_no_failure(bench: Bench) -> None:
    bench.member().rebalance(replace(ROUND, attempts=2))  # KIP-394: the first got the member id
    assert bench.value("kafka_coop_join_attempts_total") == 2
    assert bench.value("kafka_coop_rebalance_failures_total") == 0
    assert bench.value("kafka_coop_rebalance_latency_seconds_count") == 1


REVOKED = Partitions({"a": [1]})


@pytest.mark.parametrize(
    ("rounds", "settled"),
    [
        ([ROUND], [1]),
        ([replace(ROUND, follow_up=True), ROUND], [2]),
        ([replace(ROUND, revoked=REVOKED), ROUND, ROUND], [2, 1]),
        # Eager: everything is revoked before every join, and nothing follows.
        ([replace(ROUND, revoked=REVOKED, cooperative=False)], [1]),
        # A failed round neither settles a rebalance nor is one of its rounds.
        ([replace(ROUND, follow_up=True), replace(ROUND, error="cut"), ROUND], [2]),
        ([replace(ROUND, follow_up=True)], []),
        # KIP-848: partitions go, and nothing need come before the next rebalance, hours later.
        ([replace(ROUND, revoked=REVOKED, attempts=0), replace(ROUND, attempts=0)], []),
        # It left amid a rebalance, and came back: the round with which it does is another's first.
        ([replace(ROUND, revoked=REVOKED, member_id="a"), replace(ROUND, member_id="b")], [1]),
    ],
)
def test_rounds_until_a_rebalance_settled(
    bench: Bench, rounds: list[RebalanceRecord], settled: list[int]
) -> None:
    member = bench.member()
    for record in rounds:
        member.rebalance(record)
    assert bench.value("kafka_coop_rebalance_rounds_count") == len(settled)
    assert bench.value("kafka_coop_rebalance_rounds_sum") == sum(settled)


# --- threads -------------------------------------------------------------------------------


def test_reports_from_many_threads_while_scraped_lose_nothing(bench: Bench) -> None:
    """A smoke test: every report counts once, and every scrape meanwhile parses."""
    member = bench.member()
    threads, each = 4, 200
    begin = threading.Barrier(threads + 1)

    def report() -> None:
        begin.wait()
        for _ in range(each):
            member.heartbeat(MS)
            member.commit_failed("other")
            member.rebalance(replace(ROUND, assigned=REVOKED))
            member.assignment(REVOKED, bench.clocks.steady)

    running = [threading.Thread(target=report) for _ in range(threads)]
    for thread in running:
        thread.start()
    begin.wait()
    while any(thread.is_alive() for thread in running):
        assert bench.value("kafka_coop_assigned_partitions") in {0, 1}
    for thread in running:
        thread.join()
    total = threads * each
    assert bench.value("kafka_coop_heartbeat_latency_seconds_count") == total
    assert bench.value("kafka_coop_commit_failures_total", reason="other") == total
    assert bench.value("kafka_coop_moved_partitions_total", kind="assigned") == total
    assert bench.value("kafka_coop_rebalance_rounds_sum") == total


def test_consumers_come_and_go_in_many_threads_while_scraped(bench: Bench) -> None:
    threads, each = 4, 30
    begin = threading.Barrier(threads + 1)
    closed: list[MemberMetrics] = []

    def live() -> None:
        begin.wait()
        for _ in range(each):
            member = bench.member()
            member.heartbeat(MS)
            member.close()
            closed.append(member)

    running = [threading.Thread(target=live) for _ in range(threads)]
    for thread in running:
        thread.start()
    begin.wait()
    while any(thread.is_alive() for thread in running):
        assert len(bench.series("kafka_coop_assigned_partitions")) <= threads
    for thread in running:
        thread.join()
    assert len(closed) == threads * each
    assert bench.series("kafka_coop_heartbeat_latency_seconds_count") == {}
    # No more names were in use at once than there were consumers.
    assert {m.labels.client_id for m in closed} <= {"rdkafka", *(f"rdkafka-{n}" for n in (2, 3, 4))}


def test_the_default_assignment_is_none(bench: Bench) -> None:
    member = bench.member()
    assert bench.value("kafka_coop_assigned_partitions") == 0
    assert bench.value("kafka_coop_last_assignment_timestamp_seconds") is None
    member.assignment(NO_PARTITIONS, bench.clocks.steady)
    assert bench.value("kafka_coop_last_assignment_timestamp_seconds") == bench.clocks.wall


def test_who_is_out_of_the_group_leads_nobody_and_counts_nothing_when_it_comes_back() -> None:
    """Its last plan would go on saying that partitions have nobody, and raise the alert."""
    bench, seen = Bench(), MemberSnapshot(generation=Generation(7))
    member = bench.member(snapshot=lambda: seen)

    def led(at: float, generation: int, plan: PlanFigures) -> None:
        member.rebalance(
            RebalanceRecord(
                group_id="g",
                client_id="c",
                generation=Generation(generation),
                plan=plan,
                planned_at=at,
            )
        )

    led(10.0, 7, PlanFigures(partitions=8, withheld=3))
    assert bench.value("kafka_coop_group_partitions") == 8
    seen = MemberSnapshot()
    for name in ("leader", "group_partitions", "withheld_partitions"):
        assert bench.value(f"kafka_coop_{name}") == 0
    led(3610.0, 12, PlanFigures(partitions=5))
    assert bench.value("kafka_coop_unowned_partition_seconds_total") == 0
    seen = MemberSnapshot(generation=Generation(12))
    assert bench.value("kafka_coop_group_partitions") == 5


def test_the_leader_counts_its_moves_and_what_nobody_owned_meanwhile() -> None:
    bench = Bench()
    member = bench.member()

    def led(at: float, plan: PlanFigures | None) -> None:
        member.rebalance(
            RebalanceRecord(
                group_id="g", client_id="c", plan=plan, planned_at=None if plan is None else at
            )
        )

    led(10.0, PlanFigures(partitions=8, moved=3, fewest=2, withheld=3))
    assert bench.value("kafka_coop_withheld_partitions") == 3
    led(10.5, PlanFigures(partitions=8))
    assert bench.value("kafka_coop_withheld_partitions") == 0
    assert bench.value("kafka_coop_unowned_partition_seconds_total") == 1.5
    assert bench.value("kafka_coop_planned_moves_total", kind="made") == 3
    assert bench.value("kafka_coop_planned_moves_total", kind="fewest") == 2
    led(20.0, PlanFigures(partitions=8, withheld=8))
    led(21.0, None)  # another member leads now, and knows how long it took
    assert bench.value("kafka_coop_leader") == 0
    led(30.0, PlanFigures(partitions=8))
    assert bench.value("kafka_coop_unowned_partition_seconds_total") == 1.5


@pytest.mark.parametrize(("led_since", "counted"), [(8, 6.0), (9, 0.0), (None, 0.0)])
def test_a_follow_up_round_that_newcomers_cut_short_counts_where_this_member_led_it_all(
    led_since: int | None, counted: float
) -> None:
    """Each attempt uses up a generation: the last one is no less the round that gave them."""
    bench = Bench()
    member = bench.member()
    withheld = PlanFigures(partitions=8, withheld=3)
    first = replace(ROUND, generation=Generation(7), plan=withheld, planned_at=10.0)
    since = None if led_since is None else Generation(led_since)
    member.rebalance(first)
    member.rebalance(
        replace(
            first,
            generation=Generation(9),
            led_since=since,
            plan=PlanFigures(partitions=8),
            planned_at=12.0,
        )
    )
    assert bench.value("kafka_coop_unowned_partition_seconds_total") == counted
