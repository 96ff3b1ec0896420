"""What is said of records that were not copied once."""

from __future__ import annotations

from kafka_coop.testing.trial.copies import Copy, in_words, odd_ones

ONE, TWO, THREE, FOUR = (0, 1), (0, 2), (0, 3), (0, 4)


def copy(of: tuple[int, int], at: int, by: str = "m1") -> Copy:
    return Copy(of=of, by=by, at=(2, at))


def test_twice_and_never_are_odd() -> None:
    found = [copy(ONE, 0), copy(TWO, 1), copy(TWO, 2)]
    assert odd_ones([ONE, TWO, THREE], found) == [TWO, THREE]
    assert odd_ones([ONE], [copy(ONE, 0)]) == []


def test_a_copy_of_what_nobody_produced_is_odd_when_it_is_there_twice() -> None:
    assert odd_ones([], [copy(ONE, 0)]) == []
    assert odd_ones([], [copy(ONE, 0), copy(ONE, 1)]) == [ONE]


def test_who_wrote_it_where_and_whether_that_counts_is_told() -> None:
    found = [copy(TWO, 1), copy(TWO, 2, "m2")]
    written = [*found, copy(THREE, 5, "m7")]
    assert in_words([TWO, THREE, FOUR], found, written) == [
        "0:2: committed, by m1 at 2:1; committed, by m2 at 2:2",
        "0:3: aborted, by m7 at 2:5",
        "0:4: -",
    ]
