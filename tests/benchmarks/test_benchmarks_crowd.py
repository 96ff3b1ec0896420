"""The crowds of `benchmarks.crowd`, in little."""

from __future__ import annotations

import pytest

from benchmarks.crowd import crowd, grown, slopes, turnover
from kafka_coop.testing.cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]


def test_who_comes_and_goes_leaves_nothing_behind(kafka: KafkaCluster) -> None:
    samples = turnover(kafka, 30, 3, 6, show=False)
    assert samples[-1].turns >= 30
    assert not {"threads", "descriptors", "sockets", "metrics"} & set(grown(samples))
    assert {name for name, _, _ in slopes(samples)} >= {"rss_kib", "objects"}


def test_members_in_a_few_processes_share_many_partitions(kafka: KafkaCluster) -> None:
    made = crowd(kafka, members=9, partitions=36, processes=3)
    assert [s.name for s in made.steps] == [
        "all join",
        "a record for each partition",
        "one process leaves",
        "one process is killed",
    ]
    assert [s.members for s in made.steps] == [9, 9, 6, 3]
