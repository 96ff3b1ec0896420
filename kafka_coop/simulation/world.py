"""A whole group in one process and in virtual time: brokers, network, processes, users.

Static members come back with the subscription they went with. The coordinator starts no round
for one that returns within its session, whatever it subscribes to now (KIP-345): another
subscription would take effect with the next round, whenever that is. For the same reason a
change of topics may go unseen while a static leader restarts: its new process is told to lead,
but not for which topics the plan in force was made. So may a change of a static member's
subscription, where the coordinator fails over before the round that it began is in the log.
And where a peer leads, no mark tells of a follow-up round: a static member that dies, or polls too
late, while it gives partitions up, and returns to a place that no longer has them, leaves nobody to
begin it.
After such a run somebody asks for a round.

A run is a function of its `Scenario` alone. It goes through the incidents, then everything
heals, then the group has a stated time and number of rounds to settle (`settling`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import assert_never

from kafka_coop.assignors import resolve
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.membership.states import State
from kafka_coop.protocol.messages import Response
from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.agenda import Agenda
from kafka_coop.simulation.cluster import SimulatedCluster
from kafka_coop.simulation.dialects import DIALECTS
from kafka_coop.simulation.invariants import Watcher
from kafka_coop.simulation.journal import Departure, MemberRemoved
from kafka_coop.simulation.network import Call, Network
from kafka_coop.simulation.process import Process
from kafka_coop.simulation.settings import CoordinatorSettings
from kafka_coop.simulation.surroundings import Surroundings
from kafka_coop.simulation.trace import Trace
from kafka_coop.simulation.user import UserHabits

GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """A member, through all its processes.

    Attributes:
        topics, patterns: What each of its processes subscribes to when it starts.
        strategies: Their names, most preferred first.
        client: What kind of client it is, in `dialects`; empty: ours.
    """

    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ("cooperative-sticky",)
    instance_id: str | None = None
    client: str = ""
    habits: UserHabits = field(default_factory=UserHabits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The timeouts of a world's members and brokers, seconds. Scaled down: only ratios matter."""

    session: float = 3.0
    rebalance: float = 6.0
    request: float = 2.0
    heartbeat: float | None = 1.0
    initial_delay: float = 0.0
    metadata_max_age: float = 1.5
    new_member: float = 12.0
    latency: tuple[float, float] = (0.0005, 0.002)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything a run depends on.

    Attributes:
        seed: Of the latencies and the other small chances.
        topics: Those that exist at first, with their number of partitions.
        quiet_at: When the incidents are over and all heals.
        last_leaver: Who drains and closes once the group has settled; empty: nobody.
    """

    seed: int
    brokers: int = 3
    topics: Mapping[str, int] = field(default_factory=dict)
    members: Mapping[str, MemberPlan] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    incidents: tuple[ft.Incident, ...] = ()
    quiet_at: float = 10.0
    last_leaver: str = ""


class World:
    """One run.

    Attributes:
        processes: Member -> its present process, alive or not.
    """

    def __init__(self, scenario: Scenario, *, trace: Trace | None = None) -> None:
        self.scenario = scenario
        self.agenda = Agenda()
        timing = scenario.timing
        self.cluster = SimulatedCluster(
            brokers=scenario.brokers,
            settings=CoordinatorSettings(
                initial_rebalance_delay=timedelta(seconds=timing.initial_delay),
                min_session_timeout=timedelta(0),
                new_member_join_timeout=timedelta(seconds=timing.new_member),
            ),
        )
        for topic, partitions in scenario.topics.items():
            self.cluster.topics.create(topic, partitions)
        self.watcher = Watcher()
        self.watcher.strategies_differ = _strategies_differ(scenario)
        self.network = Network(
            self.agenda, self.cluster, latency=timing.latency, witness=self._witness
        )
        self.surroundings = Surroundings(
            agenda=self.agenda,
            network=self.network,
            watcher=self.watcher,
            nodes=tuple(range(1, scenario.brokers + 1)),
            trace=trace,
        )
        self.processes: dict[str, Process] = {}
        self._plans = dict(scenario.members)
        self._by_name: dict[str, Process] = {}
        self._starts = 0
        self._plan_may_be_old = False
        self._made_up_for = 0
        for incident in scenario.incidents:
            self.agenda.at(incident.at, self._happen, incident.fault)

    def run_until(self, time: float) -> None:
        """Lets everything happen that is due up to ``time``."""
        agenda, cluster = self.agenda, self.cluster
        never = float("inf")
        broker, seen = never, -1
        while True:
            # To ask for the deadline costs as much as a step: only where it may have moved.
            if cluster.changes != seen:
                seen, deadline = cluster.changes, cluster.next_deadline()
                broker = never if deadline is None else deadline
            rest = agenda.next_time()
            if broker <= rest:
                if broker > time or broker == never:
                    break
                agenda.now = max(broker, agenda.now)
                self.network.deliver(cluster.advance(agenda.now))
            elif rest <= time:
                agenda.step()
            else:
                break
        agenda.now = time

    def _witness(self, call: Call, response: Response) -> None:
        self.watcher.answered(call, response, self._by_name.get(call.sender))

    def enter(self, member: str, *, like: Process) -> None:
        """One more member starts, dynamic: its subscription and habits are another's."""
        topics, patterns = like.wanted
        plan = self._plans[like.settings.client_id]
        habits = replace(plan.habits, callback=0.0)
        self._plans[member] = replace(
            plan, topics=topics, patterns=patterns, instance_id=None, habits=habits
        )
        self._start(member)

    # --- incidents -------------------------------------------------------------------------

    def _happen(self, fault: ft.Fault) -> None:  # noqa: C901, PLR0912  # one case a fault
        if self.surroundings.trace is not None:
            self.surroundings.tell("*", str(fault))
        self._plan_may_be_old |= isinstance(fault, ft.GrowTopic | ft.DeleteTopic | ft.CreateTopic)
        match fault:
            case ft.Start(member=member):
                self._start(member)
            case ft.Redeploy(member=member, strategies=strategies):
                self._plans[member] = replace(self._plans[member], strategies=strategies)
            case ft.GrowTopic(topic=topic, by=by):
                if count := self.cluster.topics.partitions(topic):
                    self.cluster.topics.grow(topic, count + by)
            case ft.DeleteTopic(topic=topic):
                if self.cluster.topics.partitions(topic):
                    self.watcher.reborn.add(topic)
                    self.cluster.delete_topic(topic)
            case ft.CreateTopic(topic=topic, partitions=partitions):
                if not self.cluster.topics.partitions(topic):
                    self.cluster.topics.create(topic, partitions)
            case ft.MoveCoordinator(to=to, loading=loading):
                self._move_coordinator(to, loading)
            case ft.FailBroker():
                self._fail_broker(fault)
            case ft.HoldMetadata(node_id=node_id, seconds=seconds):
                lags = (
                    seconds + self.scenario.timing.metadata_max_age + self.scenario.timing.request
                )
                self.watcher.lags_until(self.agenda.now + lags)
                self.cluster.hold_metadata(node_id)
                self.agenda.after(seconds, self.cluster.release_metadata, node_id)
            case _:
                process = self.processes.get(fault.member)
                if process is not None and process.alive:
                    self._happen_to(process, fault)

    def _happen_to(self, process: Process, fault: ft.MemberFault) -> None:  # noqa: C901, PLR0912  # one case a fault
        match fault:
            case ft.Crash():
                process.end()
            case ft.Stall(seconds=seconds):
                if not process.stalled:
                    process.stall()
                    self.agenda.after(seconds, process.resume)
            case ft.Jump(seconds=seconds):
                process.jump(seconds)
            case ft.SlowPoll(seconds=seconds):
                process.user.work(seconds)
            case ft.SlowCallbacks(seconds=seconds):
                process.user.callback_time = seconds
            case ft.SlowAssignor(seconds=seconds):
                process.assignor_time = seconds
            case ft.Resubscribe(topics=topics, patterns=patterns):
                static = process.settings.instance_id is not None
                if static and not any(process.wanted):
                    process.subscribe(*process.subscribed)
                else:
                    self._plan_may_be_old |= static
                    process.subscribe(topics, patterns)
            case ft.Unsubscribe():
                process.unsubscribe()
            case ft.Close():
                process.run(process.user.close, ())
            case ft.Drain(seconds=seconds):
                if process.hands_over:
                    process.user.drain(seconds)
                else:
                    process.run(process.user.close, ())
            case ft.Enforce():
                process.enforce_rebalance()
            case ft.CommitNow():
                process.run(process.user.commit, ())
            case ft.Cut(lane=lane):
                self.network.cut(process.name, lane=lane)
            case ft.Partition(node_id=node_id, seconds=seconds):
                nodes = self.surroundings.nodes if node_id is None else (node_id,)
                self.network.partition(process.name, nodes)
                self.agenda.after(seconds, self.network.heal, process.name, nodes)
            case ft.SlowNetwork(factor=factor):
                self.network.slow[process.name] = factor
            case _ as never:
                assert_never(never)

    def _start(self, member: str) -> None:
        former = self.processes.get(member)
        if former is not None and former.alive:
            return
        plan, timing = self._plans[member], self.scenario.timing
        self._starts += 1
        settings = MemberSettings(
            group_id=GROUP,
            assignors=tuple(resolve(name) for name in plan.strategies),
            client_id=member,
            instance_id=plan.instance_id,
            session_timeout=timedelta(seconds=timing.session),
            rebalance_timeout=timedelta(seconds=timing.rebalance),
            request_timeout=timedelta(seconds=timing.request),
            heartbeat_interval=(
                None if timing.heartbeat is None else timedelta(seconds=timing.heartbeat)
            ),
            metadata_max_age=timedelta(seconds=timing.metadata_max_age),
            auto_commit=plan.habits.auto_commit_interval is not None,
            seed=self._starts,
        )
        process = Process(
            f"{member}#{self._starts}",
            settings,
            plan.habits,
            self.surroundings,
            seed=f"{self.scenario.seed}/{member}/{self._starts}",
            dialect=DIALECTS[plan.client] if plan.client else None,
        )
        self.processes[member] = self._by_name[process.name] = process
        if former is not None and plan.instance_id is not None:
            process.subscribe(*former.subscribed)
        else:
            process.subscribe(plan.topics, plan.patterns)

    def _led_by_a_peer(self) -> bool:
        group = self.cluster.coordinator.group(GROUP)
        members = () if group is None else group.members
        led = (self._plans[m.client_id] for m in members if group and m.member_id == group.leader)
        return any(plan.client is not None for plan in led)

    # --- brokers ---------------------------------------------------------------------------

    def _move_coordinator(self, to: int | None, loading: float) -> None:
        if to in self.network.down:
            return
        replies = self.cluster.move_coordinator(
            to, self.agenda.now, loading=timedelta(seconds=loading)
        )
        self.network.deliver(replies)

    def _fail_broker(self, fault: ft.FailBroker) -> None:
        node_id = fault.node_id
        if node_id in self.network.down or len(self.network.down) + 1 == self.scenario.brokers:
            return
        self.network.deliver(self.cluster.fail_broker(node_id, self.agenda.now))
        self.network.down.add(node_id)
        self.network.cut_broker(node_id)
        self.agenda.after(fault.seconds, self._restart_broker, node_id)
        self.agenda.after(fault.takeover, self._elect_coordinator)

    def _restart_broker(self, node_id: int) -> None:
        self.network.down.discard(node_id)
        self.cluster.restart_broker(node_id)

    def _elect_coordinator(self) -> None:
        if self.cluster.coordinator_node is None:
            alive = [n for n in self.surroundings.nodes if n not in self.network.down]
            self._move_coordinator(alive[0], 0.0)

    def heal(self) -> None:
        """All faults end at once; who has crashed stays so."""
        self.surroundings.tell("*", "all faults end")
        self.network.slow.clear()
        self.network.heal_all()
        for node_id in tuple(self.network.down):
            self._restart_broker(node_id)
        self._elect_coordinator()
        for node_id in self.surroundings.nodes:
            self.cluster.release_metadata(node_id)
        for process in self.processes.values():
            process.resume()
            process.assignor_time = 0.001
            process.user.callback_time = 0.0
        if len({plan.strategies for plan in self._plans.values()}) > 1:
            # A coordinator that has read the group from its log knows of each member the chosen
            # strategy alone, and refuses whoever lacks that one until the others join again.
            for process in self.processes.values():
                if process.alive and any(process.wanted):
                    process.enforce_rebalance()

    def make_up_for_unseen_changes(self) -> None:
        """Somebody asks for a round, where static members came back and a change may be unseen.

        Nobody does before all have joined: a wish for a round ends with the next JoinGroup.
        """
        wanting = [p for p in self.processes.values() if p.alive and any(p.wanted)]
        if any(p.member.state is not State.STABLE for p in wanting):
            return
        for process in wanting:
            if process.owes_a_round:
                process.owes_a_round = False
                process.enforce_rebalance()
        if not (self._plan_may_be_old or self._led_by_a_peer()):
            return
        replaced = sum(
            isinstance(event, MemberRemoved) and event.cause is Departure.REPLACED
            for event in self.cluster.coordinator.journal(GROUP)
        )
        if replaced > self._made_up_for:
            self._made_up_for = replaced
            for process in wanting:
                process.enforce_rebalance()


def _strategies_differ(scenario: Scenario) -> bool:
    """Whether members have, or come to have, other strategies than the rest."""
    redeploys = any(isinstance(i.fault, ft.Redeploy) for i in scenario.incidents)
    return redeploys or len({plan.strategies for plan in scenario.members.values()}) > 1
