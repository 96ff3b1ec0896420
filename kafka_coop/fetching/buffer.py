"""Records that librdkafka has handed over and the user has not seen.

`confluent_kafka.Consumer.poll` costs about twice what one record of a `consume` batch costs,
so records are taken in batches and handed out one by one. From then on librdkafka counts them
as consumed: what was prefetched must be subtracted from its positions, dropped when its
partition goes, and held back while its partition is paused or is not to keep others waiting.
That is this module's subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from confluent_kafka import Message

from kafka_coop.fetching.native import partition_of
from kafka_coop.types import Partitions, TopicPartition

Contents: TypeAlias = tuple[
    list[Message], int, dict[TopicPartition, list[Message]], dict[TopicPartition, Message]
]
"""`records`, `index`, `aside` and `behind` of a `RecordBuffer`."""


class RecordBuffer:
    """One batch of records being delivered, and the records held back beside it.

    `records` and `index` are public because `Fetcher.next` reads them for every record: a
    method call there would cost more than the rest. Records before `index` are delivered;
    the batch keeps them until it is replaced, since they tell the position. What is held back
    is in `aside`, the last record delivered before it in `behind`. Where the batch has records of
    the same partition, too, they are older.

    What changes several of these computes first, and then sets them all at once, with no call
    in between, at whose end a signal handler could raise.

    Not thread-safe: it belongs to the fetcher's owner.
    """

    __slots__ = ("aside", "behind", "index", "records")

    def __init__(self) -> None:
        self.records: list[Message] = []
        self.index = 0
        self.aside: dict[TopicPartition, list[Message]] = {}
        self.behind: dict[TopicPartition, Message] = {}

    def without(self, partitions: Partitions) -> Contents:
        """What would be left without these partitions' records. O(buffered)."""
        delivered = _without(self.records[: self.index], partitions)
        waiting = _without(self.records[self.index :], partitions)
        aside = {of: held for of, held in self.aside.items() if of not in partitions}
        behind = {of: last for of, last in self.behind.items() if of not in partitions}
        return delivered + waiting, len(delivered), aside, behind

    def drop(self, partitions: Partitions) -> None:
        """Forgets all records of these partitions, delivered or not. O(buffered)."""
        self.records, self.index, self.aside, self.behind = self.without(partitions)

    def set_aside(self, partitions: Partitions) -> None:
        """Holds back what is buffered of these partitions. O(buffered)."""
        if not partitions:
            return
        delivered = self.delivered()
        held: dict[TopicPartition, list[Message]] = {}
        records = self.records[: self.index]
        for message in self.records[self.index :]:
            if (of := partition_of(message)) in partitions:
                held.setdefault(of, []).append(message)
            else:
                records.append(message)
        aside = self.aside | {of: held[of] + self.aside.get(of, []) for of in held}
        behind = self.behind | {of: delivered[of] for of in held if of in delivered}
        self.records, self.aside, self.behind = records, aside, behind

    def give_back(self, partitions: Partitions) -> None:
        """Has the held-back records of these partitions delivered with this batch.

        They are older than anything librdkafka will hand over of the same partition.
        """
        returning = [of for of in self.aside if of in partitions]
        if not returning:
            return
        aside, behind = dict(self.aside), dict(self.behind)
        before = [behind.pop(of) for of in returning if of in behind]
        records = before + self.records
        for of in returning:
            records += aside.pop(of)
        index = len(before) + self.index
        self.records, self.index, self.aside, self.behind = records, index, aside, behind

    def taking_in(
        self, batch: Sequence[Message], patient: Partitions, *, size: int, few: int
    ) -> Contents:
        """What would be held with the next batch, the one before being delivered.

        Its records of ``patient`` partitions are held back, and of all that is held back of these
        the oldest are to be delivered behind the others: as many as make it ``size``, or at least
        a ``few``, and of each partition the same number, or all that is held of it. Who gives
        comes last the next time. O(buffered).
        """
        records: list[Message] = []
        fresh: dict[TopicPartition, list[Message]] = {}
        for message in batch:
            of = partition_of(message)
            (fresh.setdefault(of, []) if of in patient else records).append(message)
        aside = self.aside | {of: [] for of in fresh if of not in self.aside}
        giving = [of for of in aside if of in patient]
        most = max(size - len(records), few)
        there = {of: len(aside[of]) + len(fresh.get(of, ())) for of in giving[:most]}
        for of, share in _shares(there, most).items():
            held, more = aside.pop(of), fresh.pop(of, [])
            if share >= len(held):
                held, more = held + more, []
            records += held[:share]
            rest = held[share:]  # of thousands this is the only copy
            rest += more
            if rest:
                aside[of] = rest
        for of, more in fresh.items():
            aside[of] = aside[of] + more
        delivered = self.delivered()
        behind = {of: delivered[of] for of in aside if of in delivered}
        before = [delivered[of] for of in giving if of in delivered and of not in aside]
        return before + records, len(before), aside, behind

    def clear(self) -> None:
        """Forgets everything."""
        self.records, self.index, self.aside, self.behind = [], 0, {}, {}

    def delivered(self) -> dict[TopicPartition, Message]:
        """The last delivered record of each partition, as far as it is still known.

        That is, of those delivered from the current batch or when they were set aside.
        """
        return self.behind | _last_records(self.records[: self.index])

    def waiting(self) -> dict[TopicPartition, Message]:
        """The next record to deliver of each partition that has one buffered.

        Of what is held back only as many are looked at as it takes: who commits after each record
        asks for each.
        """
        held_back = {
            of: first
            for of, held in self.aside.items()
            if (first := next((m for m in held if m.error() is None), None)) is not None
        }
        return held_back | _last_records(reversed(self.records[self.index :]))

    def held_back(self, partitions: Partitions) -> tuple[int, int]:
        """How many records are held back of these partitions, and about how many bytes.

        The larger of a partition's first and last stands for all: to ask each of thousands, again
        and again, would cost more than to deliver them.
        """
        count = size = 0
        for of, held in self.aside.items():
            if of in partitions:
                count += len(held)
                size += len(held) * max(len(held[0]), len(held[-1]))
        return count, size

    def __len__(self) -> int:
        """How many messages are undelivered, those held back included."""
        return len(self.records) - self.index + sum(map(len, self.aside.values()))


def _shares(held: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """How many each gives of what is held of it: ``most`` in all, unless less is held.

    Were a remainder left over, more would come in with each batch than goes out, and a long
    backlog be held whole.
    """
    shares = dict(held)
    for n, of in enumerate(sorted(held, key=held.__getitem__)):
        shares[of] = min(held[of], most // (len(held) - n))
        most -= shares[of]
    return shares


def _without(messages: Iterable[Message], partitions: Partitions) -> list[Message]:
    return [m for m in messages if partition_of(m) not in partitions]


def _last_records(messages: Iterable[Message]) -> dict[TopicPartition, Message]:
    """The last of each partition, errors left out: they stand at no position."""
    return {partition_of(m): m for m in messages if m.error() is None}
