"""A group of clients that take what they are given and restore it between rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_coop.tasks import (
    Behind,
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


def ids(count: int, *, subtopologies: int = 1) -> list[TaskId]:
    """Task ids, as many partitions in each subtopology as in the others or one fewer."""
    return sorted(TaskId(i % subtopologies, i // subtopologies) for i in range(count))


def stateful(count: int, *, subtopologies: int = 1) -> list[Task]:
    return [
        Task(id=task, changelog_offsets=1_000_000)
        for task in ids(count, subtopologies=subtopologies)
    ]


def client(
    name: str,
    *,
    active: Iterable[TaskId] = (),
    standby: Iterable[TaskId] = (),
    lags: Mapping[TaskId, Lag] | None = None,
    capacity: int = 1,
    tags: Mapping[str, str] | None = None,
) -> TaskClient:
    """A client that runs its active tasks and is caught up on its standbys, if not told else."""
    active, standby = frozenset(active), frozenset(standby)
    caught_up: dict[TaskId, Lag] = dict.fromkeys(standby, Behind(offsets=0))
    running: dict[TaskId, Lag] = dict.fromkeys(active, Running())
    return TaskClient(
        id=name,
        capacity=capacity,
        active=active,
        standby=standby,
        lags=caught_up | running | dict(lags or {}),
        tags=tags or {},
    )


@dataclass
class Group:
    """Clients by name, each as it would describe itself at the next rebalance."""

    tasks: list[Task]
    config: TaskConfig
    clients: dict[str, TaskClient] = field(default_factory=dict)
    keeps_state: bool = False

    def join(self, name: str, *, capacity: int = 1) -> None:
        self.clients[name] = TaskClient(id=name, capacity=capacity)

    def leave(self, name: str) -> None:
        del self.clients[name]

    def rebalance(self) -> TaskAssignment:
        """One round, after which everything that was assigned is restored in full."""
        plan = assign_tasks(self.clients.values(), self.tasks, self.config)
        check(plan, self.clients.values(), self.tasks, self.config)
        kinds = {task.id: task.stateful for task in self.tasks}
        for name, given in plan.clients.items():
            before = self.clients[name]
            kept: dict[TaskId, Lag] = {}
            if self.keeps_state:  # on disk, but nobody restores it any more
                kept = {task: Behind(offsets=50_000) for task in before.lags if task in kinds}
            self.clients[name] = client(
                name,
                capacity=before.capacity,
                tags=before.tags,
                active=given.active,
                standby=(*given.standby, *given.warmup),
                lags=kept
                | dict.fromkeys((*given.standby, *given.warmup), Behind(offsets=0))
                | {task: Running() for task in given.active if kinds[task]},
            )
        return plan

    def settle(self, *, within: int) -> int:
        """Rebalances while probing is asked for; returns how many rounds that took."""
        for done in range(1, within + 1):
            if not self.rebalance().probing_rebalance_needed:
                return done
        raise AssertionError(f"still probing after {within} rounds")


def check(
    plan: TaskAssignment, clients: Iterable[TaskClient], tasks: Iterable[Task], config: TaskConfig
) -> None:
    """What must hold of every plan."""
    clients, tasks = list(clients), list(tasks)
    assert list(plan.clients) == sorted(c.id for c in clients)
    able = {c.id for c in clients if c.capacity}
    active = Counter(task for given in plan.clients.values() for task in given.active)
    assert active == (Counter(task.id for task in tasks) if able else Counter())
    assert plan.unassigned == (() if able else tuple(sorted(task.id for task in tasks)))

    copies = Counter(task for given in plan.clients.values() for task in given.standby)
    wanted = max(0, min(config.num_standby_replicas, len(able) - 1))
    assert copies == Counter({task.id: wanted for task in tasks if task.stateful and wanted})
    short = [t.id for t in tasks if t.stateful and wanted < config.num_standby_replicas]
    assert plan.under_replicated == tuple(sorted(short))

    for name, given in plan.clients.items():
        everything = (*given.active, *given.standby, *given.warmup)
        assert len(set(everything)) == len(everything), "a task once on a client"
        assert not everything or name in able
        assert all(
            list(part) == sorted(part) for part in (given.active, given.standby, given.warmup)
        )
    assert sum(len(given.warmup) for given in plan.clients.values()) <= config.max_warmup_replicas
    pending = {(m.task, m.destination) for m in plan.movements if m.pending and m.warming_up}
    warm = {(task, name) for name, given in plan.clients.items() for task in given.warmup}
    assert warm <= pending, "nothing warms up for nothing"


def assert_level(
    plan: TaskAssignment, clients: Iterable[TaskClient], only: Iterable[TaskId] | None = None
) -> None:
    """active(a) / threads(a) <= (active(b) + 1) / threads(b), of all tasks or of these."""
    counted = None if only is None else set(only)
    loads = [
        (sum(counted is None or t in counted for t in plan.clients[c.id].active), c.capacity)
        for c in clients
        if c.capacity
    ]
    for a, threads_a in loads:
        for b, threads_b in loads:
            assert a * threads_b <= (b + 1) * threads_a, loads


def distance(one: TaskClient, task: Task, acceptable: int | None) -> tuple[float, int]:
    """How far the client is from caught up, written down anew from the KIP."""
    whole = float("inf") if task.changelog_offsets is None else task.changelog_offsets
    known: Lag | None = one.lags.get(task.id)
    if known is None and task.id in one.active | one.standby:
        known = UnknownLag()
    match known:
        case Running():
            missing = (0.0, 0)
        case Behind(offsets=offsets):
            missing = (min(offsets, whole), 0)
        case UnknownLag():
            missing = (whole, 1)
        case _:
            missing = (whole, 2)
    return (0.0, 0) if acceptable is None or missing[0] <= acceptable else missing
