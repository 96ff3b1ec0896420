"""The topics of a simulated cluster: partitions, and of their logs no more than the ends."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OFFSET_EARLIEST, OFFSET_LATEST, ListedOffset
from kafka_coop.types import TopicPartition


@dataclass(slots=True)
class PartitionLog:
    """A log without its records.

    Attributes:
        start: The offset of the oldest record kept.
        end: The offset that the next record will have.
        stable_end: Where the oldest open transaction begins; None: there is none.
        appended: What each append brought: (timestamp in milliseconds since the epoch, offset
            of its first record), both growing.
    """

    start: int = 0
    end: int = 0
    stable_end: int | None = None
    appended: list[tuple[int, int]] = field(default_factory=list)


class Topics:
    """What exists, by name."""

    def __init__(self) -> None:
        self._logs: dict[str, list[PartitionLog]] = {}

    def create(self, topic: str, partitions: int) -> None:
        """Creates a topic, or one of a name that was deleted: its logs begin at 0 again.

        Raises:
            ValueError: It exists, or would have no partition.
        """
        if topic in self._logs:
            raise ValueError(f"topic {topic!r} exists")
        if partitions < 1:
            raise ValueError(f"a topic has at least one partition, not {partitions}")
        self._logs[topic] = [PartitionLog() for _ in range(partitions)]

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions until there are that many.

        Raises:
            KeyError: There is no such topic.
            ValueError: It has that many already: partitions are never taken away.
        """
        logs = self._logs[topic]
        if partitions <= len(logs):
            raise ValueError(f"{topic!r} has {len(logs)} partitions already")
        logs.extend(PartitionLog() for _ in range(partitions - len(logs)))

    def delete(self, topic: str) -> None:
        """Deletes a topic with its logs.

        Raises:
            KeyError: There is no such topic.
        """
        del self._logs[topic]

    def exists(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition."""
        return 0 <= partition.partition < len(self._logs.get(partition.topic, ()))

    def names(self) -> tuple[str, ...]:
        """All topics, sorted."""
        return tuple(sorted(self._logs))

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0: it does not exist."""
        return len(self._logs.get(topic, ()))

    def counts(self) -> dict[str, int]:
        """Every topic's number of partitions."""
        return {topic: len(self._logs[topic]) for topic in self.names()}

    def log(self, partition: TopicPartition) -> PartitionLog:
        """The partition's log, to be read and changed.

        Raises:
            KeyError: There is no such partition.
        """
        if not self.exists(partition):
            raise KeyError(partition)
        return self._logs[partition.topic][partition.partition]

    def append(self, partition: TopicPartition, records: int, *, timestamp: int) -> None:
        """Adds records of one timestamp (milliseconds), not older than the last ones.

        Raises:
            KeyError: There is no such partition.
        """
        log = self.log(partition)
        log.appended.append((timestamp, log.end))
        log.end += records

    def list_offset(
        self, partition: TopicPartition, timestamp: int, *, read_committed: bool
    ) -> ListedOffset:
        """What ListOffsets is answered for one partition.

        For a time: the first offset that is not older, or none where all are.
        """
        if not self.exists(partition):
            return ListedOffset(offset=-1, error=ErrorCode.unknown_topic_or_partition)
        log = self.log(partition)
        end = log.end
        if read_committed and log.stable_end is not None:
            end = log.stable_end
        if timestamp == OFFSET_EARLIEST:
            return ListedOffset(offset=log.start)
        if timestamp == OFFSET_LATEST:
            return ListedOffset(offset=end)
        return ListedOffset(offset=_offset_at(log, timestamp, end))


def _offset_at(log: PartitionLog, timestamp: int, end: int) -> int:
    at = bisect.bisect_left(log.appended, (timestamp, -1))
    if at == len(log.appended):
        return -1
    offset = max(log.appended[at][1], log.start)
    return offset if offset < end else -1
