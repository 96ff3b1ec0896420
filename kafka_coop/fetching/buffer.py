"""Records that librdkafka has handed over and the user has not seen.

`confluent_kafka.Consumer.poll` costs about twice what one record of a `consume` batch costs,
so records are taken in batches and handed out one by one. From then on librdkafka counts them
as consumed: what was prefetched must be subtracted from its positions, dropped when its
partition goes, and held back while its partition is paused. That is this module's subject.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Message

from kafka_coop.fetching.native import partition_of
from kafka_coop.types import Partitions, TopicPartition


class RecordBuffer:
    """One batch of records being delivered, and the records held back beside it.

    `records` and `index` are public because `Fetcher.next` reads them for every record: a
    method call there would cost more than the rest. Records before `index` are delivered;
    the batch keeps them until it is replaced, since they tell the position.

    Not thread-safe: it belongs to the fetcher's owner.
    """

    __slots__ = ("_aside", "_behind", "index", "records")

    def __init__(self) -> None:
        self.records: list[Message] = []
        self.index = 0
        self._aside: dict[TopicPartition, list[Message]] = {}
        self._behind: dict[TopicPartition, Message] = {}

    def drop(self, partitions: Partitions) -> None:
        """Forgets all records of these partitions, delivered or not. O(buffered)."""
        delivered = _without(self.records[: self.index], partitions)
        waiting = _without(self.records[self.index :], partitions)
        self.records, self.index = delivered + waiting, len(delivered)
        for of in partitions:
            self._aside.pop(of, None)
            self._behind.pop(of, None)

    def set_aside(self, partitions: Partitions) -> None:
        """Holds back what is buffered of these partitions. O(buffered)."""
        delivered = self.delivered()
        waiting: list[Message] = []
        for message in self.records[self.index :]:
            if (of := partition_of(message)) in partitions:
                self._aside.setdefault(of, []).append(message)
                if of in delivered:
                    self._behind[of] = delivered[of]
            else:
                waiting.append(message)
        self.records = self.records[: self.index] + waiting

    def give_back(self, partitions: Partitions) -> None:
        """Makes the held-back records of these partitions the next to be delivered.

        They are older than anything librdkafka will hand over of the same partition: it was
        stopped when they were set aside.
        """
        returning = [message for of in partitions for message in self._aside.pop(of, ())]
        if not returning:
            return
        behind = [self._behind.pop(of) for of in partitions if of in self._behind]
        delivered, waiting = self.records[: self.index], self.records[self.index :]
        self.records = behind + delivered + returning + waiting
        self.index += len(behind)

    def clear(self) -> None:
        """Forgets everything."""
        self.records, self.index = [], 0
        self._aside.clear()
        self._behind.clear()

    def delivered(self) -> dict[TopicPartition, Message]:
        """The last delivered record of each partition, as far as it is still known.

        That is, of those delivered from the current batch or when they were set aside.
        """
        return self._behind | _last_records(self.records[: self.index])

    def waiting(self) -> dict[TopicPartition, Message]:
        """The next record to deliver of each partition that has one buffered."""
        held_back = [message for batch in self._aside.values() for message in batch]
        return _last_records(reversed(held_back + self.records[self.index :]))

    def __len__(self) -> int:
        """How many messages are undelivered, those held back included."""
        return len(self.records) - self.index + sum(map(len, self._aside.values()))


def _without(messages: Iterable[Message], partitions: Partitions) -> list[Message]:
    return [m for m in messages if partition_of(m) not in partitions]


def _last_records(messages: Iterable[Message]) -> dict[TopicPartition, Message]:
    """The last of each partition, errors left out: they stand at no position."""
    return {partition_of(m): m for m in messages if m.error() is None}
