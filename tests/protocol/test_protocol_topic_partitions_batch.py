from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from protocol_strategies import partition_sets

import kafka_coop.protocol.topic_names as topic_names_module
from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.partition_sets import PartitionSets
from kafka_coop.protocol.topic_names import TopicNames
from kafka_coop.protocol.topic_partitions import decode_topic_partitions, encode_topic_partitions
from kafka_coop.protocol.topic_partitions_batch import PADDING, read_sets, write_sets
from kafka_coop.types import Partitions

ENOUGH = 24
"""From this many arrays on they are read in step."""
PLAIN_TOPICS = 5


def read(arrays: list[bytes]) -> list[tuple[Partitions, int] | None]:
    """Per array what it holds and its size, or None where it has to be read alone."""
    taken = np.array([len(a) for a in arrays], np.int64)
    ends = np.cumsum(taken)
    begins = ends - taken
    buffer = b"".join((*arrays, PADDING))
    sets, finish, odd = read_sets(buffer, begins, ends, TopicNames())
    sizes = (finish - begins).tolist()
    return [
        None if alone else (value, size)
        for value, size, alone in zip(sets.values(), sizes, odd.tolist(), strict=True)
    ]


def alone(data: bytes) -> tuple[Partitions, int] | None:
    try:
        return decode_topic_partitions(data)
    except MalformedDataError:
        return None


def padded(arrays: list[bytes]) -> list[bytes]:
    """Enough of them, the odd ones spread among plain ones."""
    topics = [f"q{j}" for j in range(PLAIN_TOPICS - 1)]
    plain = [
        encode_topic_partitions(Partitions({f"p{i}": [i], **{key: [0, i] for key in topics}}))
        for i in range(1, 61)
    ]
    return plain[:30] + arrays + plain[30:]


def agrees(arrays: list[bytes]) -> list[tuple[Partitions, int] | None]:
    """Decodes; whatever is decoded must be what each array alone gives."""
    answers = read(arrays)
    for data, answer in zip(arrays, answers, strict=True):
        assert answer is None or answer == alone(data)
    return answers


@given(st.lists(partition_sets, max_size=20), st.binary(max_size=8))
def test_sets_survive(sets: list[Partitions], behind: bytes) -> None:
    arrays = padded([encode_topic_partitions(s) + behind for s in sets])
    answers = agrees(arrays)[30:-30]
    for partitions, answer in zip(sets, answers, strict=True):
        more_than_others = len(partitions.topics()) > PLAIN_TOPICS
        long_name = any(len(t.encode()) > 255 for t in partitions.topics())
        assert (answer is None) == (more_than_others or long_name)


@given(st.lists(st.binary(max_size=40), max_size=20))
@example([b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\0", b"\0\0\0\1\0\1a\0\0\0\1\0\0\0"])
@example([b"\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0"])
@example([b"\0\0\0\2\0\0\x7f\xff\xff\xff\0\0\0\0\0\0"])
def test_any_bytes_are_decoded_alike_or_left_alone(arrays: list[bytes]) -> None:
    agrees(padded(arrays))


@pytest.mark.parametrize(
    "odd",
    [
        [("a", [3, 1])],
        [("a", [1, 1])],
        [("a", [-1, 1])],
        [("a", [1]), ("a", [2])],
        [("b", [1]), ("a", [2])],
        [("a", [])],
    ],
    ids=["unsorted", "repeated", "negative", "topic twice", "topics unsorted", "no partition"],
)
@pytest.mark.parametrize("place", [0, 30, 60])
def test_odd_claims_are_left_to_the_careful_reader(
    odd: list[tuple[str, list[int]]], place: int
) -> None:
    data = len(odd).to_bytes(4, "big")
    for topic, numbers in odd:
        data += len(topic).to_bytes(2, "big") + topic.encode() + len(numbers).to_bytes(4, "big")
        data += b"".join(n.to_bytes(4, "big", signed=True) for n in numbers)
    arrays = padded([])
    arrays.insert(place, data)
    answers = agrees(arrays)
    assert [i for i, answer in enumerate(answers) if answer is None] == [place]


def test_a_topic_that_is_no_text_spoils_its_member_alone() -> None:
    answers = agrees(padded([b"\0\0\0\1\0\1\xff\0\0\0\1\0\0\0\0"]))
    assert [i for i, answer in enumerate(answers) if answer is None] == [30]


def test_few_arrays_are_left_alone() -> None:
    data = encode_topic_partitions(Partitions({"a": [1]}))
    assert read([data] * (ENOUGH - 1)) == [None] * (ENOUGH - 1)
    assert read([data] * ENOUGH) == [decode_topic_partitions(data)] * ENOUGH


def test_members_of_equal_topics_share_their_names() -> None:
    sets = [Partitions({f"t{j}": [i] for j in range(20)}) for i in range(100)]
    answers = agrees([encode_topic_partitions(s) for s in sets])
    assert len({id(a[0].topics()) for a in answers if a is not None}) == 1


def written(sets: list[Partitions] | PartitionSets) -> list[bytes]:
    columns = sets if isinstance(sets, PartitionSets) else PartitionSets.of(sets)
    runs, begins = write_sets(columns)
    counts = np.diff(columns.begins).tolist()
    ends = begins.tolist()
    return [
        n.to_bytes(4, "big") + bytes(runs[a:b])
        for n, a, b in zip(counts, ends, ends[1:], strict=False)
    ]


@pytest.mark.parametrize("seed", range(2))
def test_a_large_group_of_many_topics(seed: int) -> None:
    """More names than an index is first made of; names of all lengths."""
    chance = random.Random(seed)
    names = ["x" * chance.randrange(60) + f"{i:x}" for i in range(3_000)]
    sets = [
        Partitions(
            {t: {chance.randrange(10_000) for _ in range(3)} for t in chance.sample(names, 200)}
        )
        for _ in range(300)
    ]
    arrays = written(sets)
    assert arrays == [encode_topic_partitions(s) for s in sets]
    assert read(arrays) == [(s, len(a)) for s, a in zip(sets, arrays, strict=True)]


def test_names_made_to_collide_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_names_module, "_MULTIPLIERS", np.zeros(40, np.uint64))
    sets = [Partitions({f"t{i}-{j}": [j] for j in range(10)}) for i in range(60)]
    answers = read([encode_topic_partitions(s) for s in sets])
    assert [a[0] for a in answers if a is not None] == sets


@given(st.lists(partition_sets, max_size=12))
def test_a_batch_is_written_as_its_sets_are(sets: list[Partitions]) -> None:
    assert written(sets) == [encode_topic_partitions(s) for s in sets]


@pytest.mark.parametrize(
    "names", [("a", "b"), ("a", "bbb"), ("a", "bbb", "cc"), ("é", "ab")], ids="-".join
)
@pytest.mark.parametrize("unused", [(), ("zz",), ("much longer",)], ids=str)
def test_runs_of_one_partition_each_keep_their_names(
    names: tuple[str, ...], unused: tuple[str, ...]
) -> None:
    """With names of one length they are as long as each other, and not the same bytes."""
    sets = [Partitions({t: [100 * i + j]}) for i in range(3) for j, t in enumerate(names)]
    columns = PartitionSets.of(sets)
    among_more = replace(
        columns, names=(*unused, *columns.names), topics=columns.topics + len(unused)
    )
    assert written(among_more) == [encode_topic_partitions(s) for s in sets]


def test_a_name_beyond_kafkas_limit_is_not_written() -> None:
    with pytest.raises(ValueError, match="32767"):
        written([Partitions({"t" * 40_000: [1]})])
