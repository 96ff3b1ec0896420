"""A trial's member does as it is told."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from trial_progress import PATIENCE, until_all_read_on

from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.testing.trial.crew import Crew
from kafka_coop.testing.trial.load import Load
from kafka_coop.testing.trial.verdict import judge

SHORT = {"session.timeout.ms": 1100}  # the embedded broker collects members for all but 1 s of it


@pytest.mark.timeout(240)
@pytest.mark.parametrize("drain", [False, True], ids=["leaves", "drains"])
def test_a_member_leaves_at_once_or_is_relieved_in_a_round(tmp_path: Path, drain: bool) -> None:
    topic = f"told-{time.time_ns()}"
    with (
        EmbeddedKafka() as kafka,
        Crew(kafka.bootstrap_servers, topic, topic, tmp_path, SHORT) as crew,
    ):
        kafka.create_topic(topic, partitions=4)
        crew.start("a", "ours")
        crew.start("b", "ours")
        wait_until(
            lambda: {len(crew.owned("a")), len(crew.owned("b"))} == {2}, "two members", PATIENCE
        )
        before = crew.generation()
        crew.ask_to_leave("a", drain=drain)
        crew.close("a")
        wait_until(lambda: len(crew.owned("b")) == 4, "b has all", PATIENCE)
        given_up = [e.generation for e in crew.events("a") if e.kind == "V" and e.partitions]
        assert (given_up[-1] > before) == drain
        assert crew.events("a")[-1].kind == "X"
        crew.close("b")


@pytest.mark.timeout(240)
def test_an_error_tells_what_the_members_were_at(tmp_path: Path) -> None:
    topic = f"asked-{time.time_ns()}"
    error = TimeoutError()
    with EmbeddedKafka() as kafka:
        kafka.create_topic(topic, partitions=2)
        with (
            suppress(TimeoutError),
            Crew(kafka.bootstrap_servers, topic, topic, tmp_path, SHORT) as crew,
        ):
            crew.start("a", "ours")
            wait_until(lambda: crew.owned("a") == {0, 1}, "a has all", PATIENCE)
            raise error
    (note,) = error.__notes__
    assert note.startswith("a owned {0, 1}: ")
    assert "member.py" in note, "where its threads were"


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_a_topic_beside_is_in_no_journal_and_its_deletion_ends_no_member(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    """Its partitions have higher numbers than the other topic has any; they have records, too."""
    topic = f"judged-{time.time_ns()}"
    aside = f"{topic}-aside"
    kafka.create_topic(topic, partitions=2)
    kafka.create_topic(aside, partitions=4)
    config = {"session.timeout.ms": 6000, "topic.metadata.refresh.interval.ms": 200}
    with Crew(kafka.bootstrap_servers, topic, topic, tmp_path, config) as crew:
        crew.start("a", "ours", aside=aside)
        wait_until(lambda: crew.owned("a") == {0, 1}, "a has all", PATIENCE)
        with Load(kafka.admin_servers, topic, 2, 100) as load:
            with Load(kafka.admin_servers, aside, 4, 100):
                until_all_read_on(crew, "a", seconds=1)
            before = crew.generation()
            kafka.delete_topic(aside)
            wait_until(lambda: crew.generation() > before, "a round without it", PATIENCE)
            kafka.create_topic(aside, partitions=4)
            wait_until(lambda: crew.generation() > before + 1, "a round with it", PATIENCE)
            until_all_read_on(crew, "a", seconds=1)
            load.stop()
        ends = kafka.end_offsets(topic)
        wait_until(lambda: judge(crew.journals(), ends).lost == (), "the last record", PATIENCE)
        crew.close("a")
        told = crew.events("a")
        assert {p for e in told for p in e.partitions} == {0, 1}
        assert judge(crew.journals(), ends).sound
        assert [e.partitions for e in told if e.kind in "AVL" and e.partitions] == 2 * [(0, 1)]
