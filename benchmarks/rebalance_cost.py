"""What an event cost a benchmark's group, by the logs of its members.

The logs are those of `benchmarks.rebalance_member`.

    gap        from the last record that the old owner delivered to the first of the new one
    silence    the longest time between two deliveries of a partition that stayed; where nothing
               happens, it is the machine's own
    converged  from the event until no owner changes any more *and* each partition that changed
               hands has been delivered by its last owner. Owners change with callbacks that name
               partitions, and with a kill. Where a partition has no owner in the end, or two, or
               one that delivers nothing, the group has not converged
    latency    from a record's timestamp, its producer's, to its delivery: of a hundred, one took
               longer. A window has seconds in which nothing happens any more
    repeated   records that were delivered once more, by whomever, however long ago the first time
    rounds     by how much the group's generation had grown when the last owner changed: each round
               that completes adds one
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record that `poll` has returned. Times are seconds of the wall clock."""

    at: float
    member: int
    offset: int
    produced: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A callback that named partitions, or a member's violent end."""

    at: float
    member: int
    gained: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Convergence:
    """How a group came to rest.

    Attributes:
        seconds: After the event; None: it did not, in the time given.
        rounds: Until the last change of owners.
    """

    seconds: float | None
    rounds: int


@dataclass(slots=True)
class Cost:
    """One event of one run, milliseconds.

    Attributes:
        convergence: None where no owner changed.
    """

    moved: int
    gaps: list[float] = field(default_factory=list)
    silences: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    repeated: int = 0
    missing: int = 0
    convergence: Convergence | None = None


@dataclass(slots=True)
class History:
    """A group's life, by the logs of its members.

    Attributes:
        deliveries: Of each partition, in the order of time.
        changes: Of owners, in the order of time.
        generations: When a member said which generation it was in.
    """

    deliveries: dict[int, list[Delivery]]
    changes: list[Change]
    generations: list[tuple[float, int]]

    @classmethod
    def read(cls, logs: Mapping[int, Path], killed: Mapping[int, float]) -> Self:
        """Reads logs that are complete.

        Args:
            logs: By member.
            killed: When members were killed: what they owned has no owner from then on.
        """
        history = cls(defaultdict(list), [], [])
        for member, path in logs.items():
            whole, _, _ = path.read_text().rpartition("\n")
            for line in whole.splitlines():
                history._read_line(member, line)
        for member, at in killed.items():
            owned: frozenset[int] = frozenset()
            for change in history.changes:
                if change.member == member:
                    owned = owned - change.lost | change.gained
            if owned:
                history.changes.append(Change(at, member, lost=owned))
        history.changes.sort(key=lambda change: change.at)
        for deliveries in history.deliveries.values():
            deliveries.sort(key=lambda delivery: delivery.at)
        return history

    def _read_line(self, member: int, line: str) -> None:
        at = int(line.split(maxsplit=1)[0]) / 1e9
        match line.split()[1:]:
            case ["r", partition, offset, *rest]:
                produced = int(rest[0]) / 1e3 if rest else None
                self.deliveries[int(partition)].append(Delivery(at, member, int(offset), produced))
            case ["+", which]:
                self.changes.append(Change(at, member, gained=_numbers(which)))
            case ["-", which]:
                self.changes.append(Change(at, member, lost=_numbers(which)))
            case ["g", generation]:
                self.generations.append((at, int(generation)))

    def cost(self, start: float, end: float) -> Cost:
        """What happened from one moment to another cost."""
        cost = Cost(moved=0, convergence=self._convergence(start, end))
        for deliveries in self.deliveries.values():
            window = _window(deliveries, start, end - 0.3)
            changes = [(a, b) for a, b in itertools.pairwise(window) if a.member != b.member]
            known = {d.offset for d in deliveries if window and d.at < window[0].at}
            cost.missing += _never_delivered(window, known)
            for delivery in window:
                if delivery.produced is not None and delivery.at >= start:
                    cost.latencies.append((delivery.at - delivery.produced) * 1e3)
                cost.repeated += delivery.offset in known
                known.add(delivery.offset)
            if changes:
                cost.moved += 1
                cost.gaps += [(b.at - a.at) * 1e3 for a, b in changes]
            elif len(window) > 1:
                pairs = itertools.pairwise(window)
                cost.silences.append(max((b.at - a.at) * 1e3 for a, b in pairs))
        return cost

    def _convergence(self, start: float, end: float) -> Convergence | None:
        changes = [change for change in self.changes if change.at < end]
        if not changes or changes[-1].at < start:
            return None
        last = changes[-1].at
        first_deliveries = [
            self._first_delivery(partition, owners, start, end)
            for partition, owners in _owners(changes).items()
        ]
        before = max((g for at, g in self.generations if at < start), default=0)
        rounds = max((g for at, g in self.generations if at <= last), default=0) - before
        delivered = [at for at in first_deliveries if at is not None]
        if len(delivered) < len(first_deliveries):
            return Convergence(None, rounds)
        return Convergence(max(last, *delivered) - start, rounds)

    def _first_delivery(
        self, partition: int, owners: Mapping[int, float], start: float, end: float
    ) -> float | None:
        """When its one owner first delivered it; ``start``: it was the owner before."""
        if len(owners) != 1:
            return None
        ((owner, since),) = owners.items()
        if since < start:
            return start
        mine = (d.at for d in self.deliveries.get(partition, ()) if d.member == owner)
        return next((at for at in mine if since <= at < end), None)


def _never_delivered(window: Sequence[Delivery], before: set[int]) -> int:
    """How many offsets between the window's first and last, in the log's order, never came."""
    offsets = {d.offset for d in window}
    between = range(min(offsets), max(offsets) + 1) if offsets else range(0)
    return sum(offset not in offsets and offset not in before for offset in between)


def _window(deliveries: Sequence[Delivery], start: float, end: float) -> Sequence[Delivery]:
    """Those from one moment to another, and the last one before: whose the partition was."""
    begin = bisect.bisect_left(deliveries, start, key=lambda d: d.at)
    return deliveries[max(begin - 1, 0) : bisect.bisect_left(deliveries, end, key=lambda d: d.at)]


def _owners(changes: Sequence[Change]) -> dict[int, dict[int, float]]:
    """Who owns a partition after these changes, and since when, of all that ever had an owner."""
    owners: dict[int, dict[int, float]] = defaultdict(dict)
    for change in changes:
        for partition in change.lost:
            owners[partition].pop(change.member, None)
        for partition in change.gained:
            owners[partition][change.member] = change.at
    return owners


def _numbers(which: str) -> frozenset[int]:
    return frozenset(int(number) for number in which.split(","))


def report(costs: Mapping[tuple[str, str, str], Sequence[Cost]]) -> None:
    """Prints a table: a row for each client, phase and event."""
    print(
        "| client | heartbeats | event | moved | gap ms: median (max) | converged s: median (max) "
        "| rounds | kept silent ms: p95 (max) | latency ms: p99 | repeated | missing |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for (client, phase, event), runs in costs.items():
        gaps = [g for r in runs for g in r.gaps]
        silences = sorted(s for r in runs for s in r.silences)
        moved = statistics.median(r.moved for r in runs)
        gap = f"{statistics.median(gaps):,.0f} ({max(gaps):,.0f})" if gaps else "-"
        silent = (
            f"{silences[int(len(silences) * 0.95)]:,.0f} ({silences[-1]:,.0f})" if silences else "-"
        )
        latencies = sorted(late for r in runs for late in r.latencies)
        late = f"{latencies[int(len(latencies) * 0.99)]:,.0f}" if latencies else "-"
        repeated, missing = sum(r.repeated for r in runs), sum(r.missing for r in runs)
        converged, rounds = _shown([r.convergence for r in runs if r.convergence is not None])
        print(
            f"| {client} | {phase} | {event} | {moved:.0f} | {gap} | {converged} | {rounds} | "
            f"{silent} | {late} | {repeated} | {missing} |"
        )


def _shown(found: Sequence[Convergence]) -> tuple[str, str]:
    """The seconds and the rounds, for a table."""
    if not found:
        return "-", "-"
    seconds = [c.seconds for c in found if c.seconds is not None]
    parts = [f"{statistics.median(seconds):.2f} ({max(seconds):.2f})"] if seconds else []
    if len(seconds) < len(found):
        parts.append(f"{len(found) - len(seconds)} of {len(found)} not in time")
    fewest, most = min(c.rounds for c in found), max(c.rounds for c in found)
    return "; ".join(parts), f"{fewest}" if fewest == most else f"{fewest}-{most}"
