"""A topic is deleted while no query runs: nobody sees it go, and a pattern matches one less."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from spark_sessions import NOTHING, Box, Offset, batch, ranges, tasks

from kafka_coop.spark.errors import DataLossError, OptionError
from kafka_coop.spark.offsets import Range
from kafka_coop.testing.cluster import KafkaCluster


@pytest.fixture
def box(kafka: KafkaCluster) -> Iterator[Box]:
    """Of a real broker: the embedded one deletes no topics."""
    made = Box(kafka)
    yield made
    made.close()


def both(box: Box, how: str) -> dict[str, str | None]:
    """The options that ask for the topic and for the one that is deleted."""
    names = {"subscribe": f"{box.topic},{box.topic}-deleted", "subscribePattern": f"{box.topic}.*"}
    return {"subscribe": None, how: names[how]}


def end_with_both(box: Box, how: str) -> Offset:
    """Of a query that has read both topics, and was stopped; then one is deleted, and made longer.

    Its last batch is durable, and what came after it was read by nobody.
    """
    assert isinstance(box.kafka, KafkaCluster)
    gone = f"{box.topic}-deleted"
    box.kafka.create_topic(gone, partitions=1)
    box.produce(3)
    box.produce_to(gone, 3)
    session = box.session(**both(box, how))
    end = NOTHING
    while f"{gone}:0" not in end.get("tps", {}):
        end = batch(session, end)
    session.latest(end, limited=True)
    session.close()
    box.produce_to(gone, 1)
    box.kafka.delete_topic(gone)
    return end


@pytest.mark.parametrize("how", ["subscribe", "subscribePattern"])
@pytest.mark.parametrize("ends", [False, True])
def test_it_fails_the_next_run(box: Box, how: str, ends: bool) -> None:
    end = end_with_both(box, how)
    again = box.session(**both(box, how))
    if ends:
        again.aim_at_what_is_there()
    told = rf"^{re.escape(box.topic)}-deleted: .* was deleted .* failOnDataLoss=false"
    with pytest.raises(DataLossError, match=told):
        again.latest(end, limited=True)


@pytest.mark.parametrize("how", ["subscribe", "subscribePattern"])
def test_it_is_skipped_and_logged_where_that_may_be(
    box: Box, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    end = end_with_both(box, how)
    again = box.session(failOnDataLoss="false", **both(box, how))
    box.produce(1)
    after = batch(again, end)
    assert ranges(after) == {0: Range(3, 4), 1: Range(3, 4)}
    assert f"{box.topic}-deleted:0" not in after.get("known", {}), "it would be so for ever"
    told = f"failOnDataLoss=false: {box.topic}-deleted: the query or its group has read it"
    assert told in caplog.text


def test_a_batch_that_read_nothing_of_it_is_replayed(box: Box) -> None:
    """It was logged, and not done, when the process died; what it reads is there."""
    end = end_with_both(box, "subscribe")
    options = both(box, "subscribe") | {"failOnDataLoss": "false"}
    assert isinstance(box.kafka, KafkaCluster)
    box.kafka.create_topic(f"{box.topic}-deleted", partitions=1)
    box.produce(1)
    dying = box.session(**options)
    next_end = batch(dying, end)
    dying.close()
    box.kafka.delete_topic(f"{box.topic}-deleted")
    read = tasks(box.session(**options), end, next_end)
    assert read == {0: Range(3, 4), 1: Range(3, 4)}


def test_a_topic_that_there_never_was_is_misspelt(box: Box) -> None:
    end = end_with_both(box, "subscribePattern")
    options = {"subscribe": f"{box.topic},{box.topic}-new", "failOnDataLoss": "false"}
    for start in (NOTHING, end):
        with pytest.raises(OptionError, match=rf"unknown topic {re.escape(box.topic)}-new"):
            box.session(**options).latest(start, limited=True)


@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_asked_for_no_more_may_be_deleted(box: Box, is_there: bool) -> None:
    assert isinstance(box.kafka, KafkaCluster)
    end = end_with_both(box, "subscribePattern")
    if is_there:
        box.kafka.create_topic(f"{box.topic}-deleted", partitions=1)
    box.produce(1)
    assert ranges(batch(box.session(), end)) == {0: Range(3, 4), 1: Range(3, 4)}


def test_a_run_that_ends_reads_a_topic_that_was_not_told_of_when_it_began(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a broker that has just started; it would end well, and have read nothing."""
    end = end_with_both(box, "subscribePattern")
    box.produce(1)
    again = box.session()
    with monkeypatch.context() as silence:
        silence.setattr(again._logs, "partition_counts", lambda *_: {})
        again.aim_at_what_is_there()
    assert ranges(batch(again, end)) == {0: Range(3, 4), 1: Range(3, 4)}
