"""The transport's bargaining by itself: plans are optimal without it, too, but take many phases."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.assignors.transport import _FAR, _offers, _taken

small = st.integers(0, 12)


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.lists(st.integers(1, 12), min_size=1, max_size=5)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 1000),
)
def test_a_row_offers_all_it_has_as_far_as_there_is_room(
    rows: list[tuple[int, list[int]]], first: int
) -> None:
    wanted = np.array([w for w, _ in rows])
    room = np.array([r for _, rooms in rows for r in rooms])
    which = np.repeat(np.arange(len(rows)), [len(rooms) for _, rooms in rows])
    numbers = first + np.arange(len(rows))
    offers = _offers(wanted, room, which, numbers)
    assert (offers >= 0).all()
    assert (offers <= room).all()
    offered = np.bincount(which, offers).tolist()
    assert offered == [min(w, sum(rooms)) for w, rooms in rows]
    boundless = _offers(wanted, np.full(room.size, _FAR), which, numbers)
    assert np.bincount(which, boundless).tolist() == wanted.tolist()
    assert (boundless <= -(-wanted // np.bincount(which))[which]).all(), "to all alike"


@given(st.lists(small, min_size=4, max_size=4), st.lists(st.tuples(st.integers(0, 3), small)))
def test_members_take_what_comes_first_until_they_are_full(
    places: list[int], offers: list[tuple[int, int]]
) -> None:
    left = list(places)
    expected = []
    for member, offer in offers:
        expected.append(min(offer, left[member]))
        left[member] -= expected[-1]
    members = np.array([m for m, _ in offers], np.int64)
    taken = _taken(np.array(places), members, np.array([o for _, o in offers], np.int64))
    assert taken.tolist() == expected
