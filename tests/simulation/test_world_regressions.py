"""Bugs that random schedules have found, each as short as it could be made.

The seeds fix the latencies. Every scenario failed before its fix; `mutations.toml` brings most
of the bugs back and expects them to be noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.check import run
from kafka_coop.simulation.settling import unsettled
from kafka_coop.simulation.user import UserHabits
from kafka_coop.simulation.world import MemberPlan, Scenario, Timing, World

EVERYTHING = ("alpha", "beta", "gamma")


def scenario(
    seed: int,
    members: Mapping[str, MemberPlan],
    *incidents: tuple[float, ft.Fault],
    quiet_at: float,
    timing: Timing,
    topics: Mapping[str, int] | None = None,
) -> Scenario:
    return Scenario(
        seed=seed,
        topics=topics or {},
        members=members,
        timing=timing,
        incidents=tuple(ft.Incident(at=at, fault=fault) for at, fault in incidents),
        quiet_at=quiet_at,
    )


def leaving_with_a_retry_pending() -> Scenario:
    """close() while a failed join waits for its retry: its deadline stayed, and the member spun."""
    plan = MemberPlan(topics=EVERYTHING, strategies=("constrained-cooperative-sticky",))
    return scenario(
        182,
        {"m1": plan, "m2": plan},
        (0.0018398144573627867, ft.Start(member="m1")),
        (0.026397798762329117, ft.Start(member="m2")),
        (0.3449, ft.MoveCoordinator(to=None, loading=0.5)),
        (0.4233, ft.Close(member="m2")),
        timing=Timing(session=5.0, rebalance=3.0, request=3.0, latency=(0.0005, 0.001)),
        quiet_at=2.3433,
    )


def a_leader_takes_up_a_pattern() -> Scenario:
    """It went on asking for its old topics by name, without a pause, and never joined again."""
    return scenario(
        68,
        {"m1": MemberPlan(topics=EVERYTHING, strategies=("range",))},
        (0.0, ft.Start(member="m1")),
        (4.7406, ft.Resubscribe(member="m1", patterns=("alpha|gam",))),
        timing=Timing(session=5.0, request=1.0, latency=(0.0005, 0.02)),
        quiet_at=8.3933,
    )


def unsubscribed_while_metadata_are_under_way() -> Scenario:
    """Nobody took the answer, it stayed awaited, and the next subscription waited for it."""
    plan = MemberPlan(patterns=("b",))
    return scenario(
        1701,
        {"m0": plan, "m1": MemberPlan(patterns=("b",), instance_id="i1")},
        (0.0, ft.Start(member="m0")),
        (0.024704094232539883, ft.Start(member="m1")),
        (0.0473, ft.Unsubscribe(member="m1")),
        (1.473, ft.Resubscribe(member="m1", topics=EVERYTHING)),
        timing=Timing(session=5.0, rebalance=3.0, request=3.0, latency=(0.0005, 0.02)),
        quiet_at=3.2948,
    )


def a_topic_matches_while_joining() -> Scenario:
    """The match was noted but not announced: the topic stayed nobody's."""
    return scenario(
        1351,
        {"m0": MemberPlan(patterns=("alpha|gam",), strategies=("range",))},
        (1.1046, ft.MoveCoordinator(to=None)),
        (1.1155, ft.Start(member="m0")),
        (1.8264, ft.CreateTopic(topic="gamma", partitions=3)),
        timing=Timing(
            session=2.0, rebalance=3.0, request=3.0, initial_delay=0.1, latency=(0.0005, 0.001)
        ),
        quiet_at=2.3275,
    )


def a_commit_outlives_its_ownership() -> Scenario:
    """Lost and given back meanwhile, the partition was committed where it had been before."""
    habits = UserHabits(poll_interval=0.2)
    return scenario(
        233,
        {"m2": MemberPlan(patterns=(".*a",), habits=habits)},
        (1.4258, ft.Start(member="m2")),
        (1.9088, ft.Partition(member="m2", node_id=1, seconds=2.1)),
        timing=Timing(session=2.0, request=1.0, heartbeat=0.5, latency=(0.0005, 0.001)),
        topics={"gamma": 1},
        quiet_at=3.8466,
    )


def removed_for_not_rejoining() -> Scenario:
    """Heartbeats had renewed the lease of a member that the round no longer waited for."""
    return scenario(
        469,
        {
            "m0": MemberPlan(patterns=("b",), strategies=("range",)),
            "m2": MemberPlan(topics=("beta", "gamma"), strategies=("range",)),
            "m3": MemberPlan(topics=("gamma",), strategies=("range",)),
        },
        (0.0, ft.Start(member="m0")),
        (0.040073899934048335, ft.Start(member="m2")),
        (0.04018649301680422, ft.Start(member="m3")),
        (1.7035, ft.Enforce(member="m3")),
        (1.7136, ft.SlowCallbacks(member="m0", seconds=2.85)),
        timing=Timing(session=5.0, rebalance=3.0, request=3.0, latency=(0.0005, 0.02)),
        topics={"beta": 1},
        quiet_at=2.3031,
    )


def acknowledged_by_a_coordinator_that_loads() -> Scenario:
    """Evicted while stopped, it beat while a new coordinator read its log, and got a lease."""
    strategies = ("constrained-cooperative-sticky",)
    habits = UserHabits(poll_interval=0.2, auto_commit_interval=0.3)
    return scenario(
        6353,
        {
            "m0": MemberPlan(topics=EVERYTHING, strategies=strategies, habits=habits),
            "m2": MemberPlan(topics=EVERYTHING, strategies=strategies),
        },
        (0.0, ft.Start(member="m0")),
        (0.07034877958326777, ft.Start(member="m2")),
        (1.0807, ft.Stall(member="m2", seconds=3.0)),
        (3.7966, ft.MoveCoordinator(to=1, loading=0.5)),
        timing=Timing(session=2.0, request=1.0, latency=(0.0005, 0.001)),
        topics={"gamma": 2},
        quiet_at=7.6238,
    )


def evicted_and_unsubscribed() -> Scenario:
    """Its last commit was sent again, without a generation, and an empty group took it."""
    plan = MemberPlan(topics=("beta",))
    return scenario(
        11221,
        {"m0": plan, "m1": plan},
        (0.0, ft.Start(member="m0")),
        (0.0013808875612905534, ft.Start(member="m1")),
        (0.3382, ft.Partition(member="m0", node_id=None, seconds=5.7)),
        (4.005, ft.Resubscribe(member="m0", patterns=("alpha|gam",))),
        (4.5375, ft.Crash(member="m1")),
        (4.6961, ft.SlowCallbacks(member="m0", seconds=6.3)),
        timing=Timing(request=3.0, latency=(0.0005, 0.001)),
        topics={"beta": 1},
        quiet_at=6.1128,
    )


def a_static_subscription_is_lost_with_the_coordinator() -> Scenario:
    """Nobody asked for the round that its change had begun, and that was not in the log."""
    return scenario(
        2958,
        {"m1": MemberPlan(topics=("gamma",), strategies=("range",), instance_id="i1")},
        (0.0, ft.Start(member="m1")),
        (1.8664, ft.Resubscribe(member="m1", topics=("beta", "gamma"))),
        (1.8853, ft.Unsubscribe(member="m1")),
        (1.8892, ft.MoveCoordinator(to=None)),
        (3.2326, ft.Resubscribe(member="m1", topics=("alpha",))),
        timing=Timing(session=5.0, initial_delay=0.1, latency=(0.0005, 0.02)),
        topics={"beta": 1},
        quiet_at=3.7523,
    )


def a_follow_up_round_that_nobody_begins() -> Scenario:
    """A static member dies while it gives up, and gets its place back without a round (KIP-345).

    What it had given up was nobody's: the others waited for the round that it was to begin.
    """
    return scenario(
        93620,
        {
            "m0": MemberPlan(
                topics=("alpha", "gamma"),
                habits=UserHabits(poll_interval=0.4, auto_commit_interval=1.0),
            ),
            "m2": MemberPlan(
                topics=("alpha",),
                instance_id="i2",
                habits=UserHabits(poll_interval=0.9, callback=0.3, auto_commit_interval=1.0),
            ),
        },
        (0.0, ft.Start(member="m0")),
        (0.0, ft.Start(member="m2")),
        (1.0053, ft.Drain(member="m2", seconds=1.6)),
        (1.4374, ft.Crash(member="m2")),
        (1.7315, ft.Start(member="m2")),
        quiet_at=2.2315,
        timing=Timing(session=5.0, rebalance=3.0, request=3.0, heartbeat=1.0, initial_delay=0.1,
                      metadata_max_age=1.5, new_member=12.0, latency=(0.0005, 0.02)),
        topics={"alpha": 1},
    )  # fmt: skip


def drained_in_the_midst_of_a_round() -> Scenario:
    """Relieved, it joined the follow-up round and closed: the round began anew without it."""
    fast = UserHabits(poll_interval=0.3, auto_commit_interval=0.3)
    quiet = UserHabits(
        poll_interval=0.3, callback=0.01, auto_commit_interval=None, commit_timeout=1.0
    )
    return replace(
        scenario(
            72647,
            {
                "m1": MemberPlan(topics=("alpha",), habits=quiet),
                "m2": MemberPlan(topics=("alpha", "beta"), habits=fast),
                "m3": MemberPlan(
                    topics=EVERYTHING, habits=replace(fast, callback=0.01, commit_timeout=1.0)
                ),
                "m4": MemberPlan(
                    topics=("alpha", "gamma"),
                    habits=UserHabits(poll_interval=0.4, auto_commit_interval=1.0),
                ),
            },
            (0.0, ft.Start(member="m1")),
            (0.04824859397706625, ft.Start(member="m2")),
            (0.08443096905492606, ft.Start(member="m3")),
            (0.0845, ft.Start(member="m4")),
            (1.4686, ft.Resubscribe(member="m1", topics=EVERYTHING, patterns=())),
            (1.5667, ft.CommitNow(member="m1")),
            quiet_at=2.1944999999999997,
            timing=Timing(session=5.0, rebalance=6.0, request=1.0, heartbeat=1.0,
                          initial_delay=0.0, metadata_max_age=1.5, new_member=12.0,
                          latency=(0.0005, 0.02)),
            topics={"alpha": 2, "beta": 5, "gamma": 2},
        ),
        last_leaver="m2",
    )  # fmt: skip


def given_what_its_metadata_do_not_know() -> Scenario:
    """A topic grew: what the leader gave of it passed for vanished, by metadata from before."""
    plan = MemberPlan(
        topics=("beta", "gamma"), habits=UserHabits(poll_interval=0.4, auto_commit_interval=1.0)
    )
    return replace(
        scenario(
            102769,
            {"m0": plan, "m1": plan},
            (0.0, ft.Start(member="m0")),
            (0.0, ft.Start(member="m1")),
            (0.0003, ft.Stall(member="m1", seconds=3.0)),
            (0.091, ft.GrowTopic(topic="gamma", by=3)),
            quiet_at=1.9541,
            timing=Timing(session=3.0, rebalance=6.0, request=1.0, heartbeat=1.0,
                          initial_delay=0.1, metadata_max_age=1.5, new_member=12.0,
                          latency=(0.0005, 0.001)),
            topics={"beta": 1, "gamma": 1},
        ),
        last_leaver="m1",
    )  # fmt: skip


def back_within_its_session_without_a_round() -> Scenario:
    """A static member that polled too late joined again with the bytes the coordinator knew.

    It was answered at once, and its session went on from its last heartbeat before: it was dropped
    while it trusted in a lease that began with its join.
    """
    habits = UserHabits(poll_interval=0.4, auto_commit_interval=1.0)
    plan = MemberPlan(topics=(), strategies=("range",), habits=habits)
    return scenario(
        170433,
        {
            "m0": replace(plan, topics=("alpha", "gamma"), instance_id="i0"),
            "m1": replace(plan, topics=("beta", "gamma"), instance_id="i1"),
        },
        (0.0, ft.Start(member="m0")),
        (0.030487985853435297, ft.Start(member="m1")),
        (0.054, ft.SlowCallbacks(member="m1", seconds=4.8)),
        (0.0921, ft.Resubscribe(member="m0", topics=("beta",), patterns=())),
        quiet_at=0.5921,
        timing=Timing(session=2.0, rebalance=3.0, request=1.0, heartbeat=1.0, initial_delay=0.0,
                      metadata_max_age=1.5, new_member=12.0, latency=(0.0005, 0.02)),
        topics={"alpha": 1, "beta": 2, "gamma": 1},
    )  # fmt: skip


def committed_while_on_lost_ran() -> Scenario:
    """A topic's partitions vanished from metadata that lagged, and were lost, in mid-generation.

    The user committed in another thread, or inside on_lost: the generation was as good as
    before, and the coordinator took it.
    """
    plan = MemberPlan(topics=("alpha",), strategies=("constrained-cooperative-sticky",))
    return scenario(
        152432,
        {"m0": replace(plan, topics=("beta", "gamma")), "m1": plan},
        (0.0, ft.Start(member="m0")),
        (0.0, ft.HoldMetadata(node_id=3, seconds=10.0)),
        (1.0, ft.Jump(member="m0", seconds=3.0)),
        (1.0, ft.SlowCallbacks(member="m0", seconds=0.47)),
        (2.0, ft.Start(member="m1")),
        (2.0, ft.GrowTopic(topic="beta", by=2)),
        (2.63, ft.Drain(member="m0", seconds=6.0)),
        (4.0, ft.CommitNow(member="m0")),
        quiet_at=5.0,
        timing=Timing(),
        topics={"beta": 1},
    )


def a_clock_that_jumps_while_a_beat_is_under_way() -> Scenario:
    """The box was wrong: it held that beat's acknowledgement for a session from its sending."""
    plan = MemberPlan(topics=("beta",), strategies=("constrained-cooperative-sticky",))
    return scenario(
        180481,
        {"m0": plan, "m1": replace(plan, habits=UserHabits(callback=0.3))},
        (0.0, ft.Start(member="m0")),
        (0.0, ft.Start(member="m1")),
        (1.04, ft.Drain(member="m1", seconds=3.0)),
        (1.224, ft.Jump(member="m0", seconds=2.9)),
        (1.227, ft.Stall(member="m0", seconds=0.3)),
        quiet_at=2.0,
        timing=Timing(initial_delay=0.1, latency=(0.0005, 0.001)),
        topics={"beta": 2},
    )


def the_coordinator_is_lost_while_leave_group_is_under_way() -> Scenario:
    """It was to be looked for, and was not: the deadline for that stayed, and the member spun."""
    return scenario(
        238355,
        {
            "m0": MemberPlan(
                topics=("gamma",),
                strategies=("constrained-cooperative-sticky",),
                instance_id="i0",
            )
        },
        (1.0, ft.Start(member="m0")),
        (2.75, ft.Drain(member="m0", seconds=3.0)),
        (4.0, ft.SlowNetwork(member="m0", factor=10.0)),
        (4.5, ft.MoveCoordinator(to=None)),
        (4.95, ft.Unsubscribe(member="m0")),
        quiet_at=5.0,
        timing=Timing(latency=(0.0005, 0.02)),
        topics={"gamma": 1},
    )


def led_by_a_peer_that_dies_while_it_gives_up() -> Scenario:
    """The box had promised too much: nobody knows that what it gave up is to be given away."""
    plan = MemberPlan(topics=("beta",))
    habits = UserHabits(callback=0.3)
    return scenario(
        257719,
        {"m0": replace(plan, instance_id="i0", client="librdkafka", habits=habits), "m2": plan},
        (0.0, ft.Start(member="m0")),
        (0.03, ft.Start(member="m2")),
        (1.03, ft.Crash(member="m0")),
        (1.1, ft.Start(member="m0")),
        quiet_at=2.0,
        timing=Timing(),
        topics={"beta": 2},
    )


def a_coordinator_that_loads_is_asked_to_sync() -> Scenario:
    """Kafka 4 answers so, and the user was told of an error that a new round cures."""
    plan = MemberPlan(topics=("gamma",), strategies=("range",))
    return scenario(
        5328,
        {"m1": plan, "m2": plan},
        (0.0, ft.Start(member="m1")),
        (0.0, ft.Start(member="m2")),
        (1.05, ft.MoveCoordinator(to=1, loading=0.05)),
        quiet_at=2.0,
        timing=Timing(initial_delay=0.5, latency=(0.0005, 0.02)),
    )


def a_static_member_misses_a_round() -> Scenario:
    """Stopped for longer than a round, it kept its place, and its partitions went to another.

    It joined the round after that, and committed, in its generation, what it had processed before:
    the other's commit was rewound.
    """
    plan = MemberPlan(topics=("alpha",))
    return scenario(
        483842,
        {"m0": plan, "m2": replace(plan, instance_id="i2")},
        (0.0, ft.Start(member="m2")),
        (0.4, ft.Stall(member="m2", seconds=8.0)),
        (0.6, ft.Start(member="m0")),
        (3.0, ft.Enforce(member="m2")),
        quiet_at=4.0,
        timing=Timing(session=5.0, rebalance=3.0),
        topics={"alpha": 2},
    )


def a_static_member_misses_a_round_and_beats() -> Scenario:
    """The same, while its beats are answered: it had a lease for what was another's."""
    plan = MemberPlan(topics=("beta",))
    return scenario(
        520786,
        {
            "m0": replace(
                plan,
                topics=("beta", "gamma"),
                instance_id="i0",
                habits=UserHabits(auto_commit_interval=None),
            ),
            "m1": replace(plan, instance_id="i1"),
            "m2": replace(plan, habits=UserHabits(auto_commit_interval=0.3)),
        },
        (0.0, ft.Start(member="m0")),
        (0.03, ft.Start(member="m1")),
        (0.03206290568584527, ft.Start(member="m2")),
        (0.4, ft.Partition(member="m0", node_id=None, seconds=5.0)),
        (3.0, ft.Enforce(member="m0")),
        quiet_at=3.16,
        timing=Timing(session=5.0, rebalance=3.0, request=1.0, latency=(0.0005, 0.02)),
        topics={"beta": 3},
    )


def evicted_it_claims_what_it_had_before_that() -> Scenario:
    """The box was wrong: its kafka-python claimed what it had given up two rounds ago."""
    plan = MemberPlan(topics=(), patterns=("alpha|gam",))
    return scenario(
        620464,
        {"m0": replace(plan, client="kafka-python"), "m1": plan},
        (0.0, ft.Start(member="m0")),
        (0.03, ft.Start(member="m1")),
        (1.03, ft.MoveCoordinator(to=1, loading=0.5)),
        (2.0, ft.Cut(member="m0", lane="join")),
        quiet_at=3.0,
        timing=Timing(),
        topics={"alpha": 2},
    )


def fenced_by_a_log_that_has_not_heard_of_it() -> Scenario:
    """The box had promised too much: the coordinator failed over with the place just taken."""
    plan = MemberPlan(topics=("alpha",), strategies=("constrained-cooperative-sticky",))
    return scenario(
        11581,
        {
            "m0": replace(plan, instance_id="i0"),
            "m1": replace(plan, topics=("beta",), instance_id="i1"),
        },
        (0.0, ft.Start(member="m0")),
        (0.0, ft.Start(member="m1")),
        (1.2, ft.Close(member="m1")),
        (2.0, ft.GrowTopic(topic="alpha", by=1)),
        (4.0, ft.Start(member="m1")),
        (4.0, ft.Stall(member="m0", seconds=3.0)),
        (4.3, ft.MoveCoordinator(to=3, loading=0.5)),
        quiet_at=5.0,
        timing=Timing(),
        topics={"alpha": 1},
    )


def a_static_peer_that_polled_too_late_comes_back() -> Scenario:
    """The box was wrong: its peer kept its member id, and was answered without a new session."""
    plan = MemberPlan(topics=("alpha",), strategies=("range",))
    both = ("range", "cooperative-sticky")
    return scenario(
        719224,
        {
            "m0": replace(plan, instance_id="i0"),
            "m1": replace(plan, instance_id="i1", client="java"),
        },
        (0.0, ft.Start(member="m0")),
        (0.0, ft.Redeploy(member="m1", strategies=both)),
        (0.0, ft.Start(member="m1")),
        (0.0, ft.SlowCallbacks(member="m1", seconds=9.6)),
        (0.4, ft.Close(member="m0")),
        (4.0, ft.Redeploy(member="m0", strategies=both)),
        (3.9, ft.Start(member="m0")),
        quiet_at=4.4,
        timing=Timing(initial_delay=0.5),
        topics={"alpha": 2},
    )


@pytest.mark.parametrize(
    "make",
    [
        a_static_subscription_is_lost_with_the_coordinator,
        evicted_and_unsubscribed,
        leaving_with_a_retry_pending,
        a_leader_takes_up_a_pattern,
        unsubscribed_while_metadata_are_under_way,
        a_topic_matches_while_joining,
        a_commit_outlives_its_ownership,
        removed_for_not_rejoining,
        acknowledged_by_a_coordinator_that_loads,
        a_follow_up_round_that_nobody_begins,
        drained_in_the_midst_of_a_round,
        given_what_its_metadata_do_not_know,
        back_within_its_session_without_a_round,
        committed_while_on_lost_ran,
        a_clock_that_jumps_while_a_beat_is_under_way,
        the_coordinator_is_lost_while_leave_group_is_under_way,
        led_by_a_peer_that_dies_while_it_gives_up,
        a_coordinator_that_loads_is_asked_to_sync,
        a_static_member_misses_a_round,
        a_static_member_misses_a_round_and_beats,
        evicted_it_claims_what_it_had_before_that,
        fenced_by_a_log_that_has_not_heard_of_it,
        a_static_peer_that_polled_too_late_comes_back,
    ],
    ids=lambda make: str(make.__name__),
)
def test_a_bug_does_not_come_back(make: Callable[[], Scenario]) -> None:
    verdict = run(make())
    assert not verdict.violated, verdict.text


def test_who_unsubscribes_while_the_leader_plans_is_back_as_soon_as_it_has() -> None:
    """Its SyncGroup stayed parked, and the next JoinGroup behind it: for a rebalance timeout."""
    plan = MemberPlan(topics=("alpha",))
    world = World(
        scenario(
            1,
            {"m0": plan, "m1": plan},
            (0.0, ft.Start(member="m0")),
            (1.0, ft.SlowAssignor(member="m0", seconds=10.0)),
            (1.1, ft.Start(member="m1")),
            (3.0, ft.Unsubscribe(member="m1")),
            (4.5, ft.Resubscribe(member="m1", topics=("alpha",))),
            quiet_at=5.0,
            timing=Timing(session=10.0, rebalance=60.0, request=10.0),
            topics={"alpha": 4},
        )
    )
    # A plan that nobody waits for any more, and those of the two rounds that give m1 its half.
    world.run_until(2.0 + 3 * 10.0 + 1.0)
    assert {len(process.user.owned) for process in world.processes.values()} == {2}


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_round_goes_on_at_the_heir_of_a_coordinator_that_has_vanished(seed: int) -> None:
    """Those who had joined waited for the old one, longer than a rebalance timeout."""
    members = dict.fromkeys(("m0", "m1", "m2"), MemberPlan(topics=("alpha",)))
    world = World(
        scenario(
            seed,
            members,
            *((0.0, ft.Start(member=m)) for m in members),
            (5.0, ft.Stall(member="m2", seconds=4.0)),
            (5.1, ft.Enforce(member="m0")),
            *((7.0, ft.Partition(member=m, node_id=1, seconds=200.0)) for m in members),
            (7.1, ft.MoveCoordinator(to=2)),
            quiet_at=300.0,
            timing=Timing(session=10.0, rebalance=60.0, request=3.0),
            topics={"alpha": 6},
        )
    )
    # A session, and as long again for who asks the broker that has vanished where the heir is.
    world.run_until(7.1 + 2 * 10.0)
    assert not unsettled(world)
