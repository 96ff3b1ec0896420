"""A whole group's arrays of (topic, [partition]) at once.

A group of 2,000 members with one partition in each of 500 topics has a million runs of one. At
a microsecond a run, reading them would take longer than assigning them. So all members' arrays
are laid into one buffer and walked in step: step k reads run k of every member with a dozen
numpy operations, whatever the runs are. Topic names are told apart eight bytes at a time and
decoded once each. Writing goes the same way back.

What is odd about a member (bytes that lie, names longer than Kafka allows, repeats, far more
runs than the others have) is left to `kafka_coop.protocol.topic_partitions`, member by member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_coop.protocol.primitives import encode_string
from kafka_coop.protocol.topic_partitions import SMALLEST_RUN, int32_at_every_byte, number_offsets
from kafka_coop.types import NO_PARTITIONS, PartitionColumns, PartitionIndices, Partitions

_Longs = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]
_Flags = npt.NDArray[np.bool_]

_LONGEST_NAME = 255
"""Kafka allows 249."""
_PADDING = bytes(0x10000 + 16)
"""A name's length is read before it is judged: what lies behind it must be there to be read."""
_WORTH_A_STEP = 48
"""For fewer members than this, a step costs more than reading their runs one by one."""
_TABLE_BITS = 16
_ROUNDS = 8
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MASKS: _Words = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
"""Keeps the first n bytes of a little-endian word."""


# --- reading -------------------------------------------------------------------------------


def decode_batch(arrays: Sequence[bytes]) -> list[tuple[Partitions, int] | None]:
    """Reads many arrays; each begins where its bytes do and may be followed by others.

    Returns:
        Per array what `decode_topic_partitions` would return, or None: ask that function.
    """
    if len(arrays) < _WORTH_A_STEP:
        return [None] * len(arrays)
    walk = _walk(arrays)
    ids, names = _identify(walk)
    order = np.argsort(np.argsort(np.array([n or "" for n in names], object)))
    rank = np.append(order, 0) if names else np.zeros(1, np.int64)
    indices = int32_at_every_byte(walk.buffer)[number_offsets(walk.start, walk.count)]
    indices = indices.astype(np.int32)
    odd = walk.odd.copy()
    odd[walk.member[_odd_runs(walk, rank[ids])]] = True
    unreadable = np.array([n is None for n in names] or [False])
    odd[walk.member[unreadable[ids]]] = True
    odd[_odd_numbers(walk, indices)] = True
    return _split(walk, ids, names, indices, odd)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Walk:
    """All runs of all members, member after member, each member's in their order.

    Attributes:
        buffer: All bytes, padded.
        name, length: Where each run's topic begins, and how long it is.
        start, count: Where each run's numbers begin, and how many there are.
        member: Each run's member.
        ends: Per member the index after its last run.
        size: Per member how many bytes its array took.
        odd: Per member whether it has to be read alone; it then has no runs here.
    """

    buffer: bytes
    name: _Longs
    length: _Longs
    start: _Longs
    count: _Longs
    member: _Longs
    ends: _Longs
    size: _Longs
    odd: _Flags


def _walk(arrays: Sequence[bytes]) -> _Walk:
    sizes = np.array([len(a) for a in arrays], np.int64)
    limits = np.cumsum(sizes)
    begins = limits - sizes
    buffer = b"".join((*arrays, _PADDING))
    int32 = int32_at_every_byte(buffer)
    uint16 = np.ndarray((len(buffer) - 1,), np.dtype(">u2"), buffer, 0, (1,))
    runs = int32[begins].astype(np.int64)
    odd = (sizes < 4) | (runs < 0) | (runs * SMALLEST_RUN > sizes - 4)  # noqa: PLR2004  # an int32
    runs[odd] = 0
    slots = np.cumsum(runs) - runs
    names, starts, counts = np.zeros((3, int(runs.sum())), np.int64)
    finish = begins + 4
    active = np.flatnonzero(runs)
    at, limit, left, slot = begins[active] + 4, limits[active], runs[active], slots[active]
    while active.size >= _WORTH_A_STEP:
        length = uint16[at].astype(np.int64)
        name = at + 2
        start = name + length + 4
        count = int32[start - 4].astype(np.int64)
        at = start + 4 * count
        names[slot] = name
        starts[slot] = start
        counts[slot] = count
        slot += 1
        left -= 1
        wrong = (length > _LONGEST_NAME) | (count < 0) | (at > limit)
        stays = (left > 0) & ~wrong
        if not stays.all():
            odd[active[wrong]] = True
            done = ~stays & ~wrong
            finish[active[done]] = at[done]
            active, at, limit, left, slot = (c[stays] for c in (active, at, limit, left, slot))
    odd[active] = True
    member = np.repeat(np.arange(len(arrays)), runs)
    whole = ~odd[member]
    name, start = names[whole], starts[whole]
    runs[odd] = 0
    return _Walk(
        buffer=buffer,
        name=name,
        length=start - 4 - name,
        start=start,
        count=counts[whole],
        member=member[whole],
        ends=np.cumsum(runs),
        size=finish - begins,
        odd=odd,
    )


def _identify(walk: _Walk) -> tuple[_Longs, list[str | None]]:
    """Numbers the topics.

    Returns:
        Per run the number of its topic, and the topics' names; None: no UTF-8.
    """
    words = _name_words(walk)
    key = walk.length.astype(np.uint64)
    for word in words:
        key = (key ^ word) * _MULTIPLIER
        key ^= key >> np.uint64(32)
    same_as = np.arange(walk.name.size)
    rest = same_as
    for _ in range(_ROUNDS):
        # Every name in one slot is compared with the last one that fell there, byte by byte:
        # a collision costs another round, never a wrong topic.
        slot = key[rest] >> np.uint64(64 - _TABLE_BITS)
        table = np.empty(1 << _TABLE_BITS, np.int64)
        table[slot] = rest
        candidate = table[slot]
        same = walk.length[rest] == walk.length[candidate]
        for word in words:
            same &= word[rest] == word[candidate]
        same_as[rest[same]] = candidate[same]
        rest = rest[~same]
        if not rest.size:
            break
        key = key * _MULTIPLIER
    _identify_one_by_one(walk, rest, same_as)
    first = np.zeros(walk.name.size, np.bool_)
    first[same_as] = True
    number = np.cumsum(first) - 1
    return number[same_as], [_text(walk, run) for run in np.flatnonzero(first).tolist()]


def _identify_one_by_one(walk: _Walk, rest: _Longs, same_as: _Longs) -> None:
    """For names made to collide: Python's hashes are keyed."""
    known: dict[bytes, int] = {}
    for run in rest.tolist():
        begin = int(walk.name[run])
        raw = walk.buffer[begin : begin + int(walk.length[run])]
        same_as[run] = known.setdefault(raw, run)


def _name_words(walk: _Walk) -> list[_Words]:
    """Each run's name as columns of eight bytes, padded with zeros."""
    longest = int(walk.length.max()) if walk.length.size else 0
    uint64 = np.ndarray((len(walk.buffer) - 7,), np.dtype("<u8"), walk.buffer, 0, (1,))
    return [
        uint64[walk.name + at] & _MASKS[np.clip(walk.length - at, 0, 8)]
        for at in range(0, longest, 8)
    ]


def _text(walk: _Walk, run: int) -> str | None:
    begin = int(walk.name[run])
    try:
        return walk.buffer[begin : begin + int(walk.length[run])].decode()
    except UnicodeDecodeError:
        return None


def _odd_runs(walk: _Walk, rank: _Longs) -> _Flags:
    """Runs without partitions, and those whose topic does not follow the one before it."""
    odd: _Flags = walk.count == 0
    odd[1:] |= (rank[1:] <= rank[:-1]) & (walk.member[1:] == walk.member[:-1])
    return odd


def _odd_numbers(walk: _Walk, indices: PartitionIndices) -> _Longs:
    """Members with a negative partition, or one that does not exceed the one before it."""
    run = np.repeat(np.arange(walk.count.size), walk.count)
    odd = indices < 0
    odd[1:] |= (indices[1:] <= indices[:-1]) & (run[1:] == run[:-1])
    return walk.member[run[odd]]


def _split(
    walk: _Walk, ids: _Longs, names: list[str | None], indices: PartitionIndices, odd: _Flags
) -> list[tuple[Partitions, int] | None]:
    """Cuts the columns into members. Members of equal topics share one tuple of names."""
    tuples: dict[bytes, tuple[str, ...]] = {}
    name_of = np.array([*names, None], object)
    number_ends = np.concatenate(([0], np.cumsum(walk.count)))[walk.ends].tolist()
    result: list[tuple[Partitions, int] | None] = []
    run = number = 0
    for run_end, number_end, size, alone in zip(
        walk.ends.tolist(), number_ends, walk.size.tolist(), odd.tolist(), strict=True
    ):
        if alone:
            result.append(None)
        elif run == run_end:
            result.append((NO_PARTITIONS, size))
        else:
            mine = ids[run:run_end]
            topics = tuples.get(key := mine.tobytes())
            if topics is None:
                topics = tuples[key] = tuple(name_of[mine].tolist())
            columns = PartitionColumns(topics, walk.count[run:run_end], indices[number:number_end])
            result.append((Partitions.from_columns(columns), size))
        run, number = run_end, number_end
    return result


# --- writing -------------------------------------------------------------------------------


def encode_batch(sets: Sequence[Partitions]) -> list[bytes]:
    """Returns per set what `encode_topic_partitions` would.

    Raises:
        ValueError: A topic's name is longer than 32,767 bytes.
    """
    if not sets:
        return []
    columns = [s.columns() for s in sets]
    ids, names = _number_topics([c.topics for c in columns])
    counts = np.concatenate([np.empty(0, np.int64), *(c.counts for c in columns)])
    runs = np.array([len(c.topics) for c in columns], np.int64)
    lengths = np.array([len(n) for n in names], np.int64)[ids]
    # One int32, a set's number of topics, goes before each set's first run.
    number_of = np.repeat(np.arange(runs.size), runs)
    ends = np.cumsum(lengths + 4 + 4 * counts) + 4 * (number_of + 1)
    starts = ends - 4 * counts
    sizes = 4 + np.bincount(number_of, lengths + 4 + 4 * counts, runs.size).astype(np.int64)
    set_ends = np.cumsum(sizes)
    buffer = np.empty(int(sizes.sum()), np.uint8)
    int32 = np.ndarray((buffer.size - 3,), np.dtype(">i4"), buffer, 0, (1,))
    int32[set_ends - sizes] = runs
    int32[starts - 4] = counts
    numbers = [np.empty(0, np.int32), *(c.indices for c in columns)]
    int32[number_offsets(starts, counts)] = np.concatenate(numbers)
    _write_names(buffer, starts - 4 - lengths, ids, names)
    whole = buffer.tobytes()
    begins = (set_ends - sizes).tolist()
    return [whole[a:b] for a, b in zip(begins, set_ends.tolist(), strict=True)]


def _number_topics(tuples: Sequence[tuple[str, ...]]) -> tuple[_Longs, list[bytes]]:
    """Returns each run's topic by number, and the topics as they are written."""
    numbers: dict[str, int] = {}
    known: dict[tuple[str, ...], _Longs] = {}
    ids = [np.empty(0, np.int64)]
    for topics in tuples:
        mine = known.get(topics)
        if mine is None:
            mine = np.array([numbers.setdefault(t, len(numbers)) for t in topics], np.int64)
            known[topics] = mine
        ids.append(mine)
    return np.concatenate(ids), [encode_string(t) for t in numbers]


def _write_names(
    buffer: npt.NDArray[np.uint8], at: _Longs, ids: _Longs, names: Sequence[bytes]
) -> None:
    """Puts each run's topic where it belongs: all those of one length in one go."""
    lengths = np.array([len(n) for n in names], np.int64)
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        kind = np.dtype(f"V{length}")
        row = np.zeros(len(names), np.int64)
        row[alike] = np.arange(alike.size)
        texts = np.frombuffer(b"".join(names[i] for i in alike.tolist()), kind)
        runs = np.flatnonzero(lengths[ids] == length)
        there = np.ndarray((buffer.size - length + 1,), kind, buffer, 0, (1,))
        there[at[runs]] = texts[row[ids[runs]]]
