"""The query's membership, in the process of Spark's reader: a `CoopConsumer` that reads nothing.

Its thread polls, so that rebalances go on while Spark runs a batch. Every partition is paused:
the records are read by tasks. What is held, and what a batch reads of it, is in `Holdings`, shared
with the thread in which Spark calls, under ``changed``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from kafka_coop.consumer import CoopConsumer
from kafka_coop.fetching.log_offsets import LogsNotToldError
from kafka_coop.fetching.native import native_partitions
from kafka_coop.fetching.ranges import NoProgressError
from kafka_coop.hopeless import HOPELESS
from kafka_coop.kafka_errors import CommitException
from kafka_coop.listener import RebalanceListener
from kafka_coop.spark.errors import DataLossError, MembershipError, OptionError, names_of
from kafka_coop.spark.holdings import NOTHING, Committed, Holdings
from kafka_coop.spark.latency import RebalanceLatency
from kafka_coop.spark.offsets import claim_of
from kafka_coop.spark.options import StreamOptions
from kafka_coop.spark.refusals import refusal
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")

_PAUSE, _EAGER_PAUSE = 0.05, 0.002
"""Seconds between two polls; the shorter one while the group's answer is awaited. A partition that
has to leave waits for the longer one, besides the batch under way. The consumer itself waits for
nothing: no record comes, and a commit from Spark's thread would wait as long."""

_HEARING = 0.1
"""Seconds between two looks at whether the driver wants something while the group is awaited."""

_OFFSETS_TIMEOUT = 10.0
"""Seconds for one question for committed offsets; it is asked again."""

_MINOR_TIMEOUT = 1.0
"""Seconds, where the answer saves a few bytes, and polls wait for it."""

_CLOSE_TIMEOUT = 15.0

_QUIET_FETCHER = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "latest",
    "queued.min.messages": "1",
    "queued.max.messages.kbytes": "1024",
}
"""This consumer never reads: everything it is assigned is paused."""

Begin = Callable[[dict[TopicPartition, Committed]], Mapping[TopicPartition, int]]
"""From what is committed, where to begin: partitions of which the checkpoint knows nothing."""


class Member:
    """A member of the group, from construction to `close`.

    Args:
        options: The source's.
        holdings: What is held; guarded by `changed` from now on.
        instance_id: A static member's; None: dynamic, or as ``kafka.*`` says.
        begin: Where to begin partitions that came.
        gone: Topics that were made anew since the checkpoint's last offset. What the group has
            committed of these may be of the ones before: a run that ends in the moment that they
            are made anew commits what it has read, and the brokers take it for the new ones'. It
            does not count, once: what is committed later, others have read of the new ones.

    Attributes:
        changed: Guards `holdings` and is notified of every change.
        rebalances: How many the member has seen.
        last_handover: How long the last hand-over took, from on_revoke to the commit.
        moved: Partitions that came from other members, or went to them.
        taken_over: Those of them that came, and others had read before.
        lost_ones: Those of them that were not handed over, but lost.
        went: Those that went since the session last looked.
    """

    def __init__(
        self,
        options: StreamOptions,
        holdings: Holdings,
        *,
        instance_id: str | None,
        begin: Begin,
        gone: Collection[str] = (),
    ) -> None:
        self.changed = threading.Condition()
        self.holdings = holdings
        self.rebalances = 0
        self.last_handover = timedelta(0)
        self.moved: frozenset[TopicPartition] = frozenset()
        self.taken_over: frozenset[TopicPartition] = frozenset()
        self.lost_ones: frozenset[TopicPartition] = frozenset()
        self.went: frozenset[TopicPartition] = frozenset()
        self._options = options
        self._begin = begin
        self._gone = frozenset(gone)
        self._begun_anew: set[TopicPartition] = set()
        self._coming: set[TopicPartition] = set()
        self._untold: list[TopicPartition] = []  # of which nobody told where they begin, last last
        self._sent: dict[TopicPartition, tuple[int, str]] = {}
        self._heard = 0
        self._assigned = False
        self._closing = False
        self._for_good = False
        self._failure: BaseException | None = None
        self._last_error: str | None = None
        static = {} if instance_id is None else {"group.instance.id": instance_id}
        self._parent = os.getppid()
        self._consumer = CoopConsumer(
            {**options.kafka, **_QUIET_FETCHER, **static, "on_commit": self._committed}
        )
        self._latency = RebalanceLatency(self._consumer.registry, options.group)
        self._thread = threading.Thread(target=self._run, name="kafka_coop-member", daemon=True)
        self._thread.start()

    # --- for the thread in which Spark calls -----------------------------------------------

    def raise_failure(self) -> None:
        """Raises what ended the membership, if something did.

        Raises:
            MembershipError: It is over for good, or the group refuses what we commit.
            OptionError, DataLossError: An option proved wrong when the first partitions came.
        """
        if isinstance(self._failure, OptionError | MembershipError | DataLossError):
            raise self._failure
        if self._failure is not None:
            raise MembershipError(f"the membership ended: {self._failure}") from self._failure

    def wait_for_assignment(
        self, patience: timedelta, is_asked: Callable[[], bool] = lambda: False
    ) -> None:
        """Waits until the group has answered, and what it gave is claimed.

        Args:
            patience: For how long.
            is_asked: Whether the driver wants the query to hand over what it holds: nothing more
                is waited for then.

        Raises:
            MembershipError: It did not in time.
        """
        deadline = time.monotonic() + patience.total_seconds()
        with self.changed:
            while not self.is_settled and time.monotonic() < deadline and not is_asked():
                self.raise_failure()
                self.changed.wait(_HEARING)
            self.raise_failure()
            if not self.is_settled and not is_asked():
                raise MembershipError(
                    f"{self._waited_for} in {patience}{self.last_error_in_words}: are the "
                    "brokers in kafka.bootstrap.servers reachable, and does another member hold "
                    "up the group? Option assignmentTimeout says how long to wait"
                )

    @property
    def is_settled(self) -> bool:
        """Whether the group has answered at least once, and nothing is still to be taken in."""
        return self._assigned and not self._coming

    @property
    def _waited_for(self) -> str:
        """What has not come, in words. Holds `changed`."""
        if not self._assigned:
            return f"no assignment from the group {self._options.group!r}"
        names = names_of(self._coming)
        return f"no answer on where {names} begin, or the group takes no claims of them,"

    @property
    def is_fenced(self) -> bool:
        """Whether others may have what we hold: no word from the coordinator for a session's time.

        It may be away itself. A batch that is planned then would be read by them as well.
        """
        return self._consumer.health().fenced

    def commit_later(self) -> None:
        """Commits what is news, in the background. Holds `changed`."""
        run = self.holdings.run
        fresh = {
            of: offset
            for of, offset in self.holdings.news().items()
            if self._sent.get(of) != (offset, run) and of not in self.holdings.leaving
        }
        if fresh:
            self._sent |= {of: (offset, run) for of, offset in fresh.items()}
            with contextlib.suppress(KafkaException, RuntimeError):  # closed; else tried again
                self._consumer.commit(offsets=self._native(fresh))

    def commit_now(self, only: Iterable[TopicPartition] | None = None) -> None:
        """Commits what is news and waits. What could not be committed stays news.

        `changed` must not be held: the member's thread may need it first. A refusal for good is
        told by `raise_failure`.
        """
        with self.changed:
            news = self.holdings.news()
            if only is not None:
                news = {of: news[of] for of in only if of in news}
            offsets = self._native(news)
        if not offsets:
            return
        try:
            answered = self._consumer.commit(offsets=offsets, asynchronous=False)
        except CommitException as error:
            with self.changed:
                self._note(error.partitions)
        except KafkaException as error:
            self._refused(error.args[0], news)
        except RuntimeError as error:  # closed meanwhile
            self._warn(f"commit failed: {error}")
        else:
            with self.changed:
                self._note(answered or [])

    def commit_or_fail(self) -> None:
        """`commit_now`; and `raise_failure`, where the group takes no commits of ours."""
        self.commit_now()
        self.raise_failure()

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """What the group has committed; partitions of which that can't be had are left out."""
        asked = native_partitions(partitions)
        if not asked:
            return {}
        try:
            answered = self._consumer.committed(asked, _OFFSETS_TIMEOUT)
        except (KafkaException, RuntimeError) as error:
            self._last_error = str(error)
            return {}
        self._note_errors(answered)
        return _told(answered)

    @property
    def member_id(self) -> str:
        """Empty before the first join, and after the end."""
        try:
            return self._consumer.memberid()
        except RuntimeError:
            return ""

    @property
    def last_error(self) -> str | None:
        """What the group or the brokers said last that may pass."""
        return self._last_error

    @property
    def last_error_in_words(self) -> str:
        """`last_error` in parentheses, to be put into a sentence; empty where there is none."""
        return f" (last error: {self._last_error})" if self._last_error else ""

    @property
    def last_rebalance(self) -> timedelta:
        """How long the last rebalance took, from the wish to join to the last callback."""
        return self._latency.last()

    def close(self, *, for_good: bool = False) -> None:
        """Leaves the group; what a batch still reads is not committed. A second call waits.

        Args:
            for_good: A static member, too: others are to have its partitions at once. Else the
                group keeps them for it until its session is over.
        """
        with self.changed:
            self._for_good |= for_good
            self._closing = True
            self.changed.notify_all()
        self._thread.join(_CLOSE_TIMEOUT)

    def _native(self, news: Mapping[TopicPartition, int]) -> list[confluent_kafka.TopicPartition]:
        """To be committed, with our claims. Holds `changed`."""
        return [
            confluent_kafka.TopicPartition(
                of.topic, of.partition, offset, self.holdings.claim(of).to_metadata()
            )
            for of, offset in news.items()
        ]

    # --- the member's thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._subscribe()
            while not self._closing:
                self._refuse_to_outlive()
                self._turn()
                time.sleep(_PAUSE if self.is_settled else _EAGER_PAUSE)
        except BaseException as error:  # noqa: BLE001  # Spark's thread raises it
            with self.changed:
                self._failure = self._failure or error
                self.changed.notify_all()
        finally:
            with contextlib.suppress(Exception):
                # Who has drained says LeaveGroup, although it is static. It need not wait for it.
                self._consumer.close(drain=timedelta(0) if self._for_good else None)

    def _refuse_to_outlive(self) -> None:
        """Nobody reads what is held by a reader whose Spark was killed.

        Mostly it notices by itself, when it asks Spark for something. In the midst of a call that
        waits for others it would not, and they may go on for hours.

        Raises:
            MembershipError: The process that started this one is no more.
        """
        if os.getppid() != self._parent:
            raise MembershipError("the driver that started this reader has died: it leaves")

    def _subscribe(self) -> None:
        options = self._options
        if options.partitions:
            self._consumer.assign(native_partitions(options.partitions))
            self._consumer.pause(native_partitions(options.partitions))
            self._coming = set(options.partitions)
            self._assigned = True
            return
        topics = [*options.topics, *([options.pattern] if options.pattern else [])]
        self._consumer.subscribe(topics, listener=_Listener(self))

    def _turn(self) -> None:
        try:
            message = self._consumer.poll(0.0)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            self._warn(str(error))
            return
        if message is not None and (problem := message.error()) is not None:
            names = f"{message.topic()}:{message.partition()}" if message.topic() else "any topic"
            if problem.code() in HOPELESS:
                raise MembershipError(refusal(problem, names, self._options))
            self._warn(problem.str())
        if self._coming:
            self._take_in()

    def _warn(self, text: str) -> None:
        if text != self._last_error:
            _LOG.warning("group %s: %s", self._options.group, text)
        self._last_error = text

    def _take_in(self) -> None:
        """What came is held from here on: where to begin is found, and claimed."""
        committed = self._of_what_is_there(self.committed(self._coming))
        # First what needs nobody's answer: a log of which nobody tells may take its time.
        with self.changed:
            word = {of: self.holdings.position_from(of, c) for of, c in committed.items()}
            known = {of: at for of, at in word.items() if at is not None}
            self._hold(known, committed)  # before the word can be taken back (a topic made anew)
        self._claim(known)
        self._hear_of_others()
        unknown = {of: its for of, its in committed.items() if of not in known}
        if not unknown:
            return
        found = self._begun(self._asked_next(unknown))
        with self.changed:
            self.taken_over |= {
                of
                for of in found
                if committed[of].has_been_read or self.holdings.has_read_beyond(of, committed[of])
            }
            self.moved |= self.taken_over
            self._hold(found, committed)
        self._begun_anew |= {of for of in found if of.topic in self._gone}
        self._claim(found)

    def _of_what_is_there(
        self, committed: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Committed]:
        """As if nothing were, of topics that were made anew.

        Were it held as if it counted, it would be claimed until it is reached, and who takes over
        meanwhile would begin there. (If others have read of the new ones by then, that is read
        twice.)
        """
        return {
            of: NOTHING if of.topic in self._gone and of not in self._begun_anew else its
            for of, its in committed.items()
        }

    def _hear_of_others(self) -> None:
        """Once in a rebalance: of partitions that others have. What can't be had matters little."""
        if self._heard == self.rebalances:
            return
        self._heard = self.rebalances
        with self.changed:
            asked = {of for of in self.holdings.ahead if self._options.asks_for(of.topic)}
        if not asked:
            return
        with contextlib.suppress(KafkaException, RuntimeError):
            answered = self._consumer.committed(native_partitions(asked), _MINOR_TIMEOUT)
            with self.changed:
                self.holdings.hear(_told(answered))

    def _asked_next(
        self, unknown: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Committed]:
        """Whom nobody told of the last time is asked for by itself, when all others are held."""
        untold = [of for of in self._untold if of in unknown]
        others = {of: its for of, its in unknown.items() if of not in untold}
        return others or {of: unknown[of] for of in untold[:1]}

    def _begun(self, unknown: dict[TopicPartition, Committed]) -> Mapping[TopicPartition, int]:
        """Where to begin; nothing where that can't be had. One failure a turn: polls go on."""
        try:
            found = self._begin(unknown)
        except (KafkaException, NoProgressError) as error:
            self._warn(str(error))
            silent = _named(error) & unknown.keys()
            self._untold = [*(of for of in self._untold if of not in silent), *sorted(silent)]
            return {}
        self._untold = [of for of in self._untold if of not in found]
        return found

    def _hold(
        self,
        positions: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, Committed],
    ) -> None:
        """Holds `changed`."""
        for of, position in positions.items():
            self.holdings.hold(of, position, committed[of])

    def _claim(self, came: Collection[TopicPartition]) -> None:
        if not came:
            return
        self.commit_now(came)
        with self.changed:
            self._coming -= set(came)
            self.changed.notify_all()

    def assigned(self, partitions: set[TopicPartition]) -> None:
        """on_assign."""
        self._consumer.pause(native_partitions(partitions))
        with self.changed:
            self.rebalances += 1
            self._assigned = True
            self._coming |= partitions
            self.changed.notify_all()

    def revoked(self, partitions: set[TopicPartition]) -> None:
        """on_revoke: returns when no batch reads them any more and their positions are committed.

        Meanwhile heartbeats go on, and so does the batch. Once the query stops it can't be told
        whether the batch becomes durable: then what it reads stays uncommitted.
        """
        started = time.monotonic()
        with self.changed:
            self._coming -= partitions
            self.holdings.leave(partitions)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self._closing or not self.holdings.busy(partitions))
            done = partitions - self.holdings.busy(partitions)
        self.commit_now(done)
        self._drop(partitions)
        self.last_handover = timedelta(seconds=time.monotonic() - started)

    def lost(self, partitions: set[TopicPartition]) -> None:
        """on_lost: someone else may have them already."""
        _LOG.warning(
            "group %s: %d partitions were lost, not handed over (a session that timed out, a batch "
            "longer than kafka.max.poll.interval.ms): what is not committed is read again",
            self._options.group,
            len(partitions),
        )
        self.lost_ones |= partitions
        self._drop(partitions)

    def _drop(self, partitions: set[TopicPartition]) -> None:
        with self.changed:
            self._coming -= partitions
            if not self._closing:
                self.moved |= partitions
                self.went |= partitions
            self.holdings.drop(partitions)
            for of in partitions:
                self._sent.pop(of, None)
            self.changed.notify_all()

    def _committed(self, _error: KafkaError | None, answered: list[Any]) -> None:
        """The configuration's ``on_commit``: how a commit in the background ended."""
        with self.changed:
            for one in answered:
                self._sent.pop(TopicPartition(one.topic, one.partition), None)
            self._note(answered)

    def _note(self, answered: Iterable[Any]) -> None:
        """Each commit says in its metadata under which claim it was made. Holds `changed`."""
        answered = list(answered)
        for one in answered:
            claim = claim_of(one.metadata)
            if one.error is None and claim is not None:
                of = TopicPartition(one.topic, one.partition)
                self.holdings.committed(of, one.offset, claim)
        self._note_errors(answered)
        self.changed.notify_all()

    def _note_errors(self, answered: Iterable[Any]) -> None:
        refused: dict[int, list[Any]] = {}
        for one in answered:
            if one.error is not None:
                refused.setdefault(one.error.code(), []).append(one)
        for those in refused.values():
            self._refused(those[0].error, _plain(those))

    def _refused(self, error: KafkaError, partitions: Iterable[TopicPartition]) -> None:
        """The group does not take it. If it never will, nothing would be read any more."""
        names = names_of(partitions)
        text = refusal(error, names, self._options)
        if text is None:
            self._warn(f"the offsets of {names}: {error.str()}")
            return
        with self.changed:
            self._failure = self._failure or MembershipError(text)
            self.changed.notify_all()


def _named(error: KafkaException | NoProgressError) -> frozenset[TopicPartition]:
    """The partitions of which an error is; none: it does not say."""
    if isinstance(error, NoProgressError):
        return frozenset(error.waited_for)
    return error.partitions if isinstance(error, LogsNotToldError) else frozenset()


class _Listener(RebalanceListener):
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, _consumer: CoopConsumer, partitions: list[Any]) -> None:
        self._member.assigned(_plain(partitions))

    def on_partitions_revoked(self, _consumer: CoopConsumer, partitions: list[Any]) -> None:
        self._member.revoked(_plain(partitions))

    def on_partitions_lost(self, _consumer: CoopConsumer, partitions: list[Any]) -> None:
        self._member.lost(_plain(partitions))


def _plain(partitions: Iterable[Any]) -> set[TopicPartition]:
    return {TopicPartition(one.topic, one.partition) for one in partitions}


def _told(answered: Iterable[Any]) -> dict[TopicPartition, Committed]:
    return {
        TopicPartition(one.topic, one.partition): _as_committed(one)
        for one in answered
        if one.error is None
    }


def _as_committed(answered: Any) -> Committed:
    offset = answered.offset if answered.offset >= 0 else None
    claim = claim_of(answered.metadata)
    return Committed(offset=offset, run=None) if claim is None else Committed.under(claim, offset)
