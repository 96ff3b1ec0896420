"""The classic protocol's backend: a thread that runs the state machine over sockets.

One thread, one event loop. Whatever happens becomes an event, the machine answers with
effects, and `_carry_out` has one case an effect: it sends, or hands over to the user's thread
through the mailbox, and decides nothing.

The thread needs the interpreter to run. User code that holds the GIL for seconds (a C
extension that does not release it) silences heartbeats for as long; beyond
``session.timeout.ms`` the group goes on without this member, whose lease has ended by then, so
that no partition has two owners.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar, assert_never

from kafka_coop.backend import clock
from kafka_coop.backend.ahead import Ahead
from kafka_coop.backend.bell import Bell
from kafka_coop.backend.errand_runner import ErrandRunner
from kafka_coop.backend.errands import Errand, Errands, Surroundings, patience
from kafka_coop.backend.interface import Observer
from kafka_coop.backend.mailbox import Mailbox, TopicErrors
from kafka_coop.backend.promises import NOT_HERE, Promise, keep, refused
from kafka_coop.backend.silence import Silence
from kafka_coop.backend.standing import Standing
from kafka_coop.broker.blocking import run_blocking
from kafka_coop.broker.event_loop import run_in_own_loop
from kafka_coop.broker.pool import JOIN_LANE, Brokers
from kafka_coop.broker.wire import Behind
from kafka_coop.config import ConsumerConfig
from kafka_coop.errors import ConnectionFailedError, Failure, RequestFailedError
from kafka_coop.leader import is_brief, lead
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.failures import LOCAL_FAIL
from kafka_coop.membership.member import Member
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.printable import shown
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    ClusterMetadata,
    FetchedOffset,
    Node,
    OffsetAndMetadata,
    Request,
    Response,
)
from kafka_coop.types import (
    Generation,
    GroupMetadata,
    Partitions,
    RebalanceProtocol,
    TopicPartition,
)
from kafka_coop.watchdog.guard import Guard

T = TypeVar("T")

_A_TURN = 0.02
"""Seconds that another thread waits, at most, for the membership's to do what it was asked for."""

_DESCRIBE_GROUPS: Final = 15

_AFTER_A_BUG = 1.0
"""Seconds until time goes on: what raised may raise at the same moment again."""

_MOST_SAID = 4000
"""Characters of a warning, which may name topics that other members made up."""


class ClassicBackend:
    """Implements `kafka_coop.backend.interface.Backend`."""

    def __init__(
        self,
        config: ConsumerConfig,
        settings: MemberSettings,
        *,
        observer: Observer,
        logger: logging.Logger,
    ) -> None:
        self.mailbox = Mailbox()
        self._config = config
        self._settings = settings
        self._observer = observer
        self._log = logger
        self._member = Member(settings)
        self._standing = Standing(settings.group_id)
        self._brokers = Brokers(config.connection)
        self._errands: Errands | None = None
        self._runner = ErrandRunner(
            brokers=self._brokers,
            standing=self._standing,
            request_timeout=patience(settings),
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._promises: set[Promise[Any]] = set()
        self._parked: dict[int, tuple[asyncio.Task[None], Node]] = {}
        self._ahead: Ahead | None = None
        self._assignors = {a.name: a for a in settings.assignors}
        self._identity = self._standing.identity
        self._told_poll = float("-inf")
        self._abandoned: Callable[[], None] | None = None
        self._guard = Guard(config.connection, logger) if config.watchdog else None
        self._silence = Silence(settings.group_id, logger)
        self._thread = threading.Thread(
            target=self._run, name=f"kafka-coop-{settings.group_id}", daemon=True
        )

    # --- any thread ------------------------------------------------------------------------

    def start(self, attend: Callable[[], None]) -> None:  # noqa: ARG002  # polls attend to it
        """See `Backend.start`."""
        if self._guard is not None:
            self._guard.start()
        self._thread.start()
        self._ready.wait()

    def subscribe(self, topics: tuple[str, ...], patterns: tuple[str, ...]) -> None:
        """See `Backend.subscribe`."""
        # What is subscribed to by name need not wait for a coordinator: the first poll has
        # librdkafka ask for it while the member is still to join.
        self.mailbox.topics = topics
        self._post(ev.Subscribe(topics=topics, patterns=patterns))

    def unsubscribe(self) -> None:
        """See `Backend.unsubscribe`."""
        self._post(ev.Unsubscribe())

    def drain(self) -> bool:
        """See `Backend.drain`."""
        self._post(ev.Drain())
        return self._settings.protocol is RebalanceProtocol.COOPERATIVE

    def enforce_rebalance(self, reason: str) -> None:
        """See `Backend.enforce_rebalance`."""
        self._post(ev.EnforceRebalance(reason=reason))

    def step_done(self, done: ev.StepDone) -> None:
        """See `Backend.step_done`."""
        self._post(done)

    def begin_close(self) -> None:
        """See `Backend.begin_close`."""
        self._post(ev.Close())

    def metadata(self) -> GroupMetadata:
        """See `Backend.metadata`."""
        return self._identity

    def last_known(self) -> GroupMetadata:
        """See `Backend.last_known`."""
        return self._identity

    def vouched(self) -> GroupMetadata:
        """See `Backend.vouched`. A value that never changes: any thread may take it."""
        return self._member.vouched

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """See `Backend.set_sasl_credentials`."""
        self._call(lambda: self._brokers.set_sasl_credentials(username, password))
        if self._guard is not None:
            guard = self._guard
            self._call(lambda: guard.credentials(username, password))

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: timedelta
    ) -> Promise[dict[TopicPartition, ErrorCode]]:
        """See `Backend.commit`."""
        return self._submit(lambda errands: self._commit(errands, offsets, timeout))

    def let_commits_in(self) -> None:
        """See `Backend.let_commits_in`. The membership's thread sends them, once it gets to run."""
        sent = Bell()
        # What was submitted begins one turn of the loop after it is heard of.
        if self._call(lambda: asyncio.get_running_loop().call_soon(sent.ring)):
            sent.wait(_A_TURN)

    def committed(
        self, partitions: Partitions, timeout: timedelta
    ) -> Promise[dict[TopicPartition, FetchedOffset]]:
        """See `Backend.committed`."""
        return self._submit(
            lambda errands: self._run_errand(errands.committed(partitions), timeout)
        )

    def find_starts(
        self,
        partitions: Partitions,
        generation: Generation,
        still_wanted: Callable[[Partitions], Partitions],
    ) -> None:
        """See `Backend.find_starts`."""
        self._submit(
            lambda errands: self._run_errand(
                errands.find_starts(
                    partitions, generation, still_wanted=still_wanted, must_exist=True
                )
            )
        )

    def abandon(self, ended: Callable[[], None]) -> None:
        """See `Backend.abandon`."""
        self._call(lambda: self._leave_alone(ended))

    def stop(self, timeout: timedelta) -> None:
        """See `Backend.stop`."""
        self._call(lambda: self._stopping.set() if self._stopping is not None else None)
        try:
            if self._thread.is_alive():
                self._thread.join(timeout.total_seconds())
        finally:
            if self._guard is not None:
                self._guard.close()

    def _post(self, event: ev.Event) -> None:
        self._call(lambda: self._handle(event))

    def _call(self, what: Callable[[], object]) -> bool:
        loop = self._loop
        if loop is None or loop.is_closed():
            return False
        try:
            loop.call_soon_threadsafe(what)
        except RuntimeError:  # closed between the look and the call
            return False
        return True

    def _submit(self, work: Callable[[Errands], Coroutine[Any, Any, T]]) -> Promise[T]:
        errands = self._errands
        if errands is None:
            return refused()
        if threading.current_thread() is self._thread:
            return refused(NOT_HERE)
        promise: Promise[T] = Promise()
        self._promises.add(promise)
        if not self._call(lambda: self._begin(promise, work(errands))):
            self._promises.discard(promise)
            return refused()
        return promise

    def _begin(self, promise: Promise[T], work: Coroutine[Any, Any, T]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(partial(keep, promise))
        task.add_done_callback(lambda _: self._promises.discard(promise))
        promise.when_cancelled(lambda: self._call(task.cancel))

    # --- the membership thread -------------------------------------------------------------

    def _run(self) -> None:
        try:
            run_in_own_loop(self._main())
        except BaseException:
            self._log.exception("the membership thread of group %s died", self._settings.group_id)
            raise
        finally:
            self._ready.set()
            self.mailbox.lease_until = float("-inf")
            self.mailbox.set_left()
            for promise in tuple(self._promises):  # asked for too late: the loop has not come to it
                promise.cancel()
            if self._abandoned is not None:
                if self._guard is not None:
                    self._guard.close()
                self._abandoned()

    async def _main(self) -> None:
        self._stopping = asyncio.Event()
        self._errands = Errands(
            Surroundings(
                standing=self._standing,
                settings=self._settings,
                reset=self._config.offset_reset,
                read_committed=self._config.read_committed,
                tell=self._handle,
                owns=self._member.owns,
                giving_up=lambda: self._member.giving_up,
                going=lambda: self._member.going,
                found=self.mailbox.put,
                wake=self._standing.changed,
            )
        )
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        try:
            await self._stopping.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._brokers.close()

    def _leave_alone(self, ended: Callable[[], None]) -> None:
        self._abandoned = ended
        for item in tuple(self.mailbox.items):
            if isinstance(item, ef.Step):
                self._handle(ev.StepDone(step_id=item.step_id))
        self._handle(ev.Close())

    def _handle(self, event: ev.Event) -> None:
        """Gives the machine an event and carries out what it answers.

        It never raises. Should it do so all the same, the user hears of it, and time goes on.
        """
        try:
            self._react(event)
        except Exception as error:  # noqa: BLE001  # asyncio would log it, and poll wait for ever
            self._raise_from_poll(error)
            self._set_timer(earliest=_AFTER_A_BUG)

    def _raise_from_poll(self, error: Exception) -> None:
        text = f"a bug in the membership, see the log: {error!r}"
        failure = Failure(code=LOCAL_FAIL, message=text, retriable=False, cause=error)
        self.mailbox.put(ef.Step(step_id=0, actions=(ef.RaiseError(failure=failure),)))
        self._tell_of_a_bug(error)

    def _react(self, event: ev.Event) -> None:
        now = clock.now()
        owned = self._member.owned
        if isinstance(event, ev.JoinAnswered):
            why_not = event.answer if isinstance(event.answer, RequestFailedError) else None
            self._silence.joined(why_not, self._standing.coordinator)
        if self.mailbox.last_poll != self._told_poll:
            self._told_poll = self.mailbox.last_poll
            polled = ev.Polled(at=self._told_poll, delivered_at=self.mailbox.last_delivery)
            for effect in self._member.handle(polled, now):
                self._carry_out(effect)
        for effect in self._member.handle(event, now):
            self._carry_out(effect)
        if self._member.owned is not owned and self._errands is not None:
            self._errands.disown(owned - self._member.owned)
        self.mailbox.expecting = self._member.expecting
        self.mailbox.wants_to_join = self._member.wants_to_join
        self.mailbox.news_every = self._member.news_every
        self._silence.look(
            now,
            lease_until=self.mailbox.lease_until,
            owns=bool(self._member.owned),
            coordinator=self._standing.coordinator,
        )
        self._set_timer()

    def _set_timer(self, *, earliest: float = 0.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._member.next_deadline()
        if deadline is not None and self._loop is not None:
            delay = max(earliest, deadline - clock.now())
            self._timer = self._loop.call_later(delay, self._handle, ev.Tick())

    def _carry_out(self, effect: ef.Effect) -> None:  # noqa: C901, PLR0912  # one case an effect
        match effect:
            case ef.OfferStep(step=step):
                self._offer(step)
            case ef.WithdrawStep(step_id=step_id):
                self._withdraw(step_id)
            case ef.SendFindCoordinator(token=token, request=request):
                self._ask_any(request, lambda a: ev.CoordinatorAnswered(token=token, answer=a))
            case ef.SendMetadata(token=token, request=request):
                self._ask_any(request, lambda a: ev.MetadataAnswered(token=token, answer=a))
            case ef.SendJoin(token=token, node=node):
                self.mailbox.topics = self._member.topics
                self._parked[token] = (
                    self._ask(effect, lambda a: ev.JoinAnswered(token=token, answer=a), JOIN_LANE),
                    node,
                )
            case ef.AbortParked(token=token):
                self._abort_parked(token)
            case ef.SendSync():
                self._sync(effect)
            case ef.SendHeartbeat():
                self._beat(effect)
            case ef.SendLeave(token=token):
                self._ask(effect, lambda a: ev.LeaveAnswered(token=token, answer=a))
            case ef.RunAssignor():
                self._spawn(self._lead_or_tell(effect))
            case ef.CoordinatorChanged(node=node):
                self._standing.coordinator = node
                if self._guard is not None:
                    self._guard.coordinator(node)
                self._standing.changed()
            case ef.IdentityChanged(metadata=metadata, commits_open=commits_open):
                self._identity = self._standing.identity = metadata
                if self._guard is not None:
                    self._guard.identity(metadata)
                self._standing.commits_open = commits_open
                self._standing.changed()
            case ef.ExtendLease(until=until):
                self.mailbox.lease_until = until
            case ef.EndLease():
                self.mailbox.lease_until = float("-inf")
            case ef.PrefetchOffsets():
                self._spawn(self._find_starts(effect))
            case ef.ReportTopicErrors(errors=errors):
                self.mailbox.put(TopicErrors(errors=errors))
            case ef.Announce(record=record):
                self._observer.rebalance(record)
            case ef.HeartbeatObserved(latency=latency):
                self._observer.heartbeat(latency)
            case ef.Left():
                self._leave()
            case _:
                assert_never(effect)

    # --- carrying out ----------------------------------------------------------------------

    def _offer(self, step: ef.Step) -> None:
        self.mailbox.put(step)
        if self._abandoned is not None and self._loop is not None:
            self._loop.call_soon(self._handle, ev.StepDone(step_id=step.step_id))

    def _leave(self) -> None:
        self.mailbox.set_left()
        if self._abandoned is not None and self._stopping is not None:
            self._stopping.set()

    def _withdraw(self, step_id: int) -> None:
        if self.mailbox.withdraw(step_id) and self._loop is not None:
            # Not at once: the effects that follow this one come first.
            self._loop.call_soon(self._handle, ev.StepWithdrawn(step_id=step_id))

    def _ask_any(self, request: Request, event: Callable[[Any], ev.Event]) -> None:
        self._spawn(
            self._answer(
                lambda: self._brokers.request_any(request, timeout=patience(self._settings)),
                event,
            )
        )

    def _ask(
        self,
        effect: ef.SendJoin | ef.SendSync | ef.SendHeartbeat | ef.SendLeave,
        event: Callable[[Any], ev.Event],
        lane: str = "main",
        behind: Behind | None = None,
    ) -> asyncio.Task[None]:
        return self._spawn(
            self._answer(
                lambda: self._brokers.request_node(
                    effect.node, effect.request, lane=lane, timeout=effect.timeout, behind=behind
                ),
                event,
            )
        )

    def _sync(self, effect: ef.SendSync) -> None:
        """What its answer may bring is looked up behind it."""
        self._ahead = Ahead(self._settings.group_id, effect.request.generation, effect.ahead)

        def event(answer: Any) -> ev.Event:
            return ev.SyncAnswered(token=effect.token, answer=answer)

        asked = self._ask(effect, event, JOIN_LANE, self._ahead.behind)
        self._parked[effect.token] = asked, effect.node

    def _beat(self, effect: ef.SendHeartbeat) -> None:
        """Without a task where a connection stands: beats are what an idle member costs."""

        def event(answer: Any) -> ev.Event:
            return ev.HeartbeatAnswered(token=effect.token, answer=answer)

        if not self._brokers.ask_node(
            effect.node,
            effect.request,
            timeout=effect.timeout,
            answered=lambda answer: self._handle(event(answer)),
        ):
            self._ask(effect, event)

    async def _answer(
        self, ask: Callable[[], Coroutine[Any, Any, Response]], event: Callable[[Any], ev.Event]
    ) -> None:
        """Whatever comes of a request comes back to the machine as an event.

        It is begun in here: a task may be cancelled before it runs for the first time.
        """
        answer: Response | RequestFailedError
        try:
            answer = await ask()
        except RequestFailedError as error:
            answer = error
        except Exception as error:  # noqa: BLE001  # a machine that is not told waits for ever
            self._tell_of_a_bug(error)
            answer = RequestFailedError(f"a bug, see the log: {error!r}")
        if isinstance(answer, ClusterMetadata):
            self._brokers.learn(answer)
        self._handle(event(answer))

    def _abort_parked(self, token: int) -> None:
        """A connection is freed of what is parked on it by closing it, and in no other way."""
        task, node = self._parked.pop(token, (None, None))
        if task is not None and node is not None and not task.done():
            task.cancel()
            self._brokers.drop(node, JOIN_LANE)

    async def _lead_or_tell(self, effect: ef.RunAssignor) -> None:
        """Without a plan the whole group waits for this member, whose user can close it."""
        try:
            await self._lead(effect)
        except Exception as error:  # noqa: BLE001  # a bug, then: what a strategy raises is caught
            self._raise_from_poll(error)

    def _takes_commits_while_members_join(self) -> bool:
        """Kafka's coordinators do, and know DescribeGroups, from 0.9 on.

        librdkafka's mock, and so the embedded broker, does neither: what somebody is to give up
        could not be committed once the others have gone ahead.
        """
        node = self._standing.coordinator
        return node is not None and self._brokers.knows(node, _DESCRIBE_GROUPS)

    async def _lead(self, effect: ef.RunAssignor) -> None:
        """Runs the assignor in a thread of its own: heartbeats go on however long it takes.

        Where it takes next to nothing it runs here: a thread's start, and two turns at waiting for
        the interpreter, would be most of what a small group's plan costs, and part of every gap.

        Nobody waits for the thread: with the loop's executor, `close` while a strategy was at work
        would take all its patience, and the interpreter could not end before the strategy did.
        """
        started = time.perf_counter()
        assignor = self._assignors[effect.protocol_name]
        run = partial(
            lead,
            assignor,
            effect.cluster,
            effect.members,
            instance_ids=effect.instance_ids,
            leader=effect.leader,
            generation=effect.generation,
            recalled=effect.recalled,
            announced=effect.announced,
            commits_while_joining=self._takes_commits_while_members_join(),
            interruptible=False,
        )
        if is_brief(assignor, effect.cluster, effect.members):
            outcome = run()
        else:
            try:
                outcome = await run_blocking(run, name="kafka_coop-assign")
            except ConnectionFailedError:  # no thread is to be had, and the group waits
                outcome = run()
        for warning in outcome.warnings:
            text = shown(warning[:_MOST_SAID])
            self._log.warning("group %s: %s", self._settings.group_id, text)
        self._handle(
            ev.AssignmentComputed(
                token=effect.token,
                assignments=dict(outcome.assignments),
                duration=timedelta(seconds=time.perf_counter() - started),
                error=outcome.error,
                figures=outcome.figures,
            )
        )

    async def _find_starts(self, effect: ef.PrefetchOffsets) -> None:
        assert self._errands is not None
        generation, ahead = effect.generation, None
        if effect.ahead and self._ahead is not None and self._ahead.generation == generation:
            ahead = await self._ahead.answer()

        def still_wanted(some: Partitions) -> Partitions:
            """In the generation that gave them they may not be adopted yet."""
            member = self._member
            return some if member.generation == generation else some & member.owned

        errand = self._errands.find_starts(
            effect.partitions, generation, still_wanted=still_wanted, ahead=ahead
        )
        await self._run_errand(errand)

    async def _commit(
        self,
        errands: Errands,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        within: timedelta,
    ) -> dict[TopicPartition, ErrorCode]:
        started = time.perf_counter()
        results = await self._run_errand(errands.commit(offsets), within)
        self._observer.commit(timedelta(seconds=time.perf_counter() - started), results)
        return results

    async def _run_errand(self, errand: Errand[T], within: timedelta | None = None) -> T:
        return await self._runner.run(errand, within)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        for token in [t for t, (parked, _) in self._parked.items() if parked is task]:
            del self._parked[token]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell_of_a_bug(error)

    def _tell_of_a_bug(self, error: BaseException) -> None:
        self._log.error("a bug in the membership of %s", self._settings.group_id, exc_info=error)
