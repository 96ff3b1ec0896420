"""Commits and starting positions in a simulated process: the twin of `backend.errands`.

The decisions are the product's own (`offsets.commits`, `offsets.starts`); only the waiting is
done over again, in virtual time. Logs are endless and begin at 0, so ListOffsets is not sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kafka_coop.backend.mailbox import StartsFound
from kafka_coop.config import OffsetReset
from kafka_coop.errors import RequestFailedError
from kafka_coop.membership.backoff import backoff
from kafka_coop.membership.events import CommitRefused, CoordinatorLost, CoordinatorWanted
from kafka_coop.offsets.commits import Commit, Next
from kafka_coop.offsets.responses import OFFSET_FETCH, Reaction
from kafka_coop.offsets.starts import Starts
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    OffsetAndMetadata,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
)
from kafka_coop.simulation.network import Answer
from kafka_coop.types import NO_GENERATION, Generation, GroupMetadata, Partitions, TopicPartition

if TYPE_CHECKING:
    from kafka_coop.simulation.process import Process

Results: TypeAlias = Mapping[TopicPartition, ErrorCode]

_COORDINATOR_PATIENCE = 0.5
"""Seconds between reminders that a coordinator is wanted."""


@dataclass(slots=True, eq=False)
class _Commit:
    commit: Commit
    done: Callable[[Results], None]
    over: bool = False


@dataclass(slots=True, eq=False)
class _Search:
    starts: Starts
    generation: Generation
    attempt: int = 0
    flying: bool = False


class Errands:
    """What one process asks of brokers beside the state machine's requests."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._commits: deque[_Commit] = deque()
        self._flying: _Commit | None = None
        self._searches: list[_Search] = []
        self._reminder = False

    def standing_changed(self) -> None:
        """The coordinator or the identity has changed: whoever waited for it goes on."""
        if self._commits or self._searches:
            self._process.soon(self._go_on)

    # --- commits ---------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        within: float,
        done: Callable[[Results], None],
    ) -> None:
        """Commits, one commit at a time; ``done`` gets each partition's error."""
        job = _Commit(Commit(offsets=dict(offsets)), done)
        self._commits.append(job)
        self._process.after(within, self._give_up, job)
        if len(self._commits) == 1:
            self._attempt()

    def disown(self, partitions: Partitions) -> None:
        """These have left our ownership: no commit made before may be sent after."""
        for job in self._commits:
            job.commit.disown(partitions)

    def _give_up(self, job: _Commit) -> None:
        if job.over:
            return
        job.commit.give_up(job.commit.refusal or ErrorCode.request_timed_out)
        self._finish(job)

    def _finish(self, job: _Commit) -> None:
        job.over = True
        first = self._commits and self._commits[0] is job
        self._commits.remove(job)
        job.done(job.commit.results)
        if first:
            self._flying = None
            self._attempt()

    def _attempt(self) -> None:
        """Goes as far as it can with the first commit."""
        process = self._process
        if not self._commits or self._flying is not None:
            return
        job = self._commits[0]
        if process.coordinator is None:
            self._remind()
            return
        if not process.commits_open and process.identity.generation != NO_GENERATION:
            return
        identity = process.identity
        request = job.commit.request(identity, is_ours=process.member.owns)
        if request is None:
            self._finish(job)
            return
        self._flying = job
        process.ask(
            process.coordinator.node_id,
            request,
            lambda answer: self._answered(job, identity, answer),
        )

    def _answered(self, job: _Commit, identity: GroupMetadata, answer: Answer) -> None:
        if job.over:
            return
        if isinstance(answer, RequestFailedError):
            self._process.handle(CoordinatorLost())
            self._pause(job)
            return
        assert isinstance(answer, OffsetsCommitted)
        match job.commit.answered(answer, as_member=identity.generation != NO_GENERATION):
            case Next.FINISHED:
                self._finish(job)
                return
            case Next.REDISCOVER:
                self._process.handle(CoordinatorLost())
            case Next.REJUDGE:
                refused = CommitRefused(
                    error=int(job.commit.refusal),
                    generation=identity.generation,
                    member_id=identity.member_id,
                )
                self._process.handle(refused)
            case Next.AGAIN:
                pass
        self._pause(job)

    def _pause(self, job: _Commit) -> None:
        self._process.after(self._backoff(job.commit.attempts), self._again, job)

    def _again(self, job: _Commit) -> None:
        if self._flying is job:
            self._flying = None
            self._attempt()

    # --- starting positions ----------------------------------------------------------------

    def find_starts(self, partitions: Partitions, generation: Generation) -> None:
        """Finds where to start, and puts it into the mailbox."""
        search = _Search(Starts(reset=OffsetReset.EARLIEST, unfetched=partitions), generation)
        self._searches.append(search)
        self._fetch(search)

    def _fetch(self, search: _Search) -> None:
        process = self._process
        if search.flying:
            return
        if process.coordinator is None:
            self._remind()
            return
        search.flying = True
        process.ask(
            process.coordinator.node_id,
            OffsetFetch(group_id=process.settings.group_id, partitions=search.starts.unfetched),
            lambda answer: self._fetched(search, answer),
        )

    def _fetched(self, search: _Search, answer: Answer) -> None:
        starts = search.starts
        if isinstance(answer, RequestFailedError):
            self._process.handle(CoordinatorLost())
        else:
            assert isinstance(answer, OffsetsFetched)
            if OFFSET_FETCH[answer.error] is Reaction.REDISCOVER:
                self._process.handle(CoordinatorLost())
            starts.fetched(answer)
            for partition in tuple(starts.unlisted):
                del starts.unlisted[partition]
                starts.listed_at[partition] = OffsetAndMetadata(offset=0)
            self._report(search)
        if starts.complete:
            self._searches.remove(search)
            return
        self._process.after(self._backoff(search.attempt), self._fetch_again, search)
        search.attempt += 1

    def _fetch_again(self, search: _Search) -> None:
        member, starts = self._process.member, search.starts
        search.flying = False
        if member.generation != search.generation:
            starts.unfetched &= member.owned
        if starts.complete:
            self._searches.remove(search)
        else:
            self._fetch(search)

    def _report(self, search: _Search) -> None:
        starts = search.starts
        if starts.committed or starts.listed_at or starts.failed:
            found = StartsFound(
                generation=search.generation,
                committed=starts.committed,
                reset=starts.listed_at,
                failed=starts.failed,
            )
            starts.committed, starts.listed_at, starts.failed = {}, {}, {}
            self._process.put(found)

    # --- what they share -------------------------------------------------------------------

    def _remind(self) -> None:
        if not self._reminder:
            self._reminder = True
            self._process.handle(CoordinatorWanted())
            self._process.after(_COORDINATOR_PATIENCE, self._reminded)

    def _reminded(self) -> None:
        self._reminder = False
        self._go_on()

    def _go_on(self) -> None:
        self._attempt()
        for search in tuple(self._searches):
            self._fetch(search)

    def _backoff(self, attempt: int) -> float:
        s = self._process.settings
        return backoff(attempt, base=s.retry_backoff, cap=s.retry_backoff_max, seed=s.seed)
