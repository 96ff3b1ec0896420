"""librdkafka's consumer as the member of a group that the broker assigns (KIP-848).

Here librdkafka joins, heartbeats, looks up committed offsets and fetches. Rebalances come as
callbacks inside `next` and `take`, in the thread that polls, and are carried out before these
return. Committing is left to whoever drives this: librdkafka's own auto-commit is off.

As in `Fetcher` no exception of a signal handler (Ctrl-C) costs a record: librdkafka counts as
consumed what it strikes upon, which is fetched again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, KafkaError, KafkaException, Message

from kafka_coop.config import OffsetReset
from kafka_coop.fetching.aside import Aside
from kafka_coop.fetching.callbacks import CallbackGuard
from kafka_coop.fetching.group_metadata import decode_group_metadata
from kafka_coop.fetching.group_starts import UNHEARD, GroupStarts, look_up
from kafka_coop.fetching.ledger import DeliveryLedger
from kafka_coop.fetching.messages import error_message
from kafka_coop.fetching.native import (
    known_positions,
    native_partitions,
    native_starts,
    partition_of,
    plain_partitions,
)
from kafka_coop.fetching.queries import Queries
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, OffsetAndMetadata
from kafka_coop.types import NO_PARTITIONS, GroupMetadata, Partitions, TopicPartition

Told: TypeAlias = Callable[[Partitions], None]

_NEVER_COMMIT = {"enable.auto.commit": False, "enable.auto.offset.store": False}

_ASK = 5.0
"""Seconds for one question where a partition began."""

_LOOKS = 1_000
_LOOK = 0.01
"""How often to look, for so many seconds, whether librdkafka has taken away what is owned, once it
wants nothing. It asks nobody for that, and takes some milliseconds."""

_FATAL: int = KafkaError._FATAL  # noqa: SLF001  # the name of confluent's public constant

_NONES = 0x7FFF_FFFF
"""The number of a partition that no topic has."""

_REMEDIES = {
    KafkaError(code).str(): remedy
    for code, remedy in {
        KafkaError.GROUP_ID_NOT_FOUND: (
            "The group has classic members, and the broker does not upgrade it: a leader's "
            "strategy keeps data in the assignment (all of kafka_coop's do but 'sticky'), or "
            "group.consumer.migration.policy forbids it. Stop the classic members first, then "
            "start those with group.protocol=consumer (docs/MIGRATION.md)"
        ),
        KafkaError.UNRELEASED_INSTANCE_ID: (
            "Another member runs with this group.instance.id: give each its own. Or it has died "
            "without close(): the broker keeps its place until its session is over "
            "(group.consumer.session.timeout.ms, 45 s unless set). End this process, and start it "
            "again then (docs/MIGRATION.md)"
        ),
        KafkaError.UNSUPPORTED_ASSIGNOR: (
            "The broker has no assignor of the name in group.remote.assignor: name one that is in "
            "its group.consumer.assignors ('uniform', 'range'), or remove the key"
        ),
    }.items()
}
"""What to do, by the broker's word for why it is over. The code itself librdkafka does not tell."""

_STALE_MEMBER_EPOCH = 113
"""What a generation is to the classic protocol, an epoch is to this one."""


class GroupFetcher(Queries):
    """Implements `kafka_coop.fetching.interface.Fetching`, and the membership beside it.

    Args:
        config: librdkafka's, with the group's keys.
        reset: What ``auto.offset.reset`` says there.
        logger: confluent-kafka's ``logger=``.

    Raises:
        KafkaException: The configuration is not valid for librdkafka.
    """

    def __init__(
        self, config: Mapping[str, Any], *, reset: OffsetReset, logger: Any | None = None
    ) -> None:
        options = {} if logger is None else {"logger": logger}
        self.over = False
        self._guard = CallbackGuard()
        self._consumer = confluent_kafka.Consumer(
            self._guard.guarded(config) | _NEVER_COMMIT, **options
        )
        self._aside = Aside(config, **options)
        self._inside = False
        self._subscribed = False
        self._fetched = NO_PARTITIONS
        self._starts: dict[TopicPartition, OffsetAndMetadata] = {}
        self._torn = False
        self._paused = NO_PARTITIONS
        self._closed = False
        self._reset = reset
        self._ledger = DeliveryLedger()
        self._last_taken: Sequence[Message] = ()
        self._swallowed = False
        self._sought: dict[TopicPartition, OffsetAndMetadata] = {}

    # --- the group --------------------------------------------------------------------------

    def subscribe(self, topics: list[str], *, assigned: Told, revoked: Told, lost: Told) -> None:
        """Wants these topics; what begins with ``^`` the broker matches.

        The three are called inside `next`, `take` and `leave`. What they raise is raised there.
        """

        def told(how: Told) -> Callable[[Any, list[confluent_kafka.TopicPartition]], None]:
            return lambda _, given: self._run_inside(lambda: how(plain_partitions(given)))

        self._subscribed = True
        self._consumer.subscribe(
            topics, on_assign=told(assigned), on_revoke=told(revoked), on_lost=told(lost)
        )

    def _run_inside(self, callback: Callable[[], None]) -> None:
        outer, self._inside = self._inside, True
        try:
            self._guard.run(callback)
        finally:
            self._inside = outer

    def unsubscribe(self) -> None:
        """Wants nothing, and leaves. What is owned goes with the next `next`."""
        self._subscribed = False
        self._consumer.unsubscribe()

    def leave(self, owns: Callable[[], bool]) -> None:
        """Gives everything up, leaves the group, and closes.

        In this order. A librdkafka that closes ends the group as soon as everything is given up,
        and throws away, unanswered, what it was asked just before that (`rd_kafka_cgrp_op_serve`):
        who the member is, for the record of the rebalance, or a commit in on_commit. Whoever asked
        would wait for ever. So all callbacks come before it closes.

        Args:
            owns: Whether anything that the group assigned is not yet revoked or lost.
        """
        try:
            self._closed = True
            with suppress(KafkaException):  # then it closes, and has said why before
                self._give_up(owns)
        finally:
            self._consumer.close()
            self._guard.end()

    def _give_up(self, owns: Callable[[], bool]) -> None:
        """Has what the group assigned taken away, as `unsubscribe` does, and sees it through.

        An assignment that has come since the last poll, too: its callback comes before.
        """
        member = self._subscribed
        if self.over or not (member or owns()):
            return  # it has failed for good, or never was a member: nobody is told of anything
        # What came from here on would be nobody's, and count as consumed.
        self._consumer.pause(native_partitions(self._fetched - self._paused))
        self.unsubscribe()
        for _ in range(_LOOKS):
            message = self._consumer.poll(_LOOK)
            if message is not None:
                self._explained(message)
            if self._has_nothing(owns, member=member):
                return

    def _has_nothing(self, owns: Callable[[], bool], *, member: bool) -> bool:
        """Whether nothing of the group's is left; who was no member may have some by hand."""
        return self.over or not (owns() or (member and self._consumer.assignment()))

    def identity(self) -> GroupMetadata:
        """The member as its coordinator knows it; its epoch stands for the generation."""
        return decode_group_metadata(self._consumer.consumer_group_metadata())

    # --- what no callback may ask of the same consumer ---------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """See `Queries.list_topics`; inside a callback of a rebalance, too."""
        with self._askable() as consumer:
            return consumer.list_topics(topic, timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """See `Queries.cluster_id`; inside a callback of a rebalance, too."""
        with self._askable() as consumer:
            return consumer.cluster_id(timeout)

    def _askable(self) -> AbstractContextManager[confluent_kafka.Consumer]:
        return self._aside.consumer() if self._inside else nullcontext(self._consumer)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """See `Queries.set_sasl_credentials`; inside a callback of a rebalance, after it."""
        if not self._inside:
            super().set_sasl_credentials(username, password)
        else:
            self._guard.later(partial(super().set_sasl_credentials, username, password))
        self._aside.set_sasl_credentials(username, password)

    # --- offsets ----------------------------------------------------------------------------

    def hears(self, topic: str, within: float) -> bool:
        """Whether the group's coordinator answers, within so many seconds.

        `commit` waits for it as long as librdkafka likes. What was committed of the topic's own
        partitions may be kept back for as long as a transaction lasts: so it is asked for one that
        is none's.
        """
        nowhere = confluent_kafka.TopicPartition(topic, _NONES)
        try:
            self._consumer.committed([nowhere], within)
        except KafkaException as failure:
            return failure.args[0].code() not in UNHEARD
        return True

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commits, waits, and returns each partition's error."""
        native = [
            confluent_kafka.TopicPartition(
                of.topic,
                of.partition,
                at.offset,
                leader_epoch=at.leader_epoch,
                **({"metadata": at.metadata} if at.metadata else {}),
            )
            for of, at in offsets.items()
        ]
        try:
            answered = self._consumer.commit(offsets=native, asynchronous=False)
        except KafkaException as failure:
            return dict.fromkeys(offsets, error_code(failure.args[0]))
        return {TopicPartition(p.topic, p.partition): error_code(p.error) for p in answered or ()}

    def committed(
        self, partitions: Partitions, timeout: float
    ) -> dict[TopicPartition, FetchedOffset]:
        """The group's committed offsets."""
        answered = self._consumer.committed(native_partitions(partitions), timeout)
        return {
            TopicPartition(p.topic, p.partition): FetchedOffset(
                offset=max(p.offset, -1),
                error=error_code(p.error),
                metadata=p.metadata or "",
            )
            for p in answered
        }

    def starts(self, partitions: Partitions, within: timedelta) -> GroupStarts:
        """Where to start these: see `kafka_coop.fetching.group_starts`. Also inside a rebalance."""
        if self._closed:
            return GroupStarts()  # nothing begins any more
        return look_up(self._consumer, partitions, self._reset, within)

    # --- partitions -------------------------------------------------------------------------

    def expect(self, topics: Iterable[str], timeout: float) -> None:
        """librdkafka, which is the member, asks for what it subscribes to by itself."""

    def add(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See `Fetching.add`. ``OFFSET_STORED``: librdkafka is to find out.

        Nothing begins once it has left, which comes before the last look at what is still to do.
        """
        if self._closed:
            return
        self._catch_up()
        kept = {of: at for of, at in self._starts.items() if of in self._fetched}
        self._starts = kept | dict(starts)
        added = Partitions.of(starts)
        native = native_starts(starts)
        with self._changing(self._fetched | added):
            self._begin_anew(added)
            self._consumer.incremental_assign(native)

    def remove(self, partitions: Partitions) -> None:
        """See `Fetching.remove`."""
        self._catch_up()
        if not partitions:
            return
        self.resume(partitions)  # librdkafka's flag would outlive the assignment
        native = native_partitions(partitions)
        with self._changing(self._fetched - partitions):
            self._consumer.incremental_unassign(native)

    @contextmanager
    def _changing(self, fetched: Partitions) -> Iterator[None]:
        """Where librdkafka refuses, nothing is changed; where a Ctrl-C strikes, nobody knows."""
        before = self._fetched
        self._fetched, self._torn = fetched, True
        try:
            yield
        except KafkaException:
            self._fetched, self._torn = before, False
            raise
        self._torn = False

    def _catch_up(self) -> None:
        """Does what an exception (Ctrl-C) has left undone.

        Of the last `add` or `remove`: it may have struck before librdkafka did it or after: that
        alone can tell.
        """
        if self._torn:
            self._follow()
        if self._swallowed:
            self._fetch_swallowed_again()

    def _follow(self) -> None:
        actual = plain_partitions(self._consumer.assignment())
        if gone := actual - self._fetched:
            self._consumer.incremental_unassign(native_partitions(gone))
        if missing := (self._fetched & Partitions.of(self._starts)) - actual:
            self._begin_anew(missing)
            starts = {of: self._starts[of] for of in missing}
            self._consumer.incremental_assign(native_starts(starts))
        self._torn = False

    def assignment(self) -> Partitions:
        """See `Fetching.assignment`."""
        return self._fetched

    # --- records ----------------------------------------------------------------------------

    def next(self, timeout: float) -> Message | None:
        """See `Fetching.next`. Rebalances are carried out inside."""
        self._guard.serve()
        self._catch_up()
        self._settle()
        try:
            message = self._consumer.poll(timeout)
            if message is not None:
                message = self._explained(message)
                self._last_taken = (message,)
        except BaseException:
            self._swallowed = True  # before any call, as in `Fetcher`
            self._fetch_swallowed_again()
            raise
        if message is None:
            self._guard.serve()
        return message

    def take(self, n: int, timeout: float) -> list[Message]:
        """See `Fetching.take`. Rebalances are carried out inside."""
        self._guard.serve()
        self._catch_up()
        self._settle()
        try:
            taken = [self._explained(message) for message in self._consumer.consume(n, timeout)]
            self._last_taken = taken[:]  # no call from here on, as in `Fetcher`
        except BaseException:
            self._swallowed = True  # before any call, as in `Fetcher`
            self._fetch_swallowed_again()
            raise
        if not taken:
            self._guard.serve()
        return taken

    def _explained(self, message: Message) -> Message:
        """The message. One that ends the membership says so, as librdkafka's does not: `fatal()`.

        It comes once. Who went on without a look at its text would never be a member again.
        """
        error = message.error()
        if error is None or error.code() != _FATAL:
            return message
        self.over = True
        text = error.str()
        remedies = [remedy for why, remedy in _REMEDIES.items() if why in text]
        text = ". ".join([text, *remedies])
        return error_message(partition_of(message), error.code(), text, fatal=True)

    def _settle(self) -> None:
        """Enters what was taken last into the ledger, before it grows stale."""
        ledger = self._ledger
        if self._last_taken:
            ledger.note(self._last_taken)
            self._last_taken = ()
        if ledger.room <= 0:
            ledger.settle(self._consumer.position(native_partitions(self._fetched)))

    def _begin_anew(self, partitions: Partitions) -> None:
        """What was delivered of these before says nothing of where they stand from now on."""
        others = native_partitions(self._fetched - partitions)
        self._ledger.settle(self._consumer.position(others))
        self._last_taken = ()
        for of in partitions:
            self._sought.pop(of, None)

    def _fetch_swallowed_again(self) -> None:
        """Seeks back where librdkafka is further than what was delivered.

        A second Ctrl-C may strike in here: the next call does the rest. Who closed inside a
        callback has nothing to fetch.
        """
        if self._closed:
            return
        expected = self._ledger.expected()
        native = native_partitions(self._fetched)
        for of, actual in known_positions(self._consumer.position(native)).items():
            to = expected.get(of) or self._sought.get(of) or self._beginning(of)
            if to is not None and to.offset != actual.offset:
                self._sought[of] = to
                self._consumer.seek(native_starts({of: to})[0])
        self._swallowed = False

    def _beginning(self, of: TopicPartition) -> OffsetAndMetadata | None:
        """Where a partition of which nothing was delivered began; None: at the log's end."""
        start = self._starts[of]
        if start.offset != OFFSET_STORED:
            return start
        if (committed := self.committed(Partitions.of([of]), _ASK)[of]).offset >= 0:
            return OffsetAndMetadata(offset=committed.offset)
        from_the_beginning = self._reset is OffsetReset.EARLIEST
        return OffsetAndMetadata(offset=OFFSET_BEGINNING) if from_the_beginning else None

    # --- positions --------------------------------------------------------------------------

    def positions(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """See `Fetching.positions`. Of a partition whose start librdkafka finds, after a record."""
        self._catch_up()
        wanted = partitions & self._fetched
        starts = {of: self._sought.get(of, self._starts[of]) for of in wanted}
        known = {of: at for of, at in starts.items() if at.offset >= 0}
        return known | known_positions(self._consumer.position(native_partitions(wanted)))

    def seek(self, of: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """See `Fetching.seek`."""
        self._catch_up()
        at = OffsetAndMetadata(offset=offset, leader_epoch=leader_epoch)
        self._consumer.seek(native_starts({of: at})[0])
        self._begin_anew(Partitions.of([of]))
        self._sought[of] = at

    def pause(self, partitions: Partitions) -> None:
        """See `Fetching.pause`."""
        pausing = partitions & self._fetched
        if pausing:
            self._consumer.pause(native_partitions(pausing))
            self._paused |= pausing

    def resume(self, partitions: Partitions) -> None:
        """See `Fetching.resume`."""
        resuming = partitions & self._paused
        if resuming:
            self._consumer.resume(native_partitions(resuming))
            self._paused -= resuming

    def hold(self, held: bool) -> None:  # noqa: FBT001  # as `Fetching.hold`
        """Nothing to do: librdkafka takes the partitions away from a member that was fenced."""

    def close(self) -> None:
        """See `Fetching.close`."""
        if not self._closed:
            self.leave(lambda: False)


def error_code(error: Any) -> ErrorCode:
    """Kafka's code of a KafkaError; None: no error. Local errors are told as time-outs."""
    if error is None:
        return ErrorCode.none
    code = error.code()
    if code == _STALE_MEMBER_EPOCH:
        return ErrorCode.illegal_generation
    if code < 0:
        return ErrorCode.request_timed_out
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error
