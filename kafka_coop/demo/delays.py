"""Delays per airport: departures by origin, arrivals by destination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kafka_coop.demo.flights import Flight
from kafka_coop.demo.journal import NO_DELAY


class Total(NamedTuple):
    """Flights that left (or arrived), and the sum of their delays. Early is negative."""

    flights: int = 0
    minutes: int = 0

    @property
    def mean(self) -> float:
        """Minutes a flight."""
        return self.minutes / self.flights if self.flights else 0.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Totals by airport. Cancelled and diverted flights have no delay, and do not count."""

    departures: dict[str, Total] = field(default_factory=dict)
    arrivals: dict[str, Total] = field(default_factory=dict)

    @classmethod
    def of(cls, flights: Iterable[Flight]) -> Self:
        """The totals of all flights given."""
        delays = cls()
        for flight in flights:
            delays.add(flight)
        return delays

    def add(self, flight: Flight) -> None:
        """Counts one flight."""
        origin, destination, departure, arrival = flight
        if departure is not None:
            n, minutes = self.departures.get(origin, _NOTHING)
            self.departures[origin] = Total(n + 1, minutes + departure)
        if arrival is not None:
            n, minutes = self.arrivals.get(destination, _NOTHING)
            self.arrivals[destination] = Total(n + 1, minutes + arrival)


_NOTHING = Total()


def of_entries(entries: NDArray[np.void]) -> Delays:
    """The totals of journal entries (`kafka_coop.demo.journal.ENTRY`)."""
    return Delays(
        departures=_totals(entries["origin"], entries["departure_delay"]),
        arrivals=_totals(entries["destination"], entries["arrival_delay"]),
    )


def _totals(airports: NDArray[np.bytes_], minutes: NDArray[np.int16]) -> dict[str, Total]:
    known = minutes != NO_DELAY
    names, index, counts = np.unique(airports[known], return_inverse=True, return_counts=True)
    sums = np.bincount(index, weights=minutes[known], minlength=len(names))
    return {
        name.decode("ascii"): Total(int(n), round(total))
        for name, n, total in zip(names.tolist(), counts, sums.tolist(), strict=True)
    }


def merged(totals: Iterable[Mapping[str, Total]]) -> dict[str, Total]:
    """Sums the totals of several members."""
    result: dict[str, Total] = {}
    for one in totals:
        for airport, (n, minutes) in one.items():
            was = result.get(airport, _NOTHING)
            result[airport] = Total(was.flights + n, was.minutes + minutes)
    return result


def worst(totals: Mapping[str, Total], count: int, *, at_least: int) -> list[tuple[str, Total]]:
    """The airports with the greatest mean delay, of those with so many flights."""
    eligible = [(airport, t) for airport, t in totals.items() if t.flights >= at_least]
    return sorted(eligible, key=lambda pair: (-pair[1].mean, pair[0]))[:count]
