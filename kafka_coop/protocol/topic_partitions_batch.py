"""A whole group's arrays of topics, and of (topic, [partition]), at once.

A group of 2,000 members with one partition in each of 500 topics has a million runs of one. At
a microsecond a run, reading them would take longer than assigning them. So all members' arrays
lie in one buffer and are walked in step: step k reads run k of every member with a dozen numpy
operations, whatever the runs are. Topic names are told apart eight bytes at a time and decoded
once each. Writing goes the same way back.

What is odd about a member (bytes that lie, names longer than Kafka allows, repeats, far more
runs than the others have) is left to `kafka_coop.protocol.topic_partitions`, member by member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_coop.protocol.partition_sets import Longs, PartitionSets
from kafka_coop.protocol.primitives import encode_string
from kafka_coop.protocol.topic_names import LONGEST_NAME, TopicNames
from kafka_coop.protocol.topic_partitions import SMALLEST_RUN, int32_at_every_byte, number_offsets
from kafka_coop.types import PartitionIndices, distinct

Flags = npt.NDArray[np.bool_]

PADDING = bytes(0x10000 + 16)
"""To go behind the last array: a length is read before it is judged, and what lies that far
behind it must be there to be read."""
_WORTH_A_STEP = 24
"""For fewer members than this, a step costs more than reading their runs one by one."""
_BLOCK = 2048
"""Members walked together: one line of each one's bytes fits the cache, for the next steps."""
_SMALLEST_NAME = 2


# --- reading -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lists:
    """Lists of topics, one after the other, in the order in which they were written.

    Attributes:
        topics: The topics' numbers; -1: no UTF-8.
        begins: Per list its first topic, and one more entry.
        finish: Where each list's bytes ended.
        odd: Which have to be read alone; they have no topics here.
    """

    topics: Longs
    begins: Longs
    finish: Longs
    odd: Flags


def read_lists(buffer: bytes, begins: Longs, limits: Longs, names: TopicNames) -> Lists:
    """Reads many arrays of strings.

    Args:
        buffer: Holds them all, and `PADDING` behind the last.
        begins: Where each begins.
        limits: Where each ends at the latest.
        names: Numbers the topics.
    """
    walk = _walk(buffer, begins, limits, with_partitions=False)
    topics = names.number_all(buffer, walk.name, walk.length)
    return Lists(topics=topics, begins=walk.begins, finish=walk.finish, odd=walk.odd)


def read_sets(
    buffer: bytes, begins: Longs, limits: Longs, names: TopicNames
) -> tuple[PartitionSets, Longs, Flags]:
    """Reads many arrays of (topic, [partition]); arguments as in `read_lists`.

    Returns:
        The sets, where each one's bytes ended, and which of them are odd: those are empty here
        and have to be asked of `decode_topic_partitions`.
    """
    walk = _walk(buffer, begins, limits, with_partitions=True)
    topics = names.number_all(buffer, walk.name, walk.length)
    numbers = int32_at_every_byte(buffer)[number_offsets(walk.start, walk.count)]
    numbers = numbers.astype(np.int32)
    odd = walk.odd.copy()
    odd[walk.array_of(_odd_topics(walk, topics, names))] = True
    odd[walk.array_of(walk.run_of(_odd_numbers(walk, numbers)))] = True
    if odd.any():
        stays = np.repeat(~odd, np.diff(walk.begins))
        topics, numbers = topics[stays], numbers[np.repeat(stays, walk.count)]
        walk = walk.without(odd)
    sets = PartitionSets(
        names=names.texts, topics=topics, counts=walk.count, begins=walk.begins, numbers=numbers
    )
    return sets, walk.finish, odd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Walk:
    """All runs of all arrays, array after array, each array's in their order.

    Attributes:
        name, length: Where each run's topic begins, and how long it is.
        start, count: Where each run's numbers begin, and how many there are.
        begins: Per array its first run, and one more entry.
        finish: Where each array ended.
        odd: Which arrays have to be read alone; they then have no runs here.
    """

    name: Longs
    length: Longs
    start: Longs
    count: Longs
    begins: Longs
    finish: Longs
    odd: Flags

    def run_of(self, numbers: Longs) -> Longs:
        """The runs of these numbers, counted as the partitions come."""
        return np.searchsorted(np.cumsum(self.count), numbers, side="right")

    def array_of(self, runs: Longs) -> Longs:
        """The arrays of these runs."""
        return np.searchsorted(self.begins, runs, side="right") - 1

    def without(self, odd: Flags) -> _Walk:
        """Leaves these arrays to be read alone."""
        sizes = np.diff(self.begins)
        stays = np.repeat(~odd, sizes)
        return _Walk(
            name=self.name[stays],
            length=self.length[stays],
            start=self.start[stays],
            count=self.count[stays],
            begins=_begins(np.where(odd, 0, sizes)),
            finish=self.finish,
            odd=self.odd | odd,
        )


def _walk(buffer: bytes, begins: Longs, limits: Longs, *, with_partitions: bool) -> _Walk:
    room = limits - begins - 4
    runs = int32_at_every_byte(buffer)[begins].astype(np.int64)
    odd = (room < 0) | (runs < 0)
    odd |= runs * (SMALLEST_RUN if with_partitions else _SMALLEST_NAME) > room
    runs[odd] = 0
    longest_first = np.argsort(-runs, kind="stable")
    # What fewer than so many arrays have is read alone.
    most = int(runs[longest_first[_WORTH_A_STEP - 1]]) if runs.size >= _WORTH_A_STEP else 0
    odd |= runs > most
    runs[odd] = 0
    slots = _begins(runs)
    start, count = np.zeros((2, int(slots[-1])), np.int64)
    finish = begins + 4
    walked = longest_first[runs[longest_first] > 0]
    for at in range(0, walked.size, _BLOCK):
        block = walked[at : at + _BLOCK]
        steps = _Steps(buffer, start, count, with_partitions=with_partitions)
        finish[block] = steps.walk(finish[block], slots[block], runs[block])
    name = np.empty_like(start)
    name[1:] = (start + 4 * count)[:-1]
    name[slots[:-1][runs > 0]] = begins[runs > 0] + 4
    name += 2
    length = start - name
    if with_partitions:
        length -= 4
    walk = _Walk(
        name=name, length=length, start=start, count=count, begins=slots, finish=finish, odd=odd
    )
    lying = finish > limits
    lying[walk.array_of(np.flatnonzero((count < 0) | (length > LONGEST_NAME)))] = True
    return walk.without(lying) if lying.any() else walk


class _Steps:
    """Walks blocks of arrays, run by run, and notes where the numbers are."""

    def __init__(self, buffer: bytes, start: Longs, count: Longs, *, with_partitions: bool) -> None:
        self._uint16 = np.ndarray((len(buffer) - 1,), np.dtype(">u2"), buffer, 0, (1,))
        self._int32 = int32_at_every_byte(buffer)
        self._end = len(buffer) - len(PADDING) + 1  # no array's end
        self._start = start
        self._count = count
        self._with_partitions = with_partitions

    def walk(self, at: Longs, slots: Longs, runs: Longs) -> Longs:
        """Walks arrays, those with most runs first.

        Args:
            at: Where the first run of each begins.
            slots: Where its place is among the results.
            runs: How many there are.

        Returns:
            Where each array ended.
        """
        finish = at.copy()
        active = np.searchsorted(-runs, -np.arange(runs[0]), side="left").tolist()
        for step, many in enumerate(active):
            if many < at.size:
                finish[many : at.size] = at[many:]
                at = at[:many]
            slot = slots[:many] + step
            begin = self._uint16[at].astype(np.int64)
            begin += at
            if self._with_partitions:
                begin += 6
                count = self._int32[begin - 4].astype(np.int64)
                self._count[slot] = count
                at = begin + 4 * count
                # Whoever lies goes on lying beyond the end, or at the beginning.
                np.maximum(at, 0, out=at)
                np.minimum(at, self._end, out=at)
            else:
                begin += 2
                at = np.minimum(begin, self._end)
            self._start[slot] = begin
        finish[: at.size] = at
        return finish


def _odd_topics(walk: _Walk, topics: Longs, names: TopicNames) -> Longs:
    """Runs without partitions or text, and those whose topic does not follow the one before it."""
    rank = np.append(names.ranks(), -1)[topics]
    odd: Flags = (walk.count == 0) | (topics < 0)
    odd[1:] |= _within(rank[1:] <= rank[:-1], walk.begins)
    return np.flatnonzero(odd)


def _odd_numbers(walk: _Walk, numbers: PartitionIndices) -> Longs:
    """Negative partitions, and those that do not exceed the one before them in their run."""
    odd: Flags = numbers < 0
    if walk.count.size < numbers.size:
        odd[1:] |= _within(numbers[1:] <= numbers[:-1], np.cumsum(walk.count))
    return np.flatnonzero(odd)


def _within(pairs: Flags, begins: Longs) -> Flags:
    """Clears what compares the first of one group with the last of the group before it."""
    pairs[begins[(begins > 0) & (begins <= pairs.size)] - 1] = False
    return pairs


def _begins(sizes: Longs) -> Longs:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))


# --- writing -------------------------------------------------------------------------------


def write_sets(sets: PartitionSets) -> tuple[memoryview, Longs]:
    """Writes all runs, without the number of runs that goes before each set's.

    Returns:
        The bytes, and where each set's runs begin, with one more entry.

    Raises:
        ValueError: A topic's name is longer than 32,767 bytes.
    """
    used = np.zeros(len(sets.names), np.bool_)
    used[sets.topics] = True
    if sets.numbers.size == sets.counts.size and (alike := _alike(sets, used)) is not None:
        return alike
    names = [encode_string(n) if u else b"" for n, u in zip(sets.names, used.tolist(), strict=True)]
    lengths = np.array([len(n) for n in names], np.int64)
    ends = np.cumsum(lengths[sets.topics] + 4 + 4 * sets.counts)
    buffer = np.empty(int(ends[-1]) if ends.size else 0, np.uint8)
    starts = ends - 4 * sets.counts
    if sets.numbers.size > sets.counts.size:
        int32 = np.ndarray((buffer.size - 3,), np.dtype(">i4"), buffer, 0, (1,))
        int32[number_offsets(starts, sets.counts)] = sets.numbers
    firsts = sets.numbers[np.cumsum(sets.counts) - sets.counts]
    for length in distinct(lengths[used]).tolist():
        _write_runs(buffer, sets, names, length, at=starts - length - 4, firsts=firsts)
    return buffer.data, np.concatenate((np.zeros(1, np.int64), ends))[sets.begins]


def _alike(sets: PartitionSets, used: Flags) -> tuple[memoryview, Longs] | None:
    """Runs of one partition each, of topics with names of one length: as many bytes each.

    A large group of equal members is like that; its bytes are then written where they belong.
    """
    topics = np.flatnonzero(used)
    names = [encode_string(sets.names[i]) for i in topics.tolist()]
    if len(set(map(len, names))) != 1:
        return None
    rows = sets.topics
    if topics.size < used.size:
        row = np.zeros(used.size, np.int64)
        row[topics] = np.arange(topics.size)
        rows = row.take(rows)
    records = _records(names).take(rows)
    records["first"] = sets.numbers
    return records.view(np.uint8).data, sets.begins * records.dtype.itemsize


def _records(names: Sequence[bytes]) -> npt.NDArray[np.void]:
    """A run of one partition, number 0, of each of these topics; names are of one length."""
    kind = np.dtype([("topic", f"V{len(names[0])}"), ("count", ">i4"), ("first", ">i4")])
    records = np.zeros(len(names), kind)
    records["topic"] = np.frombuffer(b"".join(names), kind["topic"])
    records["count"] = 1
    return records


def _write_runs(
    buffer: npt.NDArray[np.uint8],
    sets: PartitionSets,
    names: Sequence[bytes],
    length: int,
    *,
    at: Longs,
    firsts: PartitionIndices,
) -> None:
    """Writes the runs whose topic takes so many bytes, up to their first number: a record each."""
    alike = np.array([i for i, n in enumerate(names) if len(n) == length], np.int64)
    row = np.full(len(names), -1, np.int64)
    row[alike] = np.arange(alike.size)
    rows, counts = row.take(sets.topics), sets.counts
    mine = rows >= 0
    if not mine.all():
        rows, counts, at, firsts = rows[mine], counts[mine], at[mine], firsts[mine]
    records = _records([names[i] for i in alike.tolist()]).take(rows)
    records["count"] = counts
    records["first"] = firsts
    size = records.dtype.itemsize
    there = np.ndarray((buffer.size - size + 1,), f"V{size}", buffer, 0, (1,))
    there[at] = records.view(f"V{size}")
