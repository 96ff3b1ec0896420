"""Where librdkafka's member begins: asked of the brokers by librdkafka, before it fetches.

librdkafka finds its starts by itself when it is not told any, and keeps them to itself until a
partition's first record. Then nobody could commit a position before that record, and a partition
that moved on would start at its log's end again; nor could what a Ctrl-C swallows be found again.
What an answer means is what it means to a classic member: `kafka_coop.offsets.starts`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TypeAlias

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from kafka_coop.fetching.native import error_code, fetched_offsets, native_partitions
from kafka_coop.offsets.starts import Starts, by_leader
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


def look_up(
    consumer: confluent_kafka.Consumer,
    search: Starts,
    within: timedelta,
    *,
    leaders_apart: bool = False,
) -> None:
    """Asks the coordinator, and the leaders of what it has no offset of.

    Two round trips where all goes well, as librdkafka's own search. May be called inside its
    callbacks.

    Args:
        consumer: Whose group it is.
        search: Takes in what is told; what is not, or not well, is still to be asked for.
        within: For both questions. An offset that a transaction has still to decide on is told
            when that has ended.
        leaders_apart: Each leader is asked alone. It takes a round trip more for each topic to
            learn which that is, and must not be in a callback.
    """
    deadline = time.monotonic() + within.total_seconds()
    if search.unfetched:
        # What it takes longer for, each time perhaps, leaves time for the leaders.
        _ask_what_is_committed(consumer, search, deadline - within.total_seconds() / 3)
    if search.unlisted:
        together = [Partitions.of(search.unlisted)]
        parts = _led_alike(consumer, search.unlisted, deadline) if leaders_apart else together
        _ask_for_the_logs_ends(consumer, search, parts, deadline)


def _ask_what_is_committed(
    consumer: confluent_kafka.Consumer, search: Starts, deadline: float
) -> None:
    """A partition on which a transaction has still to decide keeps all from any answer."""

    def ask(some: Partitions, until: float) -> bool:
        question = partial(consumer.committed, native_partitions(some))
        search.fetched(_fetched(search.unfetched, _asked(question, until)))
        return some & search.unfetched != some

    _ask_in_parts(ask, [search.unfetched], deadline)


def _ask_for_the_logs_ends(
    consumer: confluent_kafka.Consumer,
    search: Starts,
    parts: Sequence[Partitions],
    deadline: float,
) -> None:
    """A partition that its leader refuses, or a leader that is away, keeps all from any answer."""

    def ask(some: Partitions, until: float) -> bool:
        wanted = {of: search.unlisted[of] for of in some}

        def question(left: float) -> _Answer:
            asked = [confluent_kafka.TopicPartition(*of, at) for of, at in wanted.items()]
            return consumer.offsets_for_times(asked, left)

        search.listed(_listed(some, _asked(question, until)))
        return bool(wanted.keys() - search.unlisted.keys())

    _ask_in_parts(ask, parts, deadline)


def _ask_in_parts(
    ask: Callable[[Partitions, float], bool], parts: Sequence[Partitions], deadline: float
) -> None:
    """Asks for each part, all of them in half the time.

    Of those of which nothing is told each half is asked for alone, and again the halves of that,
    each for a tenth of the time. The next search begins with what is left.
    """
    left = deadline - time.monotonic()
    line = deque((part, left / 2 / len(parts)) for part in parts)
    while line and (now := time.monotonic()) < deadline:
        some, share = line.popleft()
        if not ask(some, min(deadline, now + share)) and len(some) > 1:
            line += [(half, left / 10) for half in _halves(some)]


def _halves(of: Partitions) -> tuple[Partitions, Partitions]:
    each = list(of)
    return Partitions.of(each[::2]), Partitions.of(each[1::2])


def _led_alike(
    consumer: confluent_kafka.Consumer, unlisted: Mapping[TopicPartition, int], deadline: float
) -> list[Partitions]:
    """Those of each leader; last, those without one."""
    leaders: dict[TopicPartition, int] = {}
    for topic in Partitions.of(unlisted).topics():
        with suppress(KafkaException, KeyError):
            left = max(0.0, deadline - time.monotonic())
            told = consumer.list_topics(topic, left / 4).topics[topic].partitions
            leaders |= {TopicPartition(topic, p): found.leader for p, found in told.items()}
    led = [Partitions.of(part) for part in by_leader(unlisted, leaders).values()]
    without = Partitions.of(of for of in unlisted if leaders.get(of, -1) < 0)
    return [*led, without] if without else led


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


def _listed(asked: Partitions, answer: _Answer | ErrorCode) -> OffsetsListed:
    """An error of one is told as that of all. What is not told at all is handed back as asked."""
    unheard = ListedOffset(offset=-1, error=ErrorCode.request_timed_out)
    if isinstance(answer, ErrorCode):
        alone = ListedOffset(offset=-1, error=answer) if len(asked) == 1 else unheard
        return OffsetsListed(offsets=dict.fromkeys(asked, alone))
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
