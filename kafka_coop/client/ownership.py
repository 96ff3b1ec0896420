"""What the user was given: which partitions, whether they are fetched, and from where.

This is ownership as the *user* has been told of it. It may lag behind what the membership
knows; records are delivered by the former, commits are fenced by the latter.

A partition is owned first and fetched later: its start is looked up by the membership, or set
by the user inside on_assign, and is good for the generation that it was looked up in alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from kafka_coop.backend import clock
from kafka_coop.backend.mailbox import StartsFound
from kafka_coop.backend.promises import Promise
from kafka_coop.fetching.interface import Fetching
from kafka_coop.fetching.messages import error_message
from kafka_coop.fetching.native import partition_of, position_at, require_start
from kafka_coop.kafka_errors import coop_exception
from kafka_coop.membership.failures import LOCAL_AUTO_OFFSET_RESET, LOCAL_STATE
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.offsets.ledger import Ledger
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.turns import TurnLock
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, TopicPartition

_NO_OFFSET_TEXT = "no offset is committed, and auto.offset.reset=error: seek() or commit one"


class Ownership:
    """The partitions of one consumer. Its methods may be called from any thread.

    Attributes:
        owned: The partitions that the user was given and has not been told to have lost.
        errors: Partition-level errors, to be delivered as messages before any record.
        ledger: Their stored and committed offsets; with ``lock`` held.
        lock: Guards all of this, and the fetcher. Not held while a callback of the user runs, but
            for librdkafka's own (``stats_cb``, ``error_cb``, ``throttle_cb``).
        starts_may_change: on_assign runs, and may still say where to start.
        by_hand_alone: All that is owned, and something is, was taken by hand.
        gathered: What the poll under way has taken from the fetcher and not yet returned: not
            delivered yet. Its own list, of which it returns what is left.
    """

    def __init__(self, fetcher: Fetching, metrics: MemberMetrics, lock: TurnLock) -> None:
        self.owned = NO_PARTITIONS
        self.errors: deque[Message] = deque()
        self.ledger = Ledger()
        self.lock = lock
        self.starts_may_change = False
        self.by_hand_alone = False
        self.gathered: list[Message] = []
        self._fetcher = fetcher
        self._metrics = metrics
        self._awaiting: dict[TopicPartition, Generation] = {}
        self._found: dict[TopicPartition, _Start | _Refusal] = {}
        self._refused: dict[TopicPartition, Generation] = {}
        self._committing: dict[TopicPartition, _Committing] = {}
        self._by_hand = NO_PARTITIONS
        self._pausing = NO_PARTITIONS
        self._beginning = NO_PARTITIONS

    # --- whose ------------------------------------------------------------------------------

    def own(self, partitions: Partitions, generation: Generation, *, by_hand: bool = False) -> None:
        """Ownership begins; fetching does when the starts of this generation are known.

        What the group gave before `unsubscribe`, and the user has taken by hand since, begins where
        the user says.
        """
        with self.lock:
            self.owned |= partitions
            if by_hand:
                self._by_hand |= partitions
            else:
                partitions -= self._by_hand
            self._awaiting.update(dict.fromkeys(partitions, generation))
            self._note_change()

    def release(self, partitions: Partitions) -> None:
        """Ownership ends: nothing of these is delivered after, whatever was fetched.

        After an exception (Ctrl-C) it is to be called again. The fetcher is asked even to remove
        nothing: it may have been interrupted when it removed these.
        """
        with self.lock:
            self.owned -= partitions
            self._by_hand -= partitions
            self._pausing -= partitions
            self._beginning -= partitions
            self._fetcher.remove(self._fetcher.assignment() - self.owned)
            self.ledger.forget(partitions)
            for partition in partitions:
                self._awaiting.pop(partition, None)
                self._found.pop(partition, None)
                self._refused.pop(partition, None)
                self._committing.pop(partition, None)
            kept = [m for m in self.errors if partition_of(m) not in partitions]
            self.errors = deque(kept)
            self._drop_gathered(partitions)
            self._note_change()

    def _note_change(self) -> None:
        """Once for each change: every poll asks for the one, every scrape for the other."""
        self.by_hand_alone = bool(self.owned) and self.owned == self._by_hand
        self._metrics.assignment(self.owned, clock.now())

    def _drop_gathered(self, partitions: Partitions) -> None:
        self.gathered[:] = [m for m in self.gathered if partition_of(m) not in partitions]

    @property
    def taken_by_hand(self) -> Partitions:
        """Those of `owned` that no group gave."""
        return self._by_hand

    def silence(self, partitions: Partitions) -> None:
        """Nothing is fetched any more of what the group is about to take; it is owned still."""
        with self.lock:
            self._fetcher.remove((partitions - self._by_hand) & self._fetcher.assignment())

    def release_the_groups(self, partitions: Partitions) -> None:
        """The same for what the group takes: what was taken by hand meanwhile stays."""
        self.release(partitions - self._by_hand)

    def require(self, partitions: Iterable[TopicPartition]) -> None:
        """Raises KafkaException ``_STATE`` unless all of these are owned."""
        if foreign := sorted(Partitions.of(partitions) - self.owned):
            raise coop_exception(LOCAL_STATE, f"not assigned to this consumer: {foreign[:5]}")

    def positions(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """Up to where records were delivered. `Fetching.positions` counts what is gathered, too.

        Committed before it is returned (by another thread, by a signal handler that ends the
        process, for a revocation inside librdkafka), it would be lost with this process.
        """
        with self.lock:
            found = self._fetcher.positions(partitions)
            for message in reversed(self.gathered):
                if message.error() is None and (of := partition_of(message)) in found:
                    found[of] = OffsetAndMetadata(offset=position_at(message))
            return found

    # --- pausing ----------------------------------------------------------------------------

    def pause(self, partitions: Partitions) -> None:
        """Pauses, also what is owned and not fetched yet (a pause in on_assign)."""
        with self.lock:
            self._fetcher.pause(partitions)
            self._pausing |= partitions & Partitions.of(self._awaiting)

    def resume(self, partitions: Partitions) -> None:
        """Undoes `pause`."""
        with self.lock:
            self._fetcher.resume(partitions)
            self._pausing -= partitions

    # --- where to start ---------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether every owned partition is being fetched, or the user was told why not."""
        return self._awaiting.items() <= self._refused.items() and not self._committing

    def awaited(self, generation: Generation, some: Partitions) -> Partitions:
        """Those of which a start that is good for this generation is still to come.

        Without the lock: it is the membership's thread that asks.
        """
        awaiting = self._awaiting
        return Partitions.of(p for p in some if awaiting.get(p) == generation)

    def seek(self, of: TopicPartition, to: OffsetAndMetadata) -> None:
        """Goes on from there, or starts there, where fetching has not begun."""
        with self.lock:
            self.require([of])
            require_start(of, to.offset)
            self._note_begun()
            self.ledger.sought(of)
            if of in self._awaiting:
                self.override_starts({of: to})
            else:
                self._fetcher.seek(of, to.offset, to.leader_epoch)
            self._drop_gathered(Partitions.of([of]))

    def override_starts(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The user knows better where to start (on_assign, or a seek before the first record).

        They are known to be offsets (`require_start`): one that the fetcher refuses would have
        taken the place of the start that was looked up, and nobody would look again.
        """
        with self.lock:
            self._note_begun()
            for partition, start in starts.items():
                if (generation := self._awaiting.get(partition)) is not None:
                    self._committing.pop(partition, None)
                    self._found[partition] = _Start(generation, start, chosen=True)
            self.begin_fetching()

    def begin_as_committed(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        results: Promise[dict[TopicPartition, ErrorCode]],
    ) -> None:
        """The user commits these: what has not begun for want of their word begins there.

        If the coordinator takes them: until it answers, nothing of these begins. What the group
        had committed may have been looked up before on_assign was called. That may
        wait for a thread that commits, and be called with the lock held: so it is not taken then.
        """
        wanting = self._awaiting if self.starts_may_change else self._refused
        for partition, at in offsets.items():
            found = self._found.get(partition)
            chosen = isinstance(found, _Start) and found.chosen
            if (generation := wanting.get(partition)) is not None and not chosen:
                self._committing[partition] = _Committing(_Start(generation, at), results)

    def _take_commits(self) -> None:
        """Of those that were answered."""
        for partition, commit in list(self._committing.items()):
            if self._awaiting.get(partition) != commit.start.generation:
                del self._committing[partition]
            elif commit.results.done():
                del self._committing[partition]
                if commit.is_taken(partition):
                    self._found[partition] = commit.start

    def take_starts(self, answer: StartsFound) -> None:
        """What the membership has found out.

        In a round that also takes, it may come before `own`: that waits for on_revoke.
        """
        generation = answer.generation
        with self.lock:
            for partition, start in answer.committed.items():
                self._learn(partition, _Start(generation, start, committed=True))
            for partition, start in answer.reset.items():
                self._learn(partition, _Start(generation, start))
            for partition in answer.without:
                refusal = _Refusal(generation, LOCAL_AUTO_OFFSET_RESET, _NO_OFFSET_TEXT)
                self._learn(partition, refusal)
            for partition, error in answer.failed.items():
                text = f"where to start can't be found: {error.name.upper()}"
                self._learn(partition, _Refusal(generation, int(error), text))
            self.begin_fetching()

    def begin_fetching(self) -> None:
        """Starts what is ready to start, and tells of what can't be started.

        Not while on_assign may still override it. Every poll tries again while something waits:
        an exception (Ctrl-C) may have struck when it was tried before.
        """
        if self.starts_may_change:
            return
        with self.lock:
            self._note_begun()
            self._take_commits()
            due = {
                partition: found
                for partition, found in self._found.items()
                if self._awaiting.get(partition) == found.generation
                and partition not in self._committing
            }
            self._report({p: f for p, f in due.items() if isinstance(f, _Refusal)})
            ready = {p: f for p, f in due.items() if isinstance(f, _Start)}
            if ready:
                self._fetch(ready)

    def _fetch(self, ready: Mapping[TopicPartition, _Start]) -> None:
        # Where nothing is committed yet, the start itself is worth committing: were the
        # partition to move on before its first record, auto.offset.reset would be asked again.
        self.ledger.started({p: s.at for p, s in ready.items() if s.committed})
        self._beginning = Partitions.of(ready)
        self._fetcher.add({p: s.at for p, s in ready.items()})
        self._note_begun()

    def _note_begun(self) -> None:
        """What the fetcher has of those that it was to begin does not wait any more.

        Where the starts were forgotten before, and a Ctrl-C struck while it waited for the
        brokers, the partition stayed owned and was never fetched.
        """
        if not self._beginning:
            return
        begun = self._beginning & self._fetcher.assignment()
        if pausing := self._pausing & begun:
            self._fetcher.pause(pausing)
        self._pausing -= begun
        for partition in begun:
            for waits in (self._awaiting, self._found, self._refused, self._committing):
                waits.pop(partition, None)
        self._beginning = NO_PARTITIONS

    def _learn(self, partition: TopicPartition, found: _Start | _Refusal) -> None:
        """Keeps an answer if it counts.

        It does not where there is one for the same generation (the user's word comes first), or
        for the ownership that waits. Numbers don't tell which is later: a group that was gone
        begins anew. A refusal gives way to whatever is learned later of its generation, and is
        told once.
        """
        told = self._refused.get(partition) == found.generation
        if told and isinstance(found, _Refusal):
            return
        known = self._found.get(partition)
        if known is None or (
            isinstance(known, _Refusal)
            if known.generation == found.generation
            else known.generation != self._awaiting.get(partition)
        ):
            self._found[partition] = found

    # --- errors -----------------------------------------------------------------------------

    def _report(self, refusals: Mapping[TopicPartition, _Refusal]) -> None:
        """Tells the user, who may say where to start; what may pass is asked for again."""
        for partition, refusal in refusals.items():
            message = error_message(partition, refusal.code, refusal.text)
            del self._found[partition]
            self._refused[partition] = refusal.generation
            self.errors.append(message)

    def report_topics(self, errors: Mapping[str, int]) -> None:
        """Subscribed topics that can't be had."""
        messages = []
        for topic, code in sorted(errors.items()):
            text = f"Subscribed topic not available: {topic}: {ErrorCode(code).name.upper()}"
            messages.append(error_message(TopicPartition(topic, -1), code, text))
        with self.lock:
            self.errors.extend(messages)  # all, or none


@dataclass(frozen=True, slots=True)
class _Start:
    """Where to start a partition that was owned in ``generation``."""

    generation: Generation
    at: OffsetAndMetadata
    committed: bool = False
    chosen: bool = False
    """By the user, for this consumer."""


@dataclass(frozen=True, slots=True)
class _Committing:
    """A commit that is to say where to start, once the coordinator has taken it."""

    start: _Start
    results: Promise[dict[TopicPartition, ErrorCode]]

    def is_taken(self, partition: TopicPartition) -> bool:
        """Of one that is answered, or has failed."""
        if self.results.cancelled() or self.results.exception(0) is not None:
            return False
        return self.results.result(0).get(partition) is ErrorCode.none


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a partition that was owned in ``generation`` can't be started."""

    generation: Generation
    code: int
    text: str
