"""One commit on its way to the coordinator: what to send, what the answer means.

A commit may take several requests: the coordinator moves, or the group rebalances under it.
Each request carries the identity of its moment, and only partitions that are ours then: what
was lost meanwhile fails here and never reaches the broker (invariant 5).

And a request may carry several commits: one after each record comes faster than answers do.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_coop.offsets.responses import COMMIT, Reaction
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata, OffsetCommit, OffsetsCommitted
from kafka_coop.types import NO_PARTITIONS, GroupMetadata, Partitions, TopicPartition

_BRIEFLY = 3
"""Attempts for errors that may be a deleted topic's."""
_OF_WHAT_IT_SAID = (ErrorCode.offset_metadata_too_large, ErrorCode.invalid_commit_offset_size)
"""Refusals of an offset's own text, where another one for the same partition may be taken."""


class Next(enum.Enum):
    """What to do after an answer."""

    FINISHED = "every partition has its result"
    AGAIN = "wait a backoff, then send the rest"
    AT_ONCE = "send the rest: it was not what was refused"
    REDISCOVER = "the coordinator is elsewhere; then send the rest"
    REJUDGE = "tell the member of the refusal, then send what is still ours"


_HURRIED = (Next.FINISHED, Next.AT_ONCE)


@dataclass(slots=True, eq=False)
class Commit:
    """The offsets still to be committed, and the results so far.

    Each is equal to itself alone: two that say the same stand in line twice.

    Attributes:
        offsets: What is left to do.
        results: Per partition, the error it ended with; ``ErrorCode.none``: committed.
        refusal: The error to tell the member of, with `Next.REJUDGE`.
        attempts: How many requests were made.
        sent: What the last of them said, of other commits, too.
        disowned: What has left our ownership since this commit was asked for.
    """

    offsets: dict[TopicPartition, OffsetAndMetadata]
    results: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    refusal: ErrorCode = ErrorCode.none
    attempts: int = 0
    sent: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    disowned: Partitions = NO_PARTITIONS

    def request(
        self,
        identity: GroupMetadata,
        *,
        is_ours: Callable[[TopicPartition], bool],
        behind: Sequence[Commit] = (),
    ) -> OffsetCommit | None:
        """What to send now. None: nothing is left that is ours to commit.

        ``behind`` are those that were asked for since, in their order. They go along: of each
        partition what was asked for last, which is what the group would have in the end.
        """
        self.drop_foreign(is_ours=is_ours)
        if not self.offsets:
            return None
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for commit in (self, *behind):
            commit.drop_foreign(is_ours=is_ours)
            commit.attempts += 1
            commit.sent = offsets
            offsets |= commit.offsets
        return OffsetCommit(
            group_id=identity.group_id,
            generation=identity.generation,
            member_id=identity.member_id,
            instance_id=identity.instance_id,
            offsets=offsets,
        )

    def answered(self, answer: OffsetsCommitted, *, as_member: bool = True) -> Next:
        """Takes an answer in.

        Where a later commit's was sent in place of this one's, and refused for what it said, this
        one is still to be sent. What a partition is refused for (no such topic, no right to it)
        would meet this one, too.

        Without a membership (partitions assigned by hand) there is nothing to rejudge: the
        broker takes such commits for a group without members alone, and says 25 otherwise.
        """
        wanted = Next.FINISHED
        for partition in list(self.offsets):
            error = answer.errors.get(partition, ErrorCode.unknown_server_error)
            match COMMIT[error]:
                case Reaction.RAISE if error in _OF_WHAT_IT_SAID and self._differs(partition):
                    wanted = Next.AT_ONCE if wanted is Next.FINISHED else wanted
                case Reaction.DONE | Reaction.RAISE:
                    self._end(partition, error)
                case Reaction.RETRY_BRIEFLY if self.attempts >= _BRIEFLY:
                    self._end(partition, error)
                case Reaction.REDISCOVER:
                    wanted = Next.REDISCOVER
                case Reaction.REJUDGE if not as_member:
                    self._end(partition, error)
                case Reaction.REJUDGE:
                    self.refusal = error
                    wanted = Next.REJUDGE
                case _:
                    wanted = Next.AGAIN if wanted in _HURRIED else wanted
        return wanted

    def drop_foreign(self, *, is_ours: Callable[[TopicPartition], bool]) -> None:
        """What is not ours fails, and is not sent."""
        for partition in [p for p in self.offsets if p in self.disowned or not is_ours(p)]:
            self._end(partition, ErrorCode.illegal_generation)

    def disown(self, partitions: Partitions) -> None:
        """These have left our ownership: nothing of them is sent from now on.

        They may come back, with another's commit in between: an offset of the ownership that
        has ended, sent with the new generation, would be taken, and rewind the group. What is
        on its way was sent with the old one; the coordinator's answer to it counts.
        """
        self.disowned |= partitions

    def give_up(self, error: ErrorCode) -> None:
        """No time is left: what has no result yet fails with ``error``."""
        for partition in list(self.offsets):
            self._end(partition, error)

    def _differs(self, partition: TopicPartition) -> bool:
        """Whether another commit's offset was sent for it."""
        return self.sent[partition] != self.offsets[partition]

    def _end(self, partition: TopicPartition, error: ErrorCode) -> None:
        del self.offsets[partition]
        self.results[partition] = error


def first_error(results: Mapping[TopicPartition, ErrorCode]) -> ErrorCode:
    """The error that stands for the whole commit: the first in the order of partitions."""
    for partition in sorted(results):
        if results[partition] is not ErrorCode.none:
            return results[partition]
    return ErrorCode.none
