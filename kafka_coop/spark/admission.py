"""How much of what is there a micro-batch reads, and in how many tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from kafka_coop.spark.offsets import Range
from kafka_coop.types import TopicPartition

_Ranges = Mapping[TopicPartition, Range]
Part = tuple[TopicPartition, Range]


def limit_offsets(available: _Ranges, most: int | None) -> dict[TopicPartition, Range]:
    """Takes at most ``most`` offsets, each partition's share in proportion to what it has.

    Every partition that has something gets at least one offset, so that a small one goes on
    beside one that lags by millions; with fewer offsets than partitions they take turns.

    Args:
        available: From each partition's position to its end. Empty ranges are left out.
        most: None: all.

    Returns:
        Prefixes of the ranges, none empty; in total exactly the lesser of ``most`` and what is
        available.
    """
    waiting = {of: span for of, span in sorted(available.items()) if span.size > 0}
    total = sum(span.size for span in waiting.values())
    if most is None or total <= most:
        return waiting
    if most < len(waiting):
        chosen = _in_turns(waiting, most)
        return {of: Range(waiting[of].start, waiting[of].start + 1) for of in chosen}
    shares = _shares([span.size for span in waiting.values()], most)
    return {
        of: Range(span.start, span.start + share)
        for (of, span), share in zip(waiting.items(), shares, strict=True)
    }


def _in_turns(waiting: _Ranges, count: int) -> list[TopicPartition]:
    """The next ones round the circle; each offset read so far has moved it on by one."""
    partitions = list(waiting)
    first = sum(span.start for span in waiting.values()) % len(partitions)
    return [partitions[(first + n) % len(partitions)] for n in range(count)]


def _shares(sizes: Sequence[int], most: int) -> list[int]:
    """One each, and the rest in proportion, whole by largest remainders."""
    rest, room = most - len(sizes), sum(sizes) - len(sizes)
    exact = [divmod((size - 1) * rest, room) for size in sizes]
    shares = [1 + whole for whole, _ in exact]
    short = most - sum(shares)
    for n in sorted(range(len(sizes)), key=lambda n: -exact[n][1])[:short]:
        shares[n] += 1
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """``minOffsetsPerTrigger`` and ``maxTriggerDelay``: whether a batch is worth its while yet.

    Attributes:
        least: A batch with fewer offsets waits; None: none waits.
        longest: But not longer than so, from the last batch that did not.
    """

    least: int | None
    longest: timedelta

    def holds_back(self, offsets: int, since_last: timedelta | None) -> bool:
        """Whether the batch has to wait.

        Args:
            offsets: How many there are.
            since_last: Since the last batch that was let through; None: there was none, and
                the first never waits.
        """
        if self.least is None or since_last is None or offsets >= self.least:
            return False
        return since_last < self.longest


def split(ranges: _Ranges, *, min_tasks: int | None, max_records: int | None) -> list[Part]:
    """Divides ranges among tasks, each one's part in order.

    Args:
        ranges: What the batch reads.
        min_tasks: ``minPartitions``: at least so many tasks where there are as many offsets.
            Larger ranges are divided more often.
        max_records: ``maxRecordsPerPartition``: no task has more offsets than this.

    Returns:
        Parts that are together exactly the ranges, and none of them empty.
    """
    tasks = [(of, span) for of, span in sorted(ranges.items()) if span.size > 0]
    if max_records is not None:
        tasks = [
            (of, part) for of, span in tasks for part in _cut(span, -(-span.size // max_records))
        ]
    if min_tasks is None or len(tasks) >= min_tasks:
        return tasks
    pieces = _pieces([span.size for _, span in tasks], min_tasks)
    return [
        (of, part)
        for (of, span), count in zip(tasks, pieces, strict=True)
        for part in _cut(span, count)
    ]


def gather(parts: Sequence[Part], most: int | None) -> list[tuple[Part, ...]]:
    """Deals parts to at most ``most`` tasks (``maxPartitions``), in order.

    A task gets those that lie next to each other, as many as make its share of the offsets. So
    where all partitions go on alike, each batch has the same partitions in one task.

    Args:
        parts: None of them empty.
        most: None: each part is a task.
    """
    if most is None:
        return [(part,) for part in parts]
    total = sum(span.size for _, span in parts)
    tasks: dict[int, list[Part]] = {}
    before = 0
    for of, span in parts:
        middle = 2 * before + span.size  # twice that, to stay whole
        tasks.setdefault(middle * most // (2 * total), []).append((of, span))
        before += span.size
    return list(map(tuple, tasks.values()))


def _pieces(sizes: Sequence[int], wanted: int) -> list[int]:
    """Into how many pieces each range goes, so that the largest piece is as small as it can be."""
    wanted = min(wanted, sum(sizes))
    pieces = [1] * len(sizes)
    for _ in range(wanted - len(sizes)):
        largest = max(range(len(sizes)), key=lambda n: sizes[n] / pieces[n])
        pieces[largest] += 1
    return pieces


def _cut(span: Range, count: int) -> list[Range]:
    ends = [span.start + span.size * n // count for n in range(count + 1)]
    return [Range(a, b) for a, b in pairwise(ends)]
