from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.spark.errors import CheckpointError
from kafka_coop.spark.offsets import (
    Claim,
    Known,
    Range,
    SourceOffset,
    TakenOver,
    claim_of,
    parse_offset,
    taken_of,
)
from kafka_coop.types import TopicPartition

TEXT = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=8)
NAMES = st.text("ab.-_0", min_size=1, max_size=8)
RANGES = st.tuples(st.integers(0, 1 << 60), st.integers(0, 1 << 20)).map(
    lambda pair: Range(pair[0], sum(pair))
)
KNOWN = st.builds(Known, st.integers(0, 1 << 60), st.frozensets(TEXT, min_size=1, max_size=3))
OFFSETS = st.builds(
    SourceOffset,
    group=TEXT,
    id=TEXT,
    run=TEXT,
    topics=st.dictionaries(NAMES, st.integers(1, 9)),
    ids=st.dictionaries(NAMES, TEXT),
    ranges=st.dictionaries(st.builds(TopicPartition, NAMES, st.integers(0, 99)), RANGES),
    known=st.dictionaries(st.builds(TopicPartition, NAMES, st.integers(0, 99)), KNOWN),
    taken=st.builds(TakenOver, st.booleans(), st.booleans()),
)


GOOD = {"v": 1, "group": "g", "id": "i", "run": "r", "topics": {}, "tps": {"a:0": [0, 1]}}


@given(OFFSETS)
def test_an_offset_survives_the_checkpoint(offset: SourceOffset) -> None:
    logged = json.dumps(offset.to_json())
    assert parse_offset(json.loads(logged), group=offset.group) == offset
    assert taken_of(json.loads(logged)) == offset.taken


def test_nothing_was_read_before_the_first_batch() -> None:
    assert parse_offset({}, group="g") is None


@pytest.mark.parametrize(
    ("given_offset", "told"),
    [
        (
            {"orders": {"0": 23}, "others" * 100: {"0": 1, "11": 5}},
            r'Spark\'s own source.* startingOffsets to .*: \{"orders".*"11": 5\}\}$',
        ),
        ({"orders": 23}, "another source"),
        ({"orders": {"0": None}}, "another source"),
        (0, "another source"),
        (7, "another source"),
        (None, "another source"),
        ([], "another source"),
        ({"v": 2, "tps": {}}, "version 2"),
        ({"v": 1, "group": "other", "tps": {}}, "group 'other'"),
        (GOOD | {"tps": {"a": [0, 1]}}, "read"),
        (GOOD | {"tps": {"a:0": [2, 1]}}, "read"),
        (GOOD | {"topics": []}, "read"),
        ({"v": 1, "group": "g", "tps": {}}, "read"),
        (GOOD | {"known": {"a:0": [-1, "r"]}}, "read"),
        (GOOD | {"known": {"a:0": []}}, "read"),
        (GOOD | {"known": {"a:0": "r"}}, "read"),
        (GOOD | {"known": []}, "read"),
    ],
)
def test_other_checkpoints_are_refused_with_a_remedy(given_offset: object, told: str) -> None:
    with pytest.raises(CheckpointError, match=told) as raised:
        parse_offset(given_offset, group="g")
    assert "checkpointLocation" in str(raised.value)


@given(TEXT, st.none() | TEXT)
def test_a_claim_survives_the_commit(run: str, after: str | None) -> None:
    assert claim_of(Claim(run, after).to_metadata()) == Claim(run, after)


@given(st.none() | st.text() | st.from_type(dict).map(str))
def test_metadata_of_others_is_no_claim(metadata: str | None) -> None:
    assert claim_of(metadata) is None


@pytest.mark.parametrize(
    "metadata",
    ["[" * 4096, '{"":' * 1024, '{"kafka_coop":%s}' % ("1" * 5000)],
    ids=["a list of lists", "an object of objects", "a long number"],
)
def test_metadata_that_json_gives_up_on_is_no_claim(metadata: str) -> None:
    """Whoever may commit for the group writes it, up to offset.metadata.max.bytes: 4096."""
    assert claim_of(metadata) is None


@pytest.mark.parametrize(
    "metadata", ['{"kafka_coop":2,"run":"r"}', '{"kafka_coop":1,"run":7}', "[]"]
)
def test_claims_of_other_versions_are_none(metadata: str) -> None:
    assert claim_of(metadata) is None
