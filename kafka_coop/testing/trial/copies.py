"""Exactly once, end to end: the output of a run with transactions beside its input."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeAlias

from confluent_kafka import Consumer, Message, TopicPartition

Record: TypeAlias = tuple[int, int]
"""Partition and offset in the input."""

PARTITIONS: Final = 3
"""The output's."""
_QUIET: Final = 20.0
_DOUBTFUL: Final = 90.0
"""Seconds without anything new after which all is read; the latter where something is missing: the
transactions of the killed are aborted after ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A record in the output.

    Attributes:
        of: What it is a copy of.
        by: The member that wrote it.
        at: Where it is in the output: partition and offset.
    """

    of: Record
    by: str
    at: Record


def value_of(of: Record, by: str) -> str:
    """What a copy's record holds."""
    return json.dumps([*of, by])


def wait_for_copies(servers: str, output: str, wanted: Collection[Record]) -> None:
    """Returns once readers of committed records have seen a copy of each, or no more comes."""
    missing = set(wanted)
    with closing(_read(servers, output, "read_committed", lambda: _DOUBTFUL)) as found:
        while missing and (copy := next(found, None)) is not None:
            missing.discard(copy.of)


def read_copies(servers: str, output: str, wanted: AbstractSet[Record]) -> list[Copy]:
    """What readers of committed records see, when no more comes."""
    seen: set[Record] = set()

    def patience() -> float:
        return _QUIET if seen >= wanted else _DOUBTFUL

    found = []
    for copy in _read(servers, output, "read_committed", patience):
        seen.add(copy.of)
        found.append(copy)
    return found


def explain(
    servers: str, output: str, wanted: Collection[Record], found: Sequence[Copy]
) -> list[str]:
    """What the output's log says of each record that was not copied once: who wrote it, where."""
    odd = odd_ones(wanted, found)
    if not odd:
        return []
    written = list(_read(servers, output, "read_uncommitted", lambda: _QUIET))
    return in_words(odd, found, written)


def odd_ones(wanted: Collection[Record], found: Iterable[Copy]) -> list[Record]:
    """Records that are not there once."""
    times = defaultdict[Record, int](int)
    for copy in found:
        times[copy.of] += 1
    return sorted({of for of in wanted if times[of] != 1} | {of for of in times if times[of] > 1})


def in_words(odd: Iterable[Record], found: Iterable[Copy], written: Iterable[Copy]) -> list[str]:
    """A line for each of them.

    Args:
        odd: Records that were not copied once.
        found: What is committed.
        written: All that is in the log.
    """
    committed = {copy.at for copy in found}
    by_record = defaultdict[Record, list[Copy]](list)
    for copy in written:
        by_record[copy.of].append(copy)
    return [
        f"{of[0]}:{of[1]}: " + ("; ".join(_told(copy, committed) for copy in by_record[of]) or "-")
        for of in odd
    ]


def _told(copy: Copy, committed: Collection[Record]) -> str:
    what = "committed" if copy.at in committed else "aborted"
    return f"{what}, by {copy.by} at {copy.at[0]}:{copy.at[1]}"


def _read(
    servers: str, output: str, isolation: str, patience: Callable[[], float]
) -> Generator[Copy]:
    settings = {
        "bootstrap.servers": servers,
        "group.id": f"{output}-reader",
        "isolation.level": isolation,
        "enable.auto.commit": False,
    }
    with Consumer(settings) as reader:
        reader.assign([TopicPartition(output, p, 0) for p in range(PARTITIONS)])
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < patience():
            for message in reader.consume(1000, 1.0):
                if (copy := _copy(message)) is not None:
                    yield copy
                    quiet_since = time.monotonic()


def _copy(message: Message) -> Copy | None:
    """None: it is no record."""
    value, partition, offset = message.value(), message.partition(), message.offset()
    if value is None or message.error() is not None or partition is None or offset is None:
        return None
    of_partition, of_offset, by = json.loads(value)
    return Copy(of=(of_partition, of_offset), by=by, at=(partition, offset))
