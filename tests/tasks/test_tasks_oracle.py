"""The assignor against trying everything, on clusters small enough for that (KIP-441)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks_group import check, client, distance, ids, stateful

from kafka_coop.tasks import (
    Behind,
    ClientTasks,
    Lag,
    Running,
    Task,
    TaskAssignment,
    TaskClient,
    TaskConfig,
    TaskId,
    UnknownLag,
    assign_tasks,
)

ACCEPTABLE = 100
Placement = dict[TaskId, str]

small_ids = st.builds(TaskId, st.integers(0, 1), st.integers(0, 2))
small_lags: st.SearchStrategy[Lag] = st.one_of(
    st.just(Running()),
    st.just(UnknownLag()),
    st.builds(Behind, offsets=st.sampled_from([0, ACCEPTABLE + 1, 5_000])),
)
small_tasks = st.lists(
    st.builds(Task, id=small_ids, stateful=st.booleans(), changelog_offsets=st.just(10_000)),
    min_size=1,
    max_size=5,
    unique_by=lambda task: task.id,
)
small_clients = st.lists(
    st.builds(
        TaskClient,
        id=st.sampled_from("abc"),
        capacity=st.sampled_from([1, 1, 2, 3]),
        active=st.frozensets(small_ids, max_size=3),
        standby=st.frozensets(small_ids, max_size=3),
        lags=st.dictionaries(small_ids, small_lags, max_size=4),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.id,
)
CONFIG = TaskConfig(acceptable_recovery_lag=ACCEPTABLE)
few = settings(max_examples=100)


def unevenness(clients: list[TaskClient], placement: Mapping[TaskId, str]) -> Fraction:
    """What an optimal semi-matching minimises: the k-th task of a client costs k per thread."""
    loads = Counter(placement.values())
    return sum(
        (Fraction(loads[c.id] * (loads[c.id] + 1), 2 * c.capacity) for c in clients), Fraction()
    )


def closest(one: Task, clients: list[TaskClient]) -> list[str]:
    best = min(distance(c, one, ACCEPTABLE) for c in clients)
    return [c.id for c in clients if distance(c, one, ACCEPTABLE) == best]


def placements(may: Mapping[TaskId, list[str]]) -> Iterator[Placement]:
    for choice in product(*may.values()):
        yield dict(zip(may, choice, strict=True))


def runs_what(plan: TaskAssignment, tasks: list[Task]) -> Placement:
    wanted = {task.id for task in tasks}
    return {t: c for c, given_to in plan.clients.items() for t in given_to.active if t in wanted}


@few
@given(small_clients, small_tasks)
def test_no_spread_over_the_closest_clients_is_more_level(
    clients: list[TaskClient], tasks: list[Task]
) -> None:
    heavy = [task for task in tasks if task.stateful]
    mine = runs_what(assign_tasks(clients, tasks, CONFIG), heavy)
    may = {task.id: closest(task, clients) for task in heavy}
    assert all(mine[t] in may[t] for t in may)
    assert unevenness(clients, mine) == min(unevenness(clients, p) for p in placements(may))


@few
@given(small_clients, small_tasks)
def test_stateless_tasks_level_what_the_others_left(
    clients: list[TaskClient], tasks: list[Task]
) -> None:
    plan = assign_tasks(clients, tasks, CONFIG)
    light = {task.id: [c.id for c in clients] for task in tasks if not task.stateful}
    fixed = runs_what(plan, [task for task in tasks if task.stateful])
    everything = runs_what(plan, tasks)
    assert unevenness(clients, everything) == min(
        unevenness(clients, fixed | p) for p in placements(light)
    )


@few
@given(small_clients, small_tasks, st.integers(1, 2))
def test_no_other_clients_are_closer_than_those_with_the_standbys(
    clients: list[TaskClient], tasks: list[Task], count: int
) -> None:
    config = TaskConfig(acceptable_recovery_lag=ACCEPTABLE, num_standby_replicas=count)
    plan = assign_tasks(clients, tasks, config)
    for task in tasks:
        if task.stateful:
            runner = runs_what(plan, [task])[task.id]
            others = sorted(distance(c, task, ACCEPTABLE) for c in clients if c.id != runner)
            held = [c for c in clients if task.id in plan.clients[c.id].standby]
            assert sorted(distance(c, task, ACCEPTABLE) for c in held) == others[:count]


@few
@given(small_clients, small_tasks)
def test_what_is_pending_leads_to_the_levellest_spread_of_all(
    clients: list[TaskClient], tasks: list[Task]
) -> None:
    """Were all warm-ups done, nobody could do better; and no move leads back."""
    heavy = [task for task in tasks if task.stateful]
    plan = assign_tasks(clients, tasks, CONFIG)
    target = runs_what(plan, heavy)
    for m in plan.movements:
        if m.pending:
            assert target[m.task] == m.source
            target[m.task] = m.destination
    anywhere = {task.id: [c.id for c in clients] for task in heavy}
    assert unevenness(clients, target) == min(unevenness(clients, p) for p in placements(anywhere))


@few
@given(st.integers(1, 6), st.integers(1, 3), st.data())
def test_of_the_level_spreads_the_one_with_the_fewest_moves_is_the_aim(
    count: int, size: int, data: st.DataObject
) -> None:
    """Caught up everywhere or nowhere but at the owner: moves are counted against all spreads."""
    names = "abc"[:size]
    owner = {t: data.draw(st.sampled_from(names)) for t in ids(count)}
    clients = [client(n, active=[t for t in owner if owner[t] == n]) for n in names]
    everywhere = data.draw(st.booleans())
    config = TaskConfig(acceptable_recovery_lag=None if everywhere else ACCEPTABLE)
    plan = assign_tasks(clients, stateful(count), config)
    anywhere = {t: list(names) for t in owner}
    best = min(unevenness(clients, p) for p in placements(anywhere))
    fewest = min(
        sum(p[t] != owner[t] for t in owner)
        for p in placements(anywhere)
        if unevenness(clients, p) == best
    )
    assert len(plan.movements) == fewest
    assert all(m.pending is not everywhere for m in plan.movements)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("standbys", [0, 1])
def test_restoring_bit_by_bit_ends_level_and_is_never_begun_anew(seed: int, standbys: int) -> None:
    """Replicas restore at their own speed: a probe finds some done, others half-way.

    KAFKA-21001: a warm-up that is under way is not dropped for another. It may become needless,
    but only by another task having changed hands.
    """
    dice = random.Random(seed)
    tasks = stateful(dice.randint(2, 12), subtopologies=2)
    config = TaskConfig(num_standby_replicas=standbys, max_warmup_replicas=dice.randint(1, 3))
    speeds = {name: dice.choice([200_000, 400_000, 1_000_000]) for name in "abc"}
    clients = {"a": client("a", active=[t.id for t in tasks]), "b": client("b"), "c": client("c")}
    before = TaskAssignment()
    for _ in range(10 * len(tasks) * (1 + standbys)):
        plan = assign_tasks(clients.values(), tasks, config)
        check(plan, clients.values(), tasks, config)
        if standbys == 0 or hands(plan) == hands(before):
            for name, had in before.clients.items():
                under_way = {t for t in had.warmup if left(clients[name], t) > 10_000}
                assert under_way <= {*plan.clients[name].warmup, *plan.clients[name].active}
        clients = {n: restored(clients[n], gets, speeds[n]) for n, gets in plan.clients.items()}
        before = plan
        if not plan.probing_rebalance_needed:
            break
    else:
        pytest.fail("still probing")
    loads = [len(gets.active) for gets in before.clients.values()]
    assert max(loads) - min(loads) <= 1


def hands(plan: TaskAssignment) -> dict[str, tuple[object, object]]:
    return {name: (gets.active, gets.standby) for name, gets in plan.clients.items()}


def left(one: TaskClient, task: TaskId) -> int:
    lag = one.lags.get(task, Behind(offsets=1_000_000))
    return lag.offsets if isinstance(lag, Behind) else 0


def restored(one: TaskClient, gets: ClientTasks, speed: int) -> TaskClient:
    """The client at the next probe."""
    replicas = (*gets.standby, *gets.warmup)
    lags: dict[TaskId, Lag] = {t: Behind(offsets=max(left(one, t) - speed, 0)) for t in replicas}
    return client(one.id, active=gets.active, standby=replicas, lags=lags)
