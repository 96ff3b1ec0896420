"""Groups under faults, with real processes and brokers: one owner, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from kafka_coop.testing.local import LocalKafka
from kafka_coop.testing.trial.faults import FAULTS
from kafka_coop.testing.trial.run import SAFE, Plan, run

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900), pytest.mark.xdist_group("trial")]


@pytest.fixture(scope="module")
def three() -> Iterator[LocalKafka]:
    patience = timedelta(minutes=5)
    with LocalKafka(brokers=3, proxied=True, properties=SAFE, start_timeout=patience) as kafka:
        yield kafka


def test_two_minutes_of_random_faults(three: LocalKafka, tmp_path: Path) -> None:
    plan = Plan(faults=30, lasting=timedelta(minutes=2), members=6)
    result = run(plan, tmp_path, three)
    assert result.sound, result
    assert result.handovers > plan.partitions


def test_exactly_once_under_random_faults(three: LocalKafka, tmp_path: Path) -> None:
    plan = Plan(
        faults=15,
        lasting=timedelta(minutes=1),
        members=4,
        rate=50,
        partitions=12,
        transactions=True,
    )
    result = run(plan, tmp_path, three)
    assert result.sound, result
    assert result.copied == result.produced


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone(three: LocalKafka, tmp_path: Path, fault: str) -> None:
    if fault == "member's wall clock set":
        pytest.skip("test_trial_clock.py has it")
    plan = Plan(
        faults=3, lasting=timedelta(seconds=30), members=4, partitions=12, rate=100, only=(fault,)
    )
    result = run(plan, tmp_path, three)
    assert result.sound, result
    assert [f.name for f in result.faults] == [fault] * 3
