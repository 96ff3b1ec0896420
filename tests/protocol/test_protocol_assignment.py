from __future__ import annotations

import contextlib
import io
import struct
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from protocol_strategies import INT32, broken, partition_sets, topic_names

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.assignment import decode_assignment, encode_assignment, encode_assignments
from kafka_coop.protocol.partition_sets import PartitionSets
from kafka_coop.types import Assignment, Partitions

VERSIONS = (0, 1, 2, 3)

EXAMPLE = Assignment(partitions=Partitions({"a": [0, 7], "bc": [1]}), user_data=b"xy")
EXAMPLE_BYTES = bytes.fromhex(
    "0000"
    "00000002"
    "0001" "61" "00000002" "00000000" "00000007"
    "0002" "6263" "00000001" "00000001"
    "00000002" "7879"
)  # fmt: skip

assignments = st.builds(Assignment, partitions=partition_sets, user_data=st.binary(max_size=20))


def kio_module(version: int) -> Any:
    return import_module(f"kio.schema.consumer_protocol_assignment.v{version}.data")


def test_golden_bytes() -> None:
    assert encode_assignment(EXAMPLE) == EXAMPLE_BYTES
    assert decode_assignment(EXAMPLE_BYTES) == EXAMPLE


def test_the_version_written_is_the_one_that_all_readers_know() -> None:
    assert encode_assignment(EXAMPLE)[:2] == b"\0\0"


@pytest.mark.parametrize("version", VERSIONS)
@given(assignment=assignments)
def test_round_trip_and_kio(version: int, assignment: Assignment) -> None:
    data = encode_assignment(assignment, version=version)
    assert decode_assignment(data) == assignment
    assert struct.unpack_from(">h", data)[0] == version
    reader = entity_reader(kio_module(version).ConsumerProtocolAssignment)
    seen, size = reader(data, 2)
    assert 2 + size == len(data)
    assert seen.user_data == (assignment.user_data or None)
    partitions = [(t.topic, p) for t in seen.assigned_partitions for p in t.partitions]
    assert partitions == list(assignment.partitions)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    topics=st.lists(st.tuples(topic_names, st.lists(INT32, max_size=5)), max_size=5),
    user_data=st.none() | st.binary(max_size=10),
    more=st.binary(max_size=5),
)
def test_we_read_what_kio_writes(
    version: int, topics: list[tuple[str, list[int]]], user_data: bytes | None, more: bytes
) -> None:
    module = kio_module(version)
    entity = module.ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            module.TopicPartition(topic=t, partitions=tuple(p)) for t, p in topics
        ),
        user_data=user_data,
    )
    buffer = io.BytesIO()
    entity_writer(module.ConsumerProtocolAssignment)(buffer, entity)
    data = struct.pack(">h", version) + buffer.getvalue() + more
    assert decode_assignment(data) == Assignment(
        partitions=Partitions.of((t, p) for t, ps in topics for p in ps if p >= 0),
        user_data=user_data or b"",
    )


@given(st.lists(assignments, max_size=10))
def test_a_batch_is_written_as_its_members_are(group: list[Assignment]) -> None:
    sets = PartitionSets.of([a.partitions for a in group])
    together = encode_assignments(sets, [a.user_data for a in group])
    assert together == [encode_assignment(a) for a in group]


def test_an_unknown_version_is_not_written() -> None:
    with pytest.raises(ValueError, match="versions 0 to 3"):
        encode_assignment(EXAMPLE, version=4)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\xff\xff\0\0\0\0\xff\xff\xff\xff"])
def test_what_is_no_assignment_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedDataError):
        decode_assignment(data)


def decodes_or_is_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedDataError):
        decode_assignment(data)


@given(st.binary(max_size=100))
def test_any_bytes_decode_or_are_malformed(data: bytes) -> None:
    decodes_or_is_malformed(data)
    decodes_or_is_malformed(b"\0\1" + data)


def test_broken_bytes_decode_or_are_malformed() -> None:
    for data in broken(EXAMPLE_BYTES, seed=0):
        decodes_or_is_malformed(data)
