"""Partitions that were added beside others, until they have caught up.

Who takes over from a member that was killed gets partitions of which nobody has read for a session:
thousands of records, that librdkafka hands over in one queue, in the order in which the brokers
sent them. Whatever comes meanwhile of the partitions that this member has had all along stands
behind them, and its readers see it stop for as long as the backlog takes. So the fetcher has the
newcomers' records wait, and delivers a few of each, by turns, between two looks at the queue.

It can do so with what it holds, a bounded number of records. Of a longer backlog the rest is in
librdkafka's queue, of which nothing can be told before it is taken out.

All of it costs some 4 µs a record while as much is held as may be, which nobody pays who has caught
up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable

from confluent_kafka import Message

from kafka_coop.fetching.native import partition_of
from kafka_coop.types import NO_PARTITIONS, Partitions, TopicPartition

_SILENT_FOR = 5_000
"""Records of others. A newcomer of which none comes in so long a time has no backlog."""


class Newcomers:
    """Which partitions are to keep others waiting no longer than these keep them.

    Attributes:
        partitions: Those. Some may not be fetched any more, which does no harm.
    """

    __slots__ = ("_heard_of", "_silence", "partitions")

    def __init__(self) -> None:
        self.partitions = NO_PARTITIONS
        self._heard_of: set[TopicPartition] = set()
        self._silence = 0

    def come(self, partitions: Partitions, *, beside: Partitions) -> None:
        """These are being added. Where there are no others, there is nobody to keep waiting."""
        if beside - self.partitions:
            self.partitions |= partitions
            self._heard_of.difference_update(partitions)
            self._silence = 0

    def saw(
        self, batch: Iterable[Message], *, all_there_was: bool, held: Container[TopicPartition]
    ) -> None:
        """Lets those go that have caught up.

        Args:
            batch: What came out of librdkafka.
            all_there_was: Its queue is empty.
            held: The partitions of which records are held back: not these.
        """
        came = Counter(map(partition_of, batch))
        theirs = [of for of in came if of in self.partitions]
        self._heard_of.update(theirs)
        self._silence = 0 if theirs else self._silence + came.total()
        over = self._silence >= _SILENT_FOR
        if over or all_there_was:  # else all stay, which costs nothing to tell
            self.partitions = Partitions.of(
                of for of in self.partitions if of in held or not (over or of in self._heard_of)
            )
