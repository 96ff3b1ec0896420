"""What a query holds, how far it is, and what a batch under way reads of it. Pure bookkeeping.

The rules are those of docs/SPARK.md: a partition that a batch reads can't leave before the batch
is durable; the checkpoint's word counts for a partition as long as the claim that is committed for
it is the one the checkpoint knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_coop.spark.offsets import Claim, Known, Range, SourceOffset
from kafka_coop.spark.options import canonical
from kafka_coop.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What the group has committed for a partition.

    Attributes:
        offset: None: nothing.
        run: The claim beside it; None: there is none, or somebody else's metadata.
        after: The claim of the same checkpoint's process before; None: there was none.
        unread: By the claim nobody in the group had read it then.
    """

    offset: int | None
    run: str | None
    after: str | None = None
    unread: bool = False

    @classmethod
    def under(cls, claim: Claim, offset: int | None) -> Committed:
        """What is committed beside a claim."""
        return cls(offset=offset, run=claim.run, after=claim.after, unread=claim.unread)

    @property
    def has_been_read(self) -> bool:
        """Whether somebody in the group may have read before the offset."""
        return self.offset is not None and not self.unread


NOTHING = Committed(offset=None, run=None)
"""Nobody has committed anything."""


@dataclass(slots=True, kw_only=True)
class Hold:
    """A partition that the query holds.

    Attributes:
        position: All before it is durable.
        committed: What the group knows. It is ahead of the position while a horizon is replayed.
        after: The claim of the checkpoint's process before, if nobody else has held it since.
        unread: No batch has read it, here or elsewhere in the group.
        untouched: Nobody else had claimed it when it came, since we knew how far we are.
        shortened: Where the log ended when it had become shorter than what was read or committed;
            what is committed goes back to there. None: it has not.
    """

    position: int
    committed: Committed
    after: str | None = None
    unread: bool = False
    untouched: bool = False
    shortened: int | None = None

    @property
    def reached(self) -> int:
        """How far anybody has come who read for the group, in the log as it is."""
        if self.shortened is not None:
            return self.due
        return max(self.position, self.committed.offset or 0)

    @property
    def due(self) -> int:
        """What the group is to know, at least."""
        return max(self.position, self.shortened or 0)


class Holdings:
    """Partitions held, leaving, and being read. Not thread-safe: the caller holds a lock.

    Args:
        run: The claim of this process: new, nobody's yet. Others that it makes begin with it.
        inherited: The claim in the checkpoint's last offset; None: there is none. What is
            committed under it is left so until a replay is over, and else until `renew`: a batch
            that is replayed and becomes durable must be known by it. Nothing else is put under it:
            what the replay did not read would pass for read.

    Attributes:
        run: The claim under which is committed now.
    """

    def __init__(self, run: str, inherited: str | None = None) -> None:
        self.run = run
        self._first_run = run
        self._claims = 1
        self._before = inherited
        self._inherited = inherited
        self._replays = False
        self._held: dict[TopicPartition, Hold] = {}
        self._leaving: set[TopicPartition] = set()
        self._known: dict[TopicPartition, Known] = {}
        self._ahead: set[TopicPartition] = set()  # or behind: the group knows something else
        self._reading: dict[TopicPartition, Range] = {}
        self._orphans: dict[TopicPartition, Range] = {}
        self._ends_at: str | None = None

    # --- what the checkpoint says ----------------------------------------------------------

    def remember(self, offset: SourceOffset, *, durable: bool) -> None:
        """Takes the word of the checkpoint's last offset.

        Args:
            offset: The end of the last batch that was logged.
            durable: Whether that batch is; else it is about to be replayed.
        """
        self._replays = not durable
        self._known |= offset.known
        for of, span in offset.ranges.items():
            position = span.stop if durable else span.start
            before = self._known.get(of)  # what was not claimed when the batch was planned
            runs = frozenset({offset.run}) if before is None else before.runs | {offset.run}
            self._known[of] = Known(position, runs)
        self._ahead.update(self._known)

    def position_from(self, of: TopicPartition, committed: Committed) -> int | None:
        """Where to go on by the checkpoint's word; None: it has none, or it does not count.

        It counts where nothing is committed any more (offsets expire): better twice than never.
        What an earlier process of the checkpoint has committed, without logging a batch, is its
        word, too: the partition has not moved.
        """
        known = self._known.get(of)
        if known is None:
            return None
        if committed.offset is None or committed.run in known.runs:
            return known.position
        if committed.after not in known.runs:
            return None
        # Not beyond our own position, which is behind what is committed while a horizon is read.
        # Nor beyond what is committed: that process may have left the partition out of its replay,
        # or seen a log that had become shorter.
        return min(known.position, committed.offset)

    def has_read_beyond(self, of: TopicPartition, committed: Committed) -> bool:
        """Whether the checkpoint has read what is not committed, and others gave it back unread."""
        known = self._known.get(of)
        return known is not None and known.position > (committed.offset or 0)

    @property
    def ahead(self) -> frozenset[TopicPartition]:
        """Not held, and the checkpoint may be elsewhere than the group: mostly ahead."""
        return frozenset(self._ahead)

    def hear(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """Of what is not held: others have claimed it, or the group knows just what we do.

        The ends of batches need not say it any more, which a group of many partitions would notice.
        Where the group is ahead they must: of a log that has become shorter, or a horizon.
        """
        for of in self.ahead & committed.keys():
            its, known = committed[of], self._known[of]
            if its.offset is not None and (
                known.position == its.offset or known.counted_by(its.run, its.after) is None
            ):
                self._ahead.discard(of)

    def known_besides(self) -> dict[TopicPartition, Known]:
        """What a batch's end is to say of partitions that are not read under its claim.

        Those that went: their next owner may go without having claimed them, and leave us where we
        were. And those that are held and not claimed: that claim may never be taken.
        """
        gone = {of: self._known[of] for of in self.ahead}
        unclaimed = {
            of: self._word_on(of, hold)
            for of, hold in self._held.items()
            if not self._is_ours(hold.committed)
        }
        return gone | {of: known for of, known in unclaimed.items() if known.runs != {self.run}}

    # --- partitions come and go ------------------------------------------------------------

    @property
    def held(self) -> Mapping[TopicPartition, Hold]:
        """Everything held, what is leaving included."""
        return self._held

    @property
    def leaving(self) -> frozenset[TopicPartition]:
        """Held, and not to be read any more."""
        return frozenset(self._leaving)

    def hold(self, of: TopicPartition, position: int, committed: Committed) -> None:
        """A partition came.

        What comes back from others is claimed anew: the word of our last offset, from before they
        had it, must not count again, and a batch that still reads it from then must not either.
        """
        known = self._known.get(of)
        by = None if known is None else known.counted_by(committed.run, committed.after)
        if known is not None and self.run in known.runs and by is None:
            self._claim_anew()
        # What shows the checkpoint's next process that nobody else has held it since the last.
        after = committed.after if self._is_of_this_process(committed.run) else by
        self._held[of] = Hold(
            position=position,
            committed=committed,
            after=after,
            unread=not committed.has_been_read and known is None,
            untouched=by is not None,
        )
        self._leaving.discard(of)
        self._ahead.discard(of)

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """These are to go as soon as nothing reads them."""
        self._leaving.update(of for of in partitions if of in self._held)

    def busy(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of them that a batch under way reads."""
        return {of for of in partitions if of in self._reading or of in self._orphans}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are gone, revoked or lost.

        If one comes back and nobody has claimed it, we know how far we are. A batch that still
        reads it goes on doing so.
        """
        for of in partitions:
            hold = self._held.pop(of, None)
            self._leaving.discard(of)
            if of in self._reading:
                self._orphans[of] = self._reading.pop(of)
            if hold is not None:
                self._known[of] = self._word_on(of, hold)
                if hold.committed.offset != hold.position:
                    self._ahead.add(of)

    def _word_on(self, of: TopicPartition, hold: Hold) -> Known:
        """What is known of a partition that is held, should it go.

        By the claim that is committed, if it is ours, by the one that we meant to make, of which we
        may only not have heard, and by the one by which what the checkpoint knew before counts.
        Not by another's: that one may go on with it for long before it comes back, and our
        position would pass for theirs.
        """
        claim, known = hold.committed.run, self._known.get(of)
        runs = {self.run}
        if claim is not None and (claim == self._before or self._is_of_this_process(claim)):
            runs.add(claim)
        if known is not None:
            runs |= known.runs & {claim, hold.committed.after}
        return Known(hold.position, frozenset(runs))

    # --- records are lost ------------------------------------------------------------------

    def move(self, of: TopicPartition, position: int) -> None:
        """Records are gone before they were read: it goes on with those that are there."""
        self._held[of].position = position

    def shorten(self, of: TopicPartition, end: int) -> None:
        """The log ends before what was read of it, or committed: both go back to its end.

        Else the next owner would begin where the log was, and skip what is written until then.
        So would this checkpoint's next process, by its last offset: all is claimed anew, and the
        word of that offset counts no more.
        """
        hold = self._held[of]
        hold.position, hold.shortened = min(hold.position, end), end
        self._inherited = None  # else the older claim would do, and stay
        self._claim_anew()

    def start_over(self, topics: Collection[str]) -> None:
        """These topics were made anew: nothing of them has been read, by anybody.

        What was known of them counts no more, neither here nor in the checkpoint, nor what the
        group has committed: the brokers forget that with the topic, but we may have committed
        since, as who knew no better.
        """
        for of, hold in self._held.items():
            if of.topic in topics:
                hold.position = hold.shortened = 0
                hold.unread = True
        self._known = {of: known for of, known in self._known.items() if of.topic not in topics}
        self._ahead &= self._known.keys()
        self._inherited = None
        self._claim_anew()

    def _claim_anew(self) -> None:
        """From here on, and with the next batch all that is held: a batch is under one claim."""
        self._claims += 1
        self.run = f"{self._first_run}.{self._claims}"

    # --- batches ---------------------------------------------------------------------------

    @property
    def reading(self) -> Mapping[TopicPartition, Range]:
        """What the batch under way reads."""
        return self._reading

    @property
    def begun(self) -> Mapping[TopicPartition, Range]:
        """What the batch under way was begun with, whatever has been lost since."""
        return self._reading | self._orphans

    def begin(self, end: Mapping[str, Any], ranges: Mapping[TopicPartition, Range]) -> None:
        """A batch that ends at ``end`` is about to read these."""
        self._reading = dict(ranges)
        self._ends_at = canonical(end)

    def is_under_way(self, end: Mapping[str, Any]) -> bool:
        """Whether the batch under way ends there."""
        return self._ends_at == canonical(end)

    def finish(self) -> None:
        """The batch under way is durable: positions move on."""
        for of, span in self._reading.items():
            self._read_to(self._held[of], span.stop)
        for of, span in self._orphans.items():
            self._finish_orphan(of, span)
        self.forget()

    def _finish_orphan(self, of: TopicPartition, span: Range) -> None:
        """What was lost in the middle of a batch, and may be back: does our word still count?"""
        known, hold = self._known.get(of), self._held.get(of)
        if known is None or known.position != span.start:
            return  # it came back meanwhile, was read on, and left again
        self._known[of] = known._replace(position=span.stop)
        if hold is None:
            self._ahead.add(of)
        elif hold.position == span.start and hold.untouched:
            self._read_to(hold, span.stop)

    @staticmethod
    def _read_to(hold: Hold, stop: int) -> None:
        hold.position, hold.unread = stop, False

    def forget(self) -> None:
        """The batch under way was never run."""
        self._replays = False
        self._reading = {}
        self._orphans = {}
        self._ends_at = None

    # --- commits ---------------------------------------------------------------------------

    def news(self) -> dict[TopicPartition, int]:
        """What is to be committed: positions beyond what the group knows, under our claim.

        Also what is claimed by someone else, or by nobody: at what is committed, if that is
        ahead of the position. It goes back only with a log that has become shorter. While a replay
        is due, what is under the claim that it is known by stays so, unless it is to leave.
        """
        found = {}
        for of, hold in self._held.items():
            known = hold.committed
            if self._is_for_the_replay(known) and of not in self._leaving:
                continue
            if (
                known.offset is None
                or hold.due > known.offset
                or (hold.shortened is not None and hold.due < known.offset)
            ):
                found[of] = hold.due
            elif not self._is_ours(known):
                found[of] = known.offset
        return found

    def _is_for_the_replay(self, committed: Committed) -> bool:
        return self._replays and committed.run is not None and committed.run == self._inherited

    def claim(self, of: TopicPartition) -> Claim:
        """What is to be committed beside the offset of a partition that is held."""
        hold = self._held[of]
        return Claim(self.run, hold.after, hold.unread)

    def committed(self, of: TopicPartition, offset: int, claim: Claim) -> None:
        """The group has taken a commit."""
        if (hold := self._held.get(of)) is not None:
            hold.committed = Committed.under(claim, offset)

    def ready(self) -> dict[TopicPartition, int]:
        """The positions of what a batch may read: held, not leaving, and claimed."""
        return {
            of: hold.position
            for of, hold in self._held.items()
            if of not in self._leaving and self._is_ours(hold.committed)
        }

    def _is_of_this_process(self, claim: str | None) -> bool:
        return claim is not None and claim.partition(".")[0] == self._first_run

    def _is_ours(self, committed: Committed) -> bool:
        return committed.run is not None and committed.run in (self.run, self._inherited)

    def renew(self) -> bool:
        """A batch of this process is to be planned: all that it reads must be under its own claim.

        Returns:
            Whether that may take a commit (`news`).
        """
        self._replays = False
        inherited, self._inherited = self._inherited, None
        return inherited is not None
