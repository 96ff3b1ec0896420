"""How far logs reach: asked of the brokers, or as known of a moment ago, where that will do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from kafka_coop.fetching.log_offsets import LogOffsets
from kafka_coop.spark.holdings import Hold
from kafka_coop.spark.offsets import Range
from kafka_coop.types import TopicPartition

_HOLD = 1.0
"""Seconds for which the logs' ends are not asked for again, if there is enough to read; and their
beginnings, in any case."""


class Extents:
    """The logs of a query's partitions. One thread asks, which also plans the batches.

    Args:
        logs: Who knows them.
        read_committed: Whether logs end with what is committed.

    Attributes:
        ends: As asked last, of all that could be had of what was held then.
    """

    def __init__(self, logs: LogOffsets, *, read_committed: bool) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self._logs = logs
        self._read_committed = read_committed
        self._asked_at = float("-inf")
        self._begun: frozenset[TopicPartition] = frozenset()
        self._begun_at = float("-inf")

    def look(
        self,
        holds: Mapping[TopicPartition, Hold],
        *,
        targets: Mapping[TopicPartition, int] | None,
        most: int | None,
    ) -> dict[TopicPartition, Range]:
        """What the logs have, from the first record to the end; `ends` has what there is to read.

        They differ where a transaction is open: the log goes on to where others have come who read
        uncommitted records, and nothing is to be read there yet.

        Args:
            holds: Of these.
            targets: Up to where this run reads; None: it goes on for ever.
            most: How many offsets are read at once; None: all that there are.

        Returns:
            Without those that can't be had now.

        Raises:
            KafkaException: None of them can be had.
        """
        if not self._will_do(holds, targets=targets, most=most):
            goals = targets or {}
            known = {of: max(hold.reached, goals.get(of, 0)) for of, hold in holds.items()}
            self.ends = self._logs.ends(holds, known=known)
            self._asked_at = time.monotonic()
        begins = self._beginnings(holds)
        far = self.reached_in_transactions({of: h.reached for of, h in holds.items()}, self.ends)
        stops = {of: holds[of].reached if of in far else end for of, end in self.ends.items()}
        firsts = {of: begins.get(of, 0) for of in stops}
        return {of: Range(firsts[of], max(firsts[of], stop)) for of, stop in stops.items()}

    def forget(self) -> None:
        """What is known is of other logs."""
        self._asked_at = self._begun_at = float("-inf")

    def reached_in_transactions(
        self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> frozenset[TopicPartition]:
        """Of offsets beyond the logs' ends: where transactions are open, and they are there.

        A member of the group that reads uncommitted records has come so far, say. There is
        nothing to read for us before the transaction has ended.
        """
        beyond = {of: at for of, at in offsets.items() if at > ends.get(of, at)}
        if not beyond or not self._read_committed:
            return frozenset()
        return self._logs.reaching(beyond)

    def _will_do(
        self,
        holds: Mapping[TopicPartition, Hold],
        *,
        targets: Mapping[TopicPartition, int] | None,
        most: int | None,
    ) -> bool:
        """Whether the logs' ends of a moment ago will do: what is there is more than is asked for.

        A query that catches up asks once a second, not with every batch. A log that has become
        shorter (an unclean election, a topic made anew) is noticed so much later. It is not taken
        for shorter because others have read on since, and gave the partition back.
        """
        if time.monotonic() - self._asked_at > _HOLD or holds.keys() != self.ends.keys():
            return False
        if any(hold.reached > self.ends[of] for of, hold in holds.items()):
            return False
        if targets is not None:
            return all(end >= targets.get(of, 0) for of, end in self.ends.items())
        there = sum(max(0, end - holds[of].position) for of, end in self.ends.items())
        return most is not None and there >= most

    def _beginnings(self, held: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where logs begin: of what came, and came back, at once; of all, once a second.

        Nobody may have read them for longer than records are kept. What falls off behind a query
        that is far back is told with its next batch; in the last second before, by its tasks.
        """
        asked = now_held = frozenset(held)
        now = time.monotonic()
        if now - self._begun_at <= _HOLD:
            asked -= self._begun
        else:
            self._begun_at = now
        begins = self._logs.beginnings(asked)
        self._begun = (self._begun & now_held) | begins.keys()
        return begins
