"""Where librdkafka's member begins: asked of the brokers by librdkafka, before it fetches.

librdkafka finds its starts by itself when it is not told any, and keeps them to itself until a
partition's first record. Then nobody could commit a position before that record, and a partition
that moved on would start at its log's end again; nor could what a Ctrl-C swallows be found again.
What an answer means is what it means to a classic member: `kafka_coop.offsets.starts`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TypeAlias

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from kafka_coop.fetching.native import error_code, fetched_offsets, native_partitions
from kafka_coop.offsets.starts import Starts
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, ListedOffset, OffsetsFetched, OffsetsListed
from kafka_coop.types import Partitions, TopicPartition

_Answer: TypeAlias = list[confluent_kafka.TopicPartition]

UNHEARD: frozenset[int] = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001  # the names of confluent's public constants
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
    }
)
"""librdkafka's words for a broker that has said nothing."""

_SOON = 0.02
"""Seconds until it is asked again."""


def look_up(consumer: confluent_kafka.Consumer, search: Starts, within: timedelta) -> None:
    """Asks the coordinator, and the leaders of what it has no offset of.

    Two round trips where all goes well, as librdkafka's own search. May be called inside its
    callbacks.

    Args:
        consumer: Whose group it is.
        search: Takes in what is told; what is not, or not well, is still to be asked for.
        within: For both questions. An offset that a transaction has still to decide on is told
            when that has ended.
    """
    deadline = time.monotonic() + within.total_seconds()
    if search.unfetched:
        _ask_what_is_committed(consumer, search, deadline)
    if search.unlisted:
        _ask_for_the_logs_ends(consumer, search, deadline)


def _ask_what_is_committed(
    consumer: confluent_kafka.Consumer, search: Starts, deadline: float
) -> None:
    """A partition on which a transaction has still to decide keeps all from any answer.

    So where there is none in half the time, each half is asked for alone, and again the halves of
    what is not told, each for a tenth. The next search begins with what is left.
    """
    left = deadline - time.monotonic()
    until = deadline - left / 2
    parts = deque([search.unfetched])
    while parts and time.monotonic() < deadline:
        some = parts.popleft()
        question = partial(consumer.committed, native_partitions(some))
        search.fetched(_fetched(search.unfetched, _asked(question, until)))
        if len(some) > 1 and some & search.unfetched == some:
            parts += _halves(some)
        until = min(deadline, time.monotonic() + left / 10)


def _halves(of: Partitions) -> tuple[Partitions, Partitions]:
    each = list(of)
    return Partitions.of(each[::2]), Partitions.of(each[1::2])


def _ask_for_the_logs_ends(
    consumer: confluent_kafka.Consumer, search: Starts, deadline: float
) -> None:
    wanted = dict(search.unlisted)

    def question(left: float) -> _Answer:
        asked = [confluent_kafka.TopicPartition(*of, at) for of, at in wanted.items()]
        return consumer.offsets_for_times(asked, left)

    search.listed(_listed(wanted, _asked(question, deadline)))


def _asked(question: Callable[[float], _Answer], deadline: float) -> _Answer | ErrorCode:
    """The answer, or why there is none; of the time that is up, too.

    librdkafka gives up before, where it drops a connection on which something else took too long.
    """
    while (left := deadline - time.monotonic()) > 0:
        try:
            return question(left)
        except KafkaException as failure:
            if failure.args[0].code() not in UNHEARD:
                return error_code(failure.args[0])
        time.sleep(min(_SOON, max(0.0, deadline - time.monotonic())))
    return ErrorCode.request_timed_out


def _fetched(unfetched: Partitions, answer: _Answer | ErrorCode) -> OffsetsFetched:
    """What was not asked for, or not told, is as if there had been no time for it."""
    if isinstance(answer, ErrorCode):
        return OffsetsFetched(error=answer)
    unheard = FetchedOffset(offset=-1, error=ErrorCode.request_timed_out)
    return OffsetsFetched(
        error=ErrorCode.none, offsets=dict.fromkeys(unfetched, unheard) | fetched_offsets(answer)
    )


def _listed(wanted: Iterable[TopicPartition], answer: _Answer | ErrorCode) -> OffsetsListed:
    """Where a leader's connection breaks, librdkafka hands back the question, without an error."""
    if isinstance(answer, ErrorCode):
        return OffsetsListed(offsets=dict.fromkeys(wanted, ListedOffset(offset=-1, error=answer)))
    unheard = ListedOffset(offset=-1, error=ErrorCode.request_timed_out)
    return OffsetsListed(
        offsets={
            TopicPartition(p.topic, p.partition): ListedOffset(
                offset=p.offset, error=error_code(p.error)
            )
            if p.offset >= 0 or p.error is not None
            else unheard
            for p in answer
        }
    )
