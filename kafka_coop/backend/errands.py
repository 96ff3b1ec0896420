"""Requests beside the group protocol: commits, committed offsets, starting positions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta

from kafka_coop.backend.mailbox import StartsFound
from kafka_coop.backend.standing import Standing
from kafka_coop.broker.pool import Brokers
from kafka_coop.config import OffsetReset
from kafka_coop.errors import RequestFailedError, RequestTimedOutError
from kafka_coop.membership.backoff import backoff
from kafka_coop.membership.events import CommitRefused, CoordinatorLost, CoordinatorWanted, Event
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.offsets.commits import Commit, Next
from kafka_coop.offsets.responses import OFFSET_FETCH, Reaction
from kafka_coop.offsets.starts import Starts, by_leader
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    ClusterMetadata,
    FetchedOffset,
    GetMetadata,
    ListOffsets,
    Node,
    OffsetAndMetadata,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetsListed,
)
from kafka_coop.types import NO_GENERATION, Generation, Partitions, TopicPartition

_COORDINATOR_PATIENCE = 0.5
"""Seconds between reminders that a coordinator is wanted."""


class Errands:
    """Everything asked of brokers that is not the state machine's. One event loop's alone.

    Args:
        tell: Gives the member an event.
        owns: Whether a commit of a partition is this member's to make.
        giving_up: Whether the user's thread is giving partitions up, and the group may wait.
        found: Takes starting positions as they are found.
    """

    def __init__(
        self,
        *,
        brokers: Brokers,
        standing: Standing,
        settings: MemberSettings,
        reset: OffsetReset,
        read_committed: bool,
        tell: Callable[[Event], None],
        owns: Callable[[TopicPartition], bool],
        giving_up: Callable[[], bool],
        found: Callable[[StartsFound], None],
    ) -> None:
        self._brokers = brokers
        self._standing = standing
        self._settings = settings
        self._reset = reset
        self._read_committed = read_committed
        self._tell = tell
        self._owns = owns
        self._giving_up = giving_up
        self._found = found
        self._one_commit = asyncio.Lock()
        self._commits: list[Commit] = []

    # --- commits ---------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], within: timedelta
    ) -> dict[TopicPartition, ErrorCode]:
        """Commits; returns each partition's error.

        One commit at a time, in the order asked for: an older one that overtook a newer one
        would rewind the group.
        """
        commit = Commit(offsets=dict(offsets))
        # Now: by the time a coordinator is found, they may be ours again, and rewound.
        commit.drop_foreign(is_ours=self._owns)
        self._commits.append(commit)
        try:
            async with asyncio.timeout(within.total_seconds()):
                async with self._one_commit:
                    while commit.offsets:
                        await self._attempt(commit)
        except TimeoutError:
            # The last word of the coordinator tells more than that time ran out.
            reason = commit.refusal or ErrorCode.request_timed_out
            commit.give_up(reason)
        finally:
            self._commits.remove(commit)
        return commit.results

    def disown(self, partitions: Partitions) -> None:
        """These have left our ownership: no commit asked for before may be sent after."""
        for commit in self._commits:
            commit.disown(partitions)

    async def _attempt(self, commit: Commit) -> None:
        await self._until_commits_are_open()
        identity, node = self._standing.identity, self._standing.coordinator
        request = commit.request(identity, is_ours=self._owns)
        if request is None or node is None:
            return
        try:
            answer = await self._brokers.request_node(
                node, request, timeout=self._settings.request_timeout
            )
        except RequestFailedError:
            self._tell(CoordinatorLost())
            await self._pause(commit.attempts)
            return
        assert isinstance(answer, OffsetsCommitted)
        match commit.answered(answer, as_member=identity.generation != NO_GENERATION):
            case Next.FINISHED:
                return
            case Next.REDISCOVER:
                self._tell(CoordinatorLost())
            case Next.REJUDGE:
                self._tell(
                    CommitRefused(
                        error=int(commit.refusal),
                        generation=identity.generation,
                        member_id=identity.member_id,
                    )
                )
                if self._holds_up_the_round(commit):
                    commit.give_up(commit.refusal)
            case Next.AGAIN:
                pass
        await self._pause(commit.attempts)

    def _holds_up_the_round(self, commit: Commit) -> bool:
        """Whether to wait for the round's end would be to wait for ourselves (KAFKA-14024).

        A coordinator that takes no commits while members join (Kafka's does, librdkafka's mock
        does not) would refuse this one until the round is over, and the round is not over
        before this member has given up what it is to give up, and joined. What is not
        committed then is processed again.
        """
        refused = commit.refusal is ErrorCode.rebalance_in_progress
        return refused and self._giving_up() and commit.attempts > 1

    async def _until_commits_are_open(self) -> None:
        """While a member is between two generations the coordinator takes no commit."""
        while True:
            await self._coordinator()
            standing = self._standing
            if standing.commits_open or standing.identity.generation == NO_GENERATION:
                return
            await standing.wait(_COORDINATOR_PATIENCE)

    # --- committed offsets -----------------------------------------------------------------

    async def committed(
        self, partitions: Partitions, within: timedelta
    ) -> dict[TopicPartition, FetchedOffset]:
        """The committed offsets, each with its error.

        Raises:
            RequestFailedError: No usable answer in time.
        """
        attempt = 0
        try:
            async with asyncio.timeout(within.total_seconds()):
                while True:
                    answer = await self._fetch_offsets(partitions)
                    if answer is not None and not _retriable(answer):
                        return _with_group_error(partitions, answer)
                    await self._pause(attempt)
                    attempt += 1
        except TimeoutError:
            where = self._standing.coordinator
            known = f"coordinator {where.host}:{where.port}" if where else "no coordinator found"
            raise RequestTimedOutError(
                f"no committed offsets of group {self._settings.group_id!r} within {within} "
                f"({known}): check that the brokers are up and reachable"
            ) from None

    async def _fetch_offsets(self, partitions: Partitions) -> OffsetsFetched | None:
        node = await self._coordinator()
        request = OffsetFetch(group_id=self._settings.group_id, partitions=partitions)
        try:
            answer = await self._brokers.request_node(
                node, request, timeout=self._settings.request_timeout
            )
        except RequestFailedError:
            self._tell(CoordinatorLost())
            return None
        assert isinstance(answer, OffsetsFetched)
        if OFFSET_FETCH[answer.error] is Reaction.REDISCOVER:
            self._tell(CoordinatorLost())
        return answer

    # --- starting positions ----------------------------------------------------------------

    async def find_starts(
        self,
        partitions: Partitions,
        generation: Generation,
        *,
        still_wanted: Callable[[Partitions], Partitions],
    ) -> None:
        """Finds where to start, and says so partition by partition as it goes."""
        search = Starts(reset=self._reset, unfetched=partitions)
        attempt = 0
        while not search.complete:
            if search.unfetched:
                answer = await self._fetch_offsets(search.unfetched)
                if answer is not None:
                    search.fetched(answer)
                self._report(search, generation)
            if search.unlisted:
                await self._list_offsets(search)
                self._report(search, generation)
            if not search.complete:
                await self._pause(attempt)
                attempt += 1
                search.unfetched = still_wanted(search.unfetched)
                kept = still_wanted(Partitions.of(search.unlisted))
                search.unlisted = {p: t for p, t in search.unlisted.items() if p in kept}

    def _report(self, search: Starts, generation: Generation) -> None:
        if search.committed or search.listed_at or search.without or search.failed:
            self._found(
                StartsFound(
                    generation=generation,
                    committed=search.committed,
                    reset=search.listed_at,
                    without=tuple(search.without),
                    failed=search.failed,
                )
            )
            search.committed, search.listed_at, search.without, search.failed = {}, {}, [], {}

    async def _list_offsets(self, search: Starts) -> None:
        """Asks the partitions' leaders; whoever does not answer is asked again later."""
        topics = tuple(sorted({p.topic for p in search.unlisted}))
        try:
            metadata = await self._brokers.request_any(
                GetMetadata(topics=topics), timeout=self._settings.request_timeout
            )
        except RequestFailedError:
            return
        assert isinstance(metadata, ClusterMetadata)
        self._brokers.learn(metadata)
        leaders = {
            TopicPartition(name, p.partition): p.leader_id
            for name, topic in metadata.topics.items()
            for p in topic.partitions
        }
        asked = [
            self._ask_leader(metadata, leader, timestamps)
            for leader, timestamps in by_leader(search.unlisted, leaders).items()
        ]
        for answer in await asyncio.gather(*asked):
            if answer is not None:
                search.listed(answer)

    async def _ask_leader(
        self, metadata: ClusterMetadata, leader: int, timestamps: Mapping[TopicPartition, int]
    ) -> OffsetsListed | None:
        node = metadata.brokers.get(leader)
        if node is None:
            return None
        request = ListOffsets(timestamps=timestamps, read_committed=self._read_committed)
        try:
            answer = await self._brokers.request_node(
                node, request, timeout=self._settings.request_timeout
            )
        except RequestFailedError:
            return None
        assert isinstance(answer, OffsetsListed)
        return answer

    # --- what they share -------------------------------------------------------------------

    async def _coordinator(self) -> Node:
        while self._standing.coordinator is None:
            self._tell(CoordinatorWanted())
            await self._standing.wait(_COORDINATOR_PATIENCE)
        return self._standing.coordinator

    async def _pause(self, attempt: int) -> None:
        """A backoff, cut short by whatever may be what was waited for."""
        s = self._settings
        await self._standing.wait(
            backoff(attempt, base=s.retry_backoff, cap=s.retry_backoff_max, seed=s.seed)
        )


def _retriable(answer: OffsetsFetched) -> bool:
    errors = {answer.error, *(o.error for o in answer.offsets.values())}
    return any(OFFSET_FETCH[e] in (Reaction.RETRY, Reaction.REDISCOVER) for e in errors)


def _with_group_error(
    partitions: Partitions, answer: OffsetsFetched
) -> dict[TopicPartition, FetchedOffset]:
    nothing = FetchedOffset(offset=-1, error=answer.error)
    return {p: answer.offsets.get(p, nothing) for p in partitions}
