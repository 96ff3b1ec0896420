"""Reads a whole group's subscriptions, what they share once.

The bytes are `kafka_coop.protocol.subscription`'s. All members' lie in one buffer and each field
is read for all of them by a few numpy operations; lists of topics that are equal byte by byte are
read once. Where anything about a member is out of the ordinary, it is read alone, by
`decode_subscription`, so there is one place that says what odd bytes mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.group import Claimed, GroupColumns, claimed
from kafka_coop.protocol.partition_sets import Longs, PartitionSets
from kafka_coop.protocol.subscription import decode_subscription
from kafka_coop.protocol.topic_names import TopicNames
from kafka_coop.protocol.topic_partitions import decode_strings, int32_at_every_byte
from kafka_coop.protocol.topic_partitions_batch import PADDING, Flags, read_lists, read_sets
from kafka_coop.types import NO_GENERATION, Partitions, Subscription, distinct

_VERSION_BYTES = 2
_SMALLEST = _VERSION_BYTES + 4
_NO_TOPICS = bytes(4)
_MOST_TELLING_BYTES = 512
"""So many bytes of a list tell it from most others."""
_MOST_ALIKE = 8
"""Known lists that begin alike, tried one after the other."""
_FEW = 8
_FEW_BYTES = 4096
"""A group of so many members and bytes is read faster member by member."""
_GROWTH = 64
"""So many lists are walked in step at little more cost than a few."""

_WITH_OWNED = 1
_WITH_GENERATION = 2
_WITH_RACK = 3


def decode_group(
    members: Mapping[str, bytes],
) -> tuple[GroupColumns, dict[str, MalformedDataError]]:
    """Reads a group: a million owned partitions take tenths of a second.

    Returns:
        The group, in which members whose bytes are no subscription subscribe to nothing and own
        nothing; and why they are none.
    """
    if len(members) <= _FEW and sum(map(len, members.values())) <= _FEW_BYTES:
        return _one_by_one(members)
    return decode_in_step(members)


def decode_in_step(
    members: Mapping[str, bytes],
) -> tuple[GroupColumns, dict[str, MalformedDataError]]:
    """Reads a group field by field, whatever its size: `decode_group` for large ones."""
    return _Decoding(members).group()


def _one_by_one(
    members: Mapping[str, bytes],
) -> tuple[GroupColumns, dict[str, MalformedDataError]]:
    """Reads a small group member by member: a field read for all costs as much as a member."""
    group: dict[str, Subscription] = {}
    errors: dict[str, MalformedDataError] = {}
    for member, data in sorted(members.items()):
        try:
            group[member] = decode_subscription(data)
        except MalformedDataError as error:
            errors[member] = error
            group[member] = Subscription()
    return GroupColumns.of(group), errors


class _Decoding:
    """One group's bytes, and who is to be read alone.

    Lists of topics are most of the bytes, and few of them differ: they are read where they are.
    What follows them lies in one buffer, member after member.
    """

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self._members = tuple(sorted(members))
        self._datas = [members[m] for m in self._members]
        self._names = TopicNames()
        self._lists = _TopicLists(self._names)
        versions = b"".join(
            [
                data[:_VERSION_BYTES] if len(data) >= _SMALLEST else b"\xff\xff"
                for data in self._datas
            ]
        )
        self._version = np.frombuffer(versions, ">i2").astype(np.int64)
        self._odd: Flags = self._version < 0

    def _join(self, begins: Longs) -> Longs:
        """Joins what each member sent from there on; returns where that begins in the buffer."""
        self._tails = [d[a:] for d, a in zip(self._datas, begins.tolist(), strict=True)]
        sizes = np.fromiter(map(len, self._tails), np.int64, len(self._tails))
        self._limits: Longs = np.cumsum(sizes)
        self._begins: Longs = self._limits - sizes
        self._buffer = b"".join((*self._tails, PADDING))
        self._int16 = np.ndarray((len(self._buffer) - 1,), np.dtype(">i2"), self._buffer, 0, (1,))
        self._int32 = int32_at_every_byte(self._buffer)
        return self._begins

    def group(self) -> tuple[GroupColumns, dict[str, MalformedDataError]]:
        """Reads field by field, then those alone that any field was odd of."""
        kinds = self._read_topics()
        at = self._join(_VERSION_BYTES + self._lists.sizes()[kinds])
        user_data, at = self._read_user_data(at)
        # Some clients claim version 1 and write version 0, which Sarama, too, forgives.
        more = (self._version >= _WITH_OWNED) & (at < self._limits) & ~self._odd
        owned, at = self._read_owned(more, at)
        generations, at = self._read_generations(more & (self._version >= _WITH_GENERATION), at)
        racks = self._read_racks(more & (self._version >= _WITH_RACK), at)
        group = GroupColumns(
            members=self._members,
            names=self._names.texts,
            kinds=kinds,
            lists=np.empty(0, np.int64),
            list_begins=np.zeros(1, np.int64),
            generations=generations,
            user_data=user_data,
            racks=racks,
            instance_ids=[None] * len(self._members),
            claimed=claimed(owned),
            owned=owned,
        )
        group, errors = self._with_odd_members(group)
        lists, list_begins = self._lists.columns()
        return replace(group, lists=lists, list_begins=list_begins), errors

    # --- field by field: values, and where the next field begins ------------------------------

    def _read_topics(self) -> npt.NDArray[np.int32]:
        """Reads a few lists, finds who else has them, and so on with ever more lists."""
        datas, find, kinds = self._datas, self._lists.find, [0] * len(self._datas)
        pending, few = np.flatnonzero(~self._odd).tolist(), 1
        while pending:
            kind, raw = self._read_lists(pending[:few], kinds)
            others, pending = pending[few:], []
            for member in others:
                if datas[member].startswith(raw, _VERSION_BYTES):
                    kinds[member] = kind
                elif (known := find(datas[member])) is not None:
                    kinds[member] = known
                else:
                    pending.append(member)
            few *= _GROWTH
        return np.array(kinds, np.int32)

    def _read_lists(self, some: list[int], kinds: list[int]) -> tuple[int, bytes]:
        """Reads these members' lists. Returns the last one's number and bytes."""
        datas = [self._datas[m] for m in some]
        sizes = np.array([len(d) for d in datas], np.int64)
        limits: Longs = np.cumsum(sizes)
        begins: Longs = limits - sizes
        buffer = b"".join((*datas, PADDING))
        lists = read_lists(buffer, begins + _VERSION_BYTES, limits, self._names)
        last = 0, _NO_TOPICS
        begins_at, ends = lists.begins.tolist(), (lists.finish - begins).tolist()
        unreadable = bool((lists.topics < 0).any())
        for nth, (member, odd) in enumerate(zip(some, lists.odd.tolist(), strict=True)):
            data = self._datas[member]
            if odd:
                try:
                    strings, ends[nth] = decode_strings(data, _VERSION_BYTES)
                except MalformedDataError:
                    self._odd[member] = True
                    continue
                numbers = self._lists.number(strings)
            else:
                numbers = lists.topics[begins_at[nth] : begins_at[nth + 1]]
                if unreadable and numbers.size and numbers.min() < 0:
                    self._odd[member] = True
                    continue
            raw = data[_VERSION_BYTES : ends[nth]]
            kinds[member] = self._lists.add(raw, numbers)
            last = kinds[member], raw
        return last

    def _read_user_data(self, at: Longs) -> tuple[list[bytes | None], Longs]:
        sizes = self._int32[at].astype(np.int64)
        end = at + 4 + np.maximum(sizes, 0)
        self._odd |= (sizes < -1) | (end > self._limits)
        if (sizes == -1).all():
            return [None] * sizes.size, end
        # A plain loop over plain lists: one slice a member.
        begins, ends = (at + 4 - self._begins).tolist(), (end - self._begins).tolist()
        user_data: list[bytes | None] = [
            data[a:b] for data, a, b in zip(self._tails, begins, ends, strict=True)
        ]
        for member in np.flatnonzero(sizes < 0).tolist():
            user_data[member] = None
        return user_data, end

    def _read_owned(self, there: Flags, at: Longs) -> tuple[PartitionSets, Longs]:
        # Whoever sent none is given an empty array to read: the padding.
        padding = len(self._buffer) - len(PADDING)
        begins = np.where(there, at, padding)
        limits = np.where(there, self._limits, padding + 4)
        owned, finish, odd = read_sets(self._buffer, begins, limits, self._names)
        self._odd |= odd & there
        return owned, np.where(there, finish, at)

    def _read_generations(self, there: Flags, at: Longs) -> tuple[Longs, Longs]:
        end = at + 4 * there
        self._odd |= end > self._limits
        at = np.minimum(at, self._limits)
        generations = np.maximum(self._int32[at].astype(np.int64), NO_GENERATION)
        return np.where(there, generations, NO_GENERATION), np.minimum(end, self._limits)

    def _read_racks(self, there: Flags, at: Longs) -> list[str | None]:
        sizes = np.where(there, self._int16[at], -1).astype(np.int64)
        begin = at + 2 * there
        end = begin + np.maximum(sizes, 0)
        self._odd |= (sizes < -1) | (end > self._limits)
        racks: list[str | None] = [None] * sizes.size
        for member in np.flatnonzero((sizes > 0) & ~self._odd).tolist():
            try:
                racks[member] = self._buffer[int(begin[member]) : int(end[member])].decode()
            except UnicodeDecodeError:
                self._odd[member] = True
        return racks

    # --- member by member ----------------------------------------------------------------------

    def _with_odd_members(
        self, group: GroupColumns
    ) -> tuple[GroupColumns, dict[str, MalformedDataError]]:
        errors: dict[str, MalformedDataError] = {}
        alone: dict[int, Partitions] = {}
        user_data, racks = list(group.user_data), list(group.racks)
        for index in np.flatnonzero(self._odd).tolist():
            try:
                read = decode_subscription(self._datas[index])
            except MalformedDataError as error:
                errors[self._members[index]] = error
                read = Subscription()
            group.kinds[index] = self._lists.add_alone(read.topics)
            group.generations[index] = read.generation
            user_data[index], racks[index] = read.user_data, read.rack
            alone[index] = read.owned
        if not alone:
            return group, errors
        sets = PartitionSets.of(list(alone.values()))
        more = claimed(sets)
        was = group.claimed
        stays = ~self._odd[was.member]
        return replace(
            group,
            user_data=user_data,
            racks=racks,
            owned_alone=alone,
            claimed=Claimed(
                member=np.append(was.member[stays], np.array(list(alone), np.int64)[more.member]),
                topic=np.append(was.topic[stays], self._lists.number(sets.names)[more.topic]),
                partition=np.append(was.partition[stays], more.partition),
            ),
        ), errors


class _TopicLists:
    """Numbers lists of topics, equal ones once. Number 0 is the empty one."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._lists: list[Longs] = [np.empty(0, np.int64)]
        self._sizes = [len(_NO_TOPICS)]
        self._by_bytes = {_NO_TOPICS: 0}
        self._alone: dict[tuple[str, ...], int] = {(): 0}
        self._alike: dict[bytes, list[tuple[bytes, int]]] = {}
        self._telling: list[int] = []

    def number(self, topics: Sequence[str]) -> Longs:
        """The topics' numbers."""
        return np.array([self._names.number(t.encode()) for t in topics], np.int64)

    def add(self, raw: bytes, numbers: Longs) -> int:
        """Takes in a list that was read."""
        kind = self._by_bytes.get(raw)
        if kind is None:
            kind = self._by_bytes[raw] = self._append(numbers, len(raw))
            # A power of two, so that there are few sizes to look others up by.
            size = min(1 << (len(raw).bit_length() - 1), _MOST_TELLING_BYTES)
            if size not in self._telling:
                self._telling.append(size)
            alike = self._alike.setdefault(raw[:size], [])
            if len(alike) < _MOST_ALIKE:
                alike.append((raw, kind))
        return kind

    def add_alone(self, topics: tuple[str, ...]) -> int:
        """Takes in a list that was read without its bytes being known."""
        kind = self._alone.get(topics)
        if kind is None:
            kind = self._alone[topics] = self._append(self.number(topics), 0)
        return kind

    def find(self, data: bytes) -> int | None:
        """Looks a member's list up.

        A list says how long it is: bytes that begin with a known one begin with it whole.
        """
        for size in self._telling:
            for raw, kind in self._alike.get(data[_VERSION_BYTES : _VERSION_BYTES + size], ()):
                if data.startswith(raw, _VERSION_BYTES):
                    return kind
        return None

    def sizes(self) -> Longs:
        """How many bytes each list took."""
        return np.array(self._sizes, np.int64)

    def columns(self) -> tuple[Longs, Longs]:
        """All lists one after the other, topics ascending and each once; and where each begins."""
        rank = self._names.ranks()
        by_rank = np.argsort(rank)
        lists = np.concatenate(self._lists)
        sizes = np.array([a.size for a in self._lists], np.int64)
        begins = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        rises = np.diff(rank[lists]) > 0
        rises[begins[(begins > 0) & (begins < lists.size)] - 1] = True
        if rises.all():
            return lists, begins
        tidy = [by_rank[distinct(rank[numbers])] for numbers in self._lists]
        sizes = np.array([a.size for a in tidy], np.int64)
        return np.concatenate(tidy), np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))

    def _append(self, numbers: Longs, size: int) -> int:
        self._lists.append(numbers)
        self._sizes.append(size)
        return len(self._lists) - 1
