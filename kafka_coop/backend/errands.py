"""Requests beside the group protocol: commits, committed offsets, starting positions.

Each errand is a generator: it yields what it waits for and is sent what came of it, so that the
waits are written once. `kafka_coop.backend.errand_runner` runs errands over sockets,
`kafka_coop.simulation.errands` in virtual time. What answers mean is decided by
`kafka_coop.offsets`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar

from kafka_coop.backend.mailbox import StartsFound, newly_found
from kafka_coop.config import OffsetReset
from kafka_coop.errors import GroupRefusedError, RequestFailedError, RequestTimedOutError
from kafka_coop.membership.backoff import backoff
from kafka_coop.membership.events import CommitRefused, CoordinatorLost, CoordinatorWanted, Event
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.offsets.commits import Commit, Next
from kafka_coop.offsets.responses import OFFSET_FETCH, Reaction
from kafka_coop.offsets.starts import Starts, by_leader, leaders_of
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    ClusterMetadata,
    FetchedOffset,
    GetMetadata,
    ListOffsets,
    Node,
    OffsetAndMetadata,
    OffsetFetch,
    OffsetsFetched,
    Request,
)
from kafka_coop.types import NO_GENERATION, Generation, GroupMetadata, Partitions, TopicPartition

_COORDINATOR_PATIENCE = 0.5
"""Seconds between reminders that a coordinator is wanted."""

_SLOWEST_ANSWER = timedelta(seconds=10)
"""A coordinator that is well says what has become of a commit after 5 s at the latest
(``offsets.commit.timeout.ms``)."""

_REFUSED = timedelta(seconds=1)
_REFUSED_OFTEN = timedelta(seconds=10)
"""Until a start that was refused is asked for again, at first and later: what rights there are, a
broker hears about as late."""

_TRIES_FOR_ONE = 8
"""Where others are still asked for, it is with every so manyth of their tries."""

_NO_HURRY = 60.0
"""Seconds of a wait that something else is certain to end."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """Wants each request's answer, or the `RequestFailedError` that came instead, as a list.

    A request goes to its broker; to any broker where that is None.
    """

    requests: tuple[tuple[Node | None, Request], ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """Wants to go on when the member's standing has changed, or after so many seconds."""

    at_most: float


@dataclass(frozen=True, slots=True)
class Rest:
    """Wants to go on after so many seconds, whatever changes meanwhile."""

    seconds: float


class OutOfTime(Exception):  # noqa: N818  # no error of anybody's
    """Thrown into an errand whose time is over."""


Wanted: TypeAlias = Ask | Changed | Rest
Errand: TypeAlias = Generator[Wanted, Any, T]


class Standing(Protocol):
    """How the member stands: where its coordinator is, and what its commits must carry."""

    coordinator: Node | None
    identity: GroupMetadata
    commits_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What errands need of the member and of whoever runs them.

    Attributes:
        tell: Gives the member an event.
        owns: Whether a commit of a partition is this member's to make.
        giving_up: Whether the user's thread is giving partitions up, and the group may wait.
        going: Whether the group is being left, with nothing to give up any more.
        found: Takes starting positions as they are found.
        wake: Has every errand that waits for a change look again.
    """

    standing: Standing
    settings: MemberSettings
    reset: OffsetReset
    read_committed: bool
    tell: Callable[[Event], None]
    owns: Callable[[TopicPartition], bool]
    giving_up: Callable[[], bool]
    going: Callable[[], bool]
    found: Callable[[StartsFound], None]
    wake: Callable[[], None]


def patience(settings: MemberSettings) -> timedelta:
    """How long a request may take that is no heartbeat, and that no broker parks.

    Heartbeats go past it while it is under way, so that nothing else finds its connection half-open
    then: a commit in on_revoke, or a leader's metadata, for which the group waits, waits no longer
    than this.
    """
    return min(settings.request_timeout, max(settings.session_timeout / 2, _SLOWEST_ANSWER))


class Errands:
    """Everything asked of brokers that is not the state machine's."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._at = surroundings
        self._line: deque[Commit] = deque()

    # --- commits ---------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Errand[dict[TopicPartition, ErrorCode]]:
        """Commits; returns each partition's error.

        One request at a time, in the order asked for: an older commit that overtook a newer one
        would rewind the group. With each go all that stand in line: who commits after each record
        asks for more than could be answered one by one.
        """
        commit = Commit(offsets=dict(offsets))
        self._line.append(commit)
        try:
            # Assigned by hand since: the user's to commit once nobody's membership stands for it.
            while self._at.going():
                yield Changed(_COORDINATOR_PATIENCE)
            # Now: by the time a coordinator is found, they may be ours again, and rewound.
            commit.drop_foreign(is_ours=self._at.owns)
            while commit.offsets:
                if self._line[0] is commit:
                    yield from self._attempt(commit)
                else:
                    yield Changed(_NO_HURRY)
        except OutOfTime:
            # The last word of the coordinator tells more than that time ran out.
            commit.give_up(commit.refusal or ErrorCode.request_timed_out)
        finally:
            self._line.remove(commit)
            self._at.wake()
        return commit.results

    def disown(self, partitions: Partitions) -> None:
        """These have left our ownership: no commit asked for before may be sent after."""
        for commit in self._line:
            commit.disown(partitions)

    def _attempt(self, commit: Commit) -> Errand[None]:
        node = yield from self._until_commits_are_open()
        identity = self._at.standing.identity
        # While the group is being left, those behind may have to wait for the end of that.
        behind = () if self._at.going() else tuple(islice(self._line, 1, None))
        request = commit.request(identity, is_ours=self._at.owns, behind=behind)
        if request is None:
            return
        (answer,) = yield Ask(((node, request),))
        if isinstance(answer, RequestFailedError):
            self._lost(node)
            yield self._pause(commit.attempts)
            return
        as_member = identity.generation != NO_GENERATION
        for other in behind:
            other.answered(answer, as_member=as_member)
        if not all(other.offsets for other in behind):
            self._at.wake()  # those are done
        match commit.answered(answer, as_member=as_member):
            case Next.FINISHED | Next.AT_ONCE:
                return
            case Next.REDISCOVER:
                self._lost(node)
            case Next.REJUDGE:
                self._at.tell(
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
        yield self._pause(commit.attempts)

    def _holds_up_the_round(self, commit: Commit) -> bool:
        """Whether to wait for the round's end would be to wait for ourselves (KAFKA-14024).

        A coordinator that takes no commits while members join (Kafka's does, librdkafka's mock
        does not) would refuse this one until the round is over, and that waits for this
        member, which joins when it has given up what it is to give up, or has taken long. What is
        not committed then is processed again.
        """
        refused = commit.refusal is ErrorCode.rebalance_in_progress
        return refused and self._at.giving_up() and commit.attempts > 1

    def _until_commits_are_open(self) -> Errand[Node]:
        """While a member is between two generations the coordinator takes no commit."""
        while True:
            node = yield from self._coordinator()
            standing = self._at.standing
            if standing.commits_open or standing.identity.generation == NO_GENERATION:
                return node
            yield Changed(_COORDINATOR_PATIENCE)

    # --- committed offsets -----------------------------------------------------------------

    def committed(self, partitions: Partitions) -> Errand[dict[TopicPartition, FetchedOffset]]:
        """The committed offsets, each with its error.

        Raises:
            GroupRefusedError: The coordinator tells nothing of this group. Were that each
                partition's error, who looks for no error would find nothing committed.
            RequestTimedOutError: No usable answer in time.
        """
        attempt = 0
        group, said = self._at.settings.group_id, ""
        try:
            while True:
                answer = yield from self._fetch_offsets(partitions)
                if answer is not None and not (retriable := _retriable(answer)):
                    if answer.error is not ErrorCode.none:
                        raise GroupRefusedError(
                            int(answer.error),
                            f"no committed offsets of group {group!r}: {answer.error.name.upper()}",
                        )
                    missing = FetchedOffset(offset=-1)
                    return {p: answer.offsets.get(p, missing) for p in partitions}
                said = "" if answer is None else _last_said(retriable)
                yield self._pause(attempt)
                attempt += 1
        except OutOfTime:
            where = self._at.standing.coordinator
            known = f"coordinator {where.address}" if where else "no coordinator found"
            why = said or "check that the brokers are up and reachable"
            raise RequestTimedOutError(
                f"no committed offsets of group {group!r} in time ({known}): {why}"
            ) from None

    def _fetch_offsets(self, partitions: Partitions) -> Errand[OffsetsFetched | None]:
        node = yield from self._coordinator()
        request = OffsetFetch(group_id=self._at.settings.group_id, partitions=partitions)
        (answer,) = yield Ask(((node, request),))
        if isinstance(answer, RequestFailedError):
            self._lost(node)
            return None
        assert isinstance(answer, OffsetsFetched)
        if OFFSET_FETCH[answer.error] is Reaction.REDISCOVER:
            self._lost(node)
        return answer

    # --- starting positions ----------------------------------------------------------------

    def find_starts(
        self,
        partitions: Partitions,
        generation: Generation,
        *,
        still_wanted: Callable[[Partitions], Partitions],
        must_exist: bool = False,
        ahead: OffsetsFetched | None = None,
    ) -> Errand[None]:
        """Finds where to start, and says so partition by partition as it goes.

        What is refused, a topic for want of a right, say, is told, and asked for again.
        ``still_wanted`` says which partitions are worth asking for again. With ``must_exist``, a
        partition that goes on missing from the metadata is an error; what a group assigned is
        looked for until the group takes it back, which the leader sees to. ``ahead``: what is known
        of their committed offsets, for some of them.
        """
        search = Starts(reset=self._at.reset, unfetched=partitions, must_exist=must_exist)
        if ahead is not None:
            search.fetched_ahead(ahead)
            self._report(search, generation)
        attempt = refusals = 0
        while not search.settled:
            if search.complete:
                yield self._rest(refusals)
                refusals += 1
                search.ask_again()
                search.keep(still_wanted)
            while search.unfetched and self._at.standing.coordinator is None:
                yield self._want_coordinator()
                search.keep(still_wanted)
            if search.unfetched:
                answer = yield from self._fetch_offsets(search.unfetched)
                if answer is not None:
                    search.fetched(answer)
                self._report(search, generation)
            if search.unlisted:
                yield from self._list_offsets(search)
                self._report(search, generation)
            if not search.complete:
                yield self._pause(attempt)
                attempt += 1
                if attempt % _TRIES_FOR_ONE == 0:
                    search.ask_again()
                search.keep(still_wanted)

    def _report(self, search: Starts, generation: Generation) -> None:
        if (found := newly_found(search, generation)) is not None:
            self._at.found(found)

    def _list_offsets(self, search: Starts) -> Errand[None]:
        """Asks the partitions' leaders; whoever does not answer is asked again later."""
        topics = tuple(sorted({p.topic for p in search.unlisted}))
        (metadata,) = yield Ask(((None, GetMetadata(topics=topics)),))
        if isinstance(metadata, RequestFailedError):
            return
        assert isinstance(metadata, ClusterMetadata)
        search.looked_up(metadata)
        asked = [
            (node, ListOffsets(timestamps=timestamps, read_committed=self._at.read_committed))
            for leader, timestamps in by_leader(search.unlisted, leaders_of(metadata)).items()
            if (node := metadata.brokers.get(leader)) is not None
        ]
        for answer in (yield Ask(tuple(asked))) if asked else ():
            if not isinstance(answer, RequestFailedError):
                search.listed(answer)

    # --- what they share -------------------------------------------------------------------

    def _coordinator(self) -> Errand[Node]:
        while (node := self._at.standing.coordinator) is None:
            yield self._want_coordinator()
        return node

    def _want_coordinator(self) -> Changed:
        self._at.tell(CoordinatorWanted())
        return Changed(_COORDINATOR_PATIENCE)

    def _lost(self, node: Node) -> None:
        """It may have been given up, and another found, before our request to it failed."""
        if self._at.standing.coordinator == node:
            self._at.tell(CoordinatorLost())

    def _pause(self, attempt: int) -> Changed:
        """A backoff, cut short by whatever may be what was waited for."""
        s = self._at.settings
        return Changed(backoff(attempt, base=s.retry_backoff, cap=s.retry_backoff_max, seed=s.seed))

    def _rest(self, refusals: int) -> Rest:
        seed = self._at.settings.seed
        return Rest(backoff(refusals, base=_REFUSED, cap=_REFUSED_OFTEN, seed=seed))


def _retriable(answer: OffsetsFetched) -> list[ErrorCode]:
    """What may be another answer if it is asked for again."""
    errors = {answer.error, *(o.error for o in answer.offsets.values())}
    return sorted(e for e in errors if OFFSET_FETCH[e] in (Reaction.RETRY, Reaction.REDISCOVER))


def _last_said(errors: Iterable[ErrorCode]) -> str:
    said = f"it says {', '.join(e.name.upper() for e in errors)}"
    if ErrorCode.unstable_offset_commit in errors:
        said += ", for a transaction has still to be committed or aborted"
    return said
