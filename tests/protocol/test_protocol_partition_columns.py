"""Sets of partitions as columns: what the batch codecs make and take."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_strategies import partition_sets

from kafka_coop.types import PartitionColumns, Partitions

numbers = st.sets(st.integers(0, 40), max_size=8) | st.sets(st.integers(0, 200), min_size=50)


@given(partition_sets)
def test_a_set_made_of_columns_is_the_same_set(partitions: Partitions) -> None:
    same = Partitions.from_columns(partitions.columns())
    assert same == partitions
    assert hash(same) == hash(partitions)
    assert list(same) == list(partitions)
    assert len(same) == len(partitions)
    assert bool(same) == bool(partitions)
    assert same.topics() == partitions.topics()
    assert same | partitions == partitions
    assert not same - partitions
    assert pickle.loads(pickle.dumps(same)) == partitions


@given(partition_sets)
def test_columns_hold_topic_after_topic(partitions: Partitions) -> None:
    columns = partitions.columns()
    assert columns.topics == partitions.topics()
    assert columns.counts.tolist() == [a.size for _, a in partitions.items()]
    assert columns.indices.tolist() == [p for _, p in partitions]
    assert partitions.columns() is columns


@given(numbers, numbers, numbers)
def test_algebra_is_that_of_plain_sets(
    here: set[int], there: set[int], elsewhere: set[int]
) -> None:
    """A few numbers are worked on in Python, many in numpy: they must not differ."""
    a = Partitions({"t": here, "u": elsewhere})
    b = Partitions({"t": there, "v": elsewhere})
    for got, wanted in (
        (a - b, set(a) - set(b)),
        (a & b, set(a) & set(b)),
        (a | b, set(a) | set(b)),
        (a - a, set()),
        (a & a, set(a)),
    ):
        assert got == Partitions.of(wanted)
        assert list(got) == sorted(wanted)
        assert all(not array.flags.writeable for _, array in got.items())
    assert {p for p in set(a) | set(b) if p in a} == set(a)
    assert ("t", 1000) not in a


def test_columns_are_read_only() -> None:
    columns = PartitionColumns(("a",), np.array([2]), np.array([0, 1], np.int32))
    partitions = Partitions.from_columns(columns)
    with pytest.raises(ValueError, match="read-only"):
        columns.indices[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        partitions["a"][0] = 5
    with pytest.raises(ValueError, match="read-only"):
        Partitions({"a": [1]}).columns().counts[0] = 5
