"""`CoopConsumer`: a drop-in for `confluent_kafka.Consumer` that owns its group membership.

Three threads meet here. The *user's* thread polls: it runs callbacks, changes ownership and
takes records from librdkafka. The *membership* thread (`kafka_coop.backend`) joins, beats and
commits; it reaches the user's thread through a mailbox alone. librdkafka's own threads fetch.
Any other thread may call any method.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import confluent_kafka
from confluent_kafka import KafkaException, Message
from prometheus_client import CollectorRegistry

from kafka_coop import forks
from kafka_coop.backend import clock
from kafka_coop.client.by_hand import ByHand, chosen_starts
from kafka_coop.client.closing import PATIENCE, TOO_LATE, Closing, Draining
from kafka_coop.client.commits import Commits
from kafka_coop.client.dropped import asking_weakly, knowing_weakly, leave_when_dropped
from kafka_coop.client.handover import Callbacks, Handover, UserCallback
from kafka_coop.client.health import Health, assess
from kafka_coop.client.measuring import Measuring
from kafka_coop.client.memberships import membership
from kafka_coop.client.observer import LoggingObserver
from kafka_coop.client.ownership import Ownership
from kafka_coop.client.polling import CLOSED, FOREVER, Polling
from kafka_coop.client.positions import Positions
from kafka_coop.client.subscribing import given_config, member_settings, split_topics
from kafka_coop.closeable import Closeable
from kafka_coop.config import parse
from kafka_coop.errors import ConfigurationError
from kafka_coop.fetching.group_metadata import encode_group_metadata
from kafka_coop.kafka_errors import configuration_exception, coop_exception
from kafka_coop.listener import RebalanceCallback, RebalanceListener, chosen_listener
from kafka_coop.membership.failures import LOCAL_INVALID_ARG
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.metrics.scrape import MemberSnapshot
from kafka_coop.partitions import PartitionResult, confluent, plain, plain_one
from kafka_coop.turns import TurnLock, is_called_from
from kafka_coop.types import Assignor

_HOLDERS = tuple(
    f"{__name__.rpartition('.')[0]}.{name}"
    for name in ("backend", "client", "consumer", "fetching", "turns")
)
"""Modules in which a thread is that has a consumer's lock, or its turn to poll."""


class CoopConsumer(Closeable):
    """A Kafka consumer in a group, with pluggable and cooperative partition assignment.

    Args:
        config: librdkafka's configuration keys, and ours (``coop.*``); see
            ``docs/CONFIGURATION.md``. Keywords (``**more``) add to it and go before it, as
            confluent's do.
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
        config: Mapping[str, Any] | None = None,
        *,
        assignors: Iterable[Assignor] | None = None,
        registry: CollectorRegistry | None = None,
        logger: Any | None = None,
        **more: Any,
    ) -> None:
        assignors = None if assignors is None else tuple(assignors)
        self._log = logging.getLogger("kafka_coop")
        self._unusable: str | None = None
        self._leaving = False
        self._topics: tuple[str, ...] = ()
        self._subscribed_at = clock.now()  # when topics came after none
        self._lock = TurnLock()
        try:
            self._config = parse(given_config(config, more, assignors), logger=logger)
            settings = member_settings(self._config, assignors)
            with contextlib.ExitStack() as undo:
                self._wire(settings, registry, logger, undo)
                self._backend.start(self._handover.attend)
                undo.pop_all()
        except ConfigurationError as error:
            raise configuration_exception(error) from None
        forks.register(self)
        self._dropped = leave_when_dropped(self, self._backend, self._metrics, self._log)

    def _wire(
        self,
        settings: MemberSettings,
        registry: CollectorRegistry | None,
        logger: Any | None,
        undo: contextlib.ExitStack,
    ) -> None:
        self._metrics = MemberMetrics(
            group_id=self._config.group_id,
            client_id=self._config.client_id,
            registry=registry,
            snapshot=asking_weakly(self._snapshot),
            max_poll_interval=self._config.rebalance_timeout,
            clock=clock.now,
        )
        undo.callback(self._metrics.close)
        ours = self._config.group_protocol != "consumer"  # else the broker assigns
        self._fetcher, self._backend = membership(
            self._config,
            settings,
            lock=self._lock,
            observer=LoggingObserver(self._metrics, self._log, settings.assignors if ours else ()),
            statistics=self._metrics.librdkafka,
            log=self._log,
            logger=logger,
            undo=undo,
        )
        self._mailbox = self._backend.mailbox
        self._ownership = Ownership(self._fetcher, self._metrics, self._lock)
        self._positions = Positions(self._ownership, self._fetcher)
        warn = partial(self._log.warning, "%s")
        self._measuring = Measuring(settings.assignors, self._positions, warn)
        self._commits = Commits(
            config=self._config,
            ownership=self._ownership,
            backend=self._backend,
            logger=self._log,
        )
        self._by_hand = ByHand(self._ownership, self._backend, self._commits)
        self._handover = Handover(
            backend=self._backend,
            ownership=self._ownership,
            commits=self._commits,
            metrics=self._metrics,
        )
        self._draining = Draining(self._ownership)
        self._polling = Polling(
            mailbox=self._mailbox,
            ownership=self._ownership,
            commits=self._commits,
            handover=self._handover,
            fetcher=self._fetcher,
            times=self._metrics.polls,
            measuring=self._measuring,
            draining=self._draining,
        )

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        """One member has one consumer: it is not copied, nor pickled, as confluent's is not."""
        raise TypeError("a consumer can't be copied or pickled: make another one")

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
            topics: Names, and regular expressions: whatever begins with ``^``. None: as
                `unsubscribe`.
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
        names, patterns = split_topics(topics)
        if self._by_hand.active:
            raise coop_exception(
                LOCAL_INVALID_ARG,
                "partitions are assigned by hand: call unassign() before subscribe()",
            )
        callbacks = self._bound(chosen_listener(listener, on_assign, on_revoke, on_lost))
        self._draining.stop()
        if not topics:
            self.unsubscribe()  # with the callbacks of before: of what they were given
            return
        before = self._handover.callbacks, self._topics
        if not self._topics:
            self._subscribed_at = clock.now()
        self._handover.callbacks = callbacks
        self._topics = tuple(topics)
        try:
            self._backend.subscribe(names, patterns)
        except KafkaException:
            self._handover.callbacks, self._topics = before
            raise

    def unsubscribe(self) -> None:
        """Leaves the group. on_revoke comes with the next `poll` or with `close`.

        Nothing is auto-committed for it, as in Java's client (confluent's does): commit before, or
        in on_revoke.
        """
        self._require_usable()
        self._topics = ()
        self._commits.postpone()
        if self._by_hand.active:
            self._by_hand.let_go()  # in a callback, too, where unassign() does nothing
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
        # A file's name in it may have what is no text: no request could hold it.
        self._backend.enforce_rebalance(reason.encode(errors="replace").decode())

    # --- records ---------------------------------------------------------------------------

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Returns the next message, waiting for it up to ``timeout`` seconds.

        Args:
            timeout: Negative or None: wait until there is one.

        Returns:
            A record, or a partition's error (`Message.error`); None if time ran out, where nothing
            more is to come, for this consumer has just been `drained`, or where a `Shutdown` has
            noted a signal.

        Raises:
            KafkaException: The membership failed in a way that the user must know of.
            RuntimeError: The consumer is closed, was closed meanwhile, or this is called inside a
                callback.
            Exception: Whatever a callback raised.
        """
        polling = self._polling
        now = clock.now()
        calm = now < polling.calm_until and not self._mailbox.items and not self._lock.held
        if calm and polling.may_deliver(now):
            message = None
            try:
                with self._lock.raw:
                    if now < polling.calm_until:  # no other thread polls, or closes, since
                        message = self._fetcher.next(0)
            except BaseException as ended:  # a Ctrl-C at the lock's release: not the user's yet
                polling.give_back([] if message is None else [message])
                polling.close_if_asked(ended)
                raise
            if message is not None:
                if polling.close is None:
                    self._mailbox.last_poll = now
                    return message
                polling.give_back([message])  # closed by a signal handler meanwhile
        self._require_usable()
        self._require_outside_polls()
        return polling.one(_seconds(timeout))

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Returns up to ``num_messages`` messages, waiting up to ``timeout`` seconds for them.

        Returns early with what it has when partitions are about to be taken away, for these
        records are to be processed before on_revoke is called; and where `poll` does with None.

        Raises:
            ValueError: ``num_messages`` is not between 0 and 1,000,000.
            KafkaException, RuntimeError, Exception: As `poll`.
        """
        if not 0 <= num_messages <= 1_000_000:  # noqa: PLR2004  # confluent's own limit
            raise ValueError(f"num_messages must be between 0 and 1000000 (1M), got {num_messages}")
        self._require_usable()
        self._require_outside_polls()
        return self._polling.many(num_messages, _seconds(timeout))

    def __iter__(self) -> Iterator[Message]:
        """Yields messages until the consumer is drained, or closed by a thread or signal handler.

        Ends, too, with whatever `poll` raises.
        """
        while not self.drained:
            try:
                message = self.poll(0.5)
            except RuntimeError as error:
                if self._polling.closing and error.args == (CLOSED,):
                    return
                raise
            if message is not None:
                yield message

    # --- commits ---------------------------------------------------------------------------

    def commit(
        self,
        message: Message | None = None,
        offsets: list[Any] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002  # confluent's signature
    ) -> list[Any] | None:
        """Commits a message's successor, the given offsets, or what was delivered (or stored).

        Commits go out in the order asked for, with this member's generation; those that wait for
        an answer meanwhile go together. One that meets a rebalance waits for its end, and then
        commits what is still owned.

        Args:
            message: Commits the offset after this record.
            offsets: Commits exactly these, but for what is no offset (`position` before a
                start is known).
            asynchronous: Return at once; ``on_commit`` of the configuration tells the end, that
                there is nothing to commit (``_NO_OFFSET``) included.

        Returns:
            Synchronous: the partitions with their offsets. Asynchronous: None.

        Raises:
            CommitException: Synchronous: a partition was not committed. Its ``partitions`` tell
                which were; `CommitFailedException`, one of its kind, that they are not this
                consumer's any more.
            KafkaException: Synchronous: ``_NO_OFFSET``: there is nothing to commit.
            TypeError: A message that is none.
            ValueError: Both ``message`` and ``offsets``.
        """
        self._require_usable()
        if not asynchronous:
            return self._commits.commit(message, offsets)
        self._commits.commit_later(message, offsets)
        self._polling.disturb()
        return None

    def store_offsets(
        self, message: Message | None = None, offsets: list[Any] | None = None
    ) -> None:
        """With ``enable.auto.offset.store=false``: what the next commit is to take.

        Partitions that went meanwhile are left out.

        Raises:
            KafkaException: ``_INVALID_ARG``: offsets are stored automatically. ``_STATE``: none
                of these partitions is owned.
            ValueError: Neither or both of the arguments.
        """
        self._require_usable()
        self._commits.store(message, offsets)

    def committed(
        self, partitions: list[Any], timeout: float | None = -1
    ) -> list[PartitionResult | confluent_kafka.TopicPartition]:
        """The group's committed offsets; ``OFFSET_INVALID`` where there is none.

        Raises:
            KafkaException: ``_TIMED_OUT``, or what the broker says of the group. What it says of
                a partition, its topic say, is that one's ``error``.
        """
        self._require_usable()
        return self._commits.committed(partitions, _seconds(timeout))

    # --- positions -------------------------------------------------------------------------

    def position(self, partitions: list[Any]) -> list[confluent_kafka.TopicPartition]:
        """Each partition's next offset; ``OFFSET_INVALID`` where none is known yet."""
        self._require_usable()
        return self._positions.position(partitions)

    def seek(self, partition: Any) -> None:
        """Goes on from ``partition.offset``.

        Raises:
            KafkaException: ``_STATE``: the partition is not owned. ``_INVALID_ARG``: that is no
                offset; confluent's takes ``OFFSET_INVALID`` for ``auto.offset.reset``.
        """
        self._require_usable()
        self._measuring.restart(self._positions.seek(partition))

    def pause(self, partitions: list[Any]) -> None:
        """Delivers nothing of these until `resume`. The flag goes when the partition goes.

        Partitions that are not owned are left out.
        """
        self._require_usable()
        self._positions.pause(partitions)

    def resume(self, partitions: list[Any]) -> None:
        """Undoes `pause`. Partitions that are not owned, and so not paused, are left out."""
        self._require_usable()
        self._positions.resume(partitions)

    # --- assignment ------------------------------------------------------------------------

    def assignment(self) -> list[confluent_kafka.TopicPartition]:
        """The partitions that this consumer owns, or was assigned by hand."""
        self._require_usable()
        return confluent(self._ownership.owned)

    def assign(self, partitions: list[Any]) -> None:
        """By hand: fetches exactly these, without a group's help.

        Inside on_assign: overrides where to start, as `incremental_assign`.

        Raises:
            KafkaException: ``_INVALID_ARG``: the consumer is subscribed.
        """
        if self._starts_in_callback(partitions):
            return
        self._by_hand.assign(partitions)

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
        self._by_hand.add(partitions)

    def unassign(self) -> None:
        """By hand: fetches nothing. Inside a callback: nothing to do, ours is done after it."""
        self._require_usable()
        if self._handover.calls is None:
            self._require_unsubscribed()
            self._by_hand.clear()

    def incremental_unassign(self, partitions: list[Any]) -> None:
        """By hand: stops fetching these. Inside a callback: nothing to do.

        Raises:
            KafkaException: ``_INVALID_ARG``: a partition is not assigned, or the consumer is
                subscribed.
        """
        self._require_usable()
        if self._handover.calls is None:
            self._require_unsubscribed()
            self._by_hand.remove(partitions)

    def _starts_in_callback(self, partitions: list[Any]) -> bool:
        """Whether this is on_assign's way of saying where to start."""
        self._require_usable()
        if self._handover.calls is None:
            self._require_unsubscribed()
            return False
        plain(partitions)
        if self._handover.calls == "assigned":
            self._ownership.override_starts(chosen_starts(partitions))
        return True

    def _require_unsubscribed(self) -> None:
        if self._topics:
            raise coop_exception(
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
        of = plain_one(partition)
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

        To be fetched anew after every rebalance. Where the group has gone on without this consumer,
        the coordinator refuses what is sent with it; abort the transaction then, and poll on. A
        transaction must not outlast a call of on_lost: what comes after is another membership.
        """
        self._require_usable()
        by_hand = self._by_hand.active  # no member, and fenced by nothing
        backend = self._backend
        return encode_group_metadata(backend.metadata() if by_hand else backend.vouched())

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """For later logins, of the membership's connections and of librdkafka's."""
        self._require_usable()
        with self._lock:
            self._fetcher.set_sasl_credentials(username, password)
        self._backend.set_sasl_credentials(username, password)

    # --- how it is doing -------------------------------------------------------------------

    @property
    def registry(self) -> CollectorRegistry:
        """Where this consumer's metrics are."""
        return self._metrics.registry

    def health(self, max_lag: int | None = None) -> Health:
        """Whether this consumer is well. For any thread, also once it is closed.

        Args:
            max_lag: More records than these, over all partitions owned, count as lagging.

        Raises:
            TypeError: ``max_lag`` is no number.
        """
        if max_lag is not None and not isinstance(max_lag, int):
            raise TypeError(f"max_lag expects a number of records, got {max_lag!r}")
        closed = self._unusable is not None
        return assess(
            closed=closed,
            over=self._fetcher.over,
            subscribed=bool(self._topics) and not closed,
            by_hand=self._by_hand.active,
            owned=self._ownership.owned,
            snapshot=self._snapshot(),
            lease_until=self._mailbox.lease_until,
            last_poll=self._mailbox.last_poll,
            subscribed_at=self._subscribed_at,
            now=clock.now(),
            max_poll_interval=self._config.rebalance_timeout,
            max_lag=max_lag,
        )

    # --- the end ---------------------------------------------------------------------------

    def drain(self, within: timedelta = timedelta(seconds=30)) -> None:
        """Asks the group to take over what this consumer owns, and returns at once.

        The consumer goes on: keep polling until `drained`, then `close`. Its partitions are
        taken by a round of the group, and lie idle only from on_revoke until the next round,
        which its `close` begins at once. May be called from a signal handler, which may come when
        the consumer is closed: then there is nothing to do. A second call can only shorten the
        time.

        Where no strategy of ours leads the group, or every member drains, nobody takes over;
        under an eager strategy, or with partitions assigned by hand, nothing would be gained,
        and the consumer counts as drained at once.

        Raises:
            TypeError: ``within`` is no timedelta.
            ValueError: It is negative.
        """
        if self._unusable == CLOSED:
            return
        self._require_usable()
        self._draining.begin(self._backend, within, worth_it=bool(self._topics))

    @property
    def drained(self) -> bool:
        """Whether `drain` was called and this consumer owns nothing any more, or time is up."""
        return self._draining.over

    def close(self, *, drain: timedelta | None = None) -> None:
        """Gives everything up and leaves the group at once.

        Calls on_revoke (or on_lost, where the group went on without us), commits what
        auto-commit is due to commit (not after `unsubscribe`), and sends LeaveGroup (static
        members do not, unless they drained under ``group.protocol=classic``). Wakes other threads'
        `poll`. A second call does nothing, but for one after a first that a Ctrl-C ended before it
        had begun to leave, while it waited for another thread, say.

        Inside a poll of the same thread, that is in any callback or in a signal handler that
        interrupts `poll` or `consume`, it returns at once, and that poll does all of this in the
        end: it delivers nothing any more, and raises RuntimeError, as a closed consumer does, or
        what a callback raised. A signal handler that interrupts another method of this consumer
        may leave it to the next `poll`, `consume` or `close`.

        Once the interpreter has begun to end, as for the ``with`` of a generator that nobody ended,
        or in a ``__del__``, it only logs that it comes too late: the membership's thread runs no
        more.

        Args:
            drain: Hand over first, for so long at most, as `drain` does. What was delivered is
                committed, callbacks run, but no record is delivered any more, nor does the poll
                inside which this is called end before: a service that is to go on until its
                partitions are taken calls `drain` and polls on.

        Raises:
            TypeError, ValueError: As `drain`; the consumer is open still.
            Exception: The first that a callback raised; the consumer is closed all the same.
        """
        if self._unusable is not None or self._leaving:
            return
        if sys.is_finalizing():  # before any lock: who holds it may never run again
            self._log.warning("group %s is not left: %s", self._config.group_id, TOO_LATE)
            return
        if drain is not None:
            self.drain(drain)
        self._polling.closing = True
        self._polling.disturb(for_good=True)
        if self._is_inside:
            self._polling.close_later(partial(self._leave, drain))
        else:
            self._leave(drain)

    def _leave(self, drain: timedelta | None) -> None:
        try:
            self._polling.turn.take()
            if self._unusable is None:  # nobody else has closed it since
                self._leave_in_turn(drain)
        finally:
            self._polling.turn.give_back()

    def _leave_in_turn(self, drain: timedelta | None) -> None:
        begun = False
        try:
            with self._lock:  # another thread's poll that is on its short way ends first
                self._leaving, self._polling.close = True, None
            leaving = Closing(self._backend, self._handover, self._commits, self._log)
            if drain is not None:
                with self._lock:
                    self._fetcher.hold(True)  # noqa: FBT003  # its only argument
                leaving.hand_over(self._draining)
            begun = True
            leaving.leave(commit_first=self._by_hand.active)
        finally:
            try:
                # Where a Ctrl-C came before, the next `close` does all of it. And where a callback
                # has forked, the end is the parent's.
                if begun and self._unusable is None:
                    self._end()
            finally:
                self._leaving = False

    def _end(self) -> None:
        self._unusable = CLOSED
        with contextlib.ExitStack() as end:  # all of it, whatever a callback raises in there
            end.callback(forks.forget, self)
            end.callback(self._dropped.detach)
            end.callback(self._metrics.close)
            end.callback(self._end_fetching)
            end.callback(self._backend.stop, PATIENCE)

    def _end_fetching(self) -> None:
        with self._lock:
            self._fetcher.close()

    # --- small things ----------------------------------------------------------------------

    def _bound(self, listener: RebalanceListener) -> Callbacks:
        def bound(tell: RebalanceCallback) -> UserCallback:
            return knowing_weakly(self, lambda me, ps: tell(me, confluent(ps)))

        return Callbacks(
            assigned=bound(listener.on_partitions_assigned),
            revoked=bound(listener.on_partitions_revoked),
            lost=bound(listener.on_partitions_lost),
        )

    def _require_usable(self) -> None:
        if self._unusable is not None:
            raise RuntimeError(self._unusable)
        if sys.is_finalizing():  # who waited for the membership's thread would wait in vain
            raise RuntimeError(TOO_LATE)

    @property
    def _is_inside(self) -> bool:
        """Whether this thread is in a poll, in `close`, or in a method that moves what these do.

        Callbacks and signal handlers find it so. To wait for their end would be to wait for
        ourselves, and for other threads that wait for us.

        What a Ctrl-C has left taken (`kafka_coop.turns`) is given back here: polls would be refused
        for ever, `close` would leave it to a poll, and other threads wait for nobody.
        """
        if not (self._polling.turn.mine or self._lock.mine):
            return False
        if is_called_from(_HOLDERS):
            return True
        self._polling.turn.give_back()
        self._lock.forsake()
        return False

    def _require_outside_polls(self) -> None:
        if self._is_inside:
            raise RuntimeError(
                "poll() and consume() can't be called inside a callback, nor by a signal handler "
                "that interrupts a call of this consumer"
            )

    def _snapshot(self) -> MemberSnapshot:
        if self._unusable is not None:
            return MemberSnapshot()
        found = self._positions.snapshot(self._backend)
        return found if self._topics else replace(found, stable=True)  # it waits for no round


def _seconds(timeout: float | None) -> float:
    if timeout is not None and not isinstance(timeout, int | float):
        raise TypeError(f"timeout expects seconds, got {timeout!r}")
    if timeout is None or not 0 <= timeout <= threading.TIMEOUT_MAX:
        return FOREVER
    return float(timeout)


def _native(timeout: float | None) -> float:
    return -1.0 if timeout is None else float(timeout)
