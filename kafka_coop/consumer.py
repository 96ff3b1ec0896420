"""`CoopConsumer`: a drop-in for `confluent_kafka.Consumer` that owns its group membership.

Three threads meet here. The *user's* thread polls: it runs callbacks, changes ownership and
takes records from librdkafka. The *membership* thread (`kafka_coop.backend`) joins, beats and
commits; it reaches the user's thread through a mailbox alone. librdkafka's own threads fetch.
Any other thread may call any method.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message
from prometheus_client import CollectorRegistry

from kafka_coop import forks
from kafka_coop.assignors import resolve
from kafka_coop.backend import clock
from kafka_coop.backend.classic import ClassicBackend, result_within
from kafka_coop.config import ConsumerConfig, parse
from kafka_coop.errors import ConfigurationError, RequestFailedError
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.fetching.group_metadata import encode_group_metadata
from kafka_coop.fetching.native import partition_of, position_at
from kafka_coop.handover import Callbacks, Handover, commit_error, commit_results
from kafka_coop.kafka_errors import (
    CoopException,
    commit_exception,
    configuration_exception,
    exception_of,
    kafka_error,
)
from kafka_coop.listener import CallbackListener, RebalanceCallback, RebalanceListener
from kafka_coop.membership.failures import (
    LOCAL_CONFLICT,
    LOCAL_INVALID_ARG,
    LOCAL_NO_OFFSET,
    LOCAL_STATE,
    failure_of_exception,
)
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.metrics.scrape import MemberSnapshot, PartitionProgress
from kafka_coop.observer import LoggingObserver
from kafka_coop.offsets.commits import first_error
from kafka_coop.partitions import (
    PartitionResult,
    confluent,
    offsets_of,
    plain,
    with_offset,
    with_offsets,
)
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.turns import TurnLock
from kafka_coop.types import Assignor, Generation, Partitions, TopicPartition

_CALM_SLICE = 0.030
"""Seconds of one wait inside librdkafka, which nothing of ours can wake. A record ends it."""

_BUSY_SLICE = 0.002
"""The same while a rebalance is under way: every slice is added to a moved partition's gap."""

_CLOSE_PATIENCE = 10.0
"""Seconds for what closing waits for on the network; the user's callbacks take what they take."""

_FOREVER = float("inf")
_NEVER = float("-inf")

_CLOSED = "Consumer closed"


class CoopConsumer:
    """A Kafka consumer in a group, with pluggable and cooperative partition assignment.

    Args:
        config: librdkafka's configuration keys, and ours (``coop.*``); see
            ``docs/CONFIGURATION.md``.
        assignors: Strategies to use instead of those that ``partition.assignment.strategy``
            names, most preferred first. An instance belongs to one consumer.
        registry: Where metrics go; None: prometheus_client's default registry.
        logger: A `logging.Logger` for librdkafka's log, as confluent's ``logger=``.

    Raises:
        ConfigurationException: A key is unknown, wrong, or contradicts another.
        KafkaException: librdkafka refuses the configuration.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        assignors: Iterable[Assignor] | None = None,
        registry: CollectorRegistry | None = None,
        logger: Any | None = None,
    ) -> None:
        try:
            self._config = parse(_without_strategy(config, assignors), logger=logger)
            settings = _member_settings(self._config, assignors)
            self._metrics = MemberMetrics(
                group_id=self._config.group_id,
                client_id=self._config.client_id,
                registry=registry,
                snapshot=self._snapshot,
                clock=time.monotonic,
            )
        except ConfigurationError as error:
            raise configuration_exception(error) from None
        self._log = logging.getLogger("kafka_coop")
        self._polling = threading.Lock()
        self._lock = TurnLock()
        self._unusable: str | None = None
        self._closing = False
        self._poller: int | None = None
        self._calm_until = _NEVER
        self._manual: Generation | None = None
        self._manual_serial = -1
        self._topics: tuple[str, ...] = ()
        with contextlib.ExitStack() as undo:
            undo.callback(self._metrics.close)
            self._fetcher = Fetcher(
                self._config.fetcher, logger=logger, prefetch=self._config.poll_prefetch
            )
            undo.callback(self._fetcher.close)
            try:
                self._backend = ClassicBackend(
                    self._config,
                    settings,
                    observer=LoggingObserver(self._metrics, self._log, settings.assignors),
                    logger=self._log,
                )
            except ConfigurationError as error:
                raise configuration_exception(error) from None
            self._mailbox = self._backend.mailbox
            self._handover = Handover(
                fetcher=self._fetcher,
                backend=self._backend,
                metrics=self._metrics,
                logger=self._log,
                lock=self._lock,
                auto_offset_store=self._config.auto_offset_store,
                on_commit=self._config.callbacks.on_commit,
            )
            self._next_auto_commit = (
                clock.now() + self._config.auto_commit_interval.total_seconds()
                if self._config.auto_commit and self._config.auto_commit_interval
                else _FOREVER
            )
            self._backend.start()
            undo.pop_all()
        forks.register(self)

    # --- subscribing -----------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Joins the group for these topics, instead of all earlier ones.

        Args:
            topics: Names, and regular expressions: whatever begins with ``^``.
            on_assign: Called as ``f(consumer, partitions)`` inside `poll`, `consume` and
                `close`, with what was added. See `RebalanceListener`.
            on_revoke: The same, with what is about to go.
            on_lost: The same, with what is gone. Without it, ``on_revoke`` is called.
            listener: The same as an object, instead of functions.

        Raises:
            KafkaException: ``_INVALID_ARG``: a regular expression that does not compile, or
                partitions that were assigned by hand.
            TypeError: Not a list of strings, or a callback that can't be called.
        """
        self._require_usable()
        names, patterns = _split_topics(topics)
        given = (on_assign, on_revoke, on_lost)
        if listener is not None and any(g is not None for g in given):
            raise TypeError("subscribe() takes either listener= or on_assign/on_revoke/on_lost")
        if self._manual is not None:
            raise _error(
                LOCAL_INVALID_ARG,
                "partitions are assigned by hand: call unassign() before subscribe()",
            )
        self._handover.callbacks = self._bound(listener or CallbackListener(*given))
        self._topics = tuple(topics)
        if topics:
            self._backend.subscribe(names, patterns)
        else:
            self._backend.unsubscribe()

    def unsubscribe(self) -> None:
        """Leaves the group. on_revoke comes with the next `poll` or with `close`."""
        self._require_usable()
        self._topics = ()
        if self._manual is not None:
            self.unassign()
        self._backend.unsubscribe()

    def subscription(self) -> list[str]:
        """The topics and regular expressions of the last `subscribe`."""
        self._require_usable()
        return list(self._topics)

    def enforce_rebalance(self, reason: str = "the user asked for a rebalance") -> None:
        """Asks the group for a round (KIP-568). Returns at once; does nothing outside a group."""
        self._require_usable()
        if not isinstance(reason, str):
            raise TypeError(f"reason expects a string, got {reason!r}")
        self._backend.enforce_rebalance(reason)

    # --- records ---------------------------------------------------------------------------

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Returns the next message, waiting for it up to ``timeout`` seconds.

        Args:
            timeout: Negative or None: wait until there is one.

        Returns:
            A record, or a partition's error (`Message.error`); None if time ran out.

        Raises:
            KafkaException: The membership failed in a way that the user must know of.
            RuntimeError: The consumer is closed.
            Exception: Whatever a callback raised.
        """
        mailbox = self._mailbox
        now = clock.now()
        leased = now < mailbox.lease_until or self._manual is not None
        if leased and now < self._calm_until and not mailbox.items:
            with self._lock.raw:
                message = self._fetcher.next(0)
            if message is not None:
                mailbox.last_poll = now
                return message
        fetched = self._wait_for_messages(1, _seconds(timeout), self._one)
        return fetched[0] if fetched else None

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Returns up to ``num_messages`` messages, waiting up to ``timeout`` seconds for them.

        Returns early with what it has when partitions are about to be taken away: these
        records are to be processed before on_revoke is called.

        Raises:
            ValueError: ``num_messages`` is not between 0 and 1,000,000.
            KafkaException, RuntimeError, Exception: As `poll`.
        """
        if not 0 <= num_messages <= 1_000_000:  # noqa: PLR2004  # confluent's own limit
            raise ValueError(f"num_messages must be between 0 and 1000000 (1M), got {num_messages}")
        return self._wait_for_messages(num_messages, _seconds(timeout), self._fetcher.take)

    def __iter__(self) -> Iterator[Message]:
        """Yields messages until the consumer is closed by another thread, or `poll` raises."""
        while True:
            try:
                message = self.poll(0.5)
            except RuntimeError:
                if self._closing:
                    return
                raise
            if message is not None:
                yield message

    def _one(self, _n: int, timeout: float) -> list[Message]:
        message = self._fetcher.next(timeout)
        return [] if message is None else [message]

    def _wait_for_messages(
        self, n: int, timeout: float, take: Callable[[int, float], list[Message]]
    ) -> list[Message]:
        """The slow path of poll, and consume: work for the membership first, then records."""
        self._require_usable()
        self._require_outside_callbacks("poll() and consume()")
        deadline = time.monotonic() + timeout
        if not self._polling.acquire(timeout=-1 if timeout == _FOREVER else max(timeout, 0)):
            return []  # another thread polls: what comes is its to have
        self._poller = threading.get_ident()
        self._calm_until = _NEVER
        try:
            self._metrics.polls.entered(time.monotonic())
            return self._poll_in_slices(n, deadline, take)
        finally:
            self._metrics.polls.left(time.monotonic())
            self._calm_until = self._calm_for_now()
            self._polling.release()

    def _poll_in_slices(
        self, n: int, deadline: float, take: Callable[[int, float], list[Message]]
    ) -> list[Message]:
        got: list[Message] = []
        try:
            self._gather(got, n, deadline, take)
        except BaseException:
            self._put_back(got)
            raise
        return got

    def _gather(
        self,
        got: list[Message],
        n: int,
        deadline: float,
        take: Callable[[int, float], list[Message]],
    ) -> None:
        while True:
            if self._closing:
                raise RuntimeError(_CLOSED)
            now = clock.now()
            self._mailbox.last_poll = now
            if not got:
                self._attend(now)
            elif self._mailbox.items:
                return  # processed before the next call, which may take partitions away
            if self._handover.errors:
                got.append(self._handover.errors.popleft())
                return
            self._lock.take_turn()
            remaining = deadline - time.monotonic()
            wait = max(0.0, min(remaining, self._slice()))
            with self._lock:
                self._fetcher.hold(not self._may_deliver(clock.now()))
                got += take(n - len(got), wait)
            if got and not self._may_deliver(clock.now()):
                # Stopped or starved in the wait: what came in the end is not ours any more.
                self._put_back(got)
                got[:] = [message for message in got if message.error() is not None]
            if len(got) >= n or remaining <= wait:
                return

    def _may_deliver(self, now: float) -> bool:
        """The lease guards what the group assigned; what the user did is the user's."""
        return now < self._mailbox.lease_until or self._manual is not None

    def _put_back(self, messages: list[Message]) -> None:
        """The user does not get these: a Ctrl-C, or a callback's exception, comes in between.

        They would count as delivered, and be committed.
        """
        first: dict[TopicPartition, OffsetAndMetadata] = {}
        for message in messages:
            if message.error() is None:
                at = OffsetAndMetadata(offset=position_at(message))
                first.setdefault(partition_of(message), at)
        with self._lock:
            for of, at in first.items():
                if of in self._handover.owned:
                    self._fetcher.seek(of, at.offset, at.leader_epoch)

    def _attend(self, now: float) -> None:
        """What is to be done before records are taken."""
        if self._mailbox.items:
            self._handover.attend()
        if now >= self._next_auto_commit:
            # Positions of what earlier polls returned: the user has done with these.
            self._next_auto_commit = now + self._config.auto_commit_interval.total_seconds()
            self._handover.commit_async(self._handover.to_commit(self._handover.owned))
        self._handover.settle_commits()

    def _slice(self) -> float:
        busy = self._mailbox.expecting or not self._handover.settled
        return _BUSY_SLICE if busy else _CALM_SLICE

    def _calm_for_now(self) -> float:
        """Until when `poll` may take its short way."""
        handover = self._handover
        if self._closing or self._unusable or handover.errors or handover.committing:
            return _NEVER
        return self._next_auto_commit

    # --- commits ---------------------------------------------------------------------------

    def commit(
        self,
        message: Message | None = None,
        offsets: list[Any] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002  # confluent's signature
    ) -> list[Any] | None:
        """Commits a message's successor, the given offsets, or what was delivered (or stored).

        Commits go out one after the other, with this member's generation. One that meets a
        rebalance waits for its end, and then commits what is still owned.

        Args:
            message: Commits the offset after this record.
            offsets: Commits exactly these.
            asynchronous: Return at once; ``on_commit`` of the configuration tells the end.

        Returns:
            Synchronous: the partitions with their offsets and errors. Asynchronous: None.

        Raises:
            CommitFailedException: Synchronous: the partitions are not this consumer's any more.
            KafkaException: ``_NO_OFFSET``: there is nothing to commit; or what the broker says.
            TypeError: A message that is none.
            ValueError: Both ``message`` and ``offsets``.
        """
        self._require_usable()
        wanted = self._offsets_to_commit(message, offsets)
        if asynchronous:
            self._handover.commit_async(wanted)
            self._calm_until = _NEVER
            return None
        timeout = self._config.connection.request_timeout
        results = self._result(self._backend.commit(wanted, timeout), timeout)
        self._handover.note_commit(wanted, results)
        worst = first_error(results)
        if worst is not ErrorCode.none and set(results.values()) == {worst}:
            raise commit_exception(commit_error(worst))
        if worst is not ErrorCode.none:
            return commit_results(wanted, results)
        return with_offsets(wanted)

    def _offsets_to_commit(
        self, message: Message | None, offsets: list[Any] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive: give one of them")
        if message is not None:
            return _after(message)
        if offsets is not None:
            wanted = offsets_of(offsets)
            for partition, one in wanted.items():
                if one.offset < 0:
                    raise _error(LOCAL_INVALID_ARG, f"{partition}: {one.offset} can't be committed")
        else:
            wanted = self._handover.to_commit(self._handover.owned)
        if not wanted:
            raise _error(LOCAL_NO_OFFSET, "nothing to commit: no new offset since the last one")
        return wanted

    def store_offsets(
        self, message: Message | None = None, offsets: list[Any] | None = None
    ) -> None:
        """With ``enable.auto.offset.store=false``: what the next commit is to take.

        Raises:
            KafkaException: ``_INVALID_ARG``: offsets are stored automatically. ``_STATE``: a
                partition is not owned.
            ValueError: Neither or both of the arguments.
        """
        self._require_usable()
        if (message is None) == (offsets is None):
            raise ValueError("expected either message or offsets")
        if self._config.auto_offset_store:
            raise _error(
                LOCAL_INVALID_ARG,
                "store_offsets() needs enable.auto.offset.store=false in the configuration",
            )
        wanted = _after(message) if message is not None else offsets_of(offsets or ())
        with self._lock:
            self._require_owned(wanted)
            self._handover.ledger.store(wanted)

    def committed(
        self, partitions: list[Any], timeout: float | None = -1
    ) -> list[PartitionResult | confluent_kafka.TopicPartition]:
        """The group's committed offsets; ``OFFSET_INVALID`` where there is none.

        Raises:
            KafkaException: ``_TIMED_OUT``, or what the broker says of the group.
        """
        self._require_usable()
        wanted = plain(partitions)
        within = timedelta(seconds=min(_seconds(timeout), 3600.0))
        found = self._result(self._backend.committed(Partitions.of(wanted), within), within)
        listed: list[PartitionResult | confluent_kafka.TopicPartition] = []
        for of in wanted:
            one = found[of]
            failed = one.error is not ErrorCode.none
            listed.append(
                PartitionResult(
                    of.topic,
                    of.partition,
                    error=kafka_error(int(one.error), one.error.name.upper()),
                )
                if failed
                else with_offset(
                    of,
                    OffsetAndMetadata(
                        offset=one.offset if one.offset >= 0 else OFFSET_INVALID,
                        leader_epoch=one.leader_epoch,
                        metadata=one.metadata,
                    ),
                )
            )
        return listed

    # --- positions -------------------------------------------------------------------------

    def position(self, partitions: list[Any]) -> list[confluent_kafka.TopicPartition]:
        """Each partition's next offset; ``OFFSET_INVALID`` where none is known yet."""
        self._require_usable()
        wanted = plain(partitions)
        with self._lock:
            known = self._fetcher.positions(Partitions.of(wanted))
        unknown = OffsetAndMetadata(offset=OFFSET_INVALID)
        return with_offsets({of: known.get(of, unknown) for of in wanted})

    def seek(self, partition: Any) -> None:
        """Goes on from ``partition.offset``.

        Raises:
            KafkaException: ``_STATE``: the partition is not owned.
        """
        self._require_usable()
        ((of, to),) = offsets_of([partition], argument="partition").items()
        with self._lock:
            self._require_owned([of])
            if self._handover.is_awaiting(of):
                self._handover.override_starts({of: to})
            else:
                self._fetcher.seek(of, to.offset, to.leader_epoch)

    def pause(self, partitions: list[Any]) -> None:
        """Delivers nothing of these until `resume`. The flag goes when the partition goes.

        Raises:
            KafkaException: ``_STATE``: a partition is not owned.
        """
        self._require_usable()
        wanted = plain(partitions)
        with self._lock:
            self._require_owned(wanted)
            self._handover.pause(Partitions.of(wanted))

    def resume(self, partitions: list[Any]) -> None:
        """Undoes `pause`.

        Raises:
            KafkaException: ``_STATE``: a partition is not owned.
        """
        self._require_usable()
        wanted = plain(partitions)
        with self._lock:
            self._require_owned(wanted)
            self._handover.resume(Partitions.of(wanted))

    # --- assignment ------------------------------------------------------------------------

    def assignment(self) -> list[confluent_kafka.TopicPartition]:
        """The partitions that this consumer owns, or was assigned by hand."""
        self._require_usable()
        return confluent(self._handover.owned)

    def assign(self, partitions: list[Any]) -> None:
        """By hand: fetches exactly these, without a group's help.

        Inside on_assign: overrides where to start, as `incremental_assign`.

        Raises:
            KafkaException: ``_INVALID_ARG``: the consumer is subscribed.
        """
        if self._starts_in_callback(partitions):
            return
        wanted = plain(partitions)
        gone = self._handover.owned - Partitions.of(wanted)
        self._handover.release(gone)
        again = [p for p in partitions if _is(p, self._handover.owned)]
        self._handover.release(Partitions.of(plain(again)))
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: list[Any]) -> None:
        """By hand: fetches these too. Inside on_assign: overrides where to start.

        Offsets may be absolute, ``OFFSET_BEGINNING``, ``OFFSET_END``, or left unset: the
        group's committed offset then, or what ``auto.offset.reset`` says.

        Raises:
            KafkaException: ``_INVALID_ARG``: the consumer is subscribed; ``_CONFLICT``: a
                partition is assigned already.
        """
        if self._starts_in_callback(partitions):
            return
        wanted = Partitions.of(plain(partitions))
        if twice := wanted & self._handover.owned:
            raise _error(LOCAL_CONFLICT, f"already assigned: {list(twice)}")
        self._manual_serial -= 1
        self._manual = Generation(self._manual_serial)
        self._handover.own(wanted, self._manual, by_hand=True)
        chosen = _chosen_starts(partitions)
        self._handover.override_starts(chosen)
        if rest := wanted - Partitions.of(chosen):
            self._backend.find_starts(rest, self._manual)

    def unassign(self) -> None:
        """By hand: fetches nothing. Inside a callback: nothing to do, ours is done after it."""
        self._require_usable()
        if self._handover.calling is None:
            self._require_unsubscribed()
            self._handover.release(self._handover.owned)
            self._manual = None

    def incremental_unassign(self, partitions: list[Any]) -> None:
        """By hand: stops fetching these. Inside a callback: nothing to do.

        Raises:
            KafkaException: ``_INVALID_ARG``: a partition is not assigned, or the consumer is
                subscribed.
        """
        self._require_usable()
        gone = Partitions.of(plain(partitions))
        if self._handover.calling is None:
            self._require_unsubscribed()
            if unknown := gone - self._handover.owned:
                raise _error(LOCAL_INVALID_ARG, f"not assigned: {list(unknown)}")
            self._handover.release(gone)

    def _starts_in_callback(self, partitions: list[Any]) -> bool:
        """Whether this is on_assign's way of saying where to start."""
        self._require_usable()
        if self._handover.calling is None:
            self._require_unsubscribed()
            return False
        plain(partitions)
        if self._handover.calling == "assigned":
            self._handover.override_starts(_chosen_starts(partitions))
        return True

    def _require_unsubscribed(self) -> None:
        if self._topics:
            raise _error(
                LOCAL_INVALID_ARG,
                "the consumer is subscribed: the group assigns its partitions. Call "
                "unsubscribe() first, or set offsets inside on_assign",
            )

    # --- the cluster and the group ---------------------------------------------------------
    # confluent-kafka lets one thread at a time into a consumer, and whoever waits sleeps and
    # looks again: beside a thread that polls, a query could wait for ever. The lock is fair.

    def get_watermark_offsets(
        self,
        partition: Any,
        timeout: float | None = -1,
        cached: bool = False,  # noqa: FBT001, FBT002  # confluent's signature
    ) -> tuple[int, int]:
        """The log's first offset and the one after its last."""
        self._require_usable()
        (of,) = plain([partition], argument="partition")
        native = confluent_kafka.TopicPartition(of.topic, of.partition)
        with self._lock:
            return self._fetcher.get_watermark_offsets(native, _native(timeout), cached=cached)

    def offsets_for_times(
        self, partitions: list[Any], timeout: float | None = -1
    ) -> list[confluent_kafka.TopicPartition]:
        """Per partition, the first offset at or after the time (ms) given in place of offsets."""
        self._require_usable()
        native = [
            confluent_kafka.TopicPartition(of.topic, of.partition, given.offset)
            for of, given in zip(plain(partitions), partitions, strict=True)
        ]
        with self._lock:
            return self._fetcher.offsets_for_times(native, _native(timeout))

    def list_topics(self, topic: str | None = None, timeout: float | None = -1) -> Any:
        """`confluent_kafka.admin.ClusterMetadata`."""
        self._require_usable()
        with self._lock:
            return self._fetcher.list_topics(topic, _native(timeout))

    def cluster_id(self, timeout: float | None = -1) -> str:
        """The cluster's id (KIP-78)."""
        self._require_usable()
        with self._lock:
            return self._fetcher.cluster_id(_native(timeout))

    def memberid(self) -> str:
        """The id that the coordinator gave this member; empty before it has."""
        self._require_usable()
        return self._backend.metadata().member_id

    def consumer_group_metadata(self) -> Any:
        """For `Producer.send_offsets_to_transaction`: fenced by this generation (KIP-447).

        To be fetched anew after every rebalance.
        """
        self._require_usable()
        return encode_group_metadata(self._backend.metadata())

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """For later logins, of the membership's connections and of librdkafka's."""
        self._require_usable()
        with self._lock:
            self._fetcher.set_sasl_credentials(username, password)
        self._backend.set_sasl_credentials(username, password)

    # --- the end ---------------------------------------------------------------------------

    def close(self) -> None:
        """Gives everything up and leaves the group at once.

        Calls on_revoke (or on_lost, where the group went on without us), commits what
        auto-commit is due to commit, and sends LeaveGroup (static members do not). Wakes other
        threads' `poll`. A second call does nothing.

        Raises:
            Exception: The first that a callback raised; the consumer is closed all the same.
        """
        self._require_outside_callbacks("close()")
        if self._unusable is not None or self._closing:
            return
        self._closing = True
        self._calm_until = _NEVER
        with self._polling:
            self._poller = threading.get_ident()
            try:
                self._leave()
            finally:
                self._unusable = _CLOSED
                self._backend.stop(timedelta(seconds=_CLOSE_PATIENCE))
                with self._lock:
                    self._fetcher.close()
                self._metrics.close()
                forks.forget(self)

    def _leave(self) -> None:
        first: BaseException | None = None
        if self._manual is not None and self._config.auto_commit:
            self._handover.commit_async(self._handover.to_commit(self._handover.owned))
        self._handover.finish_commits(timedelta(seconds=_CLOSE_PATIENCE / 2))
        self._backend.begin_close()
        deadline = time.monotonic() + _CLOSE_PATIENCE
        while not self._mailbox.left or self._mailbox.items:
            try:
                if self._mailbox.items:
                    self._handover.attend()
                    deadline = time.monotonic() + _CLOSE_PATIENCE
            except CoopException as error:
                self._log.warning("while closing: %s", error)
            except BaseException as error:  # noqa: BLE001  # leave first, then raise it
                first = first or error
            if time.monotonic() >= deadline:
                break
            self._mailbox.wait(0.1)
        if first is not None:
            raise first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- small things ----------------------------------------------------------------------

    def _bound(self, listener: RebalanceListener) -> Callbacks:
        return Callbacks(
            assigned=lambda ps: listener.on_partitions_assigned(self, confluent(ps)),
            revoked=lambda ps: listener.on_partitions_revoked(self, confluent(ps)),
            lost=lambda ps: listener.on_partitions_lost(self, confluent(ps)),
        )

    def _require_usable(self) -> None:
        if self._unusable is not None:
            raise RuntimeError(self._unusable)

    def _require_outside_callbacks(self, what: str) -> None:
        if self._handover.calling is not None and self._poller == threading.get_ident():
            raise RuntimeError(f"{what} can't be called inside a rebalance callback")

    def _require_owned(self, partitions: Iterable[TopicPartition]) -> None:
        if foreign := sorted(Partitions.of(partitions) - self._handover.owned):
            raise _error(LOCAL_STATE, f"not assigned to this consumer: {foreign[:5]}")

    def _result(self, future: Any, timeout: timedelta) -> Any:
        """Waits for the membership thread, a little longer than it waits itself."""
        try:
            return result_within(future, timeout + timedelta(seconds=1))
        except RequestFailedError as error:
            raise exception_of(failure_of_exception(error)) from None

    def _snapshot(self) -> MemberSnapshot:
        """For a scrape of the metrics: must not wait for a poll of the user."""
        if self._unusable is not None or not self._lock.try_within(0.1):
            return MemberSnapshot()
        progress = {}
        try:
            for of, at in self._fetcher.positions(self._handover.owned).items():
                native = confluent_kafka.TopicPartition(of.topic, of.partition)
                end = -1
                with contextlib.suppress(KafkaException):  # not known yet
                    end = self._fetcher.get_watermark_offsets(native, cached=True)[1]
                known = end if end >= 0 else None
                progress[of] = PartitionProgress(position=at.offset, end=known)
        except (KafkaException, RuntimeError):
            progress.clear()  # closed meanwhile
        finally:
            self._lock.release()
        return MemberSnapshot(generation=self._backend.metadata().generation, progress=progress)


def _without_strategy(
    config: Mapping[str, Any], assignors: Iterable[Assignor] | None
) -> Mapping[str, Any]:
    """Instances replace the names, which may then be anybody's own."""
    if assignors is None or not isinstance(config, Mapping):
        return config
    return {k: v for k, v in config.items() if k != "partition.assignment.strategy"}


def _member_settings(
    config: ConsumerConfig, assignors: Iterable[Assignor] | None
) -> MemberSettings:
    chosen = tuple(assignors) if assignors is not None else tuple(map(resolve, config.strategies))
    for assignor in chosen:
        if not isinstance(assignor, Assignor):
            raise ConfigurationError(
                "assignors",
                f"assignors: {assignor!r} is no Assignor: it lacks name, supported_protocols, "
                "subscription_user_data, assign or on_assignment",
            )
    return MemberSettings(
        group_id=config.group_id,
        client_id=config.client_id,
        assignors=chosen,
        instance_id=config.instance_id,
        rack=config.rack,
        session_timeout=config.session_timeout,
        heartbeat_interval=config.heartbeat_interval,
        rebalance_timeout=config.rebalance_timeout,
        request_timeout=config.connection.request_timeout,
        retry_backoff=config.retry_backoff,
        retry_backoff_max=config.retry_backoff_max,
        metadata_max_age=config.metadata_max_age,
        allow_auto_create_topics=config.allow_auto_create_topics,
        auto_commit=config.auto_commit,
        seed=time.time_ns() & 0xFFFFFFFF,
    )


def _split_topics(topics: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names, and regular expressions."""
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise TypeError(f"topics expects a list of strings, got {topics!r}")
    names: list[str] = []
    patterns: list[str] = []
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise TypeError(f"topics expects non-empty strings, got {topic!r}")
        if not topic.startswith("^"):
            names.append(topic)
            continue
        try:
            re.compile(topic)
        except re.error as error:
            raise _error(
                LOCAL_INVALID_ARG, f"topics: {topic!r} is no regular expression: {error}"
            ) from None
        patterns.append(topic)
    return tuple(names), tuple(patterns)


def _chosen_starts(partitions: Iterable[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Those for which the user said where to start."""
    unset = (OFFSET_INVALID, confluent_kafka.OFFSET_STORED)
    return offsets_of([p for p in partitions if p.offset not in unset])


def _is(given: Any, among: Partitions) -> bool:
    return (given.topic, given.partition) in among


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


def _error(code: int, text: str) -> CoopException:
    return CoopException(kafka_error(code, text))


def _seconds(timeout: float | None) -> float:
    return _FOREVER if timeout is None or timeout < 0 else float(timeout)


def _native(timeout: float | None) -> float:
    return -1.0 if timeout is None else float(timeout)
