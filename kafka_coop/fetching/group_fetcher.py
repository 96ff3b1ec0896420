"""librdkafka's consumer as the member of a group that the broker assigns (KIP-848).

Here librdkafka joins, heartbeats, looks up committed offsets and fetches. Rebalances come as
callbacks inside `next` and `take`, in the thread that polls, and are carried out before these
return. Committing is left to whoever drives this: librdkafka's own auto-commit is off.

As in `Fetcher` no exception of a signal handler (Ctrl-C) costs a record: librdkafka counts as
consumed what it strikes upon, which is fetched again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import confluent_kafka
from confluent_kafka import KafkaException, Message

from kafka_coop.fetching.aside import Aside
from kafka_coop.fetching.callbacks import CallbackGuard
from kafka_coop.fetching.group_errors import not_subscribed, why_it_is_over
from kafka_coop.fetching.group_metadata import decode_group_metadata
from kafka_coop.fetching.group_partitions import GroupPartitions
from kafka_coop.fetching.group_starts import UNHEARD, look_up
from kafka_coop.fetching.ledger import DeliveryLedger
from kafka_coop.fetching.messages import error_message
from kafka_coop.fetching.native import (
    error_code,
    fetched_offsets,
    known_positions,
    native_commits,
    native_consumer,
    native_partitions,
    partition_of,
    plain_partitions,
)
from kafka_coop.fetching.queries import Queries
from kafka_coop.membership.failures import LOCAL_FATAL
from kafka_coop.offsets.starts import Starts
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, OffsetAndMetadata
from kafka_coop.types import NO_PARTITIONS, GroupMetadata, Partitions, TopicPartition

Told: TypeAlias = Callable[[Partitions], None]

_NEVER_COMMIT = {"enable.auto.commit": False, "enable.auto.offset.store": False}

_LOOKS = 1_000
_LOOK = 0.01
"""How often to look, for so many seconds, whether librdkafka has taken away what is owned, once it
wants nothing. It asks nobody for that, and takes some milliseconds."""

_TRIES = 20
"""To tell of a rebalance: for many a Ctrl-C, not without end."""

_NO_COORDINATOR: frozenset[int] = frozenset(
    {ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)

_OF_ONE = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.topic_authorization_failed,
        ErrorCode.offset_metadata_too_large,
        ErrorCode.invalid_commit_offset_size,
    }
)
"""What the broker says of one partition of a commit, whatever becomes of the others."""

_ASKING = 1.0
"""Seconds, of a commit that failed in part: no poll goes on meanwhile."""

_NONES = 0x7FFF_FFFF
"""The number of a partition that no topic has."""


class GroupFetcher(Queries):
    """Implements `kafka_coop.fetching.interface.Fetching`, and the membership beside it.

    Args:
        config: librdkafka's, with the group's keys.
        logger: confluent-kafka's ``logger=``.

    Raises:
        KafkaException: The configuration is not valid for librdkafka.
    """

    def __init__(self, config: Mapping[str, Any], *, logger: Any | None = None) -> None:
        options = {} if logger is None else {"logger": logger}
        self.over = False
        self._verdict: Message | None = None
        """Why it is over, until the user is told."""
        self._topics: list[str] = []
        self._guard = CallbackGuard()
        self._consumer = native_consumer(self._guard.guarded(config) | _NEVER_COMMIT, **options)
        self._aside = Aside(config, **options)
        self._partitions = GroupPartitions(self._consumer)
        self._subscribed = False
        self._told: tuple[Told, Told] | None = None
        self._given_untold = NO_PARTITIONS
        self._taken_untold = NO_PARTITIONS
        self._inside = False
        self._closed = False
        self._ledger = DeliveryLedger()
        self._last_taken: Sequence[Message] = ()
        self._swallowed = False

    # --- the group --------------------------------------------------------------------------

    def subscribe(self, topics: list[str], *, assigned: Told, revoked: Told, lost: Told) -> None:
        """Wants these topics; what begins with ``^`` the broker matches.

        The three are called inside `next`, `take` and `leave`. What they raise is raised there.
        What is assigned is fetched once it is added, in there or later.

        Raises:
            KafkaException: ``_INVALID_ARG``: librdkafka can't read one of the patterns.
                All stays as it was. ``_FATAL``: the membership is over for good.
        """
        before = self._subscribed, self._told, self._topics
        self._subscribed, self._told, self._topics = True, (assigned, lost), topics
        try:
            self._consumer.subscribe(
                topics,
                on_assign=lambda _, given: self._given(plain_partitions(given), assigned),
                on_revoke=lambda _, gone: self._taken(plain_partitions(gone), revoked),
                on_lost=lambda _, gone: self._taken(plain_partitions(gone), lost),
            )
        except KafkaException as failure:
            self.over = self.over or failure.args[0].code() == LOCAL_FATAL
            self._subscribed, self._told, self._topics = before
            raise not_subscribed(failure.args[0], topics) from None

    # What an exception (Ctrl-C) keeps from whoever is told, here or before our first line, is noted
    # before it is told, and told by the next poll. Whoever is told twice takes it for once.

    def _given(self, given: Partitions, tell: Told) -> None:
        self._given_untold, self._taken_untold = (
            self._given_untold | given,
            self._taken_untold - given,
        )
        try:
            if self._tell_through(tell, given):
                self._given_untold -= given
        finally:
            self._partitions.give(given)

    def _taken(self, gone: Partitions, tell: Told) -> None:
        """What is fetched once that is told was assigned by hand meanwhile."""
        self._given_untold, self._taken_untold = (
            self._given_untold - gone,
            self._taken_untold | gone,
        )
        by_hand = NO_PARTITIONS
        try:
            if self._tell_through(tell, gone):
                by_hand = gone & self._partitions.fetched
                self._taken_untold -= gone
        finally:
            self._partitions.take(gone, by_hand)

    def _tell_what_was_missed(self) -> None:
        """Of what was taken others may have some already: it is lost."""
        assert self._told is not None, "nothing is given but to a member"
        assigned, lost = self._told
        if self._tell_through(assigned, self._given_untold):
            self._given_untold = NO_PARTITIONS
        if self._tell_through(lost, self._taken_untold):
            self._taken_untold = NO_PARTITIONS
        self._guard.serve()

    def _tell_through(self, how: Told, some: Partitions) -> bool:
        """Tells, and goes on where an exception struck: the broker is answered after this.

        Returns:
            Whether it has come to its end.
        """
        tries = _TRIES
        while not (told := self._run_inside(partial(how, some))) and tries:
            tries -= 1
        return told

    def _run_inside(self, callback: Callable[[], None]) -> bool:
        outer, self._inside = self._inside, True
        try:
            return self._guard.run(callback)
        finally:
            self._inside = outer

    def unsubscribe(self) -> None:
        """Wants nothing, and leaves. What is owned goes with the next `next`."""
        self._subscribed = False
        try:
            self._consumer.unsubscribe()
        except KafkaException as failure:
            if failure.args[0].code() != LOCAL_FATAL:
                raise
            self.over = True  # the user is yet to hear why

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
        if not self.over and (member or owns()):
            # What came from here on would be nobody's, and count as consumed.
            self.pause(self._partitions.fetched)
            self.unsubscribe()
            for _ in range(_LOOKS):
                message = self._consumer.poll(_LOOK)
                if message is not None:
                    self._is_verdict(message)
                if self._has_nothing(owns, member=member):
                    break
        if self.over:
            self._lose_all()

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

        One that says that it is none any more does not: a commit would wait for its heir.

        `commit` waits for it as long as librdkafka likes. What was committed of the topic's own
        partitions may be kept back for as long as a transaction lasts: so it is asked for one that
        is none's.
        """
        nowhere = confluent_kafka.TopicPartition(topic, _NONES)
        try:
            self._consumer.committed([nowhere], within)
        except KafkaException as failure:
            return failure.args[0].code() not in UNHEARD | _NO_COORDINATOR
        return True

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commits, waits, and returns each partition's error.

        confluent-kafka tells of all what the broker says of one, of which the others are committed.
        """
        try:
            answered = self._consumer.commit(offsets=native_commits(offsets), asynchronous=False)
        except KafkaException as failure:
            code = error_code(failure.args[0])
            taken = self._taken_of(offsets) if len(offsets) > 1 and code in _OF_ONE else {}
            return dict.fromkeys(offsets, code) | taken
        return {TopicPartition(p.topic, p.partition): error_code(p.error) for p in answered or ()}

    def _taken_of(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, ErrorCode]:
        """Those that are committed, as the coordinator says of each topic, if it does so in time.

        One round trip for each; a topic that this member may not ask of keeps no other's answer.
        """
        taken: dict[TopicPartition, ErrorCode] = {}
        ends = time.monotonic() + _ASKING
        asked = Partitions.of(offsets)
        for topic in asked.topics():
            left = max(0.0, ends - time.monotonic())
            with suppress(KafkaException):
                for of, known in self.committed(asked.only((topic,)), left).items():
                    wanted = offsets[of].offset, offsets[of].metadata or ""
                    if (known.offset, known.metadata) == wanted:
                        taken[of] = ErrorCode.none
        return taken

    def committed(
        self, partitions: Partitions, timeout: float
    ) -> dict[TopicPartition, FetchedOffset]:
        """The group's committed offsets."""
        return fetched_offsets(self._consumer.committed(native_partitions(partitions), timeout))

    def look_up(self, search: Starts, within: timedelta) -> None:
        """See `kafka_coop.fetching.group_starts`. Also inside a rebalance."""
        if not self._closed:  # else nothing begins any more
            look_up(self._consumer, search, within)

    def aside(self) -> closing[confluent_kafka.Consumer]:
        """Another consumer of the group's, no member, whom any thread may ask."""
        return self._aside.consumer()

    # --- partitions -------------------------------------------------------------------------

    def expect(self, topics: Iterable[str], timeout: float) -> None:
        """librdkafka, which is the member, asks for what it subscribes to by itself."""

    def add(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See `Fetching.add`.

        Nothing begins once it has left, which comes before the last look at what is still to do.
        """
        if self._closed:
            return
        self._catch_up()
        self._begin_anew(Partitions.of(starts))
        self._partitions.add(starts)

    def remove(self, partitions: Partitions) -> None:
        """See `Fetching.remove`."""
        self._catch_up()
        if partitions:
            self._partitions.remove(partitions)

    def _catch_up(self) -> None:
        """Does what an exception (Ctrl-C) has left undone, or librdkafka could not do before."""
        if self._partitions.undone:
            self._partitions.follow()
        if self._swallowed:
            self._fetch_swallowed_again()

    def assignment(self) -> Partitions:
        """See `Fetching.assignment`."""
        return self._partitions.fetched

    # --- records ----------------------------------------------------------------------------

    def next(self, timeout: float) -> Message | None:
        """See `Fetching.next`. Rebalances are carried out inside."""
        self._prepare()
        if self._verdict is not None:
            return self._tell_verdict()
        try:
            message = self._consumer.poll(timeout)
            if message is not None and self._is_verdict(message):
                message = None
            elif message is not None:
                self._last_taken = (message,)
        except BaseException:
            self._swallowed = True  # before any call, as in `Fetcher`
            self._catch_up()
            raise
        if message is None:
            return self._tell_verdict()
        return message

    def take(self, n: int, timeout: float) -> list[Message]:
        """See `Fetching.take`. Rebalances are carried out inside."""
        self._prepare()
        if self._verdict is None:
            try:
                messages = self._consumer.consume(n, timeout)
                taken = [message for message in messages if not self._is_verdict(message)]
                self._last_taken = taken[:]  # no call from here on, as in `Fetcher`
            except BaseException:
                self._swallowed = True  # before any call, as in `Fetcher`
                self._catch_up()
                raise
            if taken:
                return taken
        verdict = self._tell_verdict()
        return [] if verdict is None else [verdict]

    def _prepare(self) -> None:
        self._guard.serve()
        self._catch_up()
        if self._given_untold or self._taken_untold:
            self._tell_what_was_missed()
        self._settle()

    def _is_verdict(self, message: Message) -> bool:
        """Whether it ends the membership, for good. It comes once.

        Who went on without a look at its text would never be a member again: so it says `fatal()`,
        as librdkafka's own does not.
        """
        error = message.error()
        if error is None or error.code() != LOCAL_FATAL:
            return False
        self._verdict, self.over = message, True  # a Ctrl-C from here on costs no more than words
        told = why_it_is_over(error.str(), self._topics)
        self._verdict = error_message(partition_of(message), error.code(), told, fatal=True)
        return True

    def _tell_verdict(self) -> Message | None:
        """Why it is over, if it is. The records that came before have been handed out by then.

        The user hears first that what the group gave is lost. What is raised there keeps the
        verdict for the next call.
        """
        if self._verdict is not None:
            self._lose_all()
        self._guard.serve()
        verdict, self._verdict = self._verdict, None
        return verdict

    def _lose_all(self) -> None:
        """What was assigned librdkafka has dropped, and told nobody. Others will have it."""
        if (gone := self._partitions.given) and self._told is not None:
            _, lost = self._told
            self._taken(gone, lost)

    def _settle(self) -> None:
        """Enters what was taken last into the ledger, before it grows stale."""
        self._enter()
        if self._ledger.room <= 0:
            self._ledger.settle(self._partitions.positions(self.assignment()))

    def _enter(self) -> None:
        if self._last_taken:
            self._swallowed = self._ledger.note(self._last_taken)  # as in `Fetcher`
            self._last_taken = ()
            if self._swallowed:
                self._fetch_swallowed_again()
                self._ledger.invalidate()

    def _begin_anew(self, partitions: Partitions) -> None:
        """What was delivered of these before says nothing of where they stand from now on."""
        self._ledger.settle(self._partitions.positions(self.assignment() - partitions))
        self._last_taken = ()

    def _fetch_swallowed_again(self) -> None:
        """Seeks back where librdkafka is further than what was delivered.

        A second Ctrl-C may strike in here: the next call does the rest. Who closed inside a
        callback has nothing to fetch.
        """
        if self._closed:
            return
        given, gone = self._partitions.compare()
        self._given_untold |= given
        self._taken_untold |= gone
        self._partitions.adopt(given, gone)
        expected = self._ledger.expected()
        for of, actual in known_positions(self._partitions.positions(self.assignment())).items():
            to = expected.get(of, self._partitions.starts[of])
            if to.offset != actual.offset:
                self._partitions.seek(of, to)
        self._swallowed = False

    # --- positions --------------------------------------------------------------------------

    def positions(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """See `Fetching.positions`."""
        self._catch_up()
        self._enter()
        wanted = partitions & self._partitions.fetched
        self._partitions.has_come_to(known_positions(self._partitions.positions(wanted)))
        starts = {of: self._partitions.starts[of] for of in wanted}
        return {of: at for of, at in starts.items() if at.offset >= 0}

    def seek(self, of: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """See `Fetching.seek`."""
        self._catch_up()
        self._partitions.seek(of, OffsetAndMetadata(offset=offset, leader_epoch=leader_epoch))
        self._begin_anew(Partitions.of([of]))

    def pause(self, partitions: Partitions) -> None:
        """See `Fetching.pause`."""
        self._partitions.pause(partitions)

    def resume(self, partitions: Partitions) -> None:
        """See `Fetching.resume`."""
        self._partitions.resume(partitions)

    def hold(self, held: bool) -> None:  # noqa: FBT001  # as `Fetching.hold`
        """Nothing to do: librdkafka takes the partitions away from a member that was fenced."""

    def close(self) -> None:
        """See `Fetching.close`."""
        if not self._closed:
            self.leave(lambda: False)
