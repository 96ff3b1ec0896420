"""From what members tell to what is known of the group, and said about it."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import KafkaError
from demo_support import rebalanced

from kafka_coop.demo.delays import Total
from kafka_coop.demo.group import Group, State
from kafka_coop.demo.member import in_words
from kafka_coop.demo.narration import describe
from kafka_coop.demo.reports import (
    Called,
    Committed,
    Exposition,
    Progress,
    Rebalanced,
    Report,
    Warned,
    decode,
    encode,
)
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.metrics.log import rebalance_fields
from kafka_coop.types import Partitions, TopicPartition

REPORTS: list[Report] = [
    Called(callback="on_assign", partitions=[0, 3]),
    rebalanced(),
    Progress(processed=5, arrivals={"TUL": Total(2, 67)}),
    Committed(offsets={0: 17, 11: 3}),
    Exposition(text="# HELP\nx 1\n"),
    Warned(text="a\nb"),
]


def group_of(*names: str, partitions: int = 3) -> Group:
    group = Group(partitions)
    for pid, name in enumerate(names):
        group.started(name, pid)
    return group


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: type(r).__name__)
def test_a_report_is_one_line_and_comes_back(report: Report) -> None:
    line = encode(report)
    assert line.count("\n") == 1
    assert decode(line) == report


@pytest.mark.parametrize(
    "line", ["", "hello\n", "[]\n", "{}\n", '{"kind": "Called"}\n', '{"kind": "Spy", "x": 1}\n']
)
def test_what_is_no_report_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a report"):
        decode(line)


def test_a_round_of_the_log_becomes_a_report() -> None:
    moved = Partitions.of([TopicPartition("flights", 2), TopicPartition("flights", 5)])
    record = RebalanceRecord(
        group_id="g", client_id="c", reason="why", revoked=moved, follow_up=True
    )
    fields = json.loads(json.dumps(rebalance_fields(record)))
    report = Rebalanced.of_log(fields)
    assert (report.gained, report.given_up, report.lost, report.kept) == (0, 2, 0, 0)
    assert (report.reason, report.follow_up, report.phases) == ("why", True, {})


def test_ownership_is_the_sum_of_the_callbacks() -> None:
    group = group_of("a", "b")
    group.heard("a", Called(callback="on_assign", partitions=[0, 1, 2]), 1)
    assert not group.settled(2)
    group.heard("a", Called(callback="on_revoke", partitions=[2]), 2)
    assert group.owners() == [1, 1, None]
    group.heard("b", Called(callback="on_assign", partitions=[2]), 3)
    assert group.owners() == [1, 1, 2]
    assert group.settled(2)
    group.heard("a", Called(callback="on_lost", partitions=[0, 1]), 4)
    assert group.owners() == [None, None, 2]


def test_a_killed_member_owns_nothing_whatever_it_still_has_to_say() -> None:
    group = group_of("a")
    group.heard("a", rebalanced(), 1)
    assert group.leader() == "a"
    group.ended("a", State.KILLED)
    group.heard("a", Called(callback="on_assign", partitions=[0]), 2)
    group.heard("a", rebalanced(), 2)
    assert group.owners() == [None, None, None]
    assert group.members["a"].state is State.KILLED
    assert group.leader() is None


def test_the_leader_is_that_of_the_latest_generation() -> None:
    group = group_of("a", "b")
    group.heard("a", rebalanced(generation=9), 1)
    group.heard("b", rebalanced(generation=10), 1)
    assert group.leader() == "b"
    group.heard("b", rebalanced(generation=11, error="failed"), 2)
    assert group.members["b"].generation == 10
    group.heard("b", rebalanced(generation=12, role="follower"), 3)
    assert group.leader() == "a"


def test_the_rate_is_that_between_two_reports() -> None:
    group = group_of("a")
    group.heard("a", Progress(processed=100, arrivals={}), 1.0)
    assert group.members["a"].rate == 0
    group.heard("a", Progress(processed=150, arrivals={}), 1.5)
    assert group.members["a"].rate == 100


def test_commits_only_count_forwards() -> None:
    group = group_of("a", "b")
    group.heard("a", Committed(offsets={0: 5, 1: 2}), 1)
    group.heard("b", Committed(offsets={0: 3}), 2)
    assert group.has_committed({0: 5, 1: 2})
    assert not group.has_committed({0: 5, 1: 2, 2: 1})
    assert group.committed == 7
    assert group.committed_offsets({0, 2}) == {0: 5, 2: 0}


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (Called(callback="on_assign", partitions=[3, 4]), ["on_assign", "+3 +4"]),
        (Called(callback="on_assign", partitions=[]), ["nothing new"]),
        (Called(callback="on_lost", partitions=[7]), ["on_lost", "-7"]),
        (
            rebalanced(),
            [
                *("generation 3", "leader of 4", "+0 -1 kept 3", "join 1.00 s"),
                *("on_revoke 12 ms", "commit 1.2 ms", "total 1.25 s", "follow-up"),
            ],
        ),
        (rebalanced(role="follower", follow_up=False), ["follower:"]),
        (rebalanced(error="ILLEGAL_GENERATION"), ["failed: ILLEGAL_GENERATION"]),
        (Warned(text="careful"), ["careful"]),
    ],
)
def test_reports_in_words(report: Report, words: list[str]) -> None:
    line = describe(report)
    assert line is not None
    for word in words:
        assert word in line


def test_routine_is_not_worth_a_line() -> None:
    assert describe(Progress(processed=1, arrivals={})) is None
    assert describe(Committed(offsets={0: 1})) is None


def test_a_commit_that_this_broker_alone_refuses_is_explained() -> None:
    assert "unlike Kafka's" in in_words(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
    assert "Kafka's" not in in_words(KafkaError(KafkaError.ILLEGAL_GENERATION))
