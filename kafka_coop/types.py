"""The values every layer speaks in.

Nothing here knows sockets, clocks or librdkafka. All values are immutable; arrays
inside them are marked read-only, so that a snapshot stays a snapshot.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NewType, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

MemberId = NewType("MemberId", str)
"""The id the coordinator gave a member. Empty: none was given yet."""

Generation = NewType("Generation", int)
"""A round of the group, counted by its coordinator. `NO_GENERATION`: not in the group."""

NO_MEMBER_ID = MemberId("")
NO_GENERATION = Generation(-1)

MAX_STRING_BYTES = 0x7FFF
"""Of a string in Kafka's protocol, whose length is an int16. No request can hold a longer one."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The brokers' own: no pattern means them, and no group is asked about them."""


_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(text: str) -> bool:
    """Whether a broker takes this as a topic's name."""
    return _TOPIC_NAME.fullmatch(text) is not None and text not in (".", "..")


def is_matched(topic: str, pattern: str) -> bool:
    """Whether a regular expression means the topic: it matches from its start."""
    return topic not in INTERNAL_TOPICS and re.match(pattern, topic) is not None


PartitionIndices: TypeAlias = npt.NDArray[np.int32]
_Integer = TypeVar("_Integer", bound=np.integer)


class TopicPartition(NamedTuple):
    """A partition by name. The façade speaks `confluent_kafka.TopicPartition` instead."""

    topic: str
    partition: int


class RebalanceProtocol(enum.IntEnum):
    """How partitions change hands (KIP-429). A higher value is preferred."""

    EAGER = 0
    """Everything is revoked before every join."""

    COOPERATIVE = 1
    """Only what moves is revoked, after the round that decided it."""


class PartitionColumns(NamedTuple):
    """A set of partitions as columns, for code that handles many at once.

    Attributes:
        topics: The topics with at least one partition, sorted.
        counts: Number of partitions per topic, ``int64``, none of them zero.
        indices: All partition indices, topic after topic, ascending within each. Read-only.
    """

    topics: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    indices: PartitionIndices


class Partitions:
    """An immutable set of partitions: per topic, a sorted ``int32`` array without repeats.

    Iteration and ``in`` speak ``(topic, partition)``; ``len`` counts partitions; topics are
    visited in sorted order, so two equal sets always iterate alike. Topics without a
    partition are not kept. Set algebra (``|``, ``-``, ``&``) costs O(n log n).
    """

    # One of `_arrays` and `_columns` at least is there; the other is made when asked for. A
    # million partitions in runs of one are decoded as columns in a fraction of the time that
    # a million arrays would take.
    __slots__ = ("_arrays", "_columns", "_hash")

    def __init__(
        self, by_topic: Mapping[str, Iterable[int] | PartitionIndices] | None = None
    ) -> None:
        clean: dict[str, PartitionIndices] = {}
        for topic in sorted(by_topic or ()):
            indices = _sorted_unique(by_topic[topic])  # type: ignore[index]  # not None: it has topics
            if indices.size:
                clean[topic] = indices
        self._arrays: dict[str, PartitionIndices] | None = clean
        self._columns: PartitionColumns | None = None
        self._hash: int | None = None

    @classmethod
    def from_columns(cls, columns: PartitionColumns) -> Partitions:
        """Takes the columns over as they are, unchecked: the caller vouches for their order.

        Costs O(1), where the constructor costs O(number of topics).
        """
        self = cls.__new__(cls)
        columns.counts.setflags(write=False)
        columns.indices.setflags(write=False)
        self._arrays = None
        self._columns = columns
        self._hash = None
        return self

    def columns(self) -> PartitionColumns:
        """The same set as columns, made once."""
        if self._columns is None:
            arrays = self._by_topic
            counts = np.array([a.size for a in arrays.values()], np.int64)
            indices = np.concatenate([_NO_INDICES, *arrays.values()])
            counts.setflags(write=False)
            indices.setflags(write=False)
            self._columns = PartitionColumns(tuple(arrays), counts, indices)
        return self._columns

    @property
    def _by_topic(self) -> dict[str, PartitionIndices]:
        if self._arrays is None:
            assert self._columns is not None, "one of the two is always there"
            topics, counts, indices = self._columns
            ends = np.cumsum(counts)
            runs = zip((ends - counts).tolist(), ends.tolist(), strict=True)
            self._arrays = {t: indices[a:b] for t, (a, b) in zip(topics, runs, strict=True)}
        return self._arrays

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, int]]) -> Partitions:
        """Builds the set from ``(topic, partition)`` pairs, repeats allowed."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in pairs:
            by_topic.setdefault(topic, []).append(partition)
        return cls(by_topic)

    def topics(self) -> tuple[str, ...]:
        """The topics with at least one partition, sorted."""
        return self._columns.topics if self._columns is not None else tuple(self._by_topic)

    def items(self) -> Iterable[tuple[str, PartitionIndices]]:
        """Each topic with its sorted, read-only partition indices."""
        return self._by_topic.items()

    def get(self, topic: str) -> PartitionIndices:
        """The topic's partition indices, an empty array where it has none."""
        return self._by_topic.get(topic, _NO_INDICES)

    def only(self, topics: Iterable[str]) -> Partitions:
        """The partitions of these topics alone."""
        wanted = frozenset(topics)
        return Partitions({t: a for t, a in self._by_topic.items() if t in wanted})

    def __getitem__(self, topic: str) -> PartitionIndices:
        return self._by_topic[topic]

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, indices in self._by_topic.items():
            for index in indices.tolist():
                yield TopicPartition(topic, index)

    def __len__(self) -> int:
        if self._columns is not None:
            return self._columns.indices.size
        return sum(a.size for a in self._by_topic.values())

    def __contains__(self, pair: object) -> bool:
        if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004  # a pair has two
            return False
        topic, partition = pair
        indices = self._by_topic.get(topic)
        if indices is None:
            return False
        if indices.size <= _FEW:
            return partition in indices.tolist()
        at = int(np.searchsorted(indices, partition))
        return at < indices.size and int(indices[at]) == partition

    def __or__(self, other: Partitions) -> Partitions:
        if not other:
            return self
        if not self:
            return other
        topics = self._by_topic.keys() | other._by_topic.keys()
        return Partitions({t: np.concatenate((self.get(t), other.get(t))) for t in topics})

    def __sub__(self, other: Partitions) -> Partitions:
        if not other or not self:
            return self
        if other is self:
            return NO_PARTITIONS
        return self._kept({t: _difference(a, other.get(t)) for t, a in self._by_topic.items()})

    def __and__(self, other: Partitions) -> Partitions:
        if other is self:
            return self
        return self._kept({t: _intersection(a, other.get(t)) for t, a in self._by_topic.items()})

    def _kept(self, arrays: dict[str, PartitionIndices]) -> Partitions:
        """What is left of each topic's array; topics in the order that they have here."""
        if all(arrays[t] is a for t, a in self._by_topic.items()):
            return self
        kept = Partitions()
        kept._arrays = {t: a for t, a in arrays.items() if a.size}
        return kept if kept._arrays else NO_PARTITIONS

    def isdisjoint(self, other: Partitions) -> bool:
        """Whether the two share no partition."""
        return not self & other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partitions):
            return NotImplemented
        return self._by_topic.keys() == other._by_topic.keys() and all(
            np.array_equal(a, other._by_topic[t]) for t, a in self._by_topic.items()
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple((t, a.tobytes()) for t, a in self._by_topic.items()))
        return self._hash

    def __repr__(self) -> str:
        inside = ", ".join(f"{t!r}: {a.tolist()}" for t, a in self._by_topic.items())
        return f"Partitions({{{inside}}})"


def distinct(array: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """The values of an array, sorted, each once.

    What `numpy.unique` does, but that imports ``numpy.ma`` when first called: 50 ms of CPU in
    every member of a group at once, in the middle of its first rebalance.
    """
    ordered = np.sort(array)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _sorted_unique(indices: Iterable[int] | PartitionIndices) -> PartitionIndices:
    array = np.asarray(
        indices if isinstance(indices, np.ndarray) else list(indices), dtype=np.int32
    )
    if array.size > 1 and not bool(np.all(array[1:] > array[:-1])):
        array = distinct(array)
    elif array.flags.writeable:
        array = array.copy()  # the caller may go on writing to theirs
    array.setflags(write=False)
    return array


def _difference(a: PartitionIndices, b: PartitionIndices) -> PartitionIndices:
    """Of two arrays of `Partitions`, what is in the first alone: itself, where that is all."""
    if not b.size:
        return a
    if a.size + b.size > _FEW:
        kept = np.setdiff1d(a, b, assume_unique=True)
    else:
        gone = set(b.tolist())
        kept = np.array([i for i in a.tolist() if i not in gone], np.int32)
    return _same_or(a, kept)


def _intersection(a: PartitionIndices, b: PartitionIndices) -> PartitionIndices:
    """Of two arrays of `Partitions`, what is in both: the first itself, where that is all."""
    if not b.size:
        return _NO_INDICES
    if a.size + b.size > _FEW:
        kept = np.intersect1d(a, b, assume_unique=True)
    else:
        both = set(b.tolist())
        kept = np.array([i for i in a.tolist() if i in both], np.int32)
    return _same_or(a, kept)


def _same_or(a: PartitionIndices, kept: PartitionIndices) -> PartitionIndices:
    if kept.size == a.size:
        return a
    kept.setflags(write=False)
    return kept


_FEW = 64
"""Up to so many numbers Python's own sets are faster than numpy's, by several times."""

_NO_INDICES: PartitionIndices = np.empty(0, dtype=np.int32)
_NO_INDICES.setflags(write=False)

NO_PARTITIONS = Partitions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What an assignor may know of the cluster.

    Attributes:
        partitions: Topic -> number of its partitions. Topics that do not exist are absent.
        replica_racks: Topic -> one list of racks a partition (KIP-881), or None where racks
            are not known. A partition's racks are those of all its replicas.
    """

    partitions: Mapping[str, int] = field(default_factory=dict)
    replica_racks: Mapping[str, tuple[tuple[str, ...], ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What one member sends with its JoinGroup (ConsumerProtocolSubscription).

    Attributes:
        topics: The topics subscribed to, sorted.
        owned: What the member says it owns (KIP-429).
        generation: The generation of the assignment those partitions came with (KIP-792);
            `NO_GENERATION` where the member sent none.
        user_data: The assignor's own bytes, without the marks that follow them; None: absent.
        rack: ``client.rack`` (KIP-881).
        instance_id: ``group.instance.id`` (KIP-345); it travels in JoinGroup, not in these bytes.
    """

    topics: tuple[str, ...] = ()
    owned: Partitions = NO_PARTITIONS
    generation: Generation = NO_GENERATION
    user_data: bytes | None = None
    rack: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What one member is given by SyncGroup (ConsumerProtocolAssignment)."""

    partitions: Partitions = NO_PARTITIONS
    user_data: bytes = b""


GroupSubscription: TypeAlias = Mapping[str, Subscription]
GroupAssignment: TypeAlias = Mapping[str, Assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A member's identity in its group, as commits and transactions must carry it."""

    group_id: str
    generation: Generation = NO_GENERATION
    member_id: MemberId = NO_MEMBER_ID
    instance_id: str | None = None


@runtime_checkable
class Assignor(Protocol):
    """A partition assignment strategy (KIP-429, `ConsumerPartitionAssignor`).

    The instance belongs to one consumer. `assign` runs on the group leader, in a thread of its own,
    perhaps beside an earlier call whose round is over; the other two run on every member, and must
    not block.
    """

    # Read-only here, or a class that says `supported_protocols = (EAGER,)` would not be one.
    @property
    def name(self) -> str:
        """The protocol's name on the wire. All members must share one."""

    @property
    def supported_protocols(self) -> tuple[RebalanceProtocol, ...]:
        """How partitions may change hands under it."""

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """What to send to the leader with the next JoinGroup; None: nothing."""

    def assign(self, cluster: Cluster, group: GroupSubscription) -> GroupAssignment:
        """Returns the plan it intends, whatever has still to be revoked elsewhere.

        Must depend on nothing but its arguments, and not on the order of members. The leader
        step withholds what other members have yet to revoke, for every assignor alike.
        """

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Learns what this member was given, after on_revoke and before on_assign."""
