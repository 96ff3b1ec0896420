"""What holds of every plan, whatever the clients report."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tasks_group import Group, assert_level, check, distance

from kafka_coop.tasks import (
    Behind,
    Lag,
    Running,
    Task,
    TaskClient,
    TaskConfig,
    TaskId,
    UnknownLag,
    assign_tasks,
)

ACCEPTABLE = 100

task_ids = st.builds(TaskId, st.integers(0, 2), st.integers(0, 3))
lags: st.SearchStrategy[Lag] = st.one_of(
    st.just(Running()),
    st.just(UnknownLag()),
    st.builds(Behind, offsets=st.sampled_from([0, 1, ACCEPTABLE, ACCEPTABLE + 1, 5_000, 2**62])),
)
task_lists = st.lists(
    st.builds(
        Task,
        id=task_ids,
        stateful=st.sampled_from([True, True, False]),
        changelog_offsets=st.sampled_from([None, 0, ACCEPTABLE, 1_000]),
    ),
    max_size=10,
    unique_by=lambda task: task.id,
)
client_lists = st.lists(
    st.builds(
        TaskClient,
        id=st.text("abcdef", min_size=1, max_size=2),
        capacity=st.sampled_from([1, 1, 2, 3, 0]),
        active=st.frozensets(task_ids, max_size=5),
        standby=st.frozensets(task_ids, max_size=5),
        lags=st.dictionaries(task_ids, lags, max_size=6),
        tags=st.fixed_dictionaries({}, optional={"zone": st.sampled_from("xyz")}),
    ),
    max_size=6,
    unique_by=lambda one: one.id,
)
configs = st.builds(
    TaskConfig,
    num_standby_replicas=st.integers(0, 3),
    max_warmup_replicas=st.integers(1, 3),
    acceptable_recovery_lag=st.sampled_from([ACCEPTABLE, ACCEPTABLE, 0, None]),
    rack_aware_tags=st.sampled_from([(), ("zone",)]),
)
few = settings(max_examples=100)


@few
@given(client_lists, task_lists, configs)
def test_every_task_is_active_once_and_replicas_never_meet(
    clients: list[TaskClient], tasks: list[Task], config: TaskConfig
) -> None:
    check(assign_tasks(clients, tasks, config), clients, tasks, config)


@few
@given(st.data(), client_lists, task_lists, configs)
def test_the_order_of_the_input_does_not_matter(
    data: st.DataObject, clients: list[TaskClient], tasks: list[Task], config: TaskConfig
) -> None:
    shuffled = data.draw(st.permutations(clients)), data.draw(st.permutations(tasks))
    assert assign_tasks(*shuffled, config) == assign_tasks(clients, tasks, config)


@few
@given(client_lists, task_lists, configs)
def test_none_is_closer_to_caught_up_than_who_runs_a_task(
    clients: list[TaskClient], tasks: list[Task], config: TaskConfig
) -> None:
    plan = assign_tasks(clients, tasks, config)
    by_id = {one.id: one for one in clients}
    able = [one for one in clients if one.capacity]
    runner = {t: by_id[name] for name, given in plan.clients.items() for t in given.active}
    for task in tasks if able else []:
        if task.stateful:
            best = min(distance(one, task, config.acceptable_recovery_lag) for one in able)
            assert distance(runner[task.id], task, config.acceptable_recovery_lag) == best


@few
@given(client_lists, task_lists, configs)
def test_no_task_changes_hands_twice_in_a_plan_and_each_change_has_its_reason(
    clients: list[TaskClient], tasks: list[Task], config: TaskConfig
) -> None:
    plan = assign_tasks(clients, tasks, config)
    arrived = {
        (task, name, role)
        for name, given in plan.clients.items()
        for role, part in (("active", given.active), ("standby", given.standby))
        for task in part
    }
    told = [(m.task, m.destination, m.role.value) for m in plan.movements if not m.pending]
    assert len(set(told)) == len(told)
    assert set(told) <= arrived
    stateful = {task.id for task in tasks if task.stateful}
    claims = {(task, c.id, "active") for c in clients for task in c.active}
    claims |= {(t, c.id, "standby") for c in clients for t in (c.standby - c.active) & stateful}
    assert arrived - claims <= set(told)
    assert all(str(movement).endswith(movement.reason.value) for movement in plan.movements)


def _group(clients: Sequence[TaskClient], tasks: list[Task], config: TaskConfig) -> Group:
    return Group(tasks, config, {one.id: one for one in clients})


@few
@given(client_lists, task_lists, configs)
def test_restoring_ends_in_a_level_group_that_is_left_alone(
    clients: list[TaskClient], tasks: list[Task], config: TaskConfig
) -> None:
    group = _group(clients, tasks, config)
    replicas = len(tasks) * (1 + config.num_standby_replicas)
    group.settle(within=2 * replicas + 1)
    plan = group.rebalance()
    assert not plan.movements
    assert not plan.probing_rebalance_needed
    assert_level(plan, clients)
    assert_level(plan, clients, [task.id for task in tasks if task.stateful])
    assert group.rebalance() == plan


@few
@given(client_lists, task_lists, configs)
def test_each_round_needs_fewer_warmups_than_the_one_before(
    clients: list[TaskClient], tasks: list[Task], config: TaskConfig
) -> None:
    """While lags go to zero, pending moves of actives only ever become fewer (KAFKA-10199)."""
    group = _group(clients, tasks, config)
    before: int | None = None
    for _ in range(2 * len(tasks) + 1):
        plan = group.rebalance()
        pending = sum(m.pending and m.role.value == "active" for m in plan.movements)
        warming = sum(
            m.pending and m.warming_up and m.role.value == "active" for m in plan.movements
        )
        assert warming or not pending
        assert before is None or pending <= before
        before = pending - warming


@few
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2))
def test_a_client_that_joins_takes_only_what_it_needs(count: int, size: int, standbys: int) -> None:
    """The fewest active moves: nobody but the new one gets any, and it no more than its share."""
    tasks = [Task(id=TaskId(0, partition)) for partition in range(count)]
    group = _group([], tasks, TaskConfig(num_standby_replicas=standbys, max_warmup_replicas=99))
    for name in range(size):
        group.join(str(name))
    group.settle(within=1)
    group.join("new")
    plan = group.rebalance()
    actives = [m for m in plan.movements if m.role.value == "active"]
    assert all(m.destination == "new" and m.pending for m in actives)
    assert len(actives) == count // (size + 1)


@few
@given(st.integers(0, 12), st.integers(2, 6))
def test_a_client_that_leaves_moves_only_what_it_ran(count: int, size: int) -> None:
    tasks = [Task(id=TaskId(0, partition)) for partition in range(count)]
    group = _group([], tasks, TaskConfig())
    for name in range(size):
        group.join(str(name))
    group.settle(within=1)
    orphans = set(group.clients["1"].active)
    group.leave("1")
    plan = group.rebalance()
    assert {m.task for m in plan.movements} == orphans
    assert_level(plan, group.clients.values())
