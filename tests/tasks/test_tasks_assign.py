"""Bad input, the traps of KIP-441's history, tags, and what the operator is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from tasks_group import Group, assert_level, check, client, ids, stateful

import kafka_coop.tasks
from kafka_coop.errors import ConfigurationError
from kafka_coop.tasks import (
    Behind,
    ClientTasks,
    Movement,
    Reason,
    Role,
    Running,
    Task,
    TaskAssignment,
    TaskClient,
    TaskConfig,
    TaskId,
    UnknownLag,
    assign_tasks,
)

T0, T1, T2 = ids(3)


# Bad input


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("num.standby.replicas", lambda: TaskConfig(num_standby_replicas=-1)),
        ("max.warmup.replicas", lambda: TaskConfig(max_warmup_replicas=0)),
        ("acceptable.recovery.lag", lambda: TaskConfig(acceptable_recovery_lag=-1)),
        (
            "probing.rebalance.interval.ms",
            lambda: TaskConfig(probing_rebalance_interval=timedelta(seconds=59)),
        ),
        ("rack.aware.assignment.tags", lambda: TaskConfig(rack_aware_tags=("zone", "zone"))),
        ("capacity", lambda: TaskClient(id="a", capacity=-1)),
        ("offsets", lambda: Behind(offsets=-2)),
        ("changelog_offsets", lambda: Task(id=T0, changelog_offsets=-1)),
        ("tasks", lambda: assign_tasks([client("a")], [Task(id=T0), Task(id=T0, stateful=False)])),
        ("clients", lambda: assign_tasks([client("a"), client("a", capacity=2)], [])),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_key(key: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError, match=key) as refused:
        make()
    assert refused.value.key == key


def test_without_clients_every_task_is_unassigned() -> None:
    plan = assign_tasks([], stateful(2), TaskConfig(num_standby_replicas=1))
    assert plan == TaskAssignment(unassigned=(T0, T1), under_replicated=(T0, T1))
    assert not plan.probing_rebalance_needed


def test_without_tasks_everyone_is_idle() -> None:
    plan = assign_tasks([client("b"), client("a")], [])
    assert plan == TaskAssignment(clients={"a": ClientTasks(), "b": ClientTasks()})


def test_clients_without_threads_alone_leave_every_task_unassigned() -> None:
    plan = assign_tasks([client("a", active=[T0], capacity=0)], stateful(1))
    assert plan == TaskAssignment(clients={"a": ClientTasks()}, unassigned=(T0,))


def test_who_lost_all_threads_hands_its_tasks_over() -> None:
    plan = assign_tasks([client("a", active=[T0], capacity=0), client("b")], stateful(1))
    assert plan.clients == {"a": ClientTasks(), "b": ClientTasks(active=(T0,))}
    assert plan.movements == (
        Movement(
            task=T0,
            role=Role.ACTIVE,
            source="a",
            destination="b",
            reason=Reason.OWNER_WITHOUT_CAPACITY,
        ),
    )


def test_tasks_that_no_longer_exist_are_ignored() -> None:
    gone = TaskId(99, 0)
    plan = assign_tasks([client("a", active=[T0, gone], standby=[T1])], stateful(1))
    assert plan.clients == {"a": ClientTasks(active=(T0,))}
    assert not plan.movements


def test_of_two_who_claim_a_task_the_one_closer_to_caught_up_has_it() -> None:
    behind = client("a", active=[T0], lags={T0: Behind(offsets=90_000)})
    plan = assign_tasks([behind, client("b", active=[T0])], stateful(1))
    assert plan.clients["b"].active == (T0,)
    assert not plan.movements


# What a lag says: KAFKA-10199, KAFKA-14302, KAFKA-10319, KAFKA-13600.


@pytest.mark.parametrize("size", [None, 0, 1_000_000])
def test_a_restored_but_empty_state_is_caught_up(size: int | None) -> None:
    tasks = [Task(id=task, changelog_offsets=size) for task in ids(2)]
    clients = [client("a", active=ids(2)), client("b", lags={T1: Behind(offsets=0)})]
    plan = assign_tasks(clients, tasks)
    assert [given.active for given in plan.clients.values()] == [(T0,), (T1,)]
    assert not plan.probing_rebalance_needed


def test_an_unknown_lag_is_not_caught_up() -> None:
    clients = [client("a", active=ids(2)), client("b", lags={T1: UnknownLag()})]
    plan = assign_tasks(clients, stateful(2))
    assert plan.clients["a"].active == (T0, T1)
    assert plan.clients["b"].warmup == (T1,), "what there is of it is worth more than nothing"
    assert plan.probing_rebalance_needed


def test_a_standby_that_reports_no_lag_is_not_caught_up() -> None:
    silent = TaskClient(id="b", standby=frozenset(ids(2)))
    plan = assign_tasks([client("a", active=ids(2)), silent], stateful(2))
    assert plan.clients["a"].active == (T0, T1)


def test_where_nobody_is_caught_up_the_closest_runs_the_task() -> None:
    clients = [
        client("a", active=[T0], lags={T0: Behind(offsets=500_000)}),
        client("b", lags={T0: Behind(offsets=499_999)}),
        client("c", lags={T0: UnknownLag()}),
    ]
    plan = assign_tasks(clients, stateful(1))
    assert plan.clients["b"].active == (T0,)
    assert plan.movements[0].reason is Reason.MORE_CAUGHT_UP


def test_without_end_offsets_the_owners_keep_their_tasks() -> None:
    tasks = [Task(id=task) for task in ids(4)]
    clients = [
        TaskClient(id="a", active=frozenset(ids(4)[:2])),
        TaskClient(id="b", active=frozenset(ids(4)[2:])),
    ]
    assert not assign_tasks(clients, tasks).movements


# What lasts from one probe to the next: KAFKA-9821, KAFKA-21001.


def test_a_restarted_static_client_does_not_end_the_probing() -> None:
    tasks, config = stateful(4), TaskConfig()
    restarted = TaskClient(id="a", lags=dict.fromkeys(ids(4), Behind(offsets=0)))
    before = assign_tasks([client("a", active=ids(4)), client("b")], tasks, config)
    after = assign_tasks([restarted, client("b")], tasks, config)
    assert before.probing_rebalance_needed
    assert after.probing_rebalance_needed
    assert after.clients == before.clients


def test_a_warmup_that_is_not_done_is_gone_on_with() -> None:
    tasks, config = stateful(12), TaskConfig(max_warmup_replicas=1)
    names = ids(12)
    warming, left_over = names[11], names[3]
    joined = client(
        "b",
        standby=[warming],
        lags={warming: Behind(offsets=90_000), left_over: Behind(offsets=10_001)},
    )
    plan = assign_tasks([client("a", active=names), joined], tasks, config)
    assert plan.clients["b"].warmup == (warming,)


def test_standbys_take_only_the_warmups_that_actives_leave() -> None:
    config = TaskConfig(num_standby_replicas=1, max_warmup_replicas=3)
    names = ids(9)
    clients = [
        client("a", active=names[:5], standby=names[5:]),
        client("b", active=names[5:], standby=names[:5]),
        client("c"),
    ]
    plan = assign_tasks(clients, stateful(9), config)
    warming = [m.role for m in plan.movements if m.warming_up]
    assert warming == [Role.ACTIVE] * 3
    assert [m.role for m in plan.movements if m.pending and not m.warming_up].count(Role.STANDBY), (
        "and they wait"
    )


def test_the_time_to_balance_counts_the_probes() -> None:
    minutes = timedelta(minutes=2)
    config = TaskConfig(probing_rebalance_interval=minutes)
    group = Group(stateful(11), config)
    group.join("a")
    group.settle(within=1)
    group.join("b")
    left = [group.rebalance().time_to_balance for _ in range(4)]
    assert left == [3 * minutes, 2 * minutes, 1 * minutes, timedelta()]


# Threads, stateless tasks, tags


def test_load_follows_threads() -> None:
    clients = [client("a", capacity=1), client("b", capacity=3)]
    plan = assign_tasks(clients, stateful(8))
    assert [len(given.active) for given in plan.clients.values()] == [2, 6]


def test_stateless_tasks_fill_up_the_least_loaded_and_stay() -> None:
    tasks = [*stateful(2), *(Task(id=TaskId(1, n), stateful=False) for n in range(4))]
    light = [TaskId(1, n) for n in range(4)]
    clients = [client("a", active=ids(2)), client("b", active=light[:3])]
    config = TaskConfig(num_standby_replicas=1)
    plan = assign_tasks(clients, tasks, config)
    check(plan, clients, tasks, config)
    assert plan.clients["a"].active == (T0, T1, light[3])
    assert plan.clients["b"].active == tuple(light[:3])


def test_a_subtopology_is_spread_over_the_clients() -> None:
    """KIP-441, "data parallel workload balance"."""
    group = Group(stateful(8, subtopologies=2), TaskConfig(max_warmup_replicas=8))
    group.join("a")
    group.settle(within=1)
    group.join("b")
    group.settle(within=2)
    for one in group.clients.values():
        assert sorted(task.subtopology for task in one.active) == [0, 0, 1, 1]


def test_standbys_avoid_the_zone_of_the_active_and_of_each_other() -> None:
    config = TaskConfig(num_standby_replicas=2, rack_aware_tags=("zone",))
    clients = [client(f"{zone}{n}", tags={"zone": zone}) for zone in "xyz" for n in range(2)]
    plan = assign_tasks(clients, stateful(6), config)
    check(plan, clients, stateful(6), config)
    for task in ids(6):
        zones = [
            name[0]
            for name, given in plan.clients.items()
            if task in (*given.active, *given.standby)
        ]
        assert sorted(zones) == ["x", "y", "z"]


def test_a_better_zone_is_reached_through_a_warmup() -> None:
    """The caught-up replica stays until the one in the other zone is."""
    config = TaskConfig(num_standby_replicas=1, rack_aware_tags=("zone",))
    tasks = stateful(2)
    group = Group(
        tasks,
        config,
        {
            "x1": client("x1", active=[T0], standby=[T1], tags={"zone": "x"}),
            "x2": client("x2", active=[T1], standby=[T0], tags={"zone": "x"}),
            "y1": client("y1", tags={"zone": "y"}),
        },
    )
    plan = group.rebalance()
    assert plan.clients["x2"].standby == (T0,)
    assert plan.clients["y1"].warmup == (T0, T1)
    assert {m.reason for m in plan.movements} == {Reason.TAGS}
    plan = group.rebalance()
    assert plan.clients["y1"].standby == (T0, T1)
    assert not plan.probing_rebalance_needed


def test_a_movement_explains_itself() -> None:
    plan = assign_tasks([client("a", active=ids(6)), client("b")], stateful(6))
    assert [str(movement) for movement in plan.movements] == [
        "0_0 active a -> b, warming up: the other client has less to do",
        "0_1 active a -> b, warming up: the other client has less to do",
        "0_2 active a -> b, waiting for a warm-up: the other client has less to do",
    ]
    fresh = assign_tasks([client("a")], stateful(1))
    assert [str(movement) for movement in fresh.movements] == ["0_0 active -> a: no client had it"]


# KIP-441, "Example Scenarios"


def test_kip_441_scaling_out() -> None:
    group = Group(
        stateful(3),
        TaskConfig(num_standby_replicas=1),
        {
            "i1": client("i1", active=[T0, T2], standby=[T1]),
            "i2": client("i2", active=[T1], standby=[T0, T2]),
            "i3": client("i3"),
        },
    )
    plan = group.rebalance()
    assert plan.clients["i1"].active == (T0, T2)
    assert plan.clients["i2"].active == (T1,)
    assert len(plan.clients["i3"].warmup) == 2
    group.settle(within=2)
    for one in group.clients.values():
        assert (len(one.active), len(one.standby)) == (1, 1)


def test_kip_441_scaling_in_with_standbys_in_sync() -> None:
    t0, t1, t2, t3 = ids(4)
    clients = [
        client("i2", active=[t1], standby=[t0, t3]),
        client("i3", active=[t2], standby=[t1]),
    ]
    tasks = stateful(4)
    plan = assign_tasks(clients, tasks, TaskConfig(num_standby_replicas=1))
    running = {task for given in plan.clients.values() for task in given.active}
    assert running == {t0, t1, t2, t3}
    assert_level(plan, clients)
    assert not plan.probing_rebalance_needed


def test_every_public_name_is_there() -> None:
    for name in kafka_coop.tasks.__all__:
        assert hasattr(kafka_coop.tasks, name)
    assert Running() == Running()
