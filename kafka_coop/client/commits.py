"""Commits: what is to be committed, the wait for it, and who is told how it ended.

Positions are those *delivered* to the user, or what they stored; the membership sends commits
one after the other (`kafka_coop.backend`). An asynchronous commit is reported inside poll, in
the order asked for. What is committed in on_revoke, or just before, ends before ownership does:
it would else be refused although nothing was lost.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message

from kafka_coop.backend import clock
from kafka_coop.backend.interface import Backend
from kafka_coop.backend.promises import Promise, result_within, wait_for_all
from kafka_coop.client.ownership import Ownership
from kafka_coop.config import ConsumerConfig
from kafka_coop.errors import RequestFailedError
from kafka_coop.kafka_errors import commit_exception, coop_exception, exception_of, kafka_error
from kafka_coop.membership.failures import LOCAL_INVALID_ARG, LOCAL_NO_OFFSET, failure_of_exception
from kafka_coop.offsets.commits import first_error
from kafka_coop.partitions import PartitionResult, offsets_of, plain, with_offset, with_offsets
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, OffsetAndMetadata
from kafka_coop.types import Partitions, TopicPartition

T = TypeVar("T")

OnCommit = Callable[[KafkaError | None, list[PartitionResult]], Any]

_Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_Errors = Mapping[TopicPartition, ErrorCode]
_Pending = Promise[dict[TopicPartition, ErrorCode]]

_BEFORE_RELEASE = 30.0
"""Seconds for the commits between on_revoke and the end of ownership. The session ends them
earlier if the coordinator can't be reached."""

_ASYNC_TIMEOUT = timedelta(seconds=60)

_LONGEST_QUERY = timedelta(hours=1)

_NAMED = 5
"""Partitions in an error's text."""

_NOTHING_NEW = "nothing to commit: no new offset since the last one"


@dataclass(frozen=True, slots=True)
class _Asked:
    """An asynchronous commit that has still to be reported."""

    serial: int
    offsets: _Offsets
    promise: _Pending
    refusal: KafkaError | None = None
    """Why nothing was sent."""


class Commits:
    """The commits of one consumer. What reports (`settle`, `finish`) is the polling thread's.

    Attributes:
        auto_commit_due: On `backend.clock`; infinity where there is no periodic auto-commit.
    """

    def __init__(
        self,
        *,
        config: ConsumerConfig,
        ownership: Ownership,
        backend: Backend,
        logger: logging.Logger,
    ) -> None:
        self._config = config
        self._ownership = ownership
        self._backend = backend
        self._on_commit: OnCommit | None = config.callbacks.on_commit
        self._log = logger
        self._pending: deque[_Asked] = deque()
        self._auto: _Pending | None = None
        self._patience_ends = float("inf")
        interval = config.auto_commit_interval.total_seconds()
        self._interval = interval if config.auto_commit and interval else float("inf")
        self.auto_commit_due = clock.now() + self._interval

    # --- what the user asks -----------------------------------------------------------------

    def commit(self, message: Message | None, offsets: list[Any] | None) -> list[Any]:
        """Commits, waits, and returns each partition with its offset and error.

        Raises:
            CommitException: A partition failed, whatever became of the others.
            KafkaException: There is nothing to commit.
        """
        wanted = self._wanted(message, offsets)
        if not wanted:
            raise coop_exception(LOCAL_NO_OFFSET, _NOTHING_NEW)
        serial = self._ownership.ledger.next_commit()
        timeout = self._config.connection.request_timeout
        promise = self._backend.commit(wanted, timeout)
        self._ownership.begin_as_committed(wanted, promise)
        results = self._result(promise, timeout)
        self._note(serial, wanted, results)
        worst = first_error(results)
        if worst is not ErrorCode.none:
            error = commit_error(worst, failed(results))
            raise commit_exception(error, commit_results(wanted, results))
        return with_offsets(wanted)

    def commit_later(self, message: Message | None, offsets: list[Any] | None) -> None:
        """Commits in the background; `settle` reports how it ended.

        That there is nothing to commit is reported too, as confluent's consumer does, and to
        ``on_commit`` alone: whoever commits after each poll has asked for nothing wrong.
        """
        wanted = self._wanted(message, offsets)
        if wanted:
            self._ownership.begin_as_committed(wanted, self._begin(wanted))
        else:
            owned = self._ownership.owned
            self._begin_nothing(owned if offsets is None else Partitions.of(plain(offsets)))

    def store(self, message: Message | None, offsets: list[Any] | None) -> None:
        """What the next commit without arguments is to take; of what is owned, if anything is."""
        if (message is None) == (offsets is None):
            raise ValueError("expected either message or offsets")
        if self._config.auto_offset_store:
            raise coop_exception(
                LOCAL_INVALID_ARG,
                "store_offsets() needs enable.auto.offset.store=false in the configuration",
            )
        wanted = _after(message) if message is not None else offsets_of(offsets or ())
        ownership = self._ownership
        with ownership.lock:
            ours = {of: at for of, at in wanted.items() if of in ownership.owned}
            if not ours:
                ownership.require(wanted)
            ownership.ledger.store(ours)

    def committed(
        self, partitions: list[Any], timeout: float
    ) -> list[PartitionResult | confluent_kafka.TopicPartition]:
        """What the group has committed, or each partition's error."""
        if not (wanted := plain(partitions)):
            return []
        within = min(timedelta(seconds=min(timeout, 1e6)), _LONGEST_QUERY)
        promise = self._backend.committed(Partitions.of(wanted), within)
        try:
            found = self._result(promise, within)
        finally:
            promise.cancel()  # a Ctrl-C, say: nobody waits for it any more
        return [_listed(of, found[of]) for of in wanted]

    def _wanted(
        self, message: Message | None, offsets: list[Any] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is to be committed. No offset (a `position` before its start is known) is none."""
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive: give one of them")
        if message is not None:
            return _after(message)
        if offsets is not None:
            return {of: at for of, at in offsets_of(offsets).items() if at.offset >= 0}
        return self._news(self._ownership.owned)

    def _result(self, promise: Promise[T], timeout: timedelta) -> T:
        """Waits for the membership, a little longer than it waits itself."""
        try:
            return result_within(promise, timeout + timedelta(seconds=1))
        except RequestFailedError as error:
            raise exception_of(failure_of_exception(error)) from None

    # --- what the polling thread does ---------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether asynchronous commits have still to be reported."""
        return bool(self._pending)

    def attend(self, now: float) -> None:
        """Auto-commits if it is time to, and reports what has ended."""
        if now >= self.auto_commit_due:
            self.auto_commit_due = now + self._interval
            self._auto_commit()
        self.settle()

    def _auto_commit(self) -> None:
        """Begins one, unless the last is under way, which may take as long as an outage.

        They are sent one by one: those of every interval since would go before the commit of
        what is revoked next, and say nothing that it does not say. The next one has the newest.
        """
        if self._auto is None or self._auto.done():
            # Positions of what earlier polls returned: the user has done with these.
            news = self._news(self._ownership.owned)
            self._auto = self._begin(news) if news else None

    def postpone(self) -> None:
        """The next periodic one comes an interval from now: not before what is to be revoked is."""
        self.auto_commit_due = clock.now() + self._interval

    def commit_let_go(self, partitions: Partitions) -> None:
        """Auto-commits what the user lets go of by hand, in the background, as librdkafka does.

        Neither the next interval nor `close` would find it.
        """
        if self._config.auto_commit and (news := self._news(partitions)):
            self._begin(news)

    def commit_owned(self) -> None:
        """The same for all that is owned."""
        self.commit_let_go(self._ownership.owned)

    def settle(self, *, for_good: bool = False) -> None:
        """Reports the commits that have ended, in the order they were asked for.

        ``for_good``: the others, too, as failed: nobody would hear how they end.

        Those that ``on_commit`` itself asks for wait for the next call, ended or not: one that
        commits again whatever failed, with nothing left to commit, would else never return.

        Raises:
            Exception: The first that ``on_commit`` raised, once all are reported.
        """
        first: BaseException | None = None
        for _ in range(len(self._pending)):
            promise = self._pending[0].promise
            if not promise.done() and not for_good:
                break
            asked = self._pending.popleft()
            late = dict.fromkeys(asked.offsets, ErrorCode.request_timed_out)
            try:
                ended = promise.done() and not promise.cancelled()
                results = promise.result(0) if ended else late
                self._report(asked.serial, asked.offsets, results, asked.refusal)
            except BaseException as error:  # noqa: BLE001  # Ctrl-C in a callback included
                first = first or error
        if first is not None:
            raise first

    def finish(self, within: timedelta) -> None:
        """Before closing: lets what is under way end, and reports it.

        What is committed from now on has the rest of this time, all in all.
        """
        self._patience_ends = time.monotonic() + within.total_seconds()
        self._wait([asked.promise for asked in self._under_way()])
        self.settle()

    def wait_longer(self, by: timedelta) -> None:
        """A callback of the user's took so long, which is not for the network to make up for."""
        self._patience_ends += by.total_seconds()

    # --- before ownership ends ----------------------------------------------------------------

    def wait_for(self, partitions: Partitions) -> None:
        """Waits for what the owner has committed asynchronously."""
        promises = [
            asked.promise
            for asked in self._under_way()
            if any(p in partitions for p in asked.offsets)
        ]
        self._backend.let_commits_in()
        self._wait(promises)

    def commit_before_release(self, partitions: Partitions) -> None:
        """Auto-commit: returns when it is done, or given up and reported.

        Nobody has the partitions meanwhile: what the fetcher needs to let go of them, some
        milliseconds, passes while the coordinator writes. It keeps the interpreter for as long, so
        that a commit which is not on its way by then would come after it.
        """
        offsets = self._news(partitions)
        if not offsets:
            return
        within = self._patience()
        serial = self._ownership.ledger.next_commit()
        promise = self._backend.commit(offsets, within)
        self._backend.let_commits_in()
        self._ownership.silence(partitions)
        self._report(serial, offsets, promise.result(within.total_seconds() + 1))

    # --- how -----------------------------------------------------------------------------------

    def _news(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit without arguments takes: positions, or what was stored; only news."""
        ownership = self._ownership
        with ownership.lock:
            if self._config.auto_offset_store:
                return ownership.ledger.news(ownership.positions(partitions))
            return ownership.ledger.news_stored(partitions)

    def _begin(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> _Pending:
        serial = self._ownership.ledger.next_commit()
        promise = self._backend.commit(offsets, _ASYNC_TIMEOUT)
        self._pending.append(_Asked(serial, offsets, promise))
        return promise

    def _begin_nothing(self, partitions: Partitions) -> None:
        """Has `settle` report, in its turn, that there was nothing to commit of these."""
        done: _Pending = Promise()
        done.set_result({})
        refusal = kafka_error(LOCAL_NO_OFFSET, _NOTHING_NEW)
        offsets = dict.fromkeys(partitions, OffsetAndMetadata(offset=OFFSET_INVALID))
        serial = self._ownership.ledger.next_commit()
        self._pending.append(_Asked(serial, offsets, done, refusal))

    def _under_way(self) -> tuple[_Asked, ...]:
        """A copy: other threads' commits join the line at any moment, signal handlers' too."""
        return tuple(self._pending)

    def _wait(self, promises: Collection[_Pending]) -> None:
        wait_for_all(promises, self._patience().total_seconds())

    def _patience(self) -> timedelta:
        left = max(0.0, self._patience_ends - time.monotonic())
        return timedelta(seconds=min(left, _BEFORE_RELEASE))

    def _note(self, serial: int, offsets: _Offsets, results: _Errors) -> None:
        """Tells the ledger what the coordinator has taken."""
        done = {p: o for p, o in offsets.items() if results.get(p) is ErrorCode.none}
        ownership = self._ownership
        with ownership.lock:
            ours = {p: o for p, o in done.items() if p in ownership.owned}
            ownership.ledger.committed(ours, serial)

    def _report(
        self,
        serial: int,
        offsets: _Offsets,
        results: _Errors,
        refusal: KafkaError | None = None,
    ) -> None:
        """Tells the ledger, and the user's ``on_commit``; without one, failures are logged."""
        self._note(serial, offsets, results)
        worst = first_error(results)
        if self._on_commit is not None:
            error = refusal if worst is ErrorCode.none else commit_error(worst)
            self._on_commit(error, commit_results(offsets, results))
        elif worst is not ErrorCode.none:
            self._log.warning("commit of %s failed: %s", failed(results), worst.name.upper())


def failed(results: _Errors) -> list[TopicPartition]:
    """The partitions that were not committed."""
    return sorted(p for p, e in results.items() if e is not ErrorCode.none)


def commit_error(error: ErrorCode, of: Sequence[TopicPartition] = ()) -> KafkaError:
    """The KafkaError of a commit that ended with ``error``; its text names partitions, if told."""
    remedy = {
        ErrorCode.illegal_generation: "the partitions are not this consumer's, or not any more",
        ErrorCode.unknown_member_id: "the group has members, and this consumer is none, or not any "
        "more: who assigns by hand beside them needs a group.id of its own",
        ErrorCode.request_timed_out: "no coordinator answered in time",
    }.get(error)
    named = [f"{p.topic}[{p.partition}]" for p in of[:_NAMED]] + ["…"] * (len(of) > _NAMED)
    what = f"commit of {', '.join(named)}" if named else "commit"
    text = f"{what} failed: {error.name.upper()}" + (f": {remedy}" if remedy else "")
    return kafka_error(int(error), text, retriable=error.retriable)


def commit_results(offsets: _Offsets, results: _Errors) -> list[PartitionResult]:
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


def _listed(
    of: TopicPartition, found: FetchedOffset
) -> PartitionResult | confluent_kafka.TopicPartition:
    if found.error is not ErrorCode.none:
        error = kafka_error(int(found.error), found.error.name.upper())
        return PartitionResult(of.topic, of.partition, error=error)
    return with_offset(
        of,
        OffsetAndMetadata(
            offset=found.offset if found.offset >= 0 else OFFSET_INVALID,
            leader_epoch=found.leader_epoch,
            metadata=found.metadata,
        ),
    )


def _after(message: Message) -> dict[TopicPartition, OffsetAndMetadata]:
    """The position of a consumer that has processed this record."""
    if not isinstance(message, Message):
        raise TypeError(f"message expects a Message, got {message!r}")
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if message.error() is not None or topic is None or partition is None or offset is None:
        raise KafkaException(message.error() or KafkaError(LOCAL_INVALID_ARG))
    epoch = message.leader_epoch()
    return {
        TopicPartition(topic, partition): OffsetAndMetadata(
            offset=offset + 1, leader_epoch=-1 if epoch is None else epoch
        )
    }
