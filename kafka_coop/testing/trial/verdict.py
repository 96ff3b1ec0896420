"""The judge: from the journals alone, who owned what, and what became of the records. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.outcome import NANO

_AT_ONCE: Final = 1 * NANO
"""Nanoseconds that a process may take, on a busy machine, for what it was about to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """A partition's ownership by one member, from on_assign's call to on_revoke's return.

    Attributes:
        start, end: Monotonic nanoseconds. Open ends are the member's last line, or its kill.
        fenced: It ended by on_lost, by a kill or in a suspension, or by an on_revoke that a stop
            held up: the group may have gone on before this member knew, and its last moments are
            not ownership.
        binds: Until when nobody else may have it: `end`; of one that was fenced, so long before as
            its member may not have heard.
        generation: In which it began.
        records: How many it processed.
    """

    member: str
    partition: int
    start: int
    end: int
    fenced: bool
    generation: int
    binds: int
    records: int = 0

    def excludes(self, later: Tenure) -> bool:
        """Whether another that began later must not have begun yet.

        One that was heard of too late to be one is no crime: a member that is stopped between the
        group's answer and on_assign hears of both ends when it goes on. Then the group gave the
        partition to this one in a later generation, and the other has processed nothing.
        """
        over = later.fenced and not later.records and later.generation < self.generation
        return later.start < self.binds and later.member != self.member and not over


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Two owners at once."""

    first: Tenure
    second: Tenure

    def __str__(self) -> str:
        over = (self.first.binds - self.second.start) / 1e6
        return (
            f"partition {self.first.partition}: {self.first.member} had it for {over:.1f} ms more"
            f" when {self.second.member} got it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A process that was stopped for so long that its member may have been evicted.

    Attributes:
        since: When it was stopped: monotonic nanoseconds.
        until: When it went on, at the earliest: monotonic nanoseconds.
        over: When it had gone on. What it does a moment later it does without having heard.
    """

    member: str
    since: int
    until: int
    over: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the journals prove.

    Attributes:
        overlaps: Two owners at once; empty: never.
        strays: Records that a member processed while it did not own their partition, by what its
            callbacks had told it.
        late: Records processed after another member was assigned the partition, and before this
            one gave it up: a zombie's work.
        in_hand: Those of them that no client can help: a process was stopped between poll's return
            and the journal. That is what it writes first, and at once, when it goes on, one record,
            or with transactions one batch; whatever else it writes is late.
        lost: (partition, offset) of every record that nobody processed.
        produced, processed: How many there were, and how many were processed at least once.
        repeated: How many times a record was processed beyond the first.
        handovers: How often a partition went from one member to another.
    """

    overlaps: tuple[Overlap, ...]
    strays: tuple[tuple[str, Event], ...]
    late: tuple[tuple[str, Event], ...]
    in_hand: tuple[tuple[str, Event], ...]
    lost: tuple[tuple[int, int], ...]
    produced: int
    processed: int
    repeated: int
    handovers: int

    @property
    def sound(self) -> bool:
        """One owner at a time, and nothing lost."""
        return not (self.overlaps or self.strays or self.late or self.lost)

    def __str__(self) -> str:
        told = [str(o) for o in self.overlaps[:5]]
        told += [f"{who} processed {e} without owning it" for who, e in self.strays[:5]]
        told += [f"{who} processed {e} after its successor" for who, e in self.late[:5]]
        told += [f"lost: {self.lost[:5]} of {len(self.lost)}"] if self.lost else []
        counts = f"{self.processed} of {self.produced} processed, {self.repeated} repeats"
        return "; ".join([counts, *told])


def judge(
    journals: Mapping[str, Sequence[Event]],
    end_offsets: Mapping[int, int],
    *,
    killed: Mapping[str, int] | None = None,
    stops: Sequence[Stop] = (),
    unheard: Mapping[str, int] | None = None,
) -> Verdict:
    """Judges a trial.

    Args:
        journals: Each member's events, in its order.
        end_offsets: For each partition, how many records were produced to it.
        killed: When members were killed, monotonic nanoseconds.
        stops: Which members were stopped, for about a session or longer.
        unheard: For how long a member that runs may not hear that it was evicted, nanoseconds; who
            is not in it may never.
    """
    held = [
        t
        for name, events in journals.items()
        for t in tenures(name, events, killed or {}, stops, (unheard or {}).get(name))
    ]
    counts: dict[tuple[int, int], int] = {}
    for events in journals.values():
        for event in events:
            if event.kind == "R":
                place = (event.partitions[0], event.offset)
                counts[place] = counts.get(place, 0) + 1
    wanted = {(p, o) for p, end in end_offsets.items() for o in range(end)}
    late, in_hand = _late(journals), _in_hand(journals, stops)
    return Verdict(
        overlaps=tuple(_overlaps(held)),
        strays=tuple((n, e) for n, events in journals.items() for e in _strays(events)),
        late=tuple((n, e) for n, e in late if (n, e.at) not in in_hand),
        in_hand=tuple((n, e) for n, e in late if (n, e.at) in in_hand),
        lost=tuple(sorted(wanted - counts.keys())),
        produced=len(wanted),
        processed=len(wanted & counts.keys()),
        repeated=sum(times - 1 for times in counts.values()),
        handovers=_handovers(held),
    )


def tenures(
    member: str,
    events: Sequence[Event],
    killed: Mapping[str, int],
    stops: Sequence[Stop] = (),
    unheard: int | None = None,
) -> list[Tenure]:
    """What a member owned, by its callbacks. The arguments are `judge`'s."""
    its = [stop for stop in stops if stop.member == member]
    book = _Book(member, _held_up(events, its), _Deafness(its, unheard))
    for event in events:
        for partition in event.partitions:
            book.enter(event, partition)
        if event.kind == "X":
            book.end_all(event.at, fenced=False)
    last = killed.get(member, events[-1].at if events else 0)
    book.end_all(last, fenced=member in killed)
    return book.done


def _held_up(events: Sequence[Event], stops: Sequence[Stop]) -> set[int]:
    """When on_revoke was called that was due before a stop: at once when that was over.

    A member that is stopped between the group's answer and on_revoke calls it when it goes on,
    before it can have heard that it was evicted: as it writes down a record that it had in hand.
    """
    found = set()
    for stop in stops:
        after = (event for event in events if event.kind in "VL" and event.at >= stop.until)
        first = next(after, None)
        if first is not None and first.kind == "V" and first.at <= stop.over + _AT_ONCE:
            found.add(first.at)
    return found


@dataclass(frozen=True, slots=True)
class _Deafness:
    """Since when a member may not have heard that the group had gone on."""

    stops: Sequence[Stop]
    unheard: int | None

    def before(self, end: int, start: int) -> int:
        """Of a tenure from start to end.

        Who is stopped hears nothing meanwhile, whatever it may not have heard before and after.
        """
        if self.unheard is None:
            return start
        found = [end - self.unheard]
        for stop in self.stops:
            after = max(0, end - stop.over)
            if stop.since <= end and after <= self.unheard:
                found.append(stop.since - (self.unheard - after))
        return max(start, min(found))


class _Book:
    """One member's tenures, those that are over and those under way."""

    def __init__(self, member: str, held_up: Container[int], deafness: _Deafness) -> None:
        self.done: list[Tenure] = []
        self._member = member
        self._held_up = held_up
        self._deafness = deafness
        self._open: dict[int, Event] = {}
        self._giving_up: dict[int, int] = {}
        self._records: dict[int, int] = {}

    def enter(self, event: Event, partition: int) -> None:
        if event.kind == "A":
            self._end(partition, event.at, fenced=False)
            self._open[partition] = event
        elif event.kind in "VL":
            fenced = event.kind == "L" or event.at in self._held_up
            self._end(partition, event.at, fenced=fenced)
        elif event.kind == "W":  # whose user is slow hears nothing meanwhile
            self._giving_up[partition] = event.at
        elif event.kind == "R":
            self._records[partition] = self._records.get(partition, 0) + 1

    def end_all(self, at: int, *, fenced: bool) -> None:
        for partition in tuple(self._open):
            self._end(partition, at, fenced=fenced)

    def _end(self, partition: int, at: int, *, fenced: bool) -> None:
        records = self._records.pop(partition, 0)
        heard = self._giving_up.pop(partition, at)
        if (begun := self._open.pop(partition, None)) is not None:
            self.done.append(
                Tenure(
                    member=self._member,
                    partition=partition,
                    start=begun.at,
                    end=at,
                    fenced=fenced,
                    generation=begun.generation,
                    binds=self._deafness.before(heard, begun.at) if fenced else at,
                    records=records,
                )
            )


def _by_partition(held: Sequence[Tenure]) -> list[list[Tenure]]:
    found: dict[int, list[Tenure]] = {}
    for tenure in sorted(held, key=lambda t: t.start):
        found.setdefault(tenure.partition, []).append(tenure)
    return list(found.values())


def _overlaps(held: Sequence[Tenure]) -> list[Overlap]:
    """A tenure that was fenced may be overlapped in its last moments: see `Tenure.binds`."""
    found = []
    for line in _by_partition(held):
        latest: Tenure | None = None
        for tenure in line:
            if latest is not None and latest.excludes(tenure):
                found.append(Overlap(first=latest, second=tenure))
            if latest is None or tenure.binds > latest.binds:
                latest = tenure
    return found


def _handovers(held: Sequence[Tenure]) -> int:
    return sum(
        a.member != b.member for line in _by_partition(held) for a, b in itertools.pairwise(line)
    )


def _strays(events: Sequence[Event]) -> list[Event]:
    owned: set[int] = set()
    found = []
    for event in events:
        if event.kind == "A":
            owned |= {*event.partitions}
        elif event.kind in "VL":
            owned -= {*event.partitions}
        elif event.kind == "X":
            owned.clear()
        elif event.kind == "R" and not owned >= {*event.partitions}:
            found.append(event)
    return found


def _late(journals: Mapping[str, Sequence[Event]]) -> list[tuple[str, Event]]:
    """Records of a zombie: after a successor has begun on the partition, in the same tenure.

    A successor begins with on_assign, but for one that heard of it late, when the group had gone on
    (`Tenure.excludes`): then it begins with its first record.
    """
    lines: dict[int, list[tuple[str, Event, Event]]] = {}
    for name, events in journals.items():
        since: dict[int, Event] = {}
        for event in events:
            if event.kind == "A":
                since.update(dict.fromkeys(event.partitions, event))
            if event.kind in "AR":
                for partition in event.partitions:
                    begun = since.get(partition, event)
                    lines.setdefault(partition, []).append((name, event, begun))
    return [one for line in lines.values() for one in _late_in(line)]


def _late_in(line: Sequence[tuple[str, Event, Event]]) -> list[tuple[str, Event]]:
    """Of one partition: each event with its member, and the on_assign that it is under."""
    found = []
    newest, owner = Event(kind="A", at=-1), ""
    for name, event, begun in sorted(line, key=lambda one: one[1].at):
        if event.kind == "R" and begun.at < newest.at and name != owner:
            found.append((name, event))
        elif begun.at > newest.at and (event.kind == "R" or begun.generation >= newest.generation):
            newest, owner = begun, name
    return found


def _in_hand(
    journals: Mapping[str, Sequence[Event]], stops: Sequence[Stop]
) -> set[tuple[str, int]]:
    """Each stopped member's first moment with records after its stop, if it came at once.

    A poll that begins later has heard of the stop: what it returns nobody had in hand.
    """
    found = set()
    for stop in stops:
        records = (e.at for e in journals.get(stop.member, ()) if e.kind == "R")
        first = next((at for at in records if at >= stop.until), None)
        if first is not None and first <= stop.over + _AT_ONCE:
            found.add((stop.member, first))
    return found


def prefixes(journals: Mapping[str, Sequence[Event]]) -> dict[int, int]:
    """For each partition the first offset that nobody processed."""
    seen: dict[int, set[int]] = {}
    for events in journals.values():
        for event in events:
            if event.kind == "R":
                seen.setdefault(event.partitions[0], set()).add(event.offset)
    return {p: next(o for o in itertools.count() if o not in s) for p, s in seen.items()}


def miscommitted(
    committed: Mapping[int, int], ends: Mapping[int, int], processed: Mapping[int, int]
) -> list[str]:
    """Offsets of the group that are not what they must be once all have closed in order.

    Args:
        committed: The group's offsets.
        ends: For each partition, how many records were produced to it.
        processed: For each partition the first offset that nobody processed.
    """
    found = []
    for partition, end in sorted(ends.items()):
        offset, done = max(committed.get(partition, 0), 0), processed.get(partition, 0)
        if offset > done:
            found.append(f"partition {partition}: {offset} committed, processed up to {done}")
        elif offset != end:
            found.append(f"partition {partition}: {offset} committed of {end}")
    return found
