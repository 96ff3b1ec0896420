from __future__ import annotations

import random
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.broker.backoff import ReconnectBackoff


def backoff(seed: int, *, base: float = 0.1, maximum: float = 10.0) -> ReconnectBackoff:
    return ReconnectBackoff(
        base=timedelta(seconds=base),
        maximum=timedelta(seconds=maximum),
        rng=random.Random(seed),
    )


@given(st.integers(), st.integers(1, 2000))
def test_the_nth_failure_waits_for_the_doubled_base_within_the_jitter(
    seed: int, failures: int
) -> None:
    it = backoff(seed)
    for _ in range(failures):
        it.failed(now=50.0)
    expected = min(0.1 * 2.0 ** min(failures - 1, 50), 10.0)
    assert 0.8 * expected - 1e-9 <= it.delay(50.0) <= 1.2 * expected + 1e-9


def test_the_wait_ends_with_time() -> None:
    it = backoff(1)
    assert it.delay(0.0) == 0.0
    it.failed(now=5.0)
    first = it.delay(5.0)
    assert it.delay(5.0 + first / 2) < first
    assert it.delay(5.0 + first) == 0.0


def test_an_answer_forgets_the_failures() -> None:
    it = backoff(1)
    for _ in range(10):
        it.failed(now=0.0)
    it.succeeded()
    assert it.delay(0.0) == 0.0
    it.failed(now=0.0)
    assert it.delay(0.0) <= 0.12


def test_who_failed_comes_after_who_answered_even_when_its_wait_is_over() -> None:
    hung, well = backoff(1), backoff(2)
    hung.failed(now=0.0)
    well.failed(now=0.0)
    well.succeeded()
    assert hung.delay(100.0) == well.delay(100.0) == 0.0
    assert well.rank(100.0) < hung.rank(100.0)


def test_clients_do_not_return_together() -> None:
    waits = set()
    for seed in range(20):
        it = backoff(seed)
        it.failed(now=0.0)
        waits.add(it.delay(0.0))
    assert len(waits) == 20


def test_a_maximum_below_the_base_is_no_shortcut() -> None:
    it = backoff(1, base=1.0, maximum=0.1)
    it.failed(now=0.0)
    assert it.delay(0.0) >= 0.8
