"""The high-availability task assignor (KIP-441), as one pure function."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from kafka_coop.tasks.actives import Actives, place_actives
from kafka_coop.tasks.model import ClientTasks, Task, TaskAssignment, TaskClient, TaskConfig
from kafka_coop.tasks.movement import Plan, movements_now, plan_warmups
from kafka_coop.tasks.snapshot import NOBODY, Snapshot
from kafka_coop.tasks.standbys import Standbys, place_standbys


def assign_tasks(
    clients: Iterable[TaskClient], tasks: Iterable[Task], config: TaskConfig | None = None
) -> TaskAssignment:
    """Decides who runs, replicates and warms up which tasks.

    - A stateful task runs on a client that none is closer to caught up than; a lag within
      ``acceptable_recovery_lag`` counts as none.
    - Among those, the active tasks are as level per thread as they can be. What stands between
      that and a level spread over all clients is moved through warm-ups, at most
      ``max_warmup_replicas`` at a time, while the task runs on where it is.
    - Standbys go to the clients next closest, never two replicas of a task to one.
    - Stateless tasks fill up the clients that run least.
    - In the end ``active(a) / threads(a) <= (active(b) + 1) / threads(b)`` for all clients a
      and b, counting the stateful tasks alone and all of them. A group of which that holds, and
      whose standbys are level too, is left as it is.

    Args:
        clients: The processes of the group, in any order.
        tasks: All tasks there are, in any order.
        config: None: Kafka Streams' defaults.

    Returns:
        The same for the same clients, tasks and configuration.

    Raises:
        ConfigurationError: A client or a task is given twice.
    """
    config = config or TaskConfig()
    snapshot = Snapshot(clients, tasks, config)
    actives = place_actives(snapshot)
    standbys = place_standbys(snapshot, actives)
    plan = plan_warmups(snapshot, actives, standbys)
    ids = [task.id for task in snapshot.tasks]
    return TaskAssignment(
        clients=_by_client(snapshot, actives, standbys, plan),
        movements=(*movements_now(snapshot, actives, standbys), *plan.pending),
        unassigned=tuple(ids[t] for t, c in enumerate(actives.now) if c == NOBODY),
        under_replicated=tuple(
            ids[t]
            for t, held in enumerate(standbys.now)
            if snapshot.tasks[t].stateful and len(held) < config.num_standby_replicas
        ),
        time_to_balance=_time_to_balance(plan, config),
    )


def _by_client(
    snapshot: Snapshot, actives: Actives, standbys: Standbys, plan: Plan
) -> dict[str, ClientTasks]:
    active: list[list[int]] = [[] for _ in snapshot.clients]
    standby: list[list[int]] = [[] for _ in snapshot.clients]
    for t, c in enumerate(actives.now):
        if c != NOBODY:
            active[c].append(t)
    for t, held in enumerate(standbys.now):
        for c in held:
            standby[c].append(t)
    return {
        client.id: ClientTasks(
            active=tuple(snapshot.tasks[t].id for t in active[c]),
            standby=tuple(snapshot.tasks[t].id for t in standby[c]),
            warmup=tuple(snapshot.tasks[t].id for t in sorted(plan.warmups[c])),
        )
        for c, client in enumerate(snapshot.clients)
    }


def _time_to_balance(plan: Plan, config: TaskConfig) -> timedelta:
    """Destinations that are standbys anyway take no place, and are done with the first probe."""
    if not plan.pending:
        return timedelta()
    placed = sum(map(len, plan.warmups))
    waiting = sum(not movement.warming_up for movement in plan.pending)
    probes = max(1, -(-(placed + waiting) // config.max_warmup_replicas))
    return probes * config.probing_rebalance_interval
