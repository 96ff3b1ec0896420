"""Stateful tasks over the clients of a group (KIP-441).

`assign_tasks` decides, purely, which client runs, replicates and warms up each task:

    >>> ran = frozenset({TaskId(0, 0), TaskId(0, 1)})
    >>> old = TaskClient(id="a", active=ran, lags=dict.fromkeys(ran, Running()))
    >>> plan = assign_tasks([old, TaskClient(id="b")], [Task(id=task) for task in ran])
    >>> [str(movement) for movement in plan.movements]
    ['0_0 active a -> b, warming up: the other client has less to do']
"""

from kafka_coop.tasks.assign import assign_tasks
from kafka_coop.tasks.model import (
    Behind,
    ClientTasks,
    Lag,
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
)

__all__ = [
    "Behind",
    "ClientTasks",
    "Lag",
    "Movement",
    "Reason",
    "Role",
    "Running",
    "Task",
    "TaskAssignment",
    "TaskClient",
    "TaskConfig",
    "TaskId",
    "UnknownLag",
    "assign_tasks",
]
