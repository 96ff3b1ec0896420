"""The load of a trial: it waits for room, and does not end unseen."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_coop.testing.trial import run as trial
from kafka_coop.testing.trial.load import Load
from kafka_coop.testing.trial.outcome import RESULT, Plan, Result

AT_FIRST, GROWN = 2, 5
RATE = 10_000
ENOUGH = 3 * GROWN
PATIENCE = 60.0
WRONG = KafkaException(KafkaError(KafkaError._INVALID_ARG, "of the test"))


class StandIn:
    """A producer that has room for one record after each poll, and knows so many partitions."""

    def __init__(self, known: int = GROWN, fails: Exception | None = None) -> None:
        self.taken: list[tuple[int, int]] = []
        self.has_enough = threading.Event()
        self.is_full = threading.Event()
        self.has_ended = threading.Event()
        self.never_has_room = False
        self._known = known
        self._fails = fails
        self._room = 1

    def produce(self, _topic: str, value: str, *, partition: int, on_delivery: object) -> None:
        if self._fails and len(self.taken) == ENOUGH:
            self.has_ended.set()
            raise self._fails
        if partition >= self._known:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if not self._room:
            self.is_full.set()
            raise BufferError("Local: Queue full")
        self._room -= 1
        self.taken.append((int(value), partition))
        if len(self.taken) >= ENOUGH:
            self.has_enough.set()

    def poll(self, _timeout: float) -> None:
        self._room = 0 if self.never_has_room else 1

    def flush(self, _timeout: float) -> int:
        return 0


def load_of(producer: StandIn) -> Load:
    made = Load("127.0.0.1:1", "t", AT_FIRST, RATE)
    made._producer = producer  # type: ignore[assignment]  # it has what is asked of it
    made.widen(GROWN)
    return made


@pytest.mark.parametrize("known", [GROWN, AT_FIRST], ids=["all known", "not heard of the new ones"])
def test_a_full_queue_is_waited_for_wherever_a_record_goes(known: int) -> None:
    producer = StandIn(known)
    with load_of(producer):
        assert producer.has_enough.wait(PATIENCE)
    assert producer.is_full.is_set()
    wanted = [n % GROWN for n in range(len(producer.taken))]
    there = [p if p < known else p % AT_FIRST for p in wanted]
    assert producer.taken == list(enumerate(there)), "none is left out"


def test_it_ends_while_the_queue_is_full() -> None:
    producer = StandIn()
    producer.never_has_room = True
    with load_of(producer):
        assert producer.is_full.wait(PATIENCE)
    assert len(producer.taken) == 1, "what they can't take is not missed"


def test_a_load_that_ended_early_is_told_with_the_reason() -> None:
    producer = StandIn(fails=WRONG)
    load = load_of(producer)
    with pytest.raises(RuntimeError, match=r"ended early.*of the test") as told, load:
        assert producer.has_ended.wait(PATIENCE)
    assert told.value.__cause__ is WRONG


def test_a_run_whose_load_ended_early_is_not_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = StandIn(fails=WRONG)

    def carry_out(*_: Any) -> None:
        with load_of(producer):
            assert producer.has_ended.wait(PATIENCE)

    monkeypatch.setattr(trial, "_carry_out", carry_out)
    plan = Plan(faults=0, lasting=timedelta(0), members=1)
    kafka: Any = SimpleNamespace(version="4.1.0")
    with pytest.raises(RuntimeError, match="ended early"):
        trial.run(plan, tmp_path, kafka)
    result = Result.from_dict(json.loads((tmp_path / RESULT).read_text()))
    assert not result.sound
    assert "of the test" in result.failed[0]
