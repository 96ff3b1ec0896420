from __future__ import annotations

import json
import os
import tempfile
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_coop.spark.errors import MembershipError
from kafka_coop.spark.offsets import Range, SourceOffset
from kafka_coop.spark.progress import from_event, from_json, in_competition, own_sources
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.types import TopicPartition

ZERO, ONE = TopicPartition("a", 0), TopicPartition("a", 1)
END = SourceOffset(group="g", id="1f", run="r", topics={"a": 2}, ranges={ZERO: Range(3, 7)})
REPORT = {
    "id": "1f",
    "group": "g",
    "member": "m",
    "tps": {"a:0": 10, "a:1": 5},
    "rebalances": 2,
    "lastHandoverMs": 40,
}


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where drivers and readers meet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def source(end: Any, latest: Any) -> Any:
    return SimpleNamespace(endOffset=end, latestOffset=latest)


def test_lag_is_what_lies_between_the_batch_and_the_log() -> None:
    (one,) = own_sources([source(json.dumps(END.to_json()), json.dumps(REPORT))])
    assert (one.id, one.group, one.member, one.rebalances) == ("1f", "g", "m", 2)
    assert one.lag == {ZERO: 3}
    assert one.last_handover == timedelta(milliseconds=40)


def test_a_query_that_has_read_nothing_is_known_by_its_report() -> None:
    (one,) = own_sources([source(None, json.dumps(REPORT))])
    assert (one.id, one.lag) == ("1f", {})


@pytest.mark.parametrize("name", ["etl", None])
@pytest.mark.parametrize("stateful", [True, False])
def test_sparks_own_text_tells_the_same_as_pysparks_event(name: str | None, stateful: bool) -> None:
    operators = [{"operatorName": "symmetricHashJoin"}] if stateful else []
    about = {"id": "7d", "name": name}
    ends = {"endOffset": END.to_json(), "latestOffset": REPORT}
    as_text = json.dumps(
        {
            **about,
            "stateOperators": operators,
            "sources": [ends, {"endOffset": None, "latestOffset": "7"}],
        }
    )
    told = from_json(as_text)
    assert told == from_event(
        SimpleNamespace(
            **about,
            stateOperators=[SimpleNamespace(**operator) for operator in operators],
            sources=[source(json.dumps(END.to_json()), json.dumps(REPORT)), source(None, "7")],
        )
    )
    assert (told.name, bool(told.state), len(told.sources)) == (name or "7d", stateful, 1)


@pytest.mark.parametrize(
    ("operators", "aggregates"),
    [
        ([], False),
        (["symmetricHashJoin"], False),
        (["dedupe", "dedupeWithinWatermark"], False),
        (["stateStoreSave"], True),
        (["symmetricHashJoin", "stateStoreSave"], True),
        (["an operator of a Spark to come"], True),
    ],
)
def test_what_a_replay_may_count_twice_aggregates(operators: list[str], aggregates: bool) -> None:
    about = {"id": "7d", "stateOperators": [{"operatorName": one} for one in operators]}
    told = from_json(json.dumps({**about, "sources": []}))
    assert (told.state, told.aggregates) == (frozenset(operators), aggregates)
    assert told.joins == ("symmetricHashJoin" in operators)


@pytest.mark.parametrize(
    "end",
    [
        *(None, "7", "null", '{"orders":{"0":23}}', "no json"),
        pytest.param("[" * 4096, id="a list of lists"),
    ],
)
def test_other_sources_are_left_alone(end: str | None) -> None:
    assert own_sources([source(end, end)]) == []


@pytest.mark.usefixtures("own_folder")
def test_who_drains_is_told_once() -> None:
    driver, reader = Rendezvous("5e55"), Rendezvous("5e55")
    driver.ask()
    assert reader.is_asked()
    assert not driver.is_done()
    reader.answer()
    assert driver.is_done()
    reader.clear()
    assert [reader.is_asked(), driver.is_done()] == [False] * 2


@pytest.mark.usefixtures("own_folder")
def test_what_is_known_of_a_checkpoint_holds_in_its_next_run() -> None:
    driver, reader = Rendezvous("5e55"), Rendezvous("5e55")
    assert [reader.is_stateful(), reader.is_aggregating()] == [False, False]
    driver.mark_stateful(aggregating=False)
    driver.mark_in_competition()
    driver.clear()
    assert [reader.is_stateful(), reader.is_aggregating()] == [True, False]
    assert reader.is_in_competition(), "what it has read since is read in part"
    driver.mark_stateful(aggregating=True)
    assert [reader.is_stateful(), reader.is_aggregating()] == [True, True]
    assert not reader.is_joining()
    driver.mark_stateful(aggregating=False, joining=True)
    assert reader.is_joining()


def test_a_folder_that_others_may_write_to_is_refused(own_folder: Path) -> None:
    """Who made it first could drain this user's queries."""
    there = own_folder / f"kafka_coop-spark-{os.getuid()}"
    Rendezvous("5e55").ask()
    there.chmod(0o777)
    with pytest.raises(MembershipError, match="TMPDIR"):
        Rendezvous("5e55")
    there.chmod(0o700)
    assert Rendezvous("5e55").is_asked()
    there.rename(own_folder / "elsewhere")
    there.symlink_to(own_folder / "elsewhere")
    with pytest.raises(MembershipError, match="TMPDIR"):
        Rendezvous("5e55")


@pytest.mark.parametrize("id_", ["", "../etc", "a b", "g" * 8])
def test_an_id_that_is_a_path_is_refused(id_: str) -> None:
    with pytest.raises(ValueError, match="checkpoint"):
        Rendezvous(id_)


@pytest.mark.parametrize(
    ("cluster", "group", "topic", "compete"),
    [("k", "g", "a", 2), ("other", "g", "a", 0), ("k", "other", "a", 0), ("k", "g", "other", 0)],
)
def test_sources_compete_in_one_group_of_one_cluster_for_one_topic(
    cluster: str, group: str, topic: str, compete: int
) -> None:
    one = {"id": "1f", "cluster": "k", "group": "g", "member": "m", "tps": {}, "topics": ["a"]}
    other = one | {"id": "2f", "cluster": cluster, "group": group, "topics": [topic]}
    sources = own_sources([source(None, json.dumps(told)) for told in (one, other)])
    assert len(in_competition(sources)) == compete
