"""One process of a simulated world: a real `Member`, and the driver that carries it out.

The twin of `backend.classic`, effect by effect, with a network in place of sockets and the
agenda in place of the event loop. Between the membership's "thread" and the user's lies a short
random delay, so that a step may begin just before it is withdrawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias, assert_never

from kafka_coop.backend.errands import patience
from kafka_coop.backend.mailbox import Item, Mailbox, TopicErrors
from kafka_coop.broker.hedging import patiences
from kafka_coop.errors import RequestFailedError, RequestTimedOutError
from kafka_coop.leader import lead
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.member import Member
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.membership.states import State
from kafka_coop.protocol.messages import GroupSynced, Node, OffsetCommit
from kafka_coop.simulation.agenda import Job
from kafka_coop.simulation.cluster import ClusterRequest
from kafka_coop.simulation.dialects import Dialect
from kafka_coop.simulation.errands import Errands
from kafka_coop.simulation.network import JOIN_LANE, MAIN_LANE, Answer, Call, OnAnswer
from kafka_coop.simulation.settings import Client
from kafka_coop.simulation.surroundings import Surroundings
from kafka_coop.simulation.user import User, UserHabits
from kafka_coop.types import (
    NO_GENERATION,
    NO_MEMBER_ID,
    NO_PARTITIONS,
    GroupMetadata,
    RebalanceProtocol,
)

_Synced: TypeAlias = GroupSynced | RequestFailedError

_NEVER = float("-inf")
_HALF = 0.5

_AHEAD = 1000.0
"""Seconds. Clocks are no two processes' the same, and none is the agenda's."""

_HOP = 0.0005
"""The longest delay between a process' two threads, seconds."""


class _Watched(Member):
    """A member whose edges are noted."""

    def __init__(self, settings: MemberSettings, edges: set[tuple[State, State]]) -> None:
        super().__init__(settings)
        self._edges = edges

    def _enter(self, state: State) -> None:
        if state is not self.state:
            self._edges.add((self.state, state))
        super()._enter(state)


class Process:
    """A process with one consumer.

    Attributes:
        name: Of this process; a restarted member's next process has another.
        alive: Neither crashed nor ended.
        stalled: Stopped (SIGSTOP): nothing runs, and what comes waits.
        wanted: Topics and patterns of the last subscribe(); none after unsubscribe().
        subscribed: The same, whether it was followed by unsubscribe() or not.
        dialect: How it speaks, where it is another kind of client; None: ours.
    """

    def __init__(
        self,
        name: str,
        settings: MemberSettings,
        habits: UserHabits,
        world: Surroundings,
        *,
        seed: str,
        dialect: Dialect | None = None,
    ) -> None:
        self.name = name
        self.dialect = dialect
        self.settings = settings
        self.member: Member = _Watched(settings, world.watcher.coverage.edges)
        self.mailbox = Mailbox()
        self.world = world
        self.chance = random.Random(seed)  # noqa: S311  # a seed is to give the same run again
        self.alive = True
        self.stalled = False
        self._ahead = _AHEAD * random.Random(f"{seed}/clock").random()  # noqa: S311  # the same
        self.coordinator: Node | None = None
        self.identity = GroupMetadata(group_id=settings.group_id)
        self.commits_open = False
        self.assignor_time = 0.001
        self.wanted: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self.subscribed: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self.errands = Errands(self)
        self.user = User(self, habits)
        self._client = Client(client_id=settings.client_id)
        self._deferred: list[tuple[Job, tuple[Any, ...]]] = []
        self._parked: dict[int, Call] = {}
        self._timer: float | None = None
        self._posted = 0.0
        self._said: tuple[tuple[str, bytes], ...] = ()  # of a peer, in its last JoinGroup
        self.owes_a_round = False  # it claimed what it does not own: the real one would revoke it
        self._had = NO_PARTITIONS  # when it was last in the group
        self._assignors = {a.name: a for a in settings.assignors}

    # --- time ------------------------------------------------------------------------------

    def on_the_agenda(self, time: float) -> float:
        """When it is that its own clock shows this time."""
        return time - self._ahead

    def after(self, delay: float, job: Job, *args: Any) -> None:
        """Calls later, unless the process is gone then; once it runs again, if it is stopped."""
        self.world.agenda.after(delay, self.run, job, args)

    def soon(self, job: Job, *args: Any) -> None:
        """Calls after whatever runs now."""
        self.world.agenda.after(0.0, self.run, job, args)

    def post(self, job: Job, *args: Any) -> None:
        """Calls in the membership's thread, in the order posted."""
        self._posted = max(self._posted, self.world.agenda.now + _HOP * self.chance.random())
        self.world.agenda.at(self._posted, self.run, job, args)

    def hop(self, job: Job, *args: Any) -> None:
        """Calls in the user's thread, a little later."""
        self.world.agenda.after(_HOP * self.chance.random(), self.run, job, args)

    def run(self, job: Job, args: tuple[Any, ...]) -> None:
        """Calls now, as far as the process can."""
        if not self.alive:
            return
        if self.stalled:
            self._deferred.append((job, args))
        else:
            job(*args)

    def stall(self) -> None:
        """SIGSTOP."""
        self.user.freeze()
        self.stalled = True

    def resume(self) -> None:
        """SIGCONT: whatever waits runs at once; which of the two threads comes first is chance."""
        if not self.stalled or not self.alive:
            return
        self.stalled = False
        deferred, self._deferred = self._deferred, []
        if self.chance.random() < _HALF:
            self.user.thaw()
        for job, args in deferred:
            self.run(job, args)
        self.hop(self.user.thaw)

    def jump(self, seconds: float) -> None:
        """Its clock jumps forward: all that it had noted down was so much longer ago.

        The clock counts suspension, and never runs backwards. The agenda's times move instead of
        it: a lease ends so much sooner.
        """
        self._ahead += seconds
        self.mailbox.lease_until -= seconds
        self.user.jump(seconds)
        self.world.watcher.jumped(self)
        self.run(self._set_timer, ())

    def end(self) -> None:
        """The process is gone, however that came about."""
        if not self.alive:
            return
        self.alive = False
        self.world.watcher.gone(self)
        self.world.network.forget(self.name)

    # --- the user's wishes -----------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...], patterns: tuple[str, ...] = ()) -> None:
        """The user subscribes."""
        self.wanted = self.subscribed = (topics, patterns)
        self.user.stop_draining()
        self.post(self._wish, ev.Subscribe(topics=topics, patterns=patterns))

    def unsubscribe(self) -> None:
        """The user unsubscribes."""
        self.wanted = ((), ())
        self.post(self._wish, ev.Unsubscribe())

    def drain(self) -> None:
        """The user asks the group to take over what he owns, and goes on.

        The machine hears of it also where he owns nothing and closes at once: before that.
        """
        self.post(self.handle, ev.Drain())

    @property
    def hands_over(self) -> bool:
        """Whether draining is possible: our own client, in a cooperative group that it wants."""
        cooperative = self.settings.protocol is RebalanceProtocol.COOPERATIVE
        return self.dialect is None and cooperative and any(self.wanted)

    def enforce_rebalance(self) -> None:
        """The user asks for a round."""
        self.post(self._wish, ev.EnforceRebalance(reason="the user asked for a rebalance"))

    def _wish(self, event: ev.Event) -> None:
        """A closed member is asked for nothing: the façade refuses."""
        if not self.user.closing:
            self.handle(event)

    # --- the machine -----------------------------------------------------------------------

    def handle(self, event: ev.Event, at_least: float = _NEVER) -> None:
        """Gives the machine an event, by the process' own clock, and carries out its answer."""
        now = max(self.world.agenda.now + self._ahead, at_least)
        self.world.watcher.handled(self, event)
        owned = self.member.owned
        self._give(ev.Polled(at=self.user.last_poll() + self._ahead), now)
        self._give(event, now)
        if self.member.generation != NO_GENERATION:
            self._had = self.member.owned
        if self.member.owned is not owned:
            self.errands.disown(owned - self.member.owned)
        self._set_timer()

    def _give(self, event: ev.Event, now: float) -> None:
        state = self.member.state
        for effect in self.member.handle(event, now):
            self._carry_out(effect)
        self.world.watcher.coverage.cells.add((state, type(event)))

    def _set_timer(self) -> None:
        """One timer is enough: it looks again when it goes off early."""
        deadline = self.member.next_deadline()
        if deadline is None:
            return
        deadline -= self._ahead
        if self._timer is None or deadline < self._timer:
            self._timer = max(deadline, self.world.agenda.now)
            self.world.agenda.at(self._timer, self.run, self._tick, (self._timer,))

    def _tick(self, timer: float) -> None:
        if timer != self._timer:
            return
        self._timer = None
        deadline = self.member.next_deadline()
        if deadline is not None and deadline - self._ahead <= self.world.agenda.now:
            # To subtract and to add again is not exact: it must not be a moment too early.
            self.handle(ev.Tick(), at_least=deadline)
        else:
            self._set_timer()

    def _carry_out(self, effect: ef.Effect) -> None:  # noqa: C901, PLR0912  # one case an effect
        self.world.watcher.effect(self, effect)
        match effect:
            case ef.SendHeartbeat(token=token):
                self._beat(effect, lambda a: ev.HeartbeatAnswered(token=token, answer=a))
            case ef.HeartbeatObserved():
                pass
            case ef.ExtendLease(until=until):
                self.mailbox.lease_until = self.on_the_agenda(until)
            case ef.EndLease():
                self.mailbox.lease_until = float("-inf")
            case ef.OfferStep(step=step):
                self.put(step)
            case ef.WithdrawStep(step_id=step_id):
                if self.mailbox.withdraw(step_id):
                    # Not at once: the effects that follow this one come first.
                    self.soon(self.handle, ev.StepWithdrawn(step_id=step_id))
            case ef.SendJoin(token=token):
                self._parked[token] = self._ask_node(
                    self._translated(effect),
                    lambda a: ev.JoinAnswered(token=token, answer=a),
                    JOIN_LANE,
                )
            case ef.AbortParked(token=token):
                call = self._parked.pop(token, None)
                if call is not None:
                    self.world.network.abort(call)
            case ef.SendSync(token=token):
                self._parked[token] = self._ask_node(
                    self._translated(effect),
                    lambda a: ev.SyncAnswered(token=token, answer=self._understood(a)),
                    JOIN_LANE,
                )
            case ef.SendLeave(token=token):
                self._ask_node(effect, lambda a: ev.LeaveAnswered(token=token, answer=a))
            case ef.SendFindCoordinator(token=token, request=request):
                self._ask_any(request, lambda a: ev.CoordinatorAnswered(token=token, answer=a))
            case ef.SendMetadata(token=token, request=request):
                self._ask_any(request, lambda a: ev.MetadataAnswered(token=token, answer=a))
            case ef.RunAssignor():
                self._lead(effect)
            case ef.CoordinatorChanged(node=node):
                self.coordinator = node
                self.errands.standing_changed()
            case ef.IdentityChanged(metadata=metadata, commits_open=commits_open):
                self.identity, self.commits_open = metadata, commits_open
                self.errands.standing_changed()
            case ef.PrefetchOffsets(partitions=partitions, generation=generation):
                self.soon(self.errands.find_starts, partitions, generation)
            case ef.ReportTopicErrors(errors=errors):
                self.put(TopicErrors(errors=errors))
            case ef.Announce():
                pass
            case ef.Left():
                self.mailbox.set_left()
                self.user.wake_up()
            case _ as never:
                assert_never(never)

    def _translated(self, effect: ef.SendJoin | ef.SendSync) -> ef.SendJoin | ef.SendSync:
        """As the kind of client says it that this one is."""
        if self.dialect is None:
            return effect
        if isinstance(effect, ef.SendSync):
            return replace(effect, request=self.dialect.sync(effect.request))
        said = self.dialect.join(effect.request, self.member.generation, self._had)
        out = self.member.generation == NO_GENERATION
        self.owes_a_round |= out and self.dialect.stale_claims and bool(self._had)
        if out and said.instance_id is not None and said.protocols == self._said:
            # Peers forget their ids when they have polled too late. With the id and bytes that it
            # knows, the coordinator would answer at once, and count from the last heartbeat on.
            said = replace(said, member_id=NO_MEMBER_ID)
        self._said = said.protocols
        return replace(effect, request=said)

    def _understood(self, answer: _Synced) -> _Synced:
        if self.dialect is None or isinstance(answer, RequestFailedError):
            return answer
        return self.dialect.synced(answer)

    def put(self, item: Item) -> None:
        """Leaves something for the user's thread."""
        self.mailbox.put(item)
        self.user.wake_up()

    def _lead(self, effect: ef.RunAssignor) -> None:
        outcome = lead(
            self._assignors[effect.protocol_name],
            effect.cluster,
            effect.members,
            instance_ids=effect.instance_ids,
            leader=effect.leader,
            generation=effect.generation,
            recalled=effect.recalled,
            announced=effect.announced,
        )
        self.world.watcher.led(self, None if outcome.error is None else str(outcome.error))
        done = ev.AssignmentComputed(
            token=effect.token,
            assignments=dict(outcome.assignments),
            duration=timedelta(seconds=self.assignor_time),
            error=outcome.error,
            figures=outcome.figures,
        )
        self.after(self.assignor_time, self.handle, done)

    # --- requests --------------------------------------------------------------------------

    def ask(
        self,
        node_id: int,
        request: ClusterRequest,
        on_answer: OnAnswer,
        *,
        lane: str = MAIN_LANE,
        timeout: timedelta | None = None,
    ) -> Call:
        """Sends a request to a broker; the answer, or a failure, comes back in time."""
        if isinstance(request, OffsetCommit):
            self.world.watcher.committing(self, request)
        return self.world.network.send(
            self._client,
            self.chance,
            node_id,
            lane,
            request,
            sender=self.name,
            timeout=(timeout or self.settings.request_timeout).total_seconds(),
            on_answer=lambda answer: self.run(on_answer, (answer,)),
        )

    def _beat(self, effect: ef.SendHeartbeat, event: Callable[[Any], ev.Event]) -> None:
        """Where it waits for nothing: the twin of `broker.pool.Brokers.ask_node`."""
        network, node_id = self.world.network, effect.node.node_id
        main, other = (network.waiting(self.name, node_id, lane) for lane in (MAIN_LANE, JOIN_LANE))
        if not main or other != 0:
            self._ask_node(effect, event)
            return

        def concluded(answer: Any) -> ev.Event:
            if isinstance(answer, RequestTimedOutError):
                network.drop(self.name, node_id, MAIN_LANE)
            return event(answer)

        self._ask_node(effect, concluded, JOIN_LANE)

    def _ask_node(
        self,
        effect: ef.SendJoin | ef.SendSync | ef.SendHeartbeat | ef.SendLeave,
        event: Callable[[Any], ev.Event],
        lane: str = MAIN_LANE,
    ) -> Call:
        return self.ask(
            effect.node.node_id,
            effect.request,
            lambda answer: self.handle(event(answer)),
            lane=lane,
            timeout=effect.timeout,
        )

    def _ask_any(self, request: ClusterRequest, event: Callable[[Any], ev.Event]) -> None:
        """Each broker once, in random order, until one answers; the next beside one that is silent.

        The twin of `broker.pool.Brokers.request_any`.
        """
        nodes = list(self.world.nodes)
        self.chance.shuffle(nodes)
        limit = patience(self.settings)
        growing = patiences(limit.total_seconds())
        wait = next(growing)
        under_way, answered = 0, False

        def attempt() -> None:
            nonlocal under_way
            under_way += 1
            self.ask(nodes.pop(), request, take, timeout=limit)
            if nodes:
                self.after(wait, lose_patience, len(nodes))

        def lose_patience(untried: int) -> None:
            nonlocal wait
            if not answered and len(nodes) == untried:
                wait = next(growing)
                attempt()

        def take(answer: Answer) -> None:
            nonlocal under_way, answered
            under_way -= 1
            if answered:
                return
            failed = isinstance(answer, RequestFailedError)
            if failed and nodes:
                attempt()
            elif not failed or not under_way:
                answered = True
                self.handle(event(answer))

        attempt()
