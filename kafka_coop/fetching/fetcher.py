"""One librdkafka consumer as a fetcher of records: no group, no commits.

Membership, committed offsets and resets are decided elsewhere; the fetcher is told where to
start, with `Fetcher.add`, and when to stop, with `Fetcher.remove`. librdkafka's own consumer
group stays out of it: nothing here subscribes, commits, stores or asks for stored offsets.

Two ways out. `Fetcher.take` is `consume`, with nothing done per record. `Fetcher.next` serves
from a batch, which makes it faster than `poll` although it is written in Python: `poll`
crosses into librdkafka, and gives up the GIL, for every record.

A partition that comes with a backlog keeps no other waiting (`kafka_coop.fetching.newcomers`).

A wait inside librdkafka can't be woken: of all that another thread may call, nothing puts an
event on the consumer's queue that ends a `poll`. Callers wait in slices. An empty slice of
20 ms costs 70 µs of CPU, 0.35 % of a core.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, Message

from kafka_coop.fetching.acquaintance import Acquaintance
from kafka_coop.fetching.batches import BatchSize
from kafka_coop.fetching.buffer import Contents, RecordBuffer
from kafka_coop.fetching.callbacks import CallbackGuard
from kafka_coop.fetching.ledger import DeliveryLedger
from kafka_coop.fetching.native import (
    known_positions,
    local_error,
    native_consumer,
    native_partitions,
    native_starts,
    plain_partitions,
    position_after,
    position_at,
    require_start,
)
from kafka_coop.fetching.newcomers import Newcomers
from kafka_coop.fetching.queries import Queries
from kafka_coop.membership.failures import LOCAL_CONFLICT, LOCAL_INVALID_ARG, LOCAL_STATE
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import NO_PARTITIONS, Partitions, TopicPartition

_NEVER_COMMIT = {"enable.auto.commit": False, "enable.auto.offset.store": False}
"""Whatever the caller configured: a commit of librdkafka's would go out without the member's
generation, and be refused in a group that has members (confluent-kafka-python#1004)."""


_INTRODUCTION = 0.2
"""Seconds that `add` waits for librdkafka to hear of a topic."""

_A_FEW = 10
"""Records of newcomers between two looks at librdkafka's queue. One costs 5 µs."""


class Fetcher(Queries):
    """Fetches the records of the partitions it is given, in the order of each partition.

    One thread at a time: the caller serialises all methods except the queries at the end,
    which may be called from any thread while another one waits in `next` or `take`. The
    callbacks of the configuration (``error_cb``, ``stats_cb``, ``throttle_cb``,
    ``oauth_cb``, the logger) run inside `next` and `take`; the first three may call whatever
    delivers nothing, and what they raise is raised there.

    Neither that nor an exception from a signal handler (Ctrl-C) loses a record, or repeats one.
    Where it strikes in `add`, `remove`, `pause`, `resume` or `hold`, the change is made or it is
    not, and `assignment`, or `paused`, tells; what is left to do of it the next call does. That may
    be the same one again, with the partitions that are not added, or removed, yet.

    After `close`, methods raise RuntimeError, as confluent's do.

    Args:
        config: librdkafka's configuration, callbacks included. ``group.id`` is required by
            librdkafka, which makes no use of it here. Committing is switched off.
        logger: confluent-kafka's ``logger=``.
        prefetch: How many records `next` takes out of librdkafka at a time. Of large
            records it takes fewer.

    Raises:
        KafkaException: The configuration is not valid for librdkafka.
    """

    def __init__(
        self, config: Mapping[str, Any], *, logger: Any | None = None, prefetch: int = 500
    ) -> None:
        options = {} if logger is None else {"logger": logger}
        self.over = False  # the group is none of librdkafka's business
        self._guard = CallbackGuard()
        self._consumer = native_consumer(self._guard.guarded(config) | _NEVER_COMMIT, **options)
        self._acquaintance = Acquaintance(self._consumer.list_topics)
        self._batches = BatchSize(prefetch)
        self._buffer = RecordBuffer()
        self._newcomers = Newcomers()
        self._starts: dict[TopicPartition, OffsetAndMetadata] = {}
        self._native: list[confluent_kafka.TopicPartition] = []
        self._paused = NO_PARTITIONS
        self._held = False
        self._torn = False
        self._stopping = NO_PARTITIONS
        self._ledger = DeliveryLedger()
        self._last_taken: Sequence[Message] = ()
        self._swallowed = False
        self._closed = False

    # --- which partitions ------------------------------------------------------------------

    def expect(self, topics: Iterable[str], timeout: float) -> None:
        """Has librdkafka know these topics before their partitions are added.

        `add` does where nobody did; the earlier, the better (`kafka_coop.fetching.acquaintance`).
        Never raises.

        Args:
            topics: Their names.
            timeout: Seconds to wait for the brokers' answer.
        """
        self._acquaintance.meet(topics, timeout)

    def add(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Starts fetching these partitions, unpaused. The others go on undisturbed.

        Args:
            starts: Where to start: an offset, or librdkafka's ``OFFSET_BEGINNING``,
                ``OFFSET_END``, ``OFFSET_TAIL(n)``. The leader epoch lets the broker notice
                that the log was truncated meanwhile (KIP-320).

        Raises:
            KafkaException: ``_CONFLICT``: one of them is fetched already. ``_INVALID_ARG``:
                one has no offset, or asks for the group's stored one: librdkafka would
                look that up by itself, at the wrong time and for the wrong generation.
                Nothing was added.
        """
        self._catch_up()  # librdkafka could go on with one of these where a removal was interrupted
        for of, start in starts.items():
            require_start(of, start.offset)
            if of in self._starts:
                raise local_error(LOCAL_CONFLICT, f"{of} is fetched already")
        topics = {of.topic: None for of in starts}
        self._acquaintance.meet(topics, _INTRODUCTION, exist=True)
        self._newcomers.come(Partitions.of(starts), beside=self.assignment())
        self._change(starts={**self._starts, **starts})

    def remove(self, partitions: Partitions) -> None:
        """Stops fetching these partitions; no record of theirs is delivered after.

        Their pause flags and positions are forgotten. Costs three round trips to librdkafka's
        threads, 0.1 ms and more the more partitions. librdkafka has let go of them when this
        returns; of an earlier call's, too, that an exception has cut short.

        Raises:
            KafkaException: ``_INVALID_ARG``: one of them is not fetched. None was removed.
        """
        self._fetch_again_before_a_change()
        for of in partitions:
            if of not in self._starts:
                raise local_error(LOCAL_INVALID_ARG, f"{of} is not fetched")
        if not partitions and not self._torn:
            return
        starts = dict(self._starts)
        for of in partitions:
            del starts[of]
        self._change(
            starts=starts,
            paused=self._paused - partitions,
            contents=self._buffer.without(partitions),
        )

    def discard(self) -> None:
        """Removes all partitions."""
        self.remove(self.assignment())

    def assignment(self) -> Partitions:
        """The partitions being fetched, paused ones included."""
        return Partitions.of(self._starts)

    # --- records ---------------------------------------------------------------------------

    def next(self, timeout: float) -> Message | None:
        """Delivers one message: a record, or an error (`Message.error`) in its turn.

        Args:
            timeout: Seconds to wait for one; negative: without end.

        Returns:
            None if nothing came in time, or an event was served instead.

        Raises:
            KafkaException: librdkafka failed.
            RuntimeError: The fetcher is closed.
            Exception: A callback raised it.
        """
        buffer = self._buffer
        index = buffer.index
        try:
            message = buffer.records[index]
        except IndexError:
            return self._next_batch(timeout)
        buffer.index = index + 1
        return message

    def take(self, n: int, timeout: float) -> list[Message]:
        """Delivers up to `n` messages, waiting until it has them or time is up.

        Args:
            n: At most a million.
            timeout: Seconds to wait; negative: without end. Signal handlers run when the wait
                is over: to stay interruptible, wait in slices.

        Returns:
            The messages, in order for each partition; fewer than `n`, or none, if time ran out;
            fewer, too, while partitions catch up beside others: call again.

        Raises:
            KafkaException: librdkafka failed.
            ValueError: `n` is negative or more than a million.
            RuntimeError: The fetcher is closed.
            Exception: A callback raised it. One that came with messages runs with the next call.
        """
        self._guard.serve()
        self._catch_up()
        buffer = self._buffer
        if n > 0 and buffer.index >= len(buffer.records) and self._newcomers.partitions:
            self._take_in(n)
        if buffer.index >= len(buffer.records):
            taken = self._consume(n, timeout)
        elif n < 0:
            raise ValueError(f"the number of messages can't be negative: {n}")
        else:
            taken = buffer.records[buffer.index : buffer.index + n]
            buffered = len(taken)
            # Beside newcomers the rest is for the next call to take in.
            enough = buffered == n or self._newcomers.partitions
            rest = [] if enough else self._consume(n - buffered, timeout)
            buffer.index += buffered
            taken = taken + rest
        if not taken:
            self._guard.serve()
        return taken

    def _next_batch(self, timeout: float) -> Message | None:
        """Refills the buffer; if there is nothing to refill it with, waits for one message.

        `consume` of several waits until it has them all, so the wait is a `poll`. Callbacks run
        when the batch is safely in the buffer, or else with the next call.
        """
        self._guard.serve()
        if self._torn:
            self._catch_up()  # it may give back records, which come before the next batch
            return self.next(timeout)
        buffer = self._buffer
        if self._newcomers.partitions:
            self._take_in(1)
        else:
            buffer.index = 0
            buffer.records = []  # free the delivered ones before as many more are made
            buffer.records = self._consume(self._batches.size, 0.0)
            self._batches.came(buffer.records)
        self._guard.serve()
        if buffer.index >= len(buffer.records):
            return None if timeout == 0 else self._poll(timeout)
        message = buffer.records[buffer.index]
        buffer.index += 1
        return message

    def _take_in(self, n: int) -> None:
        """Refills the buffer with what there is of the others, and a few records of newcomers.

        With more where the user wants as many at once: ``n`` in all.
        """
        self._settle()
        buffer = self._buffer
        # Of those that are gone there is nothing, neither here nor to come. What is paused is not
        # to be delivered, and keeps nobody's place.
        patient = NO_PARTITIONS if self._held else self._newcomers.partitions - self._paused
        asked = self._batches.beside(*buffer.held_back(patient), least=_A_FEW)
        try:
            taken = self._consumer.consume(asked, 0.0)
            contents = buffer.taking_in(taken, patient, size=n, few=_A_FEW)
            # All at once, with no call in between, as in `_change`.
            self._last_taken = taken
            buffer.records, buffer.index, buffer.aside, buffer.behind = contents
        except BaseException:
            self._swallowed = True  # before any call: at its beginning a second Ctrl-C may strike
            self._fetch_swallowed_again()
            raise
        self._newcomers.saw(taken, all_there_was=len(taken) < asked, held=buffer.aside)
        self._batches.came(taken)

    def _consume(self, n: int, timeout: float) -> list[Message]:
        self._settle()
        try:
            taken = self._consumer.consume(n, timeout)
            # Between the call above and the caller's first use there must be no other call:
            # a signal handler could raise at its end, when these count as delivered.
            self._last_taken = taken[:]  # a copy: the list itself is the user's
        except BaseException:
            self._swallowed = True  # before any call: at its beginning a second Ctrl-C may strike
            self._fetch_swallowed_again()
            raise
        return taken

    def _poll(self, timeout: float) -> Message | None:
        self._settle()
        try:
            message = self._consumer.poll(timeout)
            if message is not None:
                self._last_taken = (message,)
        except BaseException:
            self._swallowed = True  # before any call: at its beginning a second Ctrl-C may strike
            self._fetch_swallowed_again()
            raise
        if message is None:
            self._guard.serve()
        return message

    def _settle(self) -> None:
        """Enters what was taken last into the ledger, before it grows stale."""
        self._enter()
        if self._ledger.room <= 0:
            self._ledger.settle(self._consumer.position(self._native))

    def _enter(self) -> None:
        self._catch_up()
        if self._last_taken:
            self._swallowed = self._ledger.note(self._last_taken)  # as if, where offsets went back
            self._last_taken = ()
            if self._swallowed:
                self._fetch_swallowed_again()
                self._ledger.invalidate()

    def _catch_up(self) -> None:
        """Does what an exception has left undone."""
        self._require_open()
        if self._torn:
            self._follow(self._fetched_by_librdkafka())
        if self._swallowed:
            self._fetch_swallowed_again()

    def _fetch_again_before_a_change(self) -> None:
        """What was swallowed of a partition can't be told when librdkafka has let go of it.

        Where the last change is torn, that was done before it, and the next goes on from there.
        """
        self._require_open()
        if self._swallowed and not self._torn:
            self._fetch_swallowed_again()

    def _fetch_swallowed_again(self) -> None:
        """Seeks back where librdkafka is further than what was delivered.

        A partition that began at a logical offset and has delivered nothing begins there anew.
        A second Ctrl-C may strike in here: `_swallowed` stays set until all is done, and the
        next call does the rest.
        """
        expected = self._ledger.expected()
        for of, actual in known_positions(self._consumer.position(self._native)).items():
            delivered_up_to = expected.get(of, self._starts[of])
            if actual.offset != delivered_up_to.offset:
                self._starts[of] = delivered_up_to  # first: once sought, it has no position
                self._seek(of, delivered_up_to)
        self._swallowed = False

    # --- positions -------------------------------------------------------------------------

    def positions(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """Up to where records were delivered: what may be committed.

        A position counts only what `next` and `take` returned, not what is prefetched. Its
        leader epoch is that of the last delivered record where known, else -1. A partition
        of which nothing was delivered stands at its start, just as that was given to `add`
        or `seek`. Partitions not fetched, and those that started at a logical offset and
        have delivered nothing, are absent.

        O(partitions + buffered records).
        """
        self._enter()
        waiting = self._buffer.waiting()
        delivered = self._buffer.delivered() if waiting else {}
        fetched = partitions & self.assignment()
        asked = [of for of in fetched & self._running() if of not in waiting]
        settled = known_positions(self._consumer.position(native_partitions(asked)))
        positions = {}
        for of in fetched:
            start = self._starts[of]
            if (upcoming := waiting.get(of)) is not None:
                positions[of] = _position_before(upcoming, delivered.get(of), start)
            elif of in settled:
                # librdkafka forgets it where it finds its log truncated (KIP-320), until the next
                # record: then this is where it stands, not where it began.
                positions[of] = self._starts[of] = settled[of]
            elif start.offset >= 0:
                positions[of] = start
        return positions

    def seek(self, of: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Goes on from another offset, an absolute or a logical one.

        Nothing prefetched is delivered after, and the position is the new one at once.

        Raises:
            KafkaException: ``_STATE`` or ``_UNKNOWN_PARTITION``: not fetched.
                ``_INVALID_ARG``: not an offset to start from.
        """
        self._catch_up()
        require_start(of, offset)
        to = OffsetAndMetadata(offset=offset, leader_epoch=leader_epoch)
        if of not in self._starts or of in self._running():
            self._seek(of, to)
        self._starts[of] = to
        self._buffer.drop(Partitions.of([of]))

    def _seek(self, of: TopicPartition, to: OffsetAndMetadata) -> None:
        native = native_starts({of: to})
        try:
            self._consumer.seek(native[0])
        except KafkaException as failure:
            if of not in self._starts or failure.args[0].code() != LOCAL_STATE:
                raise
            # Added a moment ago, and librdkafka has yet to start it.
            self._starts[of], self._torn = to, True
            self._stop(Partitions.of([of]))
            self._consumer.incremental_assign(native)
            self._torn = False
        self._ledger.invalidate()

    # --- pausing ---------------------------------------------------------------------------
    #
    # librdkafka's own pause is not used: resuming does not wake its broker thread, and after
    # the last running partition of a broker was paused, the first record comes 0.7 s after
    # the resume. A partition that is taken out and put back delivers within milliseconds.

    def pause(self, partitions: Partitions) -> None:
        """Delivers nothing of these partitions until `resume`; nothing prefetched is lost.

        Partitions that are not fetched are left out. The flag lasts while a partition is
        kept and is gone when it is removed. A partition added at ``OFFSET_END`` that has
        delivered nothing is at the end anew when it resumes.
        """
        self._fetch_again_before_a_change()
        pausing = (partitions & self.assignment()) - self._paused
        if pausing or self._torn:
            self._change(paused=self._paused | pausing)

    def resume(self, partitions: Partitions) -> None:
        """Goes on delivering partitions that were paused, without a gap or a repeat."""
        self._fetch_again_before_a_change()
        if partitions & self._paused or self._torn:
            self._change(paused=self._paused - partitions)

    def paused(self) -> Partitions:
        """The partitions that `pause` has stopped; `hold` does not show here."""
        return self._paused

    def hold(self, held: bool) -> None:  # noqa: FBT001  # a switch with two positions
        """Stops or restarts the delivery of all partitions; callbacks go on being served.

        For a member that no longer knows whether it owns them. Costs nothing where nothing
        changes. librdkafka fetches nothing meanwhile: it would hand over records without end
        to whoever serves its callbacks.
        """
        self._fetch_again_before_a_change()
        if held != self._held or self._torn:
            self._change(held=held)

    # --- what librdkafka fetches -----------------------------------------------------------
    #
    # A change is made in our books first, all at once, and librdkafka is then made to follow.
    # Every call into it may end with an exception, Ctrl-C's, before it did anything or after. So
    # long as it was not seen to follow, the books are `_torn`, and the next call asks it what
    # it fetches and does the rest. The other way round, a partition that was removed could go on
    # delivering, or one be fetched that nobody knows of.

    def _change(
        self,
        *,
        starts: dict[TopicPartition, OffsetAndMetadata] | None = None,
        paused: Partitions | None = None,
        held: bool | None = None,
        contents: Contents | None = None,
    ) -> None:
        """Changes what is to be fetched, and has librdkafka follow."""
        running = self._fetched_by_librdkafka() if self._torn else self._running()
        buffer = self._buffer
        starts = self._starts if starts is None else starts
        paused = self._paused if paused is None else paused
        held = self._held if held is None else held
        # All at once: no call in between, at whose end a signal handler could raise. `next` looks
        # at the buffer alone, and would go on delivering a partition that is not ours any more.
        self._torn = True
        self._starts, self._paused, self._held = starts, paused, held
        if contents is not None:
            buffer.records, buffer.index, buffer.aside, buffer.behind = contents
        self._follow(running)

    def _follow(self, running: Partitions) -> None:
        """Has librdkafka, which fetches ``running``, fetch what is to be fetched.

        Does no harm when done again, wherever it was interrupted.
        """
        fetched = self.assignment()
        wanted = NO_PARTITIONS if self._held else fetched - self._paused
        self._buffer.set_aside(fetched - wanted)
        self._buffer.give_back(wanted - self._newcomers.partitions)  # theirs comes by and by
        self._halt(running - wanted)
        if starting := wanted - running:
            starts = {of: self._starts[of] for of in starting}
            self._consumer.incremental_assign(native_starts(starts))
        self._native = native_partitions(wanted)
        self._acquaintance.fetches(fetched.topics())
        self._torn = False

    def _running(self) -> Partitions:
        """The partitions that librdkafka is to fetch, and does unless the books are torn."""
        return NO_PARTITIONS if self._held else self.assignment() - self._paused

    def _fetched_by_librdkafka(self) -> Partitions:
        return plain_partitions(self._consumer.assignment())

    def _halt(self, partitions: Partitions) -> None:
        """Has librdkafka stop fetching partitions.

        The starts of those that are kept are now where to go on, behind what is held back.
        """
        if kept := native_partitions(of for of in partitions if of in self._starts):
            self._starts.update(known_positions(self._consumer.position(kept)))
        if partitions or self._stopping:
            self._stop(partitions)

    def _stop(self, partitions: Partitions) -> None:
        """Unassigns, which is asynchronous, and waits: until it is done the old position shows.

        A partition added again would seem to be where it was. Pausing goes through the same queue
        of the partition and waits for its turn. Its flag outlives an assignment: one that stayed
        paused, for an exception came before the resume, would never deliver again.
        """
        self._stopping |= partitions
        if partitions:
            self._consumer.incremental_unassign(native_partitions(partitions))
        self._ledger.invalidate()
        stopping = native_partitions(self._stopping)
        self._consumer.pause(stopping)
        self._consumer.resume(stopping)
        self._stopping = NO_PARTITIONS

    # --- the end ---------------------------------------------------------------------------

    def close(self) -> None:
        """Ends fetching and frees librdkafka's threads. A second call does nothing.

        Callbacks do not run any more.
        """
        self._closed = True
        self._buffer.clear()
        self._last_taken = ()
        self._consumer.close()
        self._guard.end()

    def _require_open(self) -> None:
        # confluent's pause() and resume() hand a null pointer to librdkafka once closed.
        if self._closed:
            raise RuntimeError("Consumer closed")


def _position_before(
    upcoming: Message, delivered: Message | None, start: OffsetAndMetadata
) -> OffsetAndMetadata:
    if delivered is not None:
        # Not the upcoming offset with the delivered record's epoch: where a gap (compaction,
        # control records) spans a change of leader, that epoch ends before it, and whoever
        # starts there would find the log truncated (KIP-320).
        return position_after(delivered)
    offset = position_at(upcoming)
    return start if offset == start.offset else OffsetAndMetadata(offset=offset)
