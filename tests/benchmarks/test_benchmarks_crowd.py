"""The crowds of `benchmarks.crowd`, in little."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks import crowd as bench
from benchmarks.crowd import Sample, crowd, grown, slopes, turnover
from kafka_coop.testing.cluster import KafkaCluster

pytestmark = pytest.mark.timeout(400)

REAL = [
    *((104, 92_396), (501, 101_588), (1_006, 102_344), (1_503, 102_532), (1_804, 104_184)),
    (2_004, 104_264),
]
"""Turns and resident memory, of a run in which nothing leaked."""


def samples(sizes: Sequence[tuple[int, int]], **last: int) -> list[Sample]:
    made = [
        Sample(
            *(turns, rss), objects=79_000, threads=42, descriptors=110, sockets=48, metrics=2_992
        )
        for turns, rss in sizes
    ]
    return [*made[:-1], replace(made[-1], **last)]


def test_what_stays_or_takes_a_step_has_not_grown() -> None:
    assert grown(samples(REAL)) == []
    assert grown(samples(REAL, rss_kib=102_344 + 1_023 + 2_048)) == []


def test_memory_that_grows_on_in_the_last_half_has_grown() -> None:
    assert grown(samples(REAL, rss_kib=102_344 + 1_024 + 2_049)) == ["rss_kib"]
    leak = [(turns, 100_000 + turns) for turns in range(500, 10_001, 500)]
    assert grown(samples(leak)) == ["rss_kib"], "a KiB a turn"
    early = [(turns, min(110_000, 90_000 + 5 * turns)) for turns in range(500, 10_001, 500)]
    assert grown(samples(early)) == [], "it came to rest"


@pytest.mark.parametrize("measure", ["objects", "threads", "descriptors", "sockets", "metrics"])
def test_what_else_is_more_by_a_hundredth_has_grown(measure: str) -> None:
    before = getattr(samples(REAL)[0], measure)
    assert grown(samples(REAL, **{measure: int(before * 1.01)})) == []
    assert grown(samples(REAL, **{measure: int(before * 1.01) + 1})) == [measure]


@pytest.mark.parametrize(("rss", "status"), [(104_264, 0), (120_000, 1)])
def test_the_command_ends_with_status_1_where_memory_has_grown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rss: int, status: int
) -> None:
    monkeypatch.setattr(bench, "LocalKafka", contextlib.nullcontext)
    monkeypatch.setattr(bench, "turnover", lambda *_: samples(REAL, rss_kib=rss))
    monkeypatch.setattr("sys.argv", ["crowd", "turnover"])
    assert bench.main() == status
    assert ("Grown: rss_kib." if status else "Nothing has grown.") in capsys.readouterr().out


@pytest.mark.kafka
def test_who_comes_and_goes_leaves_nothing_behind(kafka: KafkaCluster) -> None:
    seen = turnover(kafka, 30, 3, 6, show=False)
    assert seen[-1].turns >= 30
    assert not {"threads", "descriptors", "sockets", "metrics"} & set(grown(seen))
    assert {name for name, _, _ in slopes(seen)} >= {"rss_kib", "objects"}


@pytest.mark.kafka
def test_members_in_a_few_processes_share_many_partitions(kafka: KafkaCluster) -> None:
    made = crowd(kafka, members=9, partitions=36, processes=3)
    assert [s.name for s in made.steps] == [
        "all join",
        "a record for each partition",
        "one process leaves",
        "one process is killed",
    ]
    assert [s.members for s in made.steps] == [9, 9, 6, 3]
