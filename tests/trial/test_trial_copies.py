"""What is said of records that were not copied once, and when it is looked."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.trial import copies, run
from kafka_coop.testing.trial.copies import (
    PARTITIONS,
    Copy,
    in_words,
    odd_ones,
    value_of,
    wait_for_copies,
)
from kafka_coop.testing.trial.outcome import Plan, Result

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


def test_a_copy_that_is_waited_for_is_seen_and_what_is_not_there_is_given_up(
    embedded_kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = embedded_kafka.bootstrap_servers
    embedded_kafka.create_topic("copied", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": servers})
    for of in (ONE, TWO):
        producer.produce("copied", value_of(of, "m1"))
    assert producer.flush(30) == 0
    wait_for_copies(servers, "copied", {ONE, TWO})
    monkeypatch.setattr(copies, "_DOUBTFUL", 0.0)
    wait_for_copies(servers, "copied", {ONE, THREE})


def test_what_is_copied_once_more_as_members_close_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An heir that went on from an offset too low did that after the output was looked at."""
    output = [copy((0, 0), 0)]
    crew = SimpleNamespace(
        close_all=lambda **_: output.append(copy((0, 0), 1, "m2")),
        statuses=dict,
        journals=dict,
        killed={},
    )
    kafka: Any = SimpleNamespace(
        create_topic=lambda *_, **__: None,
        end_offsets=lambda _: {0: 1},
        bootstrap_servers="",
        admin_servers="",
    )
    for name in ("_until_whole", "_torment", "_mourn", "wait_for_copies", "explain"):
        monkeypatch.setattr(run, name, lambda *_: [])
    monkeypatch.setattr(run, "_committed", lambda *_: {0: 1})
    monkeypatch.setattr(run, "Crew", lambda *_: nullcontext(crew))
    load = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(run, "Load", lambda *_: nullcontext(load))
    monkeypatch.setattr(run, "read_copies", lambda *_: [*output])
    plan = Plan(faults=0, lasting=timedelta(seconds=1), members=0, transactions=True)
    result = Result(plan=plan.to_dict())
    run._carry_out(plan, tmp_path, kafka, result, lambda _: None)
    assert (result.copied, result.copied_twice, result.never_copied) == (2, 1, 0)
    assert not result.sound
