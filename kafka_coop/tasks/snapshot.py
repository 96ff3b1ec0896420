"""Clients and tasks as sorted indices, so that the order they were given in cannot matter."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar, assert_never

from kafka_coop.errors import ConfigurationError
from kafka_coop.tasks.model import (
    Behind,
    Lag,
    Running,
    Task,
    TaskClient,
    TaskConfig,
    TaskId,
    UnknownLag,
)

_Key = TypeVar("_Key", str, TaskId)

NOBODY = -1
"""In place of a client's index."""

_ENDLESS = 1 << 64
"""Stands for a changelog of unknown length in ranks; longer than any that exists."""

Rank = tuple[int, int]
"""Distance from caught up: offsets missing at most, then how sure that is. Less is closer."""

CAUGHT_UP: Rank = (0, 0)


class Snapshot:
    """One rebalance's input, indexed.

    Attributes:
        clients: Sorted by id. Their indices stand for them everywhere else.
        tasks: Sorted by id. Their indices stand for them everywhere else.
        index: Task id -> index.
        able: The clients with threads, ascending. Only they are ever given anything.
        standbys: How many standbys a stateful task gets: as configured, or as many as there are
            other clients.
        owner: Per task the client that had it active, or `NOBODY`. Where several claim it, the
            one closest to caught up, then the first.
        replicas: Per task the able clients that held it as standby or warm-up.
        absent: Per task the rank of clients with none of its state.

    Raises:
        ConfigurationError: A client or a task is given twice.
    """

    def __init__(
        self, clients: Iterable[TaskClient], tasks: Iterable[Task], config: TaskConfig
    ) -> None:
        self.clients = sorted(clients, key=lambda client: client.id)
        self.tasks = sorted(tasks, key=lambda task: task.id)
        _refuse_repeats("clients", [client.id for client in self.clients])
        _refuse_repeats("tasks", [task.id for task in self.tasks])
        self.config = config
        self.index = {task.id: t for t, task in enumerate(self.tasks)}
        self.threads = [client.capacity for client in self.clients]
        self.able = [c for c, threads in enumerate(self.threads) if threads]
        self.standbys = max(0, min(config.num_standby_replicas, len(self.able) - 1))
        self.absent = [self._floored((_length(task), 2)) for task in self.tasks]
        self._ranks: list[dict[int, Rank]] = [{} for _ in self.tasks]
        self.owner = [NOBODY] * len(self.tasks)
        self.replicas: list[set[int]] = [set() for _ in self.tasks]
        for c, client in enumerate(self.clients):
            self._read(c, client)

    def rank(self, t: int, c: int) -> Rank:
        """How far the client is from caught up, in offsets; `CAUGHT_UP` within the config's."""
        return self._ranks[t].get(c, self.absent[t])

    def holders(self, t: int) -> list[int]:
        """The able clients with state of the task, ascending."""
        return [c for c in self._ranks[t] if self.threads[c]]

    def closest(self, t: int) -> list[int] | None:
        """The able clients that none is closer than, ascending. None: every able client.

        Nobody lacks more than who has no state, so only clients that have some are looked at.
        """
        ranks = {c: rank for c, rank in self._ranks[t].items() if self.threads[c]}
        best = min(ranks.values(), default=self.absent[t])
        if best == self.absent[t]:
            return None
        found = [c for c, rank in ranks.items() if rank == best]
        return None if len(found) == len(self.able) else found

    def _read(self, c: int, client: TaskClient) -> None:
        named = dict.fromkeys(client.active | client.standby, UnknownLag()) | dict(client.lags)
        for task_id, lag in named.items():
            t = self.index.get(task_id)
            if t is not None and self.tasks[t].stateful:
                self._ranks[t][c] = self._floored(_distance(lag, self.tasks[t]))
        for task_id in client.active:
            t = self.index.get(task_id)
            if t is not None and self._claims_better(t, c):
                self.owner[t] = c
        for task_id in client.standby - client.active if client.capacity else ():
            t = self.index.get(task_id)
            if t is not None and self.tasks[t].stateful:
                self.replicas[t].add(c)

    def _claims_better(self, t: int, c: int) -> bool:
        """Clients are read in order, so of equals the first remains."""
        before = self.owner[t]
        if before == NOBODY:
            return True
        return (not self.threads[c], self.rank(t, c)) < (
            not self.threads[before],
            self.rank(t, before),
        )

    def _floored(self, rank: Rank) -> Rank:
        acceptable = self.config.acceptable_recovery_lag
        return CAUGHT_UP if acceptable is None or rank[0] <= acceptable else rank


def _length(task: Task) -> int:
    if not task.stateful:
        return 0
    return _ENDLESS if task.changelog_offsets is None else task.changelog_offsets


def _distance(lag: Lag, task: Task) -> Rank:
    """A client may lack no more than the changelog has, however far it says it is behind."""
    match lag:
        case Running():
            return CAUGHT_UP
        case Behind(offsets=offsets):
            return (min(offsets, _length(task)), 0)
        case UnknownLag():
            return (_length(task), 1)
        case _ as never:
            assert_never(never)


def _refuse_repeats(key: str, ids: list[_Key]) -> None:
    for one, next_one in pairwise(ids):
        if one == next_one:
            raise ConfigurationError(key, f"{key} has {one} twice")
