"""Which task of a batch reads what: what its worker has read ahead, where that can be. Pure.

Spark gives a task to whichever worker is free. Were it fixed which ranges a task reads, then with
two workers every second task would read those that the other one has fetched ahead already. So a
task asks when it runs, and gets the ranges that its worker stands at.

Whatever Spark does with a task, it has to read the same each time: tried again after a failure,
begun twice at once (speculation), or run once more because its output was lost. What the other
tasks read may be in the sink by then. So what a task was once given stays its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from kafka_coop.spark.admission import Part
from kafka_coop.types import TopicPartition

_KEPT: Final = 50_000
"""Ranges that are remembered, of the last batches. Spark runs one batch at a time, of which each
branch of the query has a plan; a frame of an older one may live on in the user's code
(``foreachBatch``) and be computed again."""

Portion = Sequence[Part]
"""What one task reads."""


class ForgottenError(LookupError):
    """Nobody knows any more what the task was given."""


@dataclass(slots=True)
class _Batch:
    free: dict[int, Portion]  # by number: as they were planned
    given: dict[int, Portion] = field(default_factory=dict)  # by task

    @property
    def tasks(self) -> int:
        return len(self.free) + len(self.given)

    @property
    def ranges(self) -> int:
        return sum(map(len, chain(self.free.values(), self.given.values())))


@dataclass(frozen=True, slots=True)
class _Stand:
    """How far, and for whom, a partition was given out; the batch says how new that is.

    Where a task failed, or its consumer was not kept, it is wrong, which costs no more than speed.
    """

    batch: int
    offset: int
    worker: str


class Placement:
    """Of one query's batches. One thread at a time."""

    def __init__(self) -> None:
        self._batches: OrderedDict[int, _Batch] = OrderedDict()
        self._stands: dict[TopicPartition, _Stand] = {}
        self._planned = 0
        self._kept = 0

    def plan(self, portions: Sequence[Portion]) -> int:
        """A batch, or what one branch of the query reads of it: a task for each portion.

        Returns:
            Its number, for `give`.
        """
        self._planned += 1
        batch = self._batches[self._planned] = _Batch(dict(enumerate(portions)))
        self._kept += batch.ranges
        while self._kept > _KEPT and len(self._batches) > 1:
            self._kept -= self._batches.popitem(last=False)[1].ranges
        return self._planned

    def give(self, batch: int, task: int, worker: str) -> Portion:
        """What the task reads: decided when it asks first, and the same ever after.

        Args:
            batch: As `plan` told.
            task: From 0 on; as many as there are portions.
            worker: The process that runs it.

        Raises:
            ForgottenError: The batch is too old, or of another run, or has no such task.
        """
        its = self._batches.get(batch)
        if its is None:
            raise ForgottenError(f"batch {batch} of {self._planned} that were planned")
        if task not in range(its.tasks):
            raise ForgottenError(f"task {task} of {its.tasks}")
        if task not in its.given:
            chosen = max(its.free, key=lambda n: (*self._worth(its.free[n], worker), -n))
            its.given[task] = its.free.pop(chosen)
            self._note(batch, its.given[task], worker)
        return its.given[task]

    def _worth(self, portion: Portion, worker: str) -> tuple[int, int]:
        """Offsets that the worker stands at; and, less is better, those that others do."""
        own = others = 0
        for of, span in portion:
            stand = self._stands.get(of)
            if stand is not None and stand.offset == span.start:
                own += span.size * (stand.worker == worker)
                others += span.size * (stand.worker != worker)
        return own, -others

    def _note(self, batch: int, portion: Portion, worker: str) -> None:
        """Of a partition that several tasks read, the last one's: there the next batch begins."""
        for of, span in portion:
            before = self._stands.get(of)
            if before is None or (before.batch, before.offset) < (batch, span.stop):
                self._stands[of] = _Stand(batch, span.stop, worker)
