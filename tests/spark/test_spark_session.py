"""The source's calls, without Spark: `Session` against the embedded broker."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import multiprocessing
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.cimpl import NewPartitions
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.datasource import ReadAllAvailable
from spark_sessions import (
    Box,
    Offset,
    batch,
    end_of_who_died,
    five_committed,
    of_the_group,
    plain_settings,
    ranges,
    tasks,
)
from spark_stand_in import serve

from kafka_coop import CoopConsumer
from kafka_coop.fetching.log_offsets import LogsNotToldError
from kafka_coop.spark.available_now import wait_for_group
from kafka_coop.spark.errors import CheckpointError, DataLossError, MembershipError, OptionError
from kafka_coop.spark.member import Member
from kafka_coop.spark.offsets import Claim, Range
from kafka_coop.spark.options import stream_options
from kafka_coop.spark.progress import own_sources
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.spark.session import Session
from kafka_coop.spark.stream import StreamReader
from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.types import TopicPartition


@pytest.mark.verdict
def test_a_replayed_batch_leaves_out_what_others_had_and_gave_back_unread(box: Box) -> None:
    """A replay before this one may have left it to them, and be in the sink: that takes no more."""
    end = end_of_who_died(box)
    other = box.session()
    assert ranges(batch(other, {})) == {0: Range(0, 5), 1: Range(0, 5)}, "claimed"
    other.close()
    again = box.session()
    assert tasks(again, {}, end) == {}
    assert ranges(batch(again, end)) == {0: Range(0, 5), 1: Range(0, 5)}


def test_where_nothing_is_new_the_offset_is_the_same(box: Box) -> None:
    session = box.session()
    box.produce(3)
    end = batch(session, {})
    assert ranges(end) == {0: Range(0, 3), 1: Range(0, 3)}
    assert tasks(session, {}, end) == ranges(end)
    assert session.latest(end, limited=True) == end
    assert session.tasks(end, end) == []


def test_limits_count_but_not_for_once(box: Box) -> None:
    session = box.session(maxOffsetsPerTrigger="4")
    box.produce(10)
    assert sum(span.size for span in ranges(batch(session, {})).values()) == 4
    assert sum(span.size for span in ranges(session.latest({}, limited=False)).values()) == 20


def test_once_does_not_end_well_where_what_there_is_cant_be_had(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once: the run would be over, and have read nothing."""

    def away(*_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    session = box.session()
    box.produce(3)
    monkeypatch.setattr(session._logs, "ends", away)
    assert ranges(session.latest({}, limited=True)) == {}, "the next trigger asks again"
    with pytest.raises(MembershipError, match=r"Trigger\.Once.*start the query again"):
        session.latest({}, limited=False)


def test_once_does_not_end_well_where_it_may_not_read_what_there_is(box: Box) -> None:
    session = box.session()
    box.produce(3)
    box.embedded.fail("OffsetCommit", *[KafkaError.UNKNOWN] * 100)
    assert ranges(session.latest({}, limited=True)) == {}, "the next trigger asks again"
    with pytest.raises(MembershipError, match="there is something to read, but the group has not"):
        session.latest({}, limited=False)


def test_once_does_not_end_well_where_others_may_have_what_it_holds(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = box.session()
    box.produce(3)
    monkeypatch.setattr(Member, "is_fenced", True)
    with pytest.raises(MembershipError, match="coordinator has not answered"):
        session.latest({}, limited=False)


@pytest.mark.parametrize("strict", ["true", "false"])
def test_where_a_leader_breaks_off_nothing_is_lost(
    box: Box, monkeypatch: pytest.MonkeyPatch, strict: str
) -> None:
    """A log whose end is not told has not become shorter."""
    session = box.session(failOnDataLoss=strict, **AT_ONCE)
    box.produce(3)
    first = session.latest({}, limited=True)
    with monkeypatch.context() as patched:
        patched.setattr(session._logs.admin, "list_offsets", broken_off)
        assert session.latest(first, limited=True) == first
    box.produce(1)
    assert ranges(session.latest(first, limited=True)) == {0: Range(3, 4), 1: Range(3, 4)}


def test_where_it_breaks_off_a_query_begins_where_the_log_does(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.produce(3)
    session = box.session(**AT_ONCE)
    answers = iter([broken_off, broken_off])
    asked = session._logs.admin.list_offsets

    def some(partitions: Any, **settings: Any) -> Any:
        return next(answers, asked)(partitions, **settings)

    monkeypatch.setattr(session._logs.admin, "list_offsets", some)
    assert ranges(session.latest({}, limited=True)) == {0: Range(0, 3), 1: Range(0, 3)}


def test_of_which_log_nobody_tells_is_said_once(
    box: Box, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are read, and nothing else would show that it is not."""
    session = box.session(**AT_ONCE)
    end = session.latest({}, limited=True)
    box.produce(3)
    asked = session._logs.admin.list_offsets

    def some(partitions: Any, **settings: Any) -> dict[Any, Future[Any]]:
        answers = asked(partitions, **settings)
        return answers | broken_off(of for of in answers if of.partition == 1)

    monkeypatch.setattr(session._logs.admin, "list_offsets", some)
    with caplog.at_level(logging.WARNING, "kafka_coop.spark"):
        end = batch(session, end)
        assert ranges(end) == {0: Range(0, 3)}
        assert session.latest(end, limited=True) == end
    assert caplog.text.count(f"the ends of {box.topic}:1 can't be had") == 1


AT_ONCE = {"fetchOffset.retryIntervalMs": "0"}


def broken_off(partitions: Iterable[Any], **_: Any) -> dict[Any, Future[Any]]:
    """What librdkafka has then of these: no error, and no offset."""
    nothing = SimpleNamespace(offset=confluent_kafka.OFFSET_INVALID)
    answers: dict[Any, Future[Any]] = {of: Future() for of in partitions}
    for answer in answers.values():
        answer.set_result(nothing)
    return answers


@pytest.mark.verdict
def test_whose_session_may_be_over_plans_no_batch(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator was away for long: others have the partitions, once it is back."""
    session = box.session()
    box.produce(1)
    with monkeypatch.context() as silence:
        silence.setattr(Member, "is_fenced", True)
        assert ranges(session.latest({}, limited=True)) == {}
    assert ranges(batch(session, {})) == {0: Range(0, 1), 1: Range(0, 1)}


def test_a_small_batch_waits_for_more(box: Box) -> None:
    session = box.session(minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    box.produce(1)
    first = batch(session, {})  # the first never waits
    box.produce(2)
    assert session.latest(first, limited=True) == first
    box.produce(3)
    assert ranges(batch(session, first)) == {0: Range(1, 6), 1: Range(1, 6)}


@pytest.mark.verdict
def test_a_partition_leaves_when_the_batch_that_reads_it_is_durable(box: Box) -> None:
    first, second = box.session(), box.session()
    box.produce(5)
    end = batch(first, {})
    joined = threading.Event()
    found: list[Offset] = []

    def join() -> None:
        joined.set()
        found.append(batch(second, {}))

    thread = threading.Thread(target=join)
    thread.start()
    joined.wait()
    member = first._member
    assert member is not None
    wait_until(lambda: bool(member.holdings.leaving), "nothing is to leave")
    assert not found
    box.produce(2)
    # The safe moment: it is let go, and the rest read on.
    after = batch(first, end)
    thread.join(60)
    (theirs,), (ours,) = ranges(found[0]).items(), ranges(after).items()
    assert {theirs[0], ours[0]} == {0, 1}
    assert theirs[1] == ours[1] == Range(5, 7)


@pytest.mark.verdict
def test_a_batch_that_died_is_replayed_the_same(box: Box) -> None:
    dying = box.session()
    box.produce(5)
    end = batch(dying, {})
    box.produce(4)
    dying.close()
    again = box.session()
    assert tasks(again, {}, end) == ranges(end)
    assert ranges(batch(again, end)) == {0: Range(5, 9), 1: Range(5, 9)}


@pytest.mark.verdict
def test_a_durable_batch_is_not_read_again_although_nothing_was_committed(box: Box) -> None:
    """It died before the group was told; the claim says that nobody else was there."""
    end = end_of_who_died(box)
    box.produce(1)
    assert ranges(batch(box.session(), end)) == {0: Range(5, 6), 1: Range(5, 6)}


@pytest.mark.verdict
def test_nor_is_what_another_gives_back_that_never_claimed_it(box: Box) -> None:
    """Meanwhile a batch without it was logged, whose end alone the next run knows."""
    end = end_of_who_died(box)
    over = threading.Event()

    def poll(other: CoopConsumer) -> set[int]:
        held = set[int]()
        while not over.is_set():
            other.poll(0.05)
            held = {of.partition for of in other.assignment()}
        return held

    with (
        CoopConsumer(plain_settings(box) | {"enable.auto.commit": False}) as other,
        ThreadPoolExecutor() as pool,
    ):
        other.subscribe([box.topic])
        wait_until(lambda: other.poll(0.05) is not None, "it reads")
        held = pool.submit(poll, other)
        try:
            second = box.session()
            assert second.latest(end, limited=True) == end
            box.produce(1)
            after = batch(second, end)
        finally:
            over.set()
        (theirs,) = held.result(30)
    assert ranges(after) == {1 - theirs: Range(5, 6)}
    second.close()
    third = box.session()
    assert ranges(batch(third, after)) == {theirs: Range(5, 6)}
    assert third._member is not None
    assert third._member.moved == frozenset()


@pytest.mark.parametrize("whole", [True, False], ids=["no answer", "refused"])
def test_what_cant_be_had_of_partitions_that_others_have_matters_little(
    box: Box, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """The right to a topic that the checkpoint has read, say, and that is not to be read now."""
    end = end_of_who_died(box)
    end = {**end, "tps": {**end["tps"], f"{box.topic}:7": [0, 3]}}
    committed, asked = CoopConsumer.committed, list[int]()
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)

    def refused(consumer: CoopConsumer, partitions: list[Any], timeout: float) -> list[Any]:
        wanted = [of.partition for of in partitions]
        if 7 not in wanted:
            return committed(consumer, partitions, timeout)
        asked.extend(wanted)
        if whole:
            raise KafkaException(error)
        return [SimpleNamespace(topic=box.topic, partition=7, offset=-1001, error=error)]

    monkeypatch.setattr(CoopConsumer, "committed", refused)
    box.produce(1)
    session = box.session()
    after = batch(session, end)
    assert ranges(after) == {0: Range(5, 6), 1: Range(5, 6)}
    assert session.latest(after, limited=True) == after
    assert asked == [7], "once, and by itself"
    assert after["known"] == {f"{box.topic}:7": [3, end["run"]]}


def test_a_run_that_planned_no_batch_has_moved_nothing(box: Box) -> None:
    """It committed, under a claim of its own, what the run before it had not."""
    end = end_of_who_died(box)
    for _ in range(3):
        again = box.session()
        assert again.latest(end, limited=True) == end
        assert again._member is not None
        assert again._member.moved == frozenset()
        again.close()
        assert of_the_group(box) == [5, 5]


def test_a_first_run_that_planned_no_batch_has_moved_nothing(box: Box) -> None:
    """A query with state would be refused that was only stopped before it had any."""
    box.session().latest({}, limited=True)
    box.sessions[0].close()
    assert of_the_group(box) == [0, 0]
    again = box.session()
    box.produce(5)
    end = batch(again, {})
    assert ranges(end) == {0: Range(0, 5), 1: Range(0, 5)}
    assert again._member is not None
    assert again._member.moved == frozenset()
    again.latest(end, limited=True)
    again.close()
    other = box.session()
    other.latest({}, limited=True)
    assert other._member is not None
    assert {of.partition for of in other._member.moved} == {0, 1}, "now there is something to lack"


def test_what_others_give_back_unread_has_moved_where_it_was_read(box: Box) -> None:
    """Its batch was durable, and it died before the group knew: its state has the records."""
    end = end_of_who_died(box)
    other = box.session()
    assert ranges(batch(other)) == ranges(end)
    other.close()  # before its batch is known to be durable
    again = box.session()
    assert ranges(batch(again, end)) == ranges(end)
    assert again._member is not None
    assert {of.partition for of in again._member.moved} == {0, 1}


@pytest.mark.verdict
def test_a_replay_leaves_out_what_another_has_taken_over(box: Box) -> None:
    end = end_of_who_died(box)
    other = box.session()
    taken = batch(other, {})
    assert ranges(taken) == ranges(end)
    other.latest(taken, limited=True)
    other.close()  # its commit is done: it is not the checkpoint's word that counts
    again = box.session()
    assert tasks(again, {}, end) == {}
    assert tasks(again, {}, end) == {}, "Spark asks for each branch of a query"
    assert again.latest(end, limited=True) == end


def test_who_had_no_record_before_it_died_knows_which_partitions_are_new(
    kafka: KafkaCluster,
) -> None:
    """It begins with the latest; of partitions that came while it was away it has read none."""
    box = Box(kafka)
    first = box.session(startingOffsets="latest")
    offset = first.latest({}, limited=True)
    assert ranges(offset) == {}
    assert first.tasks({}, offset) == []
    first.close()
    box.produce(2)
    admin = kafka.admin()  # kept: without it nothing is answered
    for done in admin.create_partitions([NewPartitions(box.topic, 3)]).values():
        done.result(60)
    box.produce(5, 2)
    again = box.session(startingOffsets="latest")
    end = batch(again, offset)
    assert again._id == offset["id"]
    while not ranges(end).keys() >= {2}:
        end = batch(again, end)
    assert ranges(end)[2] == Range(0, 5)
    box.close()


def test_a_checkpoint_of_another_cluster_is_refused(box: Box) -> None:
    """Its topics have the same names, and other records."""
    end = five_committed(box)
    assert end["cluster"]
    moved = {**end, "cluster": "elsewhere"}
    with pytest.raises(CheckpointError, match=r"elsewhere.*checkpointLocation"):
        box.session().latest(moved, limited=True)
    with pytest.raises(CheckpointError, match=r"elsewhere.*checkpointLocation"):
        box.session().tasks({}, moved)


def test_the_groups_offsets_can_be_reset(kafka: KafkaCluster) -> None:
    """On a real broker: librdkafka's mock takes no commit of a group that once had members."""
    box = Box(kafka)
    end = five_committed(box)
    operator = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"group-{box.topic}"}
    )
    back = [confluent_kafka.TopicPartition(box.topic, p, 2) for p in (0, 1)]
    operator.commit(offsets=back, asynchronous=False)
    operator.close()
    assert ranges(batch(box.session(), end)) == {0: Range(2, 5), 1: Range(2, 5)}
    box.close()


@pytest.mark.verdict
def test_latest_is_latest_once(box: Box) -> None:
    """Where a query begins is committed: a death before the first batch skips nothing."""
    box.produce(3)
    early = box.session(startingOffsets="latest")
    assert ranges(early.latest({}, limited=True)) == {}
    early.close()
    box.produce(2)
    assert ranges(batch(box.session(startingOffsets="latest"), {})) == {
        0: Range(3, 5),
        1: Range(3, 5),
    }


@pytest.mark.verdict
def test_a_plain_consumer_shares_the_group(box: Box) -> None:
    """A partition goes to a `CoopConsumer`, which reads and commits, and comes back after it."""
    session = box.session()
    box.produce(5)
    end = batch(session, {})
    session.latest(end, limited=True)
    with CoopConsumer(plain_settings(box)) as plain:
        plain.subscribe([box.topic])
        deadline = time.monotonic() + 30
        while not plain.assignment() and time.monotonic() < deadline:
            plain.poll(0.05)
            end = session.latest(end, limited=True)
        (taken,) = plain.assignment()
        box.produce(3)
        records = plain.consume(3, 30)
        assert [(r.partition(), r.offset()) for r in records] == [
            (taken.partition, offset) for offset in (5, 6, 7)
        ]
        ours = batch(session, end)
        assert ranges(ours) == {1 - taken.partition: Range(5, 8)}
        plain.commit(asynchronous=False)
    box.produce(1, taken.partition)
    assert ranges(batch(session, ours)) == {taken.partition: Range(8, 9)}


@pytest.mark.verdict
def test_who_was_drained_reads_no_more_and_has_left(box: Box) -> None:
    first = box.session()
    box.produce(5)
    end = batch(first, {})
    rendezvous = Rendezvous(end["id"])
    rendezvous.ask()
    assert first.latest(end, limited=True) == end
    assert rendezvous.is_done()
    box.produce(2)
    assert first.latest(end, limited=True) == end, "until the driver stops it"
    assert first.report() is not None
    assert ranges(batch(box.session(), {})) == {0: Range(5, 7), 1: Range(5, 7)}
    rendezvous.clear()


def test_who_was_drained_too_late_does_not_run_on_and_read_nothing(box: Box) -> None:
    session = box.session()
    box.produce(5)
    end = batch(session, {})
    rendezvous = Rendezvous(end["id"])
    rendezvous.ask()
    assert session.latest(end, limited=True) == end
    rendezvous.clear()  # the driver has given up waiting
    rendezvous.ask()
    assert session.latest(end, limited=True) == end
    assert rendezvous.is_done(), "asked again, it answers"
    rendezvous.clear()
    with pytest.raises(MembershipError, match=r"start it again.*timeout be longer"):
        session.latest(end, limited=True)


def test_who_is_drained_does_not_leave_before_its_work_is_committed(box: Box) -> None:
    session = box.session()
    box.produce(5)
    end = batch(session, {})
    rendezvous = Rendezvous(end["id"])
    rendezvous.ask()
    box.embedded.fail("OffsetCommit", KafkaError.UNKNOWN, KafkaError.UNKNOWN)
    assert session.latest(end, limited=True) == end
    assert not rendezvous.is_done()
    assert session.latest(end, limited=True) == end
    assert rendezvous.is_done()
    rendezvous.clear()
    box.produce(2)
    assert ranges(batch(box.session(), {})) == {0: Range(5, 7), 1: Range(5, 7)}


def test_a_run_that_is_drained_does_not_end_before_its_work_is_committed(box: Box) -> None:
    """Spark does not ask again: the run ends where nothing is new."""
    session = box.session()
    box.produce(5)
    session.aim_at_what_is_there()
    end = batch(session, {})
    rendezvous = Rendezvous(end["id"])
    rendezvous.ask()
    box.embedded.fail("OffsetCommit", *[KafkaError.UNKNOWN] * 3)
    assert session.latest(end, limited=True) == end
    assert rendezvous.is_done()
    rendezvous.clear()
    assert of_the_group(box) == [5, 5]


def test_a_run_is_drained_although_something_is_still_to_be_taken_in(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that the group does not take, say: the driver asks while it is waited for."""
    session = box.session()
    box.produce(5)
    session.aim_at_what_is_there()
    end = batch(session, {})
    rendezvous = Rendezvous(end["id"])
    wait = Member.wait_for_assignment

    def asked_meanwhile(member: Member, *given: Any) -> None:
        rendezvous.ask()
        wait(member, *given)

    monkeypatch.setattr(Member, "is_settled", False)
    monkeypatch.setattr(Member, "wait_for_assignment", asked_meanwhile)
    assert session.latest(end, limited=True) == end
    assert rendezvous.is_done()
    rendezvous.clear()
    assert of_the_group(box) == [5, 5]


def test_available_now_ends_where_the_logs_ended(box: Box) -> None:
    session = box.session(maxOffsetsPerTrigger="6")
    box.produce(5)
    session.aim_at_what_is_there()
    box.produce(5)
    offset: Offset = {}
    sizes = []
    while (end := session.latest(offset, limited=True)) != offset:
        sizes.append(sum(span.size for span in ranges(end).values()))
        offset = end
    assert sizes == [6, 4]


def test_a_run_that_has_ended_is_committed(box: Box) -> None:
    session = box.session(maxOffsetsPerTrigger="6")
    box.produce(5)
    session.aim_at_what_is_there()
    offset: Offset = {}
    while (end := session.latest(offset, limited=True)) != offset:
        offset = end
    assert of_the_group(box) == [5, 5]


def test_a_query_that_catches_up_asks_for_the_logs_ends_once(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = box.session(maxOffsetsPerTrigger="4")
    box.produce(20)
    ends = Mock(side_effect=session._logs.ends)
    monkeypatch.setattr(session._logs, "ends", ends)
    monkeypatch.setattr("kafka_coop.spark.extents._HOLD", 3600.0)
    offset: Offset = {}
    for _ in range(9):
        offset = batch(session, offset)
    assert ends.call_count == 1
    box.produce(1)
    offset = batch(session, batch(session, offset))
    assert ends.call_count > 1
    assert {partition: span.stop for partition, span in ranges(offset).items()} == {0: 21, 1: 21}


def test_a_log_that_ends_before_the_position_is_told(box: Box) -> None:
    session = box.session(startingOffsets=json.dumps({box.topic: {"0": 9, "1": 0}}))
    box.produce(3)
    with pytest.raises(DataLossError, match=r"Correct startingOffsets.*failOnDataLoss"):
        session.latest({}, limited=True)
    assert of_the_group(box) == [None, None], "it would go before what is corrected"
    session.close()
    corrected = box.session(startingOffsets=json.dumps({box.topic: {"0": 2, "1": 0}}))
    assert ranges(batch(corrected, {})) == {0: Range(2, 3), 1: Range(0, 3)}


def test_a_start_beyond_a_logs_end_is_its_end_where_data_may_be_lost(box: Box) -> None:
    session = box.session(
        startingOffsets=json.dumps({box.topic: {"0": 9, "1": 0}}), failOnDataLoss="false"
    )
    box.produce(3)
    end = batch(session, {})
    assert ranges(end) == {1: Range(0, 3)}
    box.produce(1)
    assert ranges(batch(session, end)) == {0: Range(3, 4), 1: Range(3, 4)}


def test_what_fell_off_the_log_is_told_before_a_task_starts(kafka: KafkaCluster) -> None:
    """The query was away for longer than the records are kept."""
    box = Box(kafka)
    end = five_committed(box)
    box.produce(5)
    box.delete_before(8)
    with pytest.raises(DataLossError, match=r"begins at 8.*failOnDataLoss"):
        batch(box.session(), end)
    box.sessions[-1].close()
    going_on = box.session(failOnDataLoss="false")
    assert ranges(batch(going_on, end)) == {0: Range(8, 10), 1: Range(8, 10)}
    box.close()


def test_a_replay_of_what_fell_off_the_log_is_told_before_a_task_starts(
    kafka: KafkaCluster,
) -> None:
    box = Box(kafka)
    end = end_of_who_died(box)
    box.delete_before(3)
    with pytest.raises(DataLossError, match=r"begins at 3, after the position 0"):
        box.session().tasks({}, end)
    box.sessions[-1].close()
    skipping = box.session(failOnDataLoss="false")
    assert tasks(skipping, {}, end) == ranges(end)
    assert box.read(skipping, {}, end) == [(0, 3), (0, 4), (1, 3), (1, 4)]
    box.close()


def test_only_committed_records_are_read(kafka: KafkaCluster) -> None:
    box = Box(kafka)
    box.produce(2, 0)
    for finish in ("abort_transaction", "commit_transaction"):
        writer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": box.topic}
        )
        writer.init_transactions(30)
        writer.begin_transaction()
        for _ in range(3):
            writer.produce(box.topic, b"v", partition=0)
        writer.flush(30)  # else an abort purges what was not sent yet
        getattr(writer, finish)(30)
    # Two, three aborted and a marker, three committed and a marker.
    expected = {"read_committed": [0, 1, 6, 7, 8], "read_uncommitted": [*range(5), 6, 7, 8]}
    for level, offsets in expected.items():
        options = {"kafka.isolation.level": level, "kafka.group.id": f"{box.topic}-{level}"}
        session = box.session(**options)
        end = batch(session, {})
        assert ranges(end) == {0: Range(0, 10)}
        assert box.read(session, {}, end) == [(0, offset) for offset in offsets]
    box.close()


def test_open_transactions_are_waited_for(kafka: KafkaCluster) -> None:
    box = Box(kafka)
    box.produce(2, 0)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": box.topic})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(box.topic, b"v", partition=0)
    writer.flush(30)
    session = box.session()
    end = batch(session, {})
    assert ranges(end) == {0: Range(0, 2)}
    writer.commit_transaction(30)
    assert ranges(batch(session, end)) == {0: Range(2, 4)}
    box.close()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_log_with_an_open_transaction_is_no_shorter_than_others_have_read(
    kafka: KafkaCluster, fails: str
) -> None:
    """A member of the group that reads uncommitted records has handed the partition over."""
    box = Box(kafka)
    box.produce(2)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": box.topic})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(box.topic, b"v", partition=0)
    writer.flush(30)
    plain = CoopConsumer(plain_settings(box) | {"isolation.level": "read_uncommitted"})
    read_so_far = [confluent_kafka.TopicPartition(box.topic, p, 3 - p) for p in (0, 1)]
    plain.commit(offsets=read_so_far, asynchronous=False)
    plain.close()
    session = box.session(
        failOnDataLoss=fails, **{"fetchOffset.retryIntervalMs": "3600000"}
    )  # no doubt is needed, which would wait for as long
    assert ranges(session.latest({}, limited=True)) == {}
    assert told(session) == [3, 2]
    writer.commit_transaction(30)  # its marker may come a moment later
    end = batch(session, {})
    assert ranges(end) == {0: Range(3, 4)}
    box.produce(1)
    assert ranges(batch(session, end)) == {0: Range(4, 5), 1: Range(2, 3)}
    box.close()


def test_a_checkpoints_static_member_keeps_its_partitions(kafka: KafkaCluster) -> None:
    """It goes away and comes back within its session: nobody else is given what it held."""
    box = Box(kafka)
    static = {"staticMembership": "true", "kafka.session.timeout.ms": "45000"}
    first, other = box.session(**static), box.session(**static)
    box.produce(5)
    end = batch(first, {})

    def share() -> bool:
        first.latest(end, limited=True)
        other.latest({}, limited=True)
        return [len(one._member.holdings.held) for one in (first, other) if one._member] == [1, 1]

    wait_until(share, "the two do not share the topic")
    box.produce(1)
    ours, theirs = batch(first, end), batch(other, {})
    first.latest(ours, limited=True)
    before, report = box.members(), other.report()
    assert before.keys() == {f"kafka_coop-{one['id']}" for one in (ours, theirs)}
    first.close()
    box.produce(1)
    back = batch(box.session(**static), ours)
    assert back["id"] == ours["id"]
    assert ranges(back).keys() == ranges(ours).keys()
    assert box.members() == before
    assert report is not None
    assert (other.report() or {})["rebalances"] == report["rebalances"]
    box.close()


@pytest.mark.parametrize("strategy", ["constrained-cooperative-sticky", "range"])
def test_a_static_member_that_is_drained_is_out_at_once(kafka: KafkaCluster, strategy: str) -> None:
    box = Box(kafka)
    given = {"session.timeout.ms": "45000", "partition.assignment.strategy": strategy}
    kafka_options = {f"kafka.{key}": value for key, value in given.items()}
    session = box.session(staticMembership="true", **kafka_options)
    box.produce(5)
    end = batch(session, {})
    rendezvous = Rendezvous(end["id"])
    rendezvous.ask()
    assert session.latest(end, limited=True) == end
    assert rendezvous.is_done()
    rendezvous.clear()
    assert box.members() == {}
    box.close()


def test_a_pattern_leaves_the_brokers_own_topics_alone(kafka: KafkaCluster) -> None:
    """What is there now would else be there for ever: the group assigns them to nobody."""
    box = Box(kafka)
    box.produce(2)
    box.session().latest({}, limited=True)  # from here on there is __consumer_offsets
    given = {"subscribePattern": f"__.*|{box.topic}", "kafka.group.id": f"{box.topic}-pattern"}
    session = box.session(**given, subscribe=None)
    session.aim_at_what_is_there()
    end = batch(session, {})
    assert ranges(end) == {0: Range(0, 2), 1: Range(0, 2)}
    assert session.latest(end, limited=True) == end
    assert {of.topic for of in session._targets or ()} == {box.topic}
    box.close()


@pytest.mark.verdict
def test_topics_that_a_pattern_matches_later_are_read_from_their_beginning(
    kafka: KafkaCluster,
) -> None:
    box = Box(kafka)
    given = {
        "subscribePattern": f"{box.topic}.*",
        "startingOffsets": "latest",
        "kafka.topic.metadata.refresh.interval.ms": "500",
    }
    session = box.session(**given, subscribe=None)
    assert ranges(session.latest({}, limited=True)) == {}
    later = f"{box.topic}-later"
    kafka.create_topic(later, partitions=1)
    box.produce_to(later, 3)
    end = batch(session, {})
    assert end["tps"][f"{later}:0"][0] == 0
    box.close()


def test_brokers_that_are_away_are_told_by_their_option(monkeypatch: pytest.MonkeyPatch) -> None:
    away = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.log_level": "0"}
    session = Session(stream_options({**away, "kafka.group.id": "g", "subscribe": "a"}))
    monkeypatch.setattr(session._logs, "_timeout", 0.5)
    with pytest.raises(MembershipError, match=r"kafka\.bootstrap\.servers=127\.0\.0\.1:1 "):
        session.latest({}, limited=True)


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_a_start_that_names_what_is_not_read_is_told(box: Box, option: str) -> None:
    text = json.dumps({box.topic: {"0": 0, "1": 0, "2": 0}, "misspelt": {"0": 0}})
    with pytest.raises(OptionError, match=rf"{option}: names misspelt:0, session-[\d-]+:2, which"):
        box.session(**{option: text}).latest({}, limited=True)


def test_a_checkpoint_of_another_source_is_told(box: Box) -> None:
    with pytest.raises(CheckpointError, match="checkpointLocation"):
        box.session().latest({box.topic: {"0": 3}}, limited=True)


def test_unknown_topics_are_told(box: Box) -> None:
    with pytest.raises(OptionError, match="unknown topic nowhere"):
        box.session(subscribe="nowhere").latest({}, limited=True)


def test_a_log_of_which_nobody_tells_holds_up_no_other(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, held_up = box.session(), TopicPartition(box.topic, 1)
    box.produce(3)
    tell = session._logs.all_beginnings
    questions: list[list[int]] = []

    def tell_of_the_other(asked: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        partitions = list(asked)
        if partitions:
            questions.append(sorted(of.partition for of in partitions))
        if held_up in partitions:
            error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            raise LogsNotToldError(error, [held_up])
        return tell(partitions)

    monkeypatch.setattr(session._logs, "all_beginnings", tell_of_the_other)
    holdings = session._joined({}, durable=True).member.holdings
    wait_until(lambda: holdings.ready() == {TopicPartition(box.topic, 0): 0}, "none is claimed")
    wait_until(lambda: len(questions) > 3, "it is not asked for again")
    assert questions[:4] == [[0, 1], [0], [1], [1]], "with a poll between each two"
    monkeypatch.undo()
    assert ranges(batch(session)) == {0: Range(0, 3), 1: Range(0, 3)}


def test_what_a_start_waits_for_is_told(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    session = box.session(assignmentTimeout="1s")

    def silent(asked: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        raise LogsNotToldError(KafkaError(KafkaError.LEADER_NOT_AVAILABLE), asked)

    monkeypatch.setattr(session._logs, "all_beginnings", silent)
    names = f"no answer on where {box.topic}:0, {box.topic}:1 begin.*last error.*assignmentTimeout"
    member = session._joined({}, durable=True).member
    wait_until(lambda: bool(member.last_error), "nothing was asked for")
    with pytest.raises(MembershipError, match=names):
        session.latest({}, limited=True)


def test_a_start_that_leaves_a_partition_out_is_told(box: Box) -> None:
    session = box.session(startingOffsets=json.dumps({box.topic: {"0": 0}}))
    with pytest.raises(OptionError, match=r"startingOffsets: says nothing of session-[\d-]+:1"):
        session.latest({}, limited=True)


def test_a_replay_that_nobody_lets_in_ends_with_an_error(box: Box) -> None:
    end = end_of_who_died(box)
    again = box.session(assignmentTimeout="1ms")
    with pytest.raises(MembershipError, match="assignmentTimeout"):
        again.tasks({}, end)


def test_a_replay_of_what_is_not_asked_for_any_more_is_told(box: Box) -> None:
    first = _assigned(box, {"assign": json.dumps({box.topic: [0, 1]})})
    box.produce(5)
    end = batch(first, {})
    first.close()
    narrowed = _assigned(box, {"assign": json.dumps({box.topic: [0]})})
    with pytest.raises(OptionError, match=rf"assign: .*replayed, reads {box.topic}:1, which"):
        narrowed.tasks({}, end)


def test_assigned_partitions_need_no_group(box: Box) -> None:
    given = {"assign": json.dumps({box.topic: [1]})}
    session = _assigned(box, given)
    box.produce(3)
    end = batch(session, {})
    assert ranges(end) == {1: Range(0, 3)}
    session.latest(end, limited=True)
    session.close()
    box.produce(1)
    assert ranges(batch(_assigned(box, given), end)) == {1: Range(3, 4)}


def _assigned(box: Box, given: dict[str, str]) -> Session:
    options = {
        "kafka.bootstrap.servers": box.kafka.bootstrap_servers,
        "kafka.group.id": f"group-{box.topic}",
        "startingOffsets": "earliest",
    }
    box.sessions.append(Session(stream_options(options | given)))
    return box.sessions[-1]


# --- commits that the group refuses -----------------------------------------------------------


def read_available(session: Session) -> list[Offset]:
    """A run with ``Trigger.AvailableNow``: its batches' ends."""
    session.aim_at_what_is_there()
    ends: list[Offset] = []
    start: Offset = {}
    while (end := session.latest(start, limited=True)) != start:
        session.tasks(start, end)
        ends.append(end)
        start = end
    return ends


def test_a_run_that_ends_commits_before_it_does(box: Box) -> None:
    """A commit that fails for a reason that may pass is made again: nobody comes after it."""
    session = box.session()
    box.produce(3)
    session.aim_at_what_is_there()
    end = batch(session, {})
    session.tasks({}, end)
    box.embedded.fail("OffsetCommit", *[KafkaError.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    box.embedded.fail("OffsetCommit", *[KafkaError.UNKNOWN] * 3)
    assert session.latest(end, limited=True) == end
    session.close()
    assert of_the_group(box) == [3, 3]


@pytest.mark.parametrize("trigger", ["default", "available now"])
def test_assign_beside_members_of_the_group_is_told(box: Box, trigger: str) -> None:
    _refuses_assign(box, batch if trigger == "default" else read_available)


def test_a_real_broker_refuses_assign_beside_members_too(kafka: KafkaCluster) -> None:
    box = Box(kafka)
    _refuses_assign(box, read_available)
    box.close()


def _refuses_assign(box: Box, read: Callable[[Session], object]) -> None:
    box.produce(3)
    with CoopConsumer(plain_settings(box)) as plain:
        plain.subscribe([box.topic])
        wait_until(lambda: plain.poll(0.05) is not None, "the plain consumer reads nothing")
        session = _assigned(box, {"assign": json.dumps({box.topic: [0, 1]})})
        with pytest.raises(MembershipError, match=r"kafka\.group\.id=group-.* assign"):
            read(session)


def test_members_that_come_beside_assign_are_told(box: Box) -> None:
    """What is committed after is refused; what was claimed before would be read by both."""
    session = _assigned(box, {"assign": json.dumps({box.topic: [0, 1]})})
    box.produce(3)
    end = batch(session, {})
    with CoopConsumer(plain_settings(box)) as plain:
        plain.subscribe([box.topic])
        wait_until(lambda: bool(plain.poll(0.05) or plain.assignment()), "nobody has joined")
        session.latest(end, limited=True)  # commits, in the background
        with pytest.raises(MembershipError, match="has members"):
            batch(session, end)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, r"kafka\.group\.id=.*READ"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, r"session-[\d-]+:0.*READ.*subscribe"),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, r"offset\.metadata\.max\.bytes"),
    ],
)
def test_claims_that_are_refused_for_good_are_told(box: Box, error: int, told: str) -> None:
    session = box.session()
    box.produce(3)
    box.embedded.fail("OffsetCommit", *[error] * 100)
    with pytest.raises(MembershipError, match=told):
        read_available(session)


def test_claims_that_can_be_made_later_are_waited_for(box: Box) -> None:
    session = box.session()
    box.produce(3)
    passing = [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.REBALANCE_IN_PROGRESS]
    box.embedded.fail("OffsetCommit", *passing, KafkaError.UNKNOWN)
    assert ranges(batch(session, {})) == {0: Range(0, 3), 1: Range(0, 3)}


def test_a_run_that_can_claim_nothing_does_not_end_well(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that may pass, and does not."""
    monkeypatch.setattr("kafka_coop.spark.available_now._EVICTION_SLACK", timedelta(0))
    session = box.session()
    box.produce(3)
    box.embedded.fail("OffsetCommit", *[KafkaError.UNKNOWN] * 10_000)
    with pytest.raises(MembershipError, match=r"session-[\d-]+:0, .*could not be claimed"):
        read_available(session)


def test_offsets_that_may_not_be_asked_for_are_told(box: Box) -> None:
    box.embedded.fail("OffsetFetch", *[KafkaError.GROUP_AUTHORIZATION_FAILED] * 100)
    session = _assigned(box, {"assign": json.dumps({box.topic: [0, 1]})})
    with pytest.raises(MembershipError, match=r"no right to the group.*kafka\.group\.id"):
        session.latest({}, limited=True)


# --- logs that lose records -------------------------------------------------------------------


def cut_off(session: Session, monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """As an unclean election: to this session, the logs end there from now on."""
    ends = session._logs.ends

    def shorter(asked: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return {of: min(end, at) for of, at in ends(asked).items()}

    def reaching(asked: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        return frozenset(of for of, offset in asked.items() if offset <= end)

    monkeypatch.setattr(session._logs, "ends", shorter)
    monkeypatch.setattr(session._logs, "reaching", reaching)


@pytest.mark.parametrize("who", ["another query", "the same checkpoint"])
def test_what_is_written_after_records_were_lost_is_read_by_whoever_is_next(
    box: Box, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    first = box.session(failOnDataLoss="false")
    box.produce(5)
    end = batch(first, {})
    wait_until(lambda: committed(first, end) == [5, 5], "the batch is not committed")
    cut_off(first, monkeypatch, 3)
    wait_until(lambda: committed(first, end) == [3, 3], "the group is not told")
    first.close()
    # There are five again.
    second = box.session(failOnDataLoss="false")
    start = {} if who == "another query" else end
    assert ranges(batch(second, start)) == {0: Range(3, 5), 1: Range(3, 5)}


def committed(session: Session, start: Offset) -> list[int | None]:
    """What the group knows, after a call of Spark's that found nothing."""
    assert session.latest(start, limited=True) == start
    return told(session)


def told(session: Session) -> list[int | None]:
    """What the group knows of the first topic's two partitions."""
    assert session._planner is not None
    topic = next(iter(session._planner.remembered.topics))
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    found = session._planner.member.committed(asked)
    return [found[of].offset for of in asked]


def test_a_log_that_became_shorter_fails_the_query(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = box.session()
    box.produce(5)
    end = batch(session, {})
    cut_off(session, monkeypatch, 3)
    with pytest.raises(DataLossError, match=r"ends at 3, before the position 5.*failOnDataLoss"):
        session.latest(end, limited=True)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_is_deleted_under_a_query_is_told(kafka: KafkaCluster, fails: str) -> None:
    box = Box(kafka)
    deleted = f"{box.topic}-deleted"
    kafka.create_topic(deleted, partitions=1)
    session = box.session(
        subscribe=f"{box.topic},{deleted}",
        failOnDataLoss=fails,
        **{"kafka.topic.metadata.refresh.interval.ms": "500"},
    )
    box.produce(3)
    box.produce_to(deleted, 3)
    end: Offset = {}
    while f"{deleted}:0" not in end.get("tps", {}):
        end = batch(session, end)
    kafka.delete_topic(deleted)
    told = ""

    def is_gone() -> bool:
        nonlocal end, told
        try:
            end = session.latest(end, limited=True)
        except DataLossError as error:
            told = str(error)
        report = session.report()
        assert report is not None
        return bool(told) if fails == "true" else deleted not in str(report["tps"])

    wait_until(is_gone, "the topic is still held", timedelta(seconds=60))
    if fails == "true":
        assert told.startswith(f"{deleted}: ")
        assert "was deleted" in told
        assert "failOnDataLoss=false" in told
    else:
        box.produce(1)
        assert ranges(batch(session, end)) == {0: Range(3, 4), 1: Range(3, 4)}
        assert not told
    box.close()


def test_a_run_ends_where_a_log_ends_that_became_shorter(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = box.session(failOnDataLoss="false")
    box.produce(5)
    session.aim_at_what_is_there()
    cut_off(session, monkeypatch, 3)
    end = batch(session, {})
    assert ranges(end) == {0: Range(0, 3), 1: Range(0, 3)}
    assert session.latest(end, limited=True) == end


@pytest.mark.parametrize("fails", ["true", "false"])
def test_what_falls_off_behind_a_query_is_seen_before_a_task_starts(
    box: Box, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr("kafka_coop.spark.extents._HOLD", 0.0)
    session = box.session(maxOffsetsPerTrigger="2", failOnDataLoss=fails)
    for _ in range(6):
        box.produce(1)  # the embedded broker deletes whole batches
    end = batch(session, {})
    for partition in (0, 1):
        box.embedded.delete_records(box.topic, partition, before=4)
    if fails == "true":
        with pytest.raises(DataLossError, match=r"begins at 4, after the position 1.*failOnData"):
            batch(session, end)
    else:
        assert ranges(batch(session, end)) == {0: Range(4, 5), 1: Range(4, 5)}


def test_where_logs_begin_is_asked_for_once_in_a_while(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = box.session()
    box.produce(1)
    beginnings = Mock(side_effect=session._logs.beginnings)
    monkeypatch.setattr(session._logs, "beginnings", beginnings)
    monkeypatch.setattr("kafka_coop.spark.extents._HOLD", 3600.0)
    end = batch(session, {})
    for _ in range(3):
        end = session.latest(end, limited=True)
    assert [len(call.args[0]) for call in beginnings.call_args_list if call.args[0]] == [2]


# --- replayHorizon ----------------------------------------------------------------------------

TEN_O_CLOCK = 1_700_000_000_000


def produce_a_record_a_second(box: Box, offsets: range) -> None:
    producer = Producer({"bootstrap.servers": box.kafka.bootstrap_servers})
    for offset in offsets:
        for partition in (0, 1):
            at = TEN_O_CLOCK + 1000 * offset
            producer.produce(box.topic, b"v", partition=partition, timestamp=at)
    assert producer.flush(30) == 0


def horizon(box: Box, monkeypatch: pytest.MonkeyPatch, **options: str) -> Session:
    """A session that replays three seconds. The embedded broker does not look for times."""
    session = box.session(replayHorizon="3s", **options)

    def at_times(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {of: max(0, -(-(at - TEN_O_CLOCK) // 1000)) for of, at in times.items()}

    monkeypatch.setattr(session._logs, "at_times", at_times)
    return session


def interrupted_replay(box: Box, monkeypatch: pytest.MonkeyPatch) -> Offset:
    """The end of a query's first batch, in the middle of its replay; it has ended then."""
    session = horizon(box, monkeypatch, maxOffsetsPerTrigger="4")
    offset = batch(session, {})
    session.latest(offset, limited=True)
    session.close()
    return offset


@pytest.fixture
def ten_read(box: Box, monkeypatch: pytest.MonkeyPatch) -> Offset:
    """The end of a first query's one batch, ten records a partition, which it has committed."""
    produce_a_record_a_second(box, range(10))
    first = horizon(box, monkeypatch)
    end = batch(first, {})
    assert ranges(end) == {0: Range(0, 10), 1: Range(0, 10)}, "there is nothing to replay yet"
    wait_until(lambda: committed(first, end) == [10, 10], "the batch is not committed")
    first.close()
    return end


def test_what_others_have_read_is_read_from_the_horizon(
    box: Box, monkeypatch: pytest.MonkeyPatch, ten_read: Offset
) -> None:
    """The last record is of second 9. What is committed stays where it is meanwhile."""
    assert ten_read
    second = horizon(box, monkeypatch, maxOffsetsPerTrigger="4")
    offset: Offset = {}
    for span in (Range(6, 8), Range(8, 10)):
        offset = batch(second, offset)
        assert ranges(offset) == {0: span, 1: span}
        assert told(second) == [10, 10]
    assert second.latest(offset, limited=True) == offset
    produce_a_record_a_second(box, range(10, 11))
    offset = batch(second, offset)
    assert ranges(offset) == {0: Range(10, 11), 1: Range(10, 11)}
    wait_until(lambda: committed(second, offset) == [11, 11], "the batch is not committed")


def test_what_nobody_has_read_has_no_horizon(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run was stopped before it had read: what lies before its start is not wanted."""
    produce_a_record_a_second(box, range(10))
    first = horizon(box, monkeypatch, startingOffsets="latest")
    assert ranges(first.latest({}, limited=True)) == {}
    first.close()
    again = horizon(box, monkeypatch, startingOffsets="latest")
    produce_a_record_a_second(box, range(10, 12))
    assert ranges(batch(again)) == {0: Range(10, 12), 1: Range(10, 12)}


def test_who_takes_over_in_the_middle_of_a_replay_begins_it_anew(
    box: Box, monkeypatch: pytest.MonkeyPatch, ten_read: Offset
) -> None:
    """The horizon is measured from what is committed, not from how far a replay has come."""
    assert ten_read
    interrupted_replay(box, monkeypatch)
    third = horizon(box, monkeypatch)
    assert ranges(batch(third, {})) == {0: Range(6, 10), 1: Range(6, 10)}


def test_the_same_checkpoint_goes_on_in_the_middle_of_its_replay(
    box: Box, monkeypatch: pytest.MonkeyPatch, ten_read: Offset
) -> None:
    """Its state is that of its last batch."""
    assert ten_read
    offset = interrupted_replay(box, monkeypatch)
    again = horizon(box, monkeypatch)
    assert ranges(batch(again, offset)) == {0: Range(8, 10), 1: Range(8, 10)}


def test_a_replay_of_a_horizon_that_died_is_the_same(
    box: Box, monkeypatch: pytest.MonkeyPatch, ten_read: Offset
) -> None:
    assert ten_read
    dying = horizon(box, monkeypatch)
    end = batch(dying, {})
    dying.close()
    assert tasks(horizon(box, monkeypatch), {}, end) == ranges(end)


@pytest.mark.parametrize(
    ("replays", "aggregates", "refused"),
    [
        (False, False, "set replayHorizon"),
        (False, True, "a group of its own"),
        (True, False, None),
        (True, True, "counts twice"),
    ],
)
@pytest.mark.usefixtures("ten_read")
def test_what_came_from_others_goes_together_with_a_horizon_and_what_it_makes_again(
    box: Box, monkeypatch: pytest.MonkeyPatch, replays: bool, aggregates: bool, refused: str | None
) -> None:
    session = horizon(box, monkeypatch) if replays else box.session()
    offset = session.latest({}, limited=True)
    Rendezvous(session._id).mark_stateful(aggregating=aggregates)
    if refused is None:
        assert session.latest(offset, limited=True) == offset
    else:
        with pytest.raises(MembershipError, match=refused):
            session.latest(offset, limited=True)


@pytest.mark.parametrize(
    ("replays", "aggregates", "refused"),
    [(False, False, "set replayHorizon"), (True, True, "counts twice"), (True, False, None)],
)
@pytest.mark.usefixtures("ten_read")
def test_a_checkpoint_whose_state_is_wrong_is_refused_whatever_it_is_started_with(
    box: Box, monkeypatch: pytest.MonkeyPatch, replays: bool, aggregates: bool, refused: str | None
) -> None:
    """Its claims are its own by then: no later run would see that anything has moved.

    It is known to keep state when a batch is done: the run may have been stopped in between.
    """
    produce_a_record_a_second(box, range(10, 20))
    first = horizon(box, monkeypatch) if replays else box.session()
    end = batch(first)
    assert ranges(end)[0] == (Range(6, 20) if replays else Range(10, 20))
    Rendezvous(first._id).mark_stateful(aggregating=aggregates)
    first.close()
    for again in (box.session(), horizon(box, monkeypatch)):
        for is_durable in (True, False):
            go_on: Callable[[], object] = (
                partial(again.latest, end, limited=True)
                if is_durable
                else partial(again.tasks, {}, end)
            )
            if refused is None:
                go_on()
                continue
            with pytest.raises(MembershipError, match=refused) as raised:
                go_on()
            assert "set checkpointLocation to a new folder" in str(raised.value)
        again.close()
    assert ranges(batch(horizon(box, monkeypatch))), "a new checkpoint"


def test_what_comes_while_a_call_waits_is_refused_before_a_batch_has_it(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the state is as it was, and the same checkpoint may go on with a horizon."""
    other, session = box.session(), box.session()
    theirs, start = other.latest({}, limited=True), session.latest({}, limited=True)
    wait_until(lambda: holds_one(session) and holds_one(other), "the two do not share the topic")
    Rendezvous(session._id).mark_stateful(aggregating=False)
    produce_a_record_a_second(box, range(5))
    theirs, end = batch(other, theirs), batch(session, start)
    other.latest(theirs, limited=True)
    produce_a_record_a_second(box, range(5, 6))
    planner = session._planner
    assert planner is not None
    member, begins = planner.member, planner._start_over

    def waits() -> None:
        other.close()
        wait_until(lambda: len(member.holdings.ready()) == 2, "nothing comes")
        begins()

    monkeypatch.setattr(planner, "_start_over", waits)
    with pytest.raises(MembershipError, match=r"moved between .* set replayHorizon"):
        session.latest(end, limited=True)
    assert not member.holdings.reading
    session.close()
    again = horizon(box, monkeypatch)
    (ours,), (taken,) = ranges(end), ranges(theirs)
    assert ranges(batch(again, end)) == {ours: Range(5, 6), taken: Range(1, 6)}


def test_a_query_whose_sources_divide_the_partitions_fails_before_its_batch_counts(
    box: Box,
) -> None:
    box.produce(10)
    session = box.session()
    offset = session.latest({}, limited=True)
    rendezvous = Rendezvous(session._id)
    rendezvous.mark_in_competition()
    with pytest.raises(MembershipError, match=r"renames its columns.* checkpointLocation"):
        session.latest(offset, limited=True)
    assert told(session) == [0, 0]


def test_a_horizon_is_measured_by_the_records_timestamps(kafka: KafkaCluster) -> None:
    """Of the last record before the position: what is right before it is no record here."""
    box = Box(kafka)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": box.topic})
    writer.init_transactions(30)
    writer.begin_transaction()
    for offset in range(10):
        writer.produce(box.topic, b"v", partition=0, timestamp=TEN_O_CLOCK + 1000 * offset)
    writer.commit_transaction(30)
    first = box.session()
    end = batch(first)
    assert ranges(end) == {0: Range(0, 11)}
    first.latest(end, limited=True)
    first.close()
    assert ranges(batch(box.session(replayHorizon="3s"))) == {0: Range(6, 11)}
    box.close()


def test_a_horizon_without_records_begins_at_the_position(
    box: Box, monkeypatch: pytest.MonkeyPatch, ten_read: Offset
) -> None:
    """All that was read is deleted."""
    assert ten_read
    for partition in (0, 1):
        box.embedded.delete_records(box.topic, partition, before=10)
    produce_a_record_a_second(box, range(10, 12))
    second = horizon(box, monkeypatch)
    assert ranges(batch(second, {})) == {0: Range(10, 12), 1: Range(10, 12)}


# --- a run that ends, in a group --------------------------------------------------------------


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a run has nothing more to read, and looks at what others do."""
    event = threading.Event()

    def wait(*args: Any) -> Offset | None:
        event.set()
        return wait_for_group(*args)

    monkeypatch.setattr("kafka_coop.spark.session.wait_for_group", wait)
    return event


def holds_one(session: Session) -> bool:
    return session._member is not None and len(session._member.holdings.held) == 1


def read_by(run: list[Offset]) -> dict[int, Range]:
    return {partition: span for end in run for partition, span in ranges(end).items()}


def test_a_run_waits_for_what_a_live_member_reads(box: Box, waits: threading.Event) -> None:
    other, session = box.session(), box.session()
    assert ranges(other.latest({}, limited=True)) == {}
    box.produce(5)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(read_available, session)
        wait_until(lambda: holds_one(other) and waits.is_set(), "the run reads all by itself")
        assert not run.done()
        theirs = batch(other, {})
        assert not run.done(), "planned, and neither read nor committed"
        while not run.done():
            theirs = other.latest(theirs, limited=True)
    (ours,) = run.result()
    assert ranges(ours) | ranges(theirs) == {0: Range(0, 5), 1: Range(0, 5)}
    assert len(ranges(ours)) == 1


def test_a_run_that_waits_for_others_is_drained(box: Box, waits: threading.Event) -> None:
    """It has nothing to read, and they may take hours."""
    other, session = box.session(), box.session()
    assert ranges(other.latest({}, limited=True)) == {}
    assert ranges(session.latest({}, limited=True)) == {}
    wait_until(lambda: holds_one(session) and holds_one(other), "the two do not share the topic")
    box.produce(5)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(read_available, session)
        wait_until(waits.is_set, "it does not come to its end")
        rendezvous = Rendezvous(session._id)
        rendezvous.ask()
        wait_until(rendezvous.is_done, "it is not heard")
        (ours,) = run.result(60)
    rendezvous.clear()
    (mine,) = ranges(ours)
    assert of_the_group(box)[mine] == 5
    assert other._member is not None
    held = other._member.holdings.held
    wait_until(lambda: len(held) == 2, "it has not left")


@pytest.mark.verdict
def test_a_run_takes_over_from_a_member_that_died(box: Box, waits: threading.Event) -> None:
    session = box.session()
    processes = multiprocessing.get_context("forkserver")
    pipe, theirs = processes.Pipe()
    other = processes.Process(target=serve, args=(box.given, theirs), daemon=True)
    other.start()
    theirs.close()
    pipe.send(("latest", ({},)))
    (end, _planned), error = pipe.recv()
    assert error is None
    assert ranges(end) == {}
    box.produce(5)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(read_available, session)
        wait_until(lambda: holds_one(session) and waits.is_set(), "nothing is shared")
        other.kill()
        assert read_by(run.result(120)) == {0: Range(0, 5), 1: Range(0, 5)}
    other.join(30)
    pipe.close()


def test_a_run_does_not_wait_for_ever_for_a_member_that_does_nothing(
    box: Box, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafka_coop.spark.available_now._EVICTION_SLACK", timedelta(seconds=6))
    other, session = box.session(), box.session()
    assert ranges(other.latest({}, limited=True)) == {}
    box.produce(5)
    with caplog.at_level(logging.WARNING, "kafka_coop.spark"):
        ends = read_available(session)
    assert len(read_by(ends)) == 1
    assert "the run ends without them" in caplog.text


def test_a_run_does_not_end_well_where_nobody_tells_what_others_have_read(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor says that they stand still."""
    monkeypatch.setattr("kafka_coop.spark.available_now._EVICTION_SLACK", timedelta(seconds=-5))
    other, session = box.session(), box.session()
    assert ranges(other.latest({}, limited=True)) == {}
    assert ranges(session.latest({}, limited=True)) == {}
    wait_until(lambda: holds_one(session) and holds_one(other), "the two do not share the topic")
    box.produce(5)
    monkeypatch.setattr(session._member, "committed", lambda _: {})
    with pytest.raises(MembershipError, match=r"nobody tells how far the group .* has come with"):
        read_available(session)


# --- a session that is lost -------------------------------------------------------------------


def lose_session(box: Box, session: Session) -> None:
    """In the midst of what is under way; it is back then, as a member that is new to the group."""
    member = session._member
    assert member is not None
    box.embedded.fail("Heartbeat", KafkaError.UNKNOWN_MEMBER_ID)
    wait_until(lambda: len(session.lost) == 2, "it does not know")
    wait_until(lambda: len(member.holdings.held) == 2 and member.is_settled, "it is not back")


def test_what_was_lost_in_mid_batch_goes_on_where_the_group_is(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another had partition 1 in between, and has read it up to 7. Nobody has claimed 0."""
    session = box.session()
    box.produce(5)
    end = batch(session)
    assert ranges(end) == {0: Range(0, 5), 1: Range(0, 5)}
    member = session._member
    assert member is not None
    consumer, take_in = member._consumer, member._take_in
    theirs = confluent_kafka.TopicPartition(box.topic, 1, 7, Claim("another").to_metadata())
    has_read = threading.Event()

    def after_another() -> None:
        if not has_read.is_set():
            with contextlib.suppress(KafkaException):  # the group is not settled yet
                consumer.commit(offsets=[theirs], asynchronous=False)
                has_read.set()
        else:
            take_in()

    monkeypatch.setattr(member, "_take_in", after_another)
    lose_session(box, session)
    report = session.report()
    assert report is not None
    assert report["lost"] == 2
    assert told(session) == [0, 7], "nothing of the batch"
    box.produce(5)
    after = batch(session, end)
    assert ranges(after) == {0: Range(5, 10), 1: Range(7, 10)}
    assert told(session) == [5, 7]


def test_a_query_that_keeps_state_is_started_again_after_a_loss_that_nobody_used(
    box: Box,
) -> None:
    """It can't know that, and fails; the claims are its own still, for its next run to see."""
    session = box.session()
    box.produce(5)
    end = batch(session)
    lose_session(box, session)
    box.produce(1)
    end = batch(session, end)
    Rendezvous(end["id"]).mark_stateful(aggregating=True)
    with pytest.raises(MembershipError, match="moved between"):
        session.latest(end, limited=True)
    session.close()
    box.produce(1)
    again = box.session()
    assert ranges(batch(again, end)) == {0: Range(6, 7), 1: Range(6, 7)}


# --- what Spark calls -------------------------------------------------------------------------


def test_a_reader_tells_once_from_batch_after_batch(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``Trigger.Once`` asks for all there is; other triggers repeat the reader's own limit."""
    monkeypatch.setattr("kafka_coop.spark.stream._stop_on_sigterm", Mock())
    reader = StreamReader(stream_options(box.given | {"maxOffsetsPerTrigger": "4"}))
    box.produce(10)
    start = reader.initialOffset()
    assert reader.reportLatestOffset() is None
    limited = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert sum(span.size for span in ranges(limited).values()) == 4
    once = reader.latestOffset(start, ReadAllAvailable())
    assert ranges(once) == {0: Range(0, 10), 1: Range(0, 10)}
    assert len(reader.partitions(start, once)) == 2
    reader.commit(once)
    reader.stop()


def test_a_reader_that_is_stopped_twice_at_once_leaves(box: Box) -> None:
    """Spark closes the connection and sends SIGTERM: the one cuts short what the other began."""
    script = f"""
        import os, signal
        from kafka_coop.spark.options import stream_options
        from kafka_coop.spark.session import Session
        from kafka_coop.spark.stream import StreamReader

        close = Session.close

        def cut_short(session):
            Session.close = close
            os.kill(os.getpid(), signal.SIGTERM)
            close(session)

        reader = StreamReader(stream_options({box.given!r}))
        reader.latestOffset({{}}, reader.getDefaultReadLimit())
        Session.close = cut_short
        reader.stop()
    """
    box.produce(1)
    box.embedded.track_requests()
    command = [sys.executable, "-c", textwrap.dedent(script)]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
    assert [r for r in box.embedded.requests() if r.api == "LeaveGroup"]


def test_a_reader_without_limits_reads_all(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_coop.spark.stream._stop_on_sigterm", Mock())
    reader = StreamReader(stream_options(box.given))
    box.produce(10)
    reader.prepareForTriggerAvailableNow()
    box.produce(1)
    end = reader.latestOffset({}, reader.getDefaultReadLimit())
    assert ranges(end) == {0: Range(0, 10), 1: Range(0, 10)}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    reader.stop()


def test_a_reader_without_limits_knows_once_too(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_coop.spark.stream._stop_on_sigterm", Mock())
    reader = StreamReader(stream_options(box.given))
    box.produce(1)
    box.embedded.fail("OffsetCommit", *[KafkaError.UNKNOWN] * 100)
    assert ranges(reader.latestOffset({}, reader.getDefaultReadLimit())) == {}
    with pytest.raises(MembershipError, match=r"Trigger\.Once"):
        reader.latestOffset({}, ReadAllAvailable())
    reader.stop()


# --- strategies, and partitions that are new --------------------------------------------------


@pytest.mark.verdict
def test_an_eager_strategy_hands_over_between_batches_too(kafka: KafkaCluster) -> None:
    """All leaves with the safe moment, and what stays comes back. On a real broker: it leaves
    before the member joins anew, and librdkafka's mock takes no commits while a group joins."""
    box = Box(kafka)
    eager = {"kafka.partition.assignment.strategy": "range"}
    first, second = box.session(**eager), box.session(**eager)
    box.produce(5)
    end = batch(first, {})
    member = first._member
    assert member is not None
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(batch, second, {})
        wait_until(lambda: len(member.holdings.leaving) == 2, "not all is to leave")
        assert not theirs.done()
        box.produce(2)
        ours = batch(first, end)
        assert ranges(ours) | ranges(theirs.result(60)) == {0: Range(5, 7), 1: Range(5, 7)}
    assert len(ranges(ours)) == 1
    box.close()


def test_partitions_of_the_same_number_stay_together(box: Box) -> None:
    weather = f"{box.topic}-weather"
    box.kafka.create_topic(weather, partitions=2)
    joined = {
        "subscribe": f"{box.topic},{weather}",
        "kafka.partition.assignment.strategy": "stream-join-sticky",
    }
    first, second = box.session(**joined), box.session(**joined)

    def share() -> bool:
        held = []
        for one in (first, second):
            one.latest({}, limited=True)
            assert one._member is not None
            held.append({of.partition for of in one._member.holdings.held})
        return held in ([{0}, {1}], [{1}, {0}])

    wait_until(share, "the two do not share the topics")
    producer = Producer({"bootstrap.servers": box.kafka.bootstrap_servers})
    for topic in (box.topic, weather):
        for partition in (0, 1):
            producer.produce(topic, b"v", partition=partition)
    assert producer.flush(30) == 0
    for one in (first, second):
        spans = {key: span for key, span in batch(one, {})["tps"].items() if span == [0, 1]}
        (number,) = {key.rpartition(":")[2] for key in spans}
        assert spans.keys() == {f"{topic}:{number}" for topic in (box.topic, weather)}


@pytest.mark.verdict
def test_new_partitions_of_a_topic_are_read_from_their_beginning(kafka: KafkaCluster) -> None:
    """By a session that runs, also where it began with what was latest."""
    box = Box(kafka)
    given = {"startingOffsets": "latest", "kafka.topic.metadata.refresh.interval.ms": "500"}
    session = box.session(**given)
    assert ranges(session.latest({}, limited=True)) == {}
    kafka.add_partitions(box.topic, total=3)
    box.produce(3, 2)
    end = batch(session, {})
    assert ranges(end) == {2: Range(0, 3)}
    assert end["topics"] == {box.topic: 2}
    box.close()


# --- to be seen -------------------------------------------------------------------------------


@pytest.fixture
def port() -> int:
    """One that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


def test_the_members_metrics_are_served_until_it_leaves(box: Box, port: int) -> None:
    session = box.session(metricsPort=str(port))
    session.latest({}, limited=True)
    address = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(address, timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [one for family in families for one in family.samples]
    group = f"group-{box.topic}"
    found = {one.name: one.value for one in samples if one.labels.get("group") == group}
    assert found["kafka_coop_assigned_partitions"] == 2
    session.close()
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(address, timeout=30)


def test_a_port_of_which_the_run_before_lets_go_late_is_waited_for(
    box: Box, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``query.stop()`` does not wait for the reader's process."""
    server = Mock()
    taken = OSError(errno.EADDRINUSE, "Address already in use")
    serving = Mock(side_effect=[taken, (server, Mock())])
    monkeypatch.setattr("kafka_coop.spark.serving.start_http_server", serving)
    session = box.session(metricsPort=str(port))
    session.latest({}, limited=True)
    session.close()
    assert serving.call_count == 2
    server.server_close.assert_called_once_with()


def test_a_port_that_is_taken_is_told(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_coop.spark.serving._FREED_WITHIN", 0.0)
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        session = box.session(metricsPort=str(port))
        with pytest.raises(OptionError, match=f"metricsPort: {port} can't be listened on"):
            session.latest({}, limited=True)


def test_progress_has_the_lag_and_the_member(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_coop.spark.extents._HOLD", 0.0)
    session = box.session(maxOffsetsPerTrigger="4")
    assert session.report() is None
    box.produce(5)
    end: Offset = {}
    for expected in (3, 1 + 4):
        end = batch(session, end)
        report = session.report()
        (source,) = own_sources([SimpleNamespace(endOffset=end, latestOffset=report)])
        assert set(source.lag.values()) == {expected}
        assert len(source.lag) == 2
        box.produce(4)
    assert session._member is not None
    assert source.member == session._member.member_id != ""
    assert source.id == end["id"]
    assert source.rebalances >= 1
    assert source.last_rebalance > timedelta(0)
    assert report is not None
    assert (report["leaving"], report["lost"]) == (0, 0)
