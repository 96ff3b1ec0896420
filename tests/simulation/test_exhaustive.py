"""Every order of what can happen in a small group, to a depth that a test has time for."""

from __future__ import annotations

import pickle

import pytest

from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.exhaustive import Small, beginning, explore
from kafka_coop.simulation.invariants import InvariantViolated

BOUNDS = {"tick": 1, "enforce": 0, "close": 1, "crash": 1}


def test_every_order_keeps_the_invariants_and_settles() -> None:
    found = explore(beginning(2, 2, BOUNDS), 4, settle_every=10)
    assert found.states > 30
    assert found.moves > found.states, "some orders lead to the same state"
    assert found.settled


def test_an_exploration_changes_nothing_that_it_is_given() -> None:
    first = beginning(2, 2, BOUNDS)
    before = first.fingerprint()
    explore(first, 2)
    assert first.fingerprint() == before
    copy: Small = pickle.loads(pickle.dumps(first))
    assert list(copy.moves()) == list(first.moves())


def test_two_owners_are_noticed() -> None:
    small = beginning(2, 2, BOUNDS)
    small.sites[1].owned = set(small.sites[0].owned)
    small.sites[1].lease = small.sites[0].lease
    with pytest.raises(InvariantViolated, match="may both deliver"):
        small.make(next(small.pending()), Coverage())


def test_a_group_that_never_settles_is_noticed() -> None:
    small = beginning(2, 2, BOUNDS)
    small.cluster.coordinator.denied.add("group")
    with pytest.raises(InvariantViolated, match="not settled"):
        small.settle(Coverage())
