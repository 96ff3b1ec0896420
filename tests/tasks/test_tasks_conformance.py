"""What Kafka Streams' HighAvailabilityTaskAssignorTest and its relatives pin (KIP-441)."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tasks_group import Group, assert_level, check, client, ids, stateful

from kafka_coop.tasks import (
    Behind,
    Lag,
    Reason,
    Role,
    Task,
    TaskClient,
    TaskConfig,
    TaskId,
    UnknownLag,
    assign_tasks,
)


def test_55_actives_and_standbys_stay_while_warming_up() -> None:
    """shouldBeStickyForActiveAndStandbyTasksWhileWarmingUp."""
    tasks = stateful(9, subtopologies=3)
    names = [task.id for task in tasks]
    config = TaskConfig(num_standby_replicas=1, max_warmup_replicas=2)
    one = client("one", active=names)
    two = client("two", standby=names, lags=dict.fromkeys(names, Behind(offsets=20_000)))
    three = client("three")

    plan = assign_tasks([one, two, three], tasks, config)

    check(plan, [one, two, three], tasks, config)
    assert plan.clients["one"].active == tuple(names)
    assert plan.clients["two"].standby == tuple(names)
    assert len(plan.clients["three"].warmup) == 2
    assert all(movement.pending for movement in plan.movements)
    assert plan.probing_rebalance_needed


def test_56_no_warmups_when_every_lag_is_acceptable() -> None:
    tasks = stateful(9, subtopologies=3)
    old = client("old", active=[task.id for task in tasks])
    plan = assign_tasks([old, client("new")], tasks, TaskConfig(acceptable_recovery_lag=None))
    assert not any(given.warmup for given in plan.clients.values())
    assert not plan.probing_rebalance_needed
    assert_level(plan, [old, client("new")])


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_57_never_more_warmups_than_configured(most: int, standbys: int) -> None:
    tasks = stateful(12)
    config = TaskConfig(num_standby_replicas=standbys, max_warmup_replicas=most)
    clients = [
        client("a", active=ids(12)[:6], standby=ids(12)[6:] if standbys else ()),
        client("b", active=ids(12)[6:], standby=ids(12)[:6] if standbys else ()),
        client("c"),
        client("d"),
    ]
    plan = assign_tasks(clients, tasks, config)
    check(plan, clients, tasks, config)
    assert sum(len(given.warmup) for given in plan.clients.values()) == most


def test_58_random_input_of_fifty_nodes() -> None:
    """The size of shouldAssignTasksForRandomInput: 60 topics x 3 partitions, 3 standbys."""
    dice = random.Random(58)
    tasks = stateful(180, subtopologies=60)
    config = TaskConfig(num_standby_replicas=3)
    clients = []
    for node in range(50):
        known = dice.sample(ids(180, subtopologies=60), dice.randrange(40))
        lags: dict[TaskId, Lag] = {task: UnknownLag() for task in known}
        for task in known[::2]:
            lags[task] = Behind(offsets=dice.randrange(50_000))
        standby = frozenset(dice.sample(known, len(known) // 2))
        clients.append(TaskClient(id=f"node-{node:02}", standby=standby, lags=lags))
    check(assign_tasks(clients, tasks, config), clients, tasks, config)
    group = Group(tasks, config, {c.id: c for c in clients})
    group.settle(within=2 * (180 + 180 * 3))
    assert_level(group.rebalance(), clients)


def test_59_a_swap_with_a_caught_up_standby_costs_no_warmup() -> None:
    tasks = stateful(4)
    a = client("a", active=ids(4))
    b = client("b", standby=ids(4))
    plan = assign_tasks([a, b], tasks, TaskConfig(num_standby_replicas=1))
    assert [len(plan.clients[name].active) for name in "ab"] == [2, 2]
    assert [len(plan.clients[name].standby) for name in "ab"] == [2, 2]
    assert not any(given.warmup for given in plan.clients.values())
    assert not plan.probing_rebalance_needed
    assert Counter((m.role, m.reason) for m in plan.movements) == {
        (Role.ACTIVE, Reason.BALANCE): 2,
        (Role.STANDBY, Reason.PROMOTED): 2,
    }


@pytest.mark.parametrize("standbys", [0, 1])
def test_60_a_node_that_joins_is_levelled_in_the_stated_rounds(standbys: int) -> None:
    """staticAssignmentShouldConvergeWithTheFirstAssignment, then addNodeAndConverge."""
    group = Group(stateful(11), TaskConfig(num_standby_replicas=standbys))
    group.join("a")
    group.join("b")
    assert group.settle(within=1) == 1
    group.join("c")
    group.settle(within=11 // 2 + 1)
    assert_level(group.rebalance(), group.clients.values())


@pytest.mark.parametrize("standbys", [0, 1])
def test_60_the_loss_of_a_node_is_levelled_in_the_stated_rounds(standbys: int) -> None:
    """dropNodesAndConverge: 13 tasks, of which the survivors have the standbys, or nothing."""
    group = Group(stateful(13), TaskConfig(num_standby_replicas=standbys))
    for name in "abcdefg":
        group.join(name)
    group.settle(within=1)
    group.leave("d")
    group.settle(within=13 // 2 + 2)
    assert_level(group.rebalance(), group.clients.values())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("keeps_state", [False, True])
def test_60_random_joins_and_losses_are_levelled_in_the_stated_rounds(
    seed: int, keeps_state: bool
) -> None:
    """randomClusterPerturbationsShouldConverge."""
    dice = random.Random(seed)
    standbys = dice.randrange(3)
    tasks = stateful(dice.randint(1, 24), subtopologies=dice.randint(1, 4))
    config = TaskConfig(num_standby_replicas=standbys, max_warmup_replicas=dice.randint(1, 3))
    group = Group(tasks, config, keeps_state=keeps_state)
    group.join("0")
    for step in range(1, 25):
        if dice.random() < 0.5 and len(group.clients) > 1:
            group.leave(dice.choice(sorted(group.clients)))
        else:
            group.join(str(step), capacity=dice.randint(1, 3))
        for _ in range(dice.randrange(3)):
            group.rebalance()  # the next change does not wait for the warm-ups
    stateful_tasks = len(tasks)
    group.settle(within=2 * (stateful_tasks + stateful_tasks * standbys))
    plan = group.rebalance()
    assert_level(plan, group.clients.values())
    assert not plan.movements, "a balanced group is left alone"


def test_a_task_without_a_changelog_needs_no_state() -> None:
    tasks = [Task(id=task, changelog_offsets=0) for task in ids(4)]
    old = client("old", active=ids(4))
    plan = assign_tasks([old, client("new")], tasks)
    assert [len(given.active) for given in plan.clients.values()] == [2, 2]
    assert not plan.probing_rebalance_needed
