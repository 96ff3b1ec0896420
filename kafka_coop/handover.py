"""Partitions come and go in the user's thread: callbacks, commits, ownership, fetching.

`Handover` carries out the steps that the membership decided (`kafka_coop.membership.effects`),
action by action, in their order. What it knows of ownership is what the *user* has been told
so far, which may lag behind what the membership knows; records are delivered by the former and
commits are fenced by the latter.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_never

from confluent_kafka import KafkaError, Message

from kafka_coop.backend.interface import Backend
from kafka_coop.backend.mailbox import StartsFound, TopicErrors
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.fetching.messages import error_message
from kafka_coop.fetching.native import partition_of
from kafka_coop.kafka_errors import exception_of, kafka_error
from kafka_coop.membership.effects import (
    CallAssigned,
    CallLost,
    CallRevoked,
    CommitPositions,
    Own,
    RaiseError,
    Release,
    Step,
)
from kafka_coop.membership.events import StepDone
from kafka_coop.membership.failures import LOCAL_AUTO_OFFSET_RESET
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.offsets.commits import first_error
from kafka_coop.offsets.ledger import Ledger
from kafka_coop.partitions import PartitionResult
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.turns import TurnLock
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, TopicPartition

OnCommit = Callable[[KafkaError | None, list[PartitionResult]], Any]
UserCallback = Callable[[Partitions], None]

_COMMIT_BEFORE_RELEASE = 30.0
"""Seconds for the commits between on_revoke and the end of ownership. The session ends them
earlier if the coordinator can't be reached."""

_NO_OFFSET_TEXT = "no offset is committed, and auto.offset.reset=error: seek() or commit one"


class Callbacks:
    """The user's three rebalance callbacks, already bound to their consumer."""

    def __init__(self, assigned: UserCallback, revoked: UserCallback, lost: UserCallback) -> None:
        self.assigned = assigned
        self.revoked = revoked
        self.lost = lost


class Handover:
    """The user's side of a membership.

    `attend` belongs to one thread at a time. The rest may be called from any thread: ``lock``
    guards what they share, and is not held while a callback of the user runs.

    Attributes:
        owned: The partitions that the user was given and has not been told to have lost.
        errors: Partition-level errors, to be delivered as messages before any record.
        calling: Which callback is running: assigned, revoked, lost; None outside of them.
    """

    def __init__(
        self,
        *,
        fetcher: Fetcher,
        backend: Backend,
        metrics: MemberMetrics,
        logger: logging.Logger,
        lock: TurnLock,
        auto_offset_store: bool,
        on_commit: OnCommit | None,
    ) -> None:
        self.owned = NO_PARTITIONS
        self.errors: deque[Message] = deque()
        self.ledger = Ledger()
        self.callbacks: Callbacks | None = None
        self._fetcher = fetcher
        self._backend = backend
        self._metrics = metrics
        self._log = logger
        self._auto_offset_store = auto_offset_store
        self._on_commit = on_commit
        self._lock = lock
        self._awaiting: dict[TopicPartition, Generation] = {}
        self._found: dict[TopicPartition, _Start] = {}
        self._by_hand = NO_PARTITIONS
        self._pausing = NO_PARTITIONS
        self._committing: deque[tuple[dict[TopicPartition, OffsetAndMetadata], _Results]] = deque()
        self._commits_end = float("inf")
        self.calling: str | None = None

    # --- what the mailbox brings -----------------------------------------------------------

    def attend(self) -> None:
        """Takes everything out of the mailbox and carries it out.

        Raises:
            Exception: The first that a callback of a step raised, after the whole step; what
                is left in the mailbox waits for the next call.
        """
        while (item := self._backend.mailbox.take()) is not None:
            match item:
                case Step():
                    self._carry_out(item)
                case StartsFound():
                    self._take_starts(item)
                case TopicErrors(errors=errors):
                    self._report_topics(errors)
                case _:
                    assert_never(item)

    def _carry_out(self, step: Step) -> None:
        """Whatever a callback raises, the step is carried out whole, and reported.

        Were it left half-way, a partition would stay owned that the group believes revoked.
        """
        first: BaseException | None = None
        spent: dict[str, timedelta] = {}
        for action in step.actions:
            started = time.perf_counter()
            try:
                kind = self._act(action)
            except BaseException as error:  # noqa: BLE001  # Ctrl-C in a callback included
                kind = _KINDS[type(action)]
                first = first or error
            if kind is not None:
                spent[kind] = timedelta(seconds=time.perf_counter() - started)
        self._backend.step_done(StepDone(step_id=step.step_id, **spent))
        if first is not None:
            raise first

    def _act(self, action: Any) -> str | None:
        match action:
            case CallRevoked(partitions=partitions):
                try:
                    self._call("revoked", partitions)
                finally:
                    self._wait_for_commits_of(partitions)
            case CallLost(partitions=partitions):
                self._call("lost", partitions)
            case CommitPositions(partitions=partitions):
                self._commit_before_release(partitions)
            case Release(partitions=partitions):
                # What was taken by hand since unsubscribe() is not the group's any more.
                self.release(partitions - self._by_hand)
            case Own(partitions=partitions, generation=generation):
                self.own(partitions, generation)
            case CallAssigned(partitions=partitions):
                self._call_assigned(partitions)
            case RaiseError(failure=failure):
                raise exception_of(failure)
            case _:
                raise AssertionError(f"an action without a case: {action!r}")
        return _KINDS[type(action)]

    # --- callbacks -------------------------------------------------------------------------

    def _call(self, kind: str, partitions: Partitions) -> None:
        if self.callbacks is None:
            return
        callback: UserCallback = getattr(self.callbacks, kind)
        started = time.perf_counter()
        failed = True
        self.calling = kind
        try:
            callback(partitions)
            failed = False
        finally:
            self.calling = None
            latency = timedelta(seconds=time.perf_counter() - started)
            self._metrics.callback(kind, latency, failed=failed)  # type: ignore[arg-type]  # one of its three

    def _call_assigned(self, added: Partitions) -> None:
        try:
            self._call("assigned", added)
        finally:
            with self._lock:
                self._begin_fetching()

    # --- ownership -------------------------------------------------------------------------

    def own(self, partitions: Partitions, generation: Generation, *, by_hand: bool = False) -> None:
        """Ownership begins; fetching does when the starts of this generation are known."""
        with self._lock:
            self.owned |= partitions
            if by_hand:
                self._by_hand |= partitions
            self._awaiting.update(dict.fromkeys(partitions, generation))
            self._metrics.assignment(self.owned, time.monotonic())

    def release(self, partitions: Partitions) -> None:
        """Ownership ends: nothing of these is delivered after, whatever was fetched."""
        with self._lock:
            self.owned -= partitions
            self._by_hand -= partitions
            self._pausing -= partitions
            self._fetcher.remove(partitions & self._fetcher.assignment())
            self.ledger.forget(partitions)
            for partition in partitions:
                self._awaiting.pop(partition, None)
                self._found.pop(partition, None)
            kept = [m for m in self.errors if partition_of(m) not in partitions]
            self.errors = deque(kept)
            self._metrics.assignment(self.owned, time.monotonic())

    # --- pausing ---------------------------------------------------------------------------

    def pause(self, partitions: Partitions) -> None:
        """Pauses, also what is owned and not fetched yet (a pause in on_assign)."""
        with self._lock:
            self._fetcher.pause(partitions)
            self._pausing |= partitions & Partitions.of(self._awaiting)

    def resume(self, partitions: Partitions) -> None:
        """Undoes `pause`."""
        with self._lock:
            self._fetcher.resume(partitions)
            self._pausing -= partitions

    # --- where to start --------------------------------------------------------------------

    def override_starts(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The user knows better where to start (on_assign, or a seek before the first record)."""
        with self._lock:
            for partition, start in starts.items():
                if (generation := self._awaiting.get(partition)) is not None:
                    self._found[partition] = _Start(generation, start)
            self._begin_fetching()

    def is_awaiting(self, partition: TopicPartition) -> bool:
        """Whether the partition is owned, and its start not known yet."""
        return partition in self._awaiting

    @property
    def committing(self) -> bool:
        """Whether asynchronous commits have still to be reported."""
        return bool(self._committing)

    @property
    def settled(self) -> bool:
        """Whether every owned partition is being fetched."""
        return not self._awaiting

    def _take_starts(self, answer: StartsFound) -> None:
        with self._lock:
            for starts, committed in ((answer.committed, True), (answer.reset, False)):
                for partition, start in starts.items():
                    if self._is_news(partition, answer.generation):
                        self._found[partition] = _Start(
                            answer.generation, start, committed=committed
                        )
            for partition in answer.without:
                self._report(partition, answer.generation, LOCAL_AUTO_OFFSET_RESET, _NO_OFFSET_TEXT)
            for partition, error in answer.failed.items():
                text = f"its committed offset can't be had: {error.name.upper()}"
                self._report(partition, answer.generation, int(error), text)
            self._begin_fetching()

    def _is_news(self, partition: TopicPartition, generation: Generation) -> bool:
        """Whether an answer for ``generation`` counts.

        Not where there is one for the same (the user's word comes first), or for the ownership
        that waits. Numbers don't tell which is later: a group that was gone begins anew.
        """
        known = self._found.get(partition)
        return known is None or known.generation not in (
            generation,
            self._awaiting.get(partition),
        )

    def _report(
        self, partition: TopicPartition, generation: Generation, code: int, text: str
    ) -> None:
        if self._awaiting.get(partition) == generation:
            self.errors.append(error_message(partition, code, text))

    def _begin_fetching(self) -> None:
        """Starts what is ready to start; not while on_assign may still override it."""
        if self.calling == "assigned":
            return
        ready = {
            partition: self._found[partition]
            for partition, generation in self._awaiting.items()
            if partition in self._found and self._found[partition].generation == generation
        }
        if not ready:
            return
        for partition in ready:
            del self._awaiting[partition], self._found[partition]
        # Where nothing is committed yet, the start itself is worth committing: were the
        # partition to move on before its first record, auto.offset.reset would be asked again.
        self.ledger.started({p: s.at for p, s in ready.items() if s.committed})
        self._fetcher.add({p: s.at for p, s in ready.items()})
        pausing = self._pausing & Partitions.of(ready)
        if pausing:
            self._fetcher.pause(pausing)
            self._pausing -= pausing

    def _report_topics(self, errors: Mapping[str, int]) -> None:
        for topic, code in sorted(errors.items()):
            text = f"Subscribed topic not available: {topic}: {ErrorCode(code).name.upper()}"
            self.errors.append(error_message(TopicPartition(topic, -1), code, text))

    # --- commits ---------------------------------------------------------------------------

    def to_commit(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit without arguments takes: positions, or what was stored; only news."""
        with self._lock:
            if self._auto_offset_store:
                return self.ledger.news(self._fetcher.positions(partitions))
            return self.ledger.news(self.ledger.stored(partitions))

    def commit_async(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Commits in the background; `settle_commits` reports how it ended."""
        if offsets:
            self._committing.append((offsets, self._backend.commit(offsets, _COMMIT_TIMEOUT)))

    def settle_commits(self) -> None:
        """Reports the commits that have ended, in the order they were asked for."""
        while self._committing and self._committing[0][1].done():
            offsets, future = self._committing.popleft()
            self.report_commit(offsets, future.result())

    def finish_commits(self, within: timedelta) -> None:
        """Before closing: lets what is under way end, and reports it.

        What is committed from now on has the rest of this time, all in all.
        """
        self._commits_end = time.monotonic() + within.total_seconds()
        self._wait_for([future for _, future in self._committing])
        self.settle_commits()

    def _wait_for_commits_of(self, partitions: Partitions) -> None:
        """What the owner committed asynchronously, in on_revoke or just before.

        It ends before ownership does, or would be refused although nothing was lost.
        """
        self._wait_for(
            [
                future
                for offsets, future in self._committing
                if any(p in partitions for p in offsets)
            ]
        )

    def _wait_for(self, futures: Collection[_Results]) -> None:
        wait(futures, timeout=self._commit_patience().total_seconds())

    def _commit_patience(self) -> timedelta:
        left = max(0.0, self._commits_end - time.monotonic())
        return timedelta(seconds=min(left, _COMMIT_BEFORE_RELEASE))

    def _commit_before_release(self, partitions: Partitions) -> None:
        offsets = self.to_commit(partitions)
        if not offsets:
            return
        within = self._commit_patience()
        future = self._backend.commit(offsets, within)
        results = future.result(within.total_seconds() + 1)
        self.report_commit(offsets, results)

    def note_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        results: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        """Tells the ledger what the coordinator has taken."""
        done = {p: o for p, o in offsets.items() if results.get(p) is ErrorCode.none}
        with self._lock:
            self.ledger.committed({p: o for p, o in done.items() if p in self.owned})

    def report_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        results: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        """Tells the ledger, and the user's ``on_commit``; without one, failures are logged."""
        self.note_commit(offsets, results)
        worst = first_error(results)
        if self._on_commit is not None:
            error = None if worst is ErrorCode.none else commit_error(worst)
            self._on_commit(error, commit_results(offsets, results))
        elif worst is not ErrorCode.none:
            failed = sorted(p for p, e in results.items() if e is not ErrorCode.none)
            self._log.warning("commit of %s failed: %s", failed, worst.name.upper())


@dataclass(frozen=True, slots=True)
class _Start:
    """Where to start a partition that was owned in ``generation``."""

    generation: Generation
    at: OffsetAndMetadata
    committed: bool = False


_Results = Future[dict[TopicPartition, ErrorCode]]
_COMMIT_TIMEOUT = timedelta(seconds=60)

_KINDS: dict[type, str | None] = {
    CallRevoked: "revoke_callback",
    CallLost: "lost_callback",
    CommitPositions: "commit",
    CallAssigned: "assigned_callback",
    Own: None,
    Release: None,
    RaiseError: None,
}


def commit_error(error: ErrorCode) -> KafkaError:
    """The KafkaError of a commit that ended with ``error``."""
    remedy = {
        ErrorCode.illegal_generation: "the partitions are not this consumer's any more",
        ErrorCode.unknown_member_id: "the group does not know this consumer any more",
        ErrorCode.request_timed_out: "no coordinator answered in time",
    }.get(error)
    text = f"commit failed: {error.name.upper()}" + (f": {remedy}" if remedy else "")
    return kafka_error(int(error), text, retriable=error.retriable)


def commit_results(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    results: Mapping[TopicPartition, ErrorCode],
) -> list[PartitionResult]:
    """Each partition of a commit with its offset and its error."""
    return [
        PartitionResult(
            p.topic,
            p.partition,
            o.offset,
            metadata=o.metadata or None,
            leader_epoch=o.leader_epoch if o.leader_epoch >= 0 else None,
            error=commit_error(results[p])
            if results.get(p, ErrorCode.none) is not ErrorCode.none
            else None,
        )
        for p, o in offsets.items()
    ]
