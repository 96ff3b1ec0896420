"""What members and their leader say to each other. Equal bytes are read once."""

from __future__ import annotations

from functools import lru_cache

from kafka_coop.errors import MalformedDataError
from kafka_coop.membership import events as ev
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.marks import SubscriptionMarks, split_marks
from kafka_coop.protocol.messages import GroupSynced
from kafka_coop.protocol.subscription import decode_subscription, decode_topics
from kafka_coop.types import NO_PARTITIONS, Partitions, Subscription

_REMEMBERED = 4096

# Three of four of these bytes were read before, in this run or in another one.


@lru_cache(maxsize=_REMEMBERED)
def read_join(data: bytes) -> tuple[Subscription, bool]:
    """What a member says in JoinGroup, and whether it says that it drains."""
    said = decode_subscription(data)
    _, marks = split_marks(said.user_data)
    return said, isinstance(marks, SubscriptionMarks) and marks.draining


@lru_cache(maxsize=_REMEMBERED)
def topics_in(data: bytes) -> frozenset[str]:
    """What a member subscribes to; nothing, where its bytes do not parse."""
    try:
        return frozenset(decode_topics(data))
    except MalformedDataError:
        return frozenset()


@lru_cache(maxsize=_REMEMBERED)
def partitions_in(data: bytes) -> Partitions | None:
    """What an assignment's bytes give; None where they do not parse."""
    try:
        return decode_assignment(data).partitions
    except MalformedDataError:
        return None


def assignment_in(event: ev.SyncAnswered) -> Partitions | None:
    """What the answer gives; None where it is an error or does not parse."""
    answer = event.answer
    if not isinstance(answer, GroupSynced) or answer.error is not ErrorCode.none:
        return None
    return partitions_in(answer.assignment) if answer.assignment else NO_PARTITIONS
