"""What librdkafka, the group's member, has of partitions, and which of them it fetches.

Whatever the group gives stays with librdkafka until the group takes it, and both happen inside
its callbacks alone: it tells the broker that a revocation is carried out as soon as something, no
matter what, is unassigned, so that whoever did that a moment before the callback would let
another member have what is still to be committed. What is not to be fetched *stands still* there:
assigned at an offset from which it is never fetched, for it was paused before.

As in `Fetcher` a change is made in our books first, and librdkafka is then made to follow. Where
an exception (Ctrl-C) has struck, following once more does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from kafka_coop.fetching.native import (
    known_positions,
    local_error,
    native_partitions,
    native_starts,
    plain_partitions,
    require_start,
)
from kafka_coop.membership.failures import LOCAL_CONFLICT, LOCAL_INVALID_ARG, LOCAL_STATE
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import NO_PARTITIONS, Partitions, TopicPartition

_NOWHERE = OffsetAndMetadata(offset=0)
"""Where a partition stands still. An absolute offset: librdkafka would look up any other. Were it
ever fetched from there, of a log that begins later, librdkafka would find its own start, and go
there 0.6 s after whatever we say meanwhile."""

_NOT_STARTED = frozenset({LOCAL_STATE, KafkaError._PREV_IN_PROGRESS})  # noqa: SLF001  # confluent's public constant
"""librdkafka's words for a partition that it has yet to start: there is nothing to seek in."""


class GroupPartitions:
    """The books, and a librdkafka consumer that follows them.

    Attributes:
        fetched: What is to be fetched, paused ones included.
        starts: Where these are to begin; after that, where they began, or had come to when that was
            asked last.
        given: What the group has given, and not taken yet.
        undone: librdkafka has yet to follow; `follow` has it do so.
    """

    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self.fetched = NO_PARTITIONS
        self.starts: Mapping[TopicPartition, OffsetAndMetadata] = {}
        self.undone = False
        self._consumer = consumer
        self.given = NO_PARTITIONS
        self._due = NO_PARTITIONS
        """What librdkafka has yet to be told where to begin with, or that it stands still."""
        self._gone = NO_PARTITIONS
        """What librdkafka has yet to let go of."""
        self._paused = NO_PARTITIONS
        self._flagged = NO_PARTITIONS
        """What is paused in librdkafka, whoever wished it."""

    def positions(self, partitions: Partitions) -> list[confluent_kafka.TopicPartition]:
        """librdkafka's, of those that it has begun with; what it says of others is old."""
        return self._consumer.position(native_partitions((partitions & self.fetched) - self._due))

    def has_come_to(self, known: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Where these stand: librdkafka forgets it where it finds a log truncated (KIP-320)."""
        self.starts = {**self.starts, **known}

    # --- inside librdkafka's callbacks ----------------------------------------------------------

    def give(self, given: Partitions) -> None:
        """The group has given these. What of them is not fetched stands still."""
        due = self._due | (given - self.fetched)
        self.given, self._due, self.undone = self.given | given, due, True
        self.follow()

    def take(self, gone: Partitions, by_hand: Partitions = NO_PARTITIONS) -> None:
        """The group has taken these. Some of them a user may have assigned by hand meanwhile."""
        if by_hand:
            self.starts = {**self.starts, **known_positions(self.positions(by_hand))}
        paused = self._paused & by_hand
        self._drop(gone, self.given - gone)
        fetched, due = self.fetched | by_hand, self._due | by_hand
        self.fetched, self._due, self._paused = fetched, due, self._paused | paused
        self.follow()

    # --- at any time ----------------------------------------------------------------------------

    def add(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Begins to fetch these, unpaused.

        Raises:
            KafkaException: ``_CONFLICT``: one of them is fetched already. ``_INVALID_ARG``: one
                has no offset to start from. Nothing is changed.
        """
        before, added = self.fetched, Partitions.of(starts)
        for of, at in starts.items():
            require_start(of, at.offset)
        if twice := added & before:
            raise local_error(LOCAL_CONFLICT, f"fetched already: {list(twice)}")
        kept = {of: at for of, at in self.starts.items() if of in before}
        self.starts, self.undone = kept | dict(starts), True
        self.fetched, self._due = before | added, self._due | added
        try:
            self.follow()
        except KafkaException:
            self.fetched, self._due = before, self._due - added
            raise

    def remove(self, partitions: Partitions) -> None:
        """Fetches these no more.

        Raises:
            KafkaException: ``_INVALID_ARG``: one of them is not fetched. Nothing is changed.
        """
        if unknown := partitions - self.fetched:
            raise local_error(LOCAL_INVALID_ARG, f"not fetched: {list(unknown)}")
        self._drop(partitions, self.given)
        self.follow()

    def pause(self, partitions: Partitions) -> None:
        """Delivers nothing of these; those that are not fetched are left out."""
        if pausing := partitions & self.fetched:
            self._flag(pausing)
            self._paused |= pausing

    def resume(self, partitions: Partitions) -> None:
        """Undoes `pause`."""
        if resuming := partitions & self._paused:
            self._unflag(resuming - self._due)
            self._paused -= resuming

    def seek(self, of: TopicPartition, to: OffsetAndMetadata) -> None:
        """Goes on from there.

        Raises:
            KafkaException: ``_STATE``: it is not fetched. ``_INVALID_ARG``: `to` is no offset to
                start from.
        """
        require_start(of, to.offset)
        if of not in self.fetched:
            raise local_error(LOCAL_STATE, f"{of} is not fetched")
        before = self.starts, self._due
        starts, due = {**self.starts, of: to}, self._due | Partitions.of([of])
        self.starts, self._due, self.undone = starts, due, True
        try:
            self.follow()
        except KafkaException:
            self.starts, self._due = before
            raise

    # --- librdkafka's part ----------------------------------------------------------------------

    def follow(self) -> None:
        """Has librdkafka do what it has not done yet, and no more.

        What it has or has not, for an exception struck upon a callback, stays so until somebody
        can `compare`: the next callback may come before.
        """
        actual = self._actual()
        self._unflag(self._gone)  # librdkafka's flag would outlive the assignment
        if gone := native_partitions(self._gone & actual):
            self._consumer.incremental_unassign(gone)
        actual -= self._gone
        self._gone = NO_PARTITIONS
        if new := self._due - actual:
            self._assign(new & self.fetched, new - self.fetched)
        self._due = (self._due - new) & self.fetched
        self._flag(self.given - self.fetched)
        self._begin()
        self.undone = bool(self._due)

    def _assign(self, fetched: Partitions, still: Partitions) -> None:
        for of in still:
            # librdkafka pauses only what it knows. It meets a partition that it is asked about.
            native = confluent_kafka.TopicPartition(of.topic, of.partition)
            self._consumer.get_watermark_offsets(native, cached=True)
        self._flag(still | (fetched & self._paused))
        self._unflag(fetched - self._paused)
        starts = {of: self.starts[of] for of in fetched} | dict.fromkeys(still, _NOWHERE)
        self._consumer.incremental_assign(native_starts(starts))

    def _begin(self) -> None:
        """Goes to the start of what is due. Meanwhile it stands still.

        The first record of what stood still comes up to 0.7 s after: resuming does not wake
        librdkafka's thread.
        """
        begun = []
        for start in native_starts({of: self.starts[of] for of in self._due}):
            try:
                self._consumer.seek(start)
            except KafkaException as failure:
                if failure.args[0].code() not in _NOT_STARTED:
                    raise
            else:
                begun.append(start)
        begun_now = plain_partitions(begun)
        self._unflag(begun_now - self._paused)
        self._due -= begun_now
        self._flag(self._due)

    def _flag(self, partitions: Partitions) -> None:
        if partitions:
            self._flagged |= partitions
            self._consumer.pause(native_partitions(partitions))

    def _unflag(self, partitions: Partitions) -> None:
        if flagged := partitions & self._flagged:
            self._consumer.resume(native_partitions(flagged))
            self._flagged -= flagged

    def compare(self) -> tuple[Partitions, Partitions]:
        """What librdkafka has, or has no more, although no callback of ours has seen to it.

        So it is where an exception (Ctrl-C) struck before the callback's first line: confluent's
        own code assigns and unassigns then, and librdkafka finds starts by itself. To be called
        when all is done that librdkafka could do.

        Returns:
            What was given, and what was taken, for `adopt`.
        """
        actual = self._actual()
        return actual - self.given - self.fetched, self.given - actual

    def adopt(self, given: Partitions, gone: Partitions) -> None:
        """So it is from now on: what was given stands still."""
        if given or gone:
            self._drop(gone, (self.given | given) - gone)
            self.follow()

    def _drop(self, partitions: Partitions, given: Partitions) -> None:
        # All at once: no call in between, at whose end a signal handler could raise.
        fetched, due = self.fetched - partitions, self._due - partitions
        gone, paused = self._gone | (partitions - given), self._paused - partitions
        self.fetched, self._due, self._gone, self._paused = fetched, due, gone, paused
        self.given, self.undone = given, True

    def _actual(self) -> Partitions:
        return plain_partitions(self._consumer.assignment())
