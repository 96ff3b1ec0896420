"""The judge against counting by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.demo.check import (
    Killed,
    Positions,
    end_offsets,
    first_of_each,
    judge,
    position,
    positions,
)

places = st.tuples(st.integers(0, 2**15 - 1), st.integers(0, 2**48 - 1))
few_places = st.tuples(st.integers(0, 2), st.integers(0, 4))
"""Few enough for repeats to be frequent."""


def at(*pairs: tuple[int, int]) -> Positions:
    return np.array([position(p, o) for p, o in pairs], np.int64)


@given(st.lists(places))
def test_positions_of_columns_are_those_of_single_records(pairs: list[tuple[int, int]]) -> None:
    columns = positions(
        np.array([p for p, _ in pairs], np.uint16), np.array([o for _, o in pairs], np.int64)
    )
    assert columns.tolist() == [position(p, o) for p, o in pairs]
    assert len(set(columns.tolist())) == len(set(pairs))


@given(
    st.sets(few_places),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.lists(few_places), min_size=1),
    st.data(),
)
def test_every_record_is_counted(
    published: set[tuple[int, int]],
    processed: dict[str, list[tuple[int, int]]],
    data: st.DataObject,
) -> None:
    name = data.draw(st.sampled_from(sorted(processed)))
    committed = data.draw(st.dictionaries(st.integers(0, 2), st.integers(0, 5)))
    verdict = judge(
        at(*published),
        {name: at(*pairs) for name, pairs in processed.items()},
        killed=Killed(name=name, committed=committed),
    )
    times = Counter(pair for pairs in processed.values() for pair in pairs)
    of_killed = {(p, o) for p, o in processed[name] if o >= committed.get(p, 99)}
    repeats = {pair: n - 1 for pair, n in times.items() if pair in published}
    assert verdict.published == len(published)
    assert verdict.processed == len(repeats)
    assert set(verdict.lost.tolist()) == set(at(*(published - set(times))).tolist())
    assert verdict.unpublished == len(set(times) - published)
    assert verdict.repeated == sum(repeats.values())
    assert verdict.repeated_after_kill == sum(n for p, n in repeats.items() if p in of_killed)


def test_one_lost_record_is_enough() -> None:
    verdict = judge(at((0, 0), (0, 1), (1, 0)), {"a": at((0, 0)), "b": at((1, 0))})
    assert verdict.lost.tolist() == at((0, 1)).tolist()
    assert not verdict.at_least_once


def test_a_record_from_nowhere_is_as_bad() -> None:
    assert not judge(at((0, 0)), {"a": at((0, 0), (0, 1))}).at_least_once


def test_repeats_are_what_at_least_once_allows() -> None:
    verdict = judge(at((0, 0)), {"a": at((0, 0)), "b": at((0, 0), (0, 0))})
    assert verdict.at_least_once
    assert (verdict.repeated, verdict.repeated_after_kill) == (2, 0)


def test_what_the_killed_member_had_committed_is_not_its_repeat() -> None:
    twice = {"a": at((0, 0), (0, 1), (1, 0)), "b": at((0, 0), (0, 1), (1, 0))}
    killed = Killed(name="a", committed={0: 1})
    verdict = judge(at((0, 0), (0, 1), (1, 0)), twice, killed=killed)
    assert (verdict.repeated, verdict.repeated_after_kill) == (3, 1)


@given(st.lists(few_places))
def test_dropping_repeats_keeps_one_of_each(pairs: list[tuple[int, int]]) -> None:
    everything = at(*pairs)
    kept = everything[first_of_each(everything)]
    assert sorted(kept.tolist()) == sorted(set(everything.tolist()))


@given(st.sets(few_places))
def test_end_offsets_are_one_past_the_last(published: set[tuple[int, int]]) -> None:
    partitions = {p for p, _ in published}
    expected = {p: max(o for q, o in published if q == p) + 1 for p in partitions}
    assert end_offsets(at(*published)) == expected
