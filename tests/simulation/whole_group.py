"""A scenario of whole members, from subscribe() to callbacks, on two stages: the box, and Kafka.

A stage says after each step in which generation the group has come to rest and who owns what,
and at the end what each member was told, callback by callback, and what its rounds were.
Members are called by their client ids, which their member ids begin with: plans depend on the
order of these.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal, Self, TypeAlias

from integration_support import PATIENCE, Kind, Member, Pairs, classic, pairs, until

from kafka_coop.backend.classic import ClassicBackend
from kafka_coop.backend.interface import Observer
from kafka_coop.membership import effects as ef
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.invariants import Watcher
from kafka_coop.simulation.process import Process
from kafka_coop.simulation.settling import unsettled
from kafka_coop.simulation.user import UserHabits
from kafka_coop.simulation.world import GROUP, MemberPlan, Scenario, Timing, World
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.types import Partitions

SESSION, HEARTBEAT, METADATA_MAX_AGE = 10.0, 0.2, 0.3
"""Seconds, in both. A process of a busy machine may stand still for some of them."""

STALL = 1.5 * SESSION
"""How long a stalled process stands still: the others have taken over when it goes on."""

Step: TypeAlias = tuple[
    Literal["start", "drain", "close", "crash", "grow", "restart", "stall"], str
]
"""What happens, and to whom; ``grow``: by how many partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What happens, one step after the other, in a group of a kind.

    Attributes:
        static: Who has a ``group.instance.id``: itself.
    """

    steps: tuple[Step, ...]
    strategy: str = "cooperative-sticky"
    static: str = ""

    @property
    def names(self) -> frozenset[str]:
        """Everyone who starts."""
        return frozenset(name for what, name in self.steps if what == "start")


def _former(name: str) -> str:
    """What the process before the restart is called."""
    return f"{name} before"


_KINDS: Mapping[type[ef.Action], Kind] = {
    ef.CallAssigned: "assigned",
    ef.CallRevoked: "revoked",
    ef.CallLost: "lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The group, come to rest."""

    generation: int
    owned: Mapping[str, Pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One of a member's rounds."""

    generation: int
    kept: Pairs
    revoked: Pairs
    assigned: Pairs
    lost: Pairs
    follow_up: bool


@dataclass(slots=True)
class Told:
    """What a member was told, in order."""

    callbacks: list[tuple[Kind, Pairs]] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)


def _sorted(partitions: Partitions) -> Pairs:
    return tuple(sorted((p.topic, p.partition) for p in partitions))


def _round(record: RebalanceRecord) -> Round:
    return Round(
        generation=record.generation,
        kept=_sorted(record.kept),
        revoked=_sorted(record.revoked),
        assigned=_sorted(record.assigned),
        lost=_sorted(record.lost),
        follow_up=record.follow_up,
    )


class _Listening(Watcher):
    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, Told] = {}

    def of(self, process: Process) -> Told:
        return self.told.setdefault(process.settings.client_id, Told())

    def calling(self, process: Process, action: ef.Action, partitions: Partitions) -> None:
        super().calling(process, action, partitions)
        self.of(process).callbacks.append((_KINDS[type(action)], _sorted(partitions)))

    def effect(self, process: Process, effect: ef.Effect) -> None:
        super().effect(process, effect)
        if isinstance(effect, ef.Announce):
            self.of(process).rounds.append(_round(effect.record))


class BoxedStage:
    """The box."""

    def __init__(self, topic: str, partitions: int, play: Play) -> None:
        plan = MemberPlan(
            topics=(topic,),
            strategies=(play.strategy,),
            habits=UserHabits(poll_interval=0.01),
        )
        self._topic = topic
        self._world = World(
            Scenario(
                seed=1,
                brokers=1,
                topics={topic: partitions},
                members={
                    name: replace(plan, instance_id=name if name in play.static else None)
                    for name in play.names
                },
                timing=Timing(
                    session=SESSION,
                    rebalance=PATIENCE,
                    heartbeat=HEARTBEAT,
                    metadata_max_age=METADATA_MAX_AGE,
                ),
            )
        )
        listening = _Listening()
        self._world.watcher = self._world.surroundings.watcher = listening
        self.told = listening.told

    def play(self, step: Step) -> Rest:
        """Does it, and waits until the group rests."""
        world = self._world
        match step:
            case "start", name:
                world._happen(ft.Start(member=name))
            case "drain", name:
                world.processes[name].drain()
            case "close", name:
                world._happen(ft.Close(member=name))
            case "crash", name:
                world._happen(ft.Crash(member=name))
            case "grow", more:
                world._happen(ft.GrowTopic(topic=self._topic, by=int(more)))
            case "restart", name:
                self._restart(name)
            case "stall", name:
                world._happen(ft.Stall(member=name, seconds=STALL))
                world.run_until(world.agenda.now + STALL)
        world.run_until(world.agenda.now + 2 * METADATA_MAX_AGE + 5 * HEARTBEAT)
        ends = world.agenda.now + 2 * SESSION
        while why := unsettled(world):
            assert world.agenda.now < ends, why
            world.run_until(world.agenda.now + HEARTBEAT)
        return Rest(
            generation=world.cluster.coordinator.generation(GROUP),
            owned={
                name: tuple(sorted((p.topic, p.partition) for p in process.user.owned))
                for name, process in world.processes.items()
                if process.alive
            },
        )

    def _restart(self, name: str) -> None:
        world, process = self._world, self._world.processes[name]
        world._happen(ft.Close(member=name))
        while process.alive:
            world.run_until(world.agenda.now + HEARTBEAT)
        self.told[_former(name)] = self.told.pop(name)
        world._happen(ft.Start(member=name))


class _Noting(Observer):
    def __init__(self, told: Told) -> None:
        self._told = told

    def rebalance(self, record: RebalanceRecord) -> None:
        self._told.rounds.append(_round(record))


def _stall(backend: ClassicBackend) -> None:
    """Between two heartbeats, as in the box.

    The answer to one that is under way would be the first thing heard afterwards: it is in doubt
    by then, and the member joins on account of that.
    """
    loop = backend._loop
    assert loop is not None

    def between() -> None:
        if backend._member._pulse._flying is None:
            time.sleep(STALL)
        else:
            loop.call_later(0.001, between)

    loop.call_soon_threadsafe(between)


class RealStage:
    """Consumers on a real Kafka, polled by turns. They are closed with the ``with`` block."""

    def __init__(
        self, kafka: KafkaCluster, topic: str, partitions: int, group: str, play: Play
    ) -> None:
        kafka.create_topic(topic, partitions=partitions)
        self._kafka = kafka
        self._topic = topic
        self._partitions = partitions
        self._group = group
        self._play = play
        self._members: dict[str, Member] = {}
        self.told: dict[str, Told] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members.values():
            member.consumer.close()

    def play(self, step: Step, expected: Rest) -> Rest:
        """Does it, and waits for what is expected; for something else no longer than can be."""
        match step:
            case "start", name:
                self._start(name)
            case "drain", name:
                self._members[name].consumer.drain(timedelta(hours=1))
            case "close", name:
                self._members.pop(name).consumer.close()
            case "crash", name:
                self._crash(self._members.pop(name))
            case "grow", more:
                self._partitions += int(more)
                self._kafka.add_partitions(self._topic, total=self._partitions)
            case "restart", name:
                self._members.pop(name).consumer.close()
                self.told[_former(name)] = self.told.pop(name)
                self._start(name)
            case "stall", name:
                # Its heartbeats stop; its user polls on, and finds the lease over.
                _stall(classic(self._members[name]))
        with contextlib.suppress(TimeoutError):  # the story's own comparison says more
            until(lambda: self._rest() == expected, *self._members.values(), within=2 * PATIENCE)
        return self._rest()

    def until_told(self, expected: Mapping[str, Told]) -> None:
        """Waits for the news that comes last: a round's own."""

        def heard() -> bool:
            return all(len(self.told[n].rounds) >= len(t.rounds) for n, t in expected.items())

        with contextlib.suppress(TimeoutError):
            until(heard, *self._members.values())

    def _rest(self) -> Rest:
        """A generation counts once all have been told of it, callbacks and all."""
        rounds = [self.told[name].rounds for name in self._members]
        generations = {told[-1].generation if told else -1 for told in rounds}
        return Rest(
            generation=generations.pop() if len(generations) == 1 else -1,
            owned={name: pairs(m.consumer.assignment()) for name, m in self._members.items()},
        )

    def _start(self, name: str) -> None:
        static = {"group_instance_id": name} if name in self._play.static else {}
        member = Member(
            self._kafka,
            self._group,
            client_id=name,
            partition_assignment_strategy=self._play.strategy,
            **static,
            session_timeout_ms=round(SESSION * 1000),
            heartbeat_interval_ms=round(HEARTBEAT * 1000),
            max_poll_interval_ms=round(PATIENCE * 1000),
            topic_metadata_refresh_interval_ms=round(METADATA_MAX_AGE * 1000),
        )
        told = self.told[name] = Told(callbacks=member.told)
        classic(member)._observer = _Noting(told)
        self._members[name] = member
        member.subscribe(self._topic)

    @staticmethod
    def _crash(member: Member) -> None:
        """As a killed process: its connections are closed, and nothing was said before."""
        backend = classic(member)
        backend.stop(timedelta(seconds=PATIENCE))
        backend.mailbox.set_left()
        member.consumer.close()
