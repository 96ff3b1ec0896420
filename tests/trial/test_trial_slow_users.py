"""Users who take long in on_revoke: the group goes on meanwhile, and they explain waits."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trial_journals as journals

from kafka_coop.consumer import CoopConsumer
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.trial.crew import Crew
from kafka_coop.testing.trial.faults import Arena
from kafka_coop.testing.trial.faults import slow as slow_users
from kafka_coop.testing.trial.journal import Event, Journal, read_journal
from kafka_coop.testing.trial.liveness import MACHINE, silences, too_long
from kafka_coop.testing.trial.member import _Librdkafka
from kafka_coop.testing.trial.orders import DRAIN, Orders, slow
from kafka_coop.testing.trial.outcome import NANO, SLOW, SLOWEST, Injected
from kafka_coop.testing.trial.slow_users import slow_revocations

PATIENCE = timedelta(seconds=90)
SESSION = timedelta(seconds=6)

told = partial(journals.told, second=NANO)


def in_generations(events: list[Event], *numbers: int) -> list[Event]:
    return [replace(e, generation=n) for e, n in zip(events, numbers, strict=True)]


def test_a_slow_on_revoke_outlives_its_round_where_its_member_is_in_a_later_one() -> None:
    events = told("A 1 0,1", "W 2 0", "V 5 0", "V 6 1", "X 7")
    assert slow_revocations({"a": in_generations(events, 1, 2, 3, 3, 3)}) == (1, 1, 0)
    assert slow_revocations({"a": in_generations(events, 1, 2, 2, 3, 3)}) == (1, 0, 0)
    lost = told("A 1 0,1", "W 2 0", "L 5 0", "W 6 1")
    assert slow_revocations({"a": in_generations(lost, 1, 2, 3, 3)}) == (1, 0, 1)


def test_a_wait_may_be_as_much_longer_as_a_user_is_slow_at_the_end_of_the_fault() -> None:
    calm = (SESSION + MACHINE + SLOWEST).total_seconds()
    fault = Injected(at=10 * NANO, until=16 * NANO, name=SLOW, what="")

    def is_too_long(seconds: float, name: str = SLOW) -> bool:
        waits = silences({"a": told("R 12 0 0", f"R {12 + seconds} 0 1")})
        return bool(too_long(waits, [replace(fault, name=name)], SESSION, MACHINE))

    assert not is_too_long(calm + 5.9)
    assert is_too_long(calm + 6.1)
    assert is_too_long(calm + 5.9, name="network: latency")


def test_orders_come_in_lines_however_they_are_cut() -> None:
    source, sink = os.pipe()
    orders = Orders()
    text = slow(timedelta(seconds=2)) + slow(timedelta(0)) + slow(timedelta(seconds=0.01)) + DRAIN
    for byte in text:
        os.write(sink, bytes([byte]))
    os.close(sink)
    orders.follow(source)
    os.close(source)
    assert orders.drain
    assert orders.leave.is_set()
    assert orders.is_slow
    orders.dawdle()
    assert not orders.is_slow, "once"


class Told:
    """A crew that notes what it is told."""

    def __init__(self, *running: str, starting: str = "") -> None:
        self.group = self.topic = ""
        self.running = running
        self.leaving: set[str] = set()
        self.slow: dict[str, list[timedelta]] = {}
        self._starting = starting

    def has_started(self, name: str) -> bool:
        return name != self._starting

    def ask_to_leave(self, name: str, *, drain: bool) -> None:
        assert not drain
        self.leaving.add(name)

    def start(self, name: str, *_: Any, **__: Any) -> None:
        self.running, self._starting = (*self.running, name), name

    def slow_down(self, name: str, lasting: timedelta) -> None:
        self.slow.setdefault(name, []).append(lasting)


def test_everyone_who_stays_is_told_to_be_slow_and_to_be_quick_again_in_the_end() -> None:
    """Those that are stopped, too; who is gone by the end is told nothing."""
    crew: Any = Told("m1", "m2", "m3", "m4")
    unused: Any = None
    arena = Arena(
        kafka=unused,
        crew=crew,
        load=unused,
        chance=random.Random(1),
        session=SESSION,
        partitions=4,
        most_partitions=8,
        stopped={"m4"},
    )
    started = slow_users(arena)
    assert started is not None
    (left,) = crew.leaving
    assert started.ends == SESSION
    assert {*crew.slow} == {"m1", "m2", "m3", "m4"} - {left}
    times = [lasting for (lasting,) in crew.slow.values()]
    assert len({*times}) == 3, "each its own"
    assert all(timedelta(seconds=0.3) <= lasting <= SLOWEST for lasting in times)
    crew.running = tuple(name for name in crew.running if name != "m4")
    started.end()
    assert crew.slow.pop("m4")[1:] == []
    assert {lasting for _, lasting in crew.slow.values()} == {timedelta(0)}


@pytest.mark.parametrize(("fenced", "how"), [(False, "V"), (True, "L")])
def test_what_an_evicted_member_gives_up_slowly_is_written_down_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fenced: bool, how: str
) -> None:
    """Its heir may have begun, and on_lost is not called for what on_revoke is at."""
    standing = [
        SimpleNamespace(generation=7, fenced=False),
        *2 * [SimpleNamespace(generation=8, fenced=fenced)],
    ]
    monkeypatch.setattr(CoopConsumer, "health", lambda _: standing.pop(0))
    runner = _Librdkafka.__new__(_Librdkafka)
    runner._topic = "t"
    runner._journal, runner._orders = Journal(tmp_path / "j"), Orders()
    runner._orders._slow = 1e-9
    runner._told("V")(CoopConsumer.__new__(CoopConsumer), [SimpleNamespace(topic="t", partition=3)])
    events = read_journal(tmp_path / "j")
    assert [(e.kind, e.generation, e.partitions) for e in events] == [
        ("W", 7, (3,)),
        (how, 8, (3,)),
    ]


@pytest.mark.timeout(240)
def test_the_group_goes_on_while_a_user_gives_up(tmp_path: Path) -> None:
    """Who is quick to give up joins at once; the slow one joins too, and returns in that round."""
    topic = f"slow-{time.time_ns()}"
    config = {"session.timeout.ms": 3000}  # the embedded broker collects members for most of it
    with (
        EmbeddedKafka() as kafka,
        Crew(kafka.bootstrap_servers, topic, topic, tmp_path, config) as crew,
    ):
        kafka.create_topic(topic, partitions=6)
        crew.start("a", "ours")
        crew.start("b", "ours")
        wait_until(
            lambda: {len(crew.owned("a")), len(crew.owned("b"))} == {3}, "two members", PATIENCE
        )
        crew.slow_down("a", timedelta(seconds=5))
        crew.start("c", "ours")
        wait_until(lambda: all(len(crew.owned(m)) == 2 for m in "abc"), "three members", PATIENCE)
        assert slow_revocations(crew.journals()) == (1, 1, 0)
        crew.close_all()
