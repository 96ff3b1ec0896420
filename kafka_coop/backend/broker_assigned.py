"""KIP-848's backend: librdkafka is the member, and the broker assigns.

A rebalance is a callback of librdkafka's inside poll. It is told as the same steps that the
classic member's are made of, and carried out before the callback returns: whatever is assigned
or taken away there is acknowledged to the broker on the way out.

confluent-kafka lets one thread at a time into a consumer, and whoever waits may wait for as long
as another one polls. So commits and queries wait for their turn with the consumer's fair lock, in
a thread of their own (`kafka_coop.backend.jobs`); a thread that holds that lock itself, for it is
in a rebalance, in another callback inside librdkafka or in a signal handler that interrupts a poll,
runs them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NoReturn, TypeAlias

from confluent_kafka import KafkaException

from kafka_coop.backend.inquiry import Inquiry
from kafka_coop.backend.interface import Observer
from kafka_coop.backend.jobs import LONGEST_LOOK, LOOK, Jobs, Later, Lock
from kafka_coop.backend.late_starts import LateStarts
from kafka_coop.backend.mailbox import Mailbox, newly_found
from kafka_coop.backend.promises import Promise
from kafka_coop.config import ConsumerConfig
from kafka_coop.errors import RequestFailedError, RequestTimedOutError, VersionNotSupportedError
from kafka_coop.fetching.group_fetcher import GroupFetcher
from kafka_coop.fetching.group_starts import UNHEARD
from kafka_coop.membership.effects import RaiseError, Step
from kafka_coop.membership.events import StepDone
from kafka_coop.membership.failures import failure_of_exception
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.membership.steps import GivingUp, gain, lose, revoke
from kafka_coop.offsets.commits import Commit
from kafka_coop.offsets.starts import Starts
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, OffsetAndMetadata
from kafka_coop.types import (
    NO_GENERATION,
    NO_PARTITIONS,
    Generation,
    GroupMetadata,
    Partitions,
    TopicPartition,
)

_LOOK_UP = timedelta(seconds=1)
"""For a question where to start. What is kept is not polled while it is asked in a rebalance."""

_Told: TypeAlias = dict[TopicPartition, FetchedOffset]


class BrokerAssignedBackend:
    """Implements `kafka_coop.backend.interface.Backend`."""

    def __init__(
        self,
        config: ConsumerConfig,
        fetcher: GroupFetcher,
        *,
        lock: Lock,
        observer: Observer,
        logger: logging.Logger,
    ) -> None:
        self.mailbox = Mailbox()
        self.mailbox.lease_until = float("inf")  # librdkafka guards what it owns
        self._config = config
        self._fetcher = fetcher
        self._lock = lock
        self._observer = observer
        self._log = logger
        self._identity = GroupMetadata(group_id=config.group_id, instance_id=config.instance_id)
        self._record = RebalanceRecord(group_id=config.group_id, client_id=config.client_id)
        self._owned = NO_PARTITIONS
        self._coming = NO_PARTITIONS
        """What is owned as soon as the user can be told of it."""
        self._under_way: _UnderWay | None = None
        self._giving_up = GivingUp()
        """What the user is told of at the moment."""
        self._given: frozenset[str] = frozenset()
        """Topics of which the group has given us something."""
        self._unsubscribed = False
        self._unwanted = NO_PARTITIONS
        """What `unsubscribe` gives up. Nothing is auto-committed for it."""
        self._steps = 0
        self._spent: StepDone | None = None
        self._attend: Callable[[], None] = lambda: None
        name = f"kafka-coop-{config.group_id}"
        self._jobs = Jobs(lock, fetcher.hears, name)
        self._late_starts = LateStarts(fetcher.aside, self.mailbox.put, f"{name}-starts", logger)
        self._inquiry = Inquiry(config.connection, self._learned)
        self._inquired = False

    # --- the group --------------------------------------------------------------------------

    def start(self, attend: Callable[[], None]) -> None:
        """See `Backend.start`."""
        self._attend = attend
        self._jobs.start()

    def subscribe(self, topics: tuple[str, ...], patterns: tuple[str, ...]) -> None:
        """See `Backend.subscribe`. The broker matches patterns, as Google's RE2 reads them."""
        if not self._inquired:
            self._inquired = self.mailbox.expecting = True
            self._inquiry.start()
        with self._lock:
            self._fetcher.subscribe(
                [*topics, *patterns],
                assigned=self._assigned,
                revoked=self._revoked,
                lost=self._lost,
            )
            self._unsubscribed = False

    def unsubscribe(self) -> None:
        """See `Backend.unsubscribe`."""
        with self._lock:
            self._fetcher.unsubscribe()
            self._unsubscribed, self._unwanted = True, self._owned | self._coming

    def drain(self) -> bool:
        """See `Backend.drain`."""
        return False

    def enforce_rebalance(self, reason: str) -> None:
        """Nothing: as in Java's client, the broker alone decides of rebalances."""
        self._log.warning(
            "enforce_rebalance(%r) does nothing with group.protocol=consumer: the broker decides",
            reason,
        )

    def step_done(self, done: StepDone) -> None:
        """See `Backend.step_done`."""
        if done.step_id:  # else what the inquiry has learned
            self._spent = done

    def metadata(self) -> GroupMetadata:
        """See `Backend.metadata`."""
        return _standing(self.vouched())

    def last_known(self) -> GroupMetadata:
        """See `Backend.last_known`. Heard of with each rebalance, and whenever one asks."""
        return _standing(self._identity)

    def vouched(self) -> GroupMetadata:
        """See `Backend.vouched`. What librdkafka vouches for: it is the member."""
        if not self.mailbox.left:
            with self._lock:
                self._identify()
        return self._identity

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Nothing: librdkafka, the only one to log in, was told by whoever calls."""

    def begin_close(self) -> None:
        """See `Backend.begin_close`. Here it has left when this returns."""
        try:
            with self._lock:
                self._jobs.close(next((of.topic for of in self._owned), None))
        finally:
            self._leave()  # a Ctrl-C until here is to cost nothing that is committed in on_revoke

    def _leave(self) -> None:
        try:
            with self._lock:
                self._fetcher.leave(lambda: bool(self._owned))
        finally:
            self.mailbox.set_left()

    def abandon(self, ended: Callable[[], None]) -> None:
        """Never called: this backend's thread holds what librdkafka calls, and so the consumer."""

    def stop(self, timeout: timedelta) -> None:
        """See `Backend.stop`."""
        deadline = time.monotonic() + timeout.total_seconds()
        self._inquiry.end()
        self._late_starts.end()
        self._jobs.stop(timeout)
        for thread in (self._inquiry, self._late_starts):
            thread.join(timedelta(seconds=max(0.0, deadline - time.monotonic())))

    def _learned(self, why_not: VersionNotSupportedError | None) -> None:
        """By the inquiry's thread. librdkafka looks on: brokers may be upgraded under it.

        Who has been assigned something is a member, whatever one broker says.
        """
        if why_not is not None and not self._steps:
            failure = failure_of_exception(why_not)
            self.mailbox.put(Step(step_id=0, actions=(RaiseError(failure=failure),)))
        self.mailbox.expecting = False

    # --- rebalances: the polling thread, inside librdkafka -------------------------------------
    #
    # A Ctrl-C may strike anywhere in here, and the fetcher tells once more then. So a rebalance
    # counts from one assignment on, that of `_under_way`, and all that comes after may be done
    # again.

    def _assigned(self, given: Partitions) -> None:
        self._book()
        struck = self._gain(added) if (added := given - self._owned) else None
        self._carry_out()
        if struck is not None:
            raise struck

    def _gain(self, added: Partitions) -> BaseException | None:
        """Returns: What struck while it was asked where to start; that is found later, then."""
        self._inquiry.end()
        step_id = self._steps + 1
        epoch = Generation(step_id)  # for starts and ownership to match, no more
        search = Starts(reset=self._config.offset_reset, unfetched=added)
        struck = None
        try:
            self._fetcher.look_up(search, _LOOK_UP)
        except BaseException as error:  # noqa: BLE001  # raised when the rebalance is carried out
            struck = error
        self._coming = added
        self._tell_starts(search, epoch, self._still_owned)
        self._given |= frozenset(added.topics())
        self._under_way = _UnderWay(
            step=Step(step_id=step_id, actions=gain(added, epoch)),
            owned=self._owned | added,
            moved=replace(self._record, assigned=added, kept=self._owned),
        )
        return struck

    def _still_owned(self, some: Partitions) -> Partitions:
        return some & (self._owned | self._coming)

    def _revoked(self, gone: Partitions) -> None:
        self._book()
        auto_commit = self._config.auto_commit and not gone & self._unwanted
        self._give_up(revoke(gone & self._owned, auto_commit=auto_commit))

    def _lost(self, gone: Partitions) -> None:
        self._book()
        self._give_up(lose(gone & self._owned))

    def _give_up(self, what: GivingUp) -> None:
        if what.actions:
            kept = self._owned - what.released
            self._under_way = _UnderWay(
                step=Step(step_id=self._steps + 1, actions=what.actions, blocking=True),
                owned=kept,
                moved=replace(self._record, revoked=what.revoked, lost=what.lost, kept=kept),
                giving_up=what,
            )
        self._carry_out()

    def _book(self) -> None:
        """Has the user told of what is under way, if it is not yet."""
        at = self._under_way
        if at is None:
            return
        # A copy, made in one go: other threads put what they have to tell beside us.
        waiting = tuple(self.mailbox.items)
        if not self._is_done(at) and all(item is not at.step for item in waiting):
            self.mailbox.put(at.step)
        self._giving_up = at.giving_up
        self._steps = at.step.step_id
        self._owned, self._coming = at.owned, NO_PARTITIONS
        # What was on its way when the user unsubscribed comes first, and is as unwanted.
        self._unwanted = self._owned if self._unsubscribed else self._unwanted & self._owned

    def _carry_out(self) -> None:
        self._book()
        at = self._under_way
        try:
            self._jobs.run()
            self._attend()
        finally:
            if at is not None and self._is_done(at):
                record = self._recorded(at)
                self._under_way, self._giving_up = None, GivingUp()
                self._observer.rebalance(record)

    def _is_done(self, at: _UnderWay) -> bool:
        return self._spent is not None and self._spent.step_id >= at.step.step_id

    def _identify(self) -> GroupMetadata:
        """Who it is by librdkafka; while that leaves the group and knows no more: who it was."""
        with contextlib.suppress(RuntimeError):
            self._identity = self._fetcher.identity()
        return self._identity

    def _recorded(self, at: _UnderWay) -> RebalanceRecord:
        assert self._spent is not None, "it is done"
        spent = self._spent
        identity = _standing(self._identify())
        return replace(
            at.moved,
            member_id=identity.member_id,
            generation=identity.generation,
            reason="the membership was lost" if at.moved.lost else "the broker assigned",
            attempts=0,  # to join, of which librdkafka does not tell
            protocol_name=self._config.remote_assignor,
            revoke_callback=spent.revoke_callback,
            assigned_callback=spent.assigned_callback,
            lost_callback=spent.lost_callback,
            commit=spent.commit,
            total=timedelta(seconds=time.perf_counter() - at.begun),
        )

    # --- offsets ----------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: timedelta
    ) -> Promise[dict[TopicPartition, ErrorCode]]:
        """See `Backend.commit`."""
        topic = next(iter(offsets)).topic
        return self._jobs.submit(topic, lambda heard: self._commit(offsets, heard=heard), timeout)

    def let_commits_in(self) -> None:
        """See `Backend.let_commits_in`."""
        self._jobs.let_in()

    def committed(
        self, partitions: Partitions, timeout: timedelta
    ) -> Promise[dict[TopicPartition, FetchedOffset]]:
        """See `Backend.committed`."""
        look, inside = LOOK, self._lock.mine  # short: a transaction may be open for long
        ends = time.monotonic() + timeout.total_seconds()

        def ask(heard: bool) -> _Told | Later[_Told]:  # noqa: FBT001  # as `Jobs` calls it
            nonlocal look
            within = min(look, max(0.0, ends - time.monotonic()))
            # Where who asks has the lock itself nobody else could use the time.
            look = 2 * look if inside else min(2 * look, LONGEST_LOOK)
            return self._committed(partitions, within, heard=heard)

        return self._jobs.submit(next(iter(partitions)).topic, ask, timeout, yields=True)

    def find_starts(
        self,
        partitions: Partitions,
        generation: Generation,
        still_wanted: Callable[[Partitions], Partitions],
    ) -> None:
        """See `Backend.find_starts`."""
        topic = next(iter(partitions)).topic
        self._jobs.submit(
            topic,
            lambda heard: self._find_starts(partitions, generation, still_wanted, heard=heard),
            _LOOK_UP,
        )

    def _find_starts(
        self,
        partitions: Partitions,
        generation: Generation,
        still_wanted: Callable[[Partitions], Partitions],
        *,
        heard: bool,
    ) -> None:
        search = Starts(reset=self._config.offset_reset, unfetched=partitions)
        try:
            if heard:
                self._fetcher.look_up(search, _LOOK_UP)
        finally:
            self._tell_starts(search, generation, still_wanted)

    def _tell_starts(
        self,
        search: Starts,
        generation: Generation,
        still_wanted: Callable[[Partitions], Partitions],
    ) -> None:
        """Of what is found; the rest is searched for."""
        if (found := newly_found(search, generation)) is not None:
            self.mailbox.put(found)
        if not search.settled:
            self._late_starts.go_on(search, generation, still_wanted)

    def _commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, heard: bool
    ) -> dict[TopicPartition, ErrorCode] | Later[dict[TopicPartition, ErrorCode]]:
        """Where an epoch has just begun, that the next heartbeat's answer tells of: once more."""
        started = time.perf_counter()
        commit = Commit(offsets=dict(offsets))
        commit.drop_foreign(is_ours=self._owns)
        results = dict.fromkeys(commit.offsets, ErrorCode.request_timed_out) | commit.results
        answered = self._fetcher.commit(commit.offsets) if commit.offsets and heard else {}

        def ended() -> dict[TopicPartition, ErrorCode]:
            latency = timedelta(seconds=time.perf_counter() - started)
            self._observer.commit(latency, results | answered)
            return results | answered

        stale = ErrorCode.illegal_generation in answered.values()
        return Later(ended) if stale else ended()

    def _owns(self, partition: TopicPartition) -> bool:
        """Whether a commit of this partition is ours to make.

        The broker takes one of what it has given to another member, whose own would be undone: it
        looks at our epoch alone. Topics of which it has given us nothing are nobody's in this
        group: a user's own offsets may be there.
        """
        if partition in self._giving_up.lost:
            return False
        if partition in self._owned or partition in self._giving_up.revoked:
            return True
        member = _standing(self._identify()).generation != NO_GENERATION
        return not member or partition.topic not in self._given

    def _committed(
        self, partitions: Partitions, within: float, *, heard: bool
    ) -> _Told | Later[_Told]:
        """Where it is not told in time, others have librdkafka before it is asked once more."""

        def not_told() -> NoReturn:
            raise RequestTimedOutError(
                "the coordinator did not tell in time what is committed: is a transaction open?"
            )

        if not heard:
            raise RequestTimedOutError("no coordinator answered in time")
        try:
            return self._fetcher.committed(partitions, within)
        except KafkaException as failure:
            if failure.args[0].code() in UNHEARD:
                return Later(not_told)
            raise RequestFailedError(failure.args[0].str()) from None


def _standing(identity: GroupMetadata) -> GroupMetadata:
    """Who it is to the group: epoch 0 is that of who only asks to join it, or has left.

    So librdkafka goes on calling itself when it was refused for good.
    """
    return identity if identity.generation else replace(identity, generation=NO_GENERATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    """A rebalance that the user is being told of."""

    step: Step
    owned: Partitions
    """What is, from now on."""
    moved: RebalanceRecord
    giving_up: GivingUp = field(default_factory=GivingUp)
    begun: float = field(default_factory=time.perf_counter)
