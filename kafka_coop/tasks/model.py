"""What the task assignor is told, and what it answers (KIP-441).

Lags are types of their own. Streams once had one number stand both for "unknown" and for "at
the end", and so took clients that knew nothing for caught up (KAFKA-10319).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from kafka_coop.errors import ConfigurationError

_SHORTEST_PROBING_INTERVAL = timedelta(minutes=1)


class TaskId(NamedTuple):
    """One partition of one subtopology, written ``0_8``. Sorted by subtopology first."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A unit of work, and how much state stands behind it.

    Attributes:
        id: Unique among the tasks.
        stateful: Whether it has state to restore. Stateless tasks have no standbys.
        changelog_offsets: Number of offsets to restore for who has none of the state, summed
            over its stores; a store without a changelog counts zero. None: the end offsets could
            not be had. Zero makes every client caught up (KAFKA-14302).

    Raises:
        ConfigurationError: ``changelog_offsets`` is negative.
    """

    id: TaskId
    stateful: bool = True
    changelog_offsets: int | None = None

    def __post_init__(self) -> None:
        if self.changelog_offsets is not None:
            _at_least(0, "changelog_offsets", self.changelog_offsets)


@dataclass(frozen=True, slots=True)
class Running:
    """The client processes the task: nothing is missing, whatever the offsets say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """The client has state, and this many offsets are missing to the changelog's end.

    Zero is a fully restored state, an empty changelog's as well (KAFKA-10199).

    Raises:
        ConfigurationError: ``offsets`` is negative.
    """

    offsets: int

    def __post_init__(self) -> None:
        _at_least(0, "offsets", self.offsets)


@dataclass(frozen=True, slots=True)
class UnknownLag:
    """The client has state, but cannot tell how much is missing. Never caught up by itself."""


Lag: TypeAlias = Running | Behind | UnknownLag
"""How far a client's state of a task is from the changelog's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClient:
    """One process of the group, as it described itself when it joined.

    Tasks that no longer exist are ignored, wherever they are named.

    Attributes:
        id: The process, not its members: Streams' process UUID.
        capacity: Number of threads. None at all: the client is given nothing.
        active: The tasks it was running, or restoring to run.
        standby: The tasks it held replicas of, warm-ups among them.
        lags: Task -> lag, for all state it has on disk. A stateful task it names as active or
            standby without a lag counts as `UnknownLag`; one it does not name at all counts as
            the whole changelog.
        tags: Tag -> value (KIP-708), such as ``{"zone": "eu-1a"}``.

    Raises:
        ConfigurationError: ``capacity`` is negative.
    """

    id: str
    capacity: int = 1
    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    lags: Mapping[TaskId, Lag] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _at_least(0, "capacity", self.capacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """How replicas are kept and moved. Named and defaulted as in Kafka Streams.

    Attributes:
        num_standby_replicas: Replicas of every stateful task besides the active one, ≥ 0.
        max_warmup_replicas: Replicas beyond those that may restore at a time, in the whole
            group, ≥ 1.
        acceptable_recovery_lag: Clients that lack no more than this many offsets are caught up,
            ≥ 0. None: every lag is acceptable, so that tasks move at once, without warm-ups.
        probing_rebalance_interval: Time between two looks at whether warm-ups are done, ≥ 1 min.
        rack_aware_tags: The tags whose values the replicas of a task should not share (KIP-708).

    Raises:
        ConfigurationError: A value is out of its range; ``key`` is Streams' name of it.
    """

    num_standby_replicas: int = 0
    max_warmup_replicas: int = 2
    acceptable_recovery_lag: int | None = 10_000
    probing_rebalance_interval: timedelta = timedelta(minutes=10)
    rack_aware_tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _at_least(0, "num.standby.replicas", self.num_standby_replicas)
        _at_least(1, "max.warmup.replicas", self.max_warmup_replicas)
        if self.acceptable_recovery_lag is not None:
            _at_least(0, "acceptable.recovery.lag", self.acceptable_recovery_lag)
        if self.probing_rebalance_interval < _SHORTEST_PROBING_INTERVAL:
            raise ConfigurationError(
                "probing.rebalance.interval.ms",
                f"probing.rebalance.interval.ms is {self.probing_rebalance_interval}; "
                "at least 1 minute is needed, since every probe is a rebalance",
            )
        if len(set(self.rack_aware_tags)) < len(self.rack_aware_tags):
            raise ConfigurationError(
                "rack.aware.assignment.tags",
                f"rack.aware.assignment.tags names a tag twice: {list(self.rack_aware_tags)}",
            )


class Role(enum.Enum):
    """What a client does with a task."""

    ACTIVE = "active"
    STANDBY = "standby"


class Reason(enum.Enum):
    """Why a task changes hands."""

    UNOWNED = "no client had it"
    OWNER_WITHOUT_CAPACITY = "the client that had it has no threads left"
    MORE_CAUGHT_UP = "the other client is closer to the end of the changelog"
    PROMOTED = "the client that had it now runs the task"
    BALANCE = "the other client has less to do"
    TAGS = "the replicas of the task shared a tag's value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """One task that changes hands, or is to as soon as the destination is caught up.

    Attributes:
        task: What moves.
        role: In which role.
        source: The client that has it, None where nobody does.
        destination: The client that gets it.
        reason: Why.
        pending: Whether the destination has state to restore first. Until then the source, or
            another client that is caught up, keeps the task.
        warming_up: Whether the destination restores in this round already: as a warm-up replica,
            or as a standby. A pending movement that does not waits for a place among the
            ``max.warmup.replicas``.
    """

    task: TaskId
    role: Role
    source: str | None
    destination: str
    reason: Reason
    pending: bool = False
    warming_up: bool = False

    def __str__(self) -> str:
        way = f"{self.source} -> {self.destination}" if self.source else f"-> {self.destination}"
        state = ""
        if self.pending:
            state = ", warming up" if self.warming_up else ", waiting for a warm-up"
        return f"{self.task} {self.role.value} {way}{state}: {self.reason.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTasks:
    """What one client is given; no task is in two of the three. Each is sorted."""

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignment:
    """Who runs, replicates and warms up what.

    Attributes:
        clients: Client id -> its tasks, for every client, sorted by id.
        movements: Everything that changes hands now, then what is pending, each sorted.
        unassigned: All tasks, where no client has a thread; else empty. Sorted.
        under_replicated: Stateful tasks with fewer standbys than configured, for want of
            clients. Sorted.
        time_to_balance: The time until no movement is pending: the probes still needed at
            ``max.warmup.replicas`` a time. It is longer where restoring outlasts a probe, and
            shorter where one movement makes up for another, as a standby's may.
    """

    clients: Mapping[str, ClientTasks] = field(default_factory=dict)
    movements: tuple[Movement, ...] = ()
    unassigned: tuple[TaskId, ...] = ()
    under_replicated: tuple[TaskId, ...] = ()
    time_to_balance: timedelta = timedelta()

    @property
    def probing_rebalance_needed(self) -> bool:
        """Whether a later rebalance can do better once warm-ups are done (KIP-441).

        It depends on nothing but what the clients reported, so a leader that is new, or a
        restarted static one, finds it again (KAFKA-9821).
        """
        return any(movement.pending for movement in self.movements)


def _at_least(least: int, key: str, value: int) -> None:
    if value < least:
        raise ConfigurationError(key, f"{key} is {value}; at least {least} is needed")
