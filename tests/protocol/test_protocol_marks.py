from __future__ import annotations

import struct
import zlib
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_strategies import broken, generations, partition_sets, user_data

from kafka_coop.protocol.marks import (
    AssignmentMarks,
    Marks,
    SubscriptionMarks,
    append_marks,
    split_marks,
)
from kafka_coop.protocol.subscription import decode_subscription, encode_subscription
from kafka_coop.protocol.user_data import (
    Claim,
    decode_claim,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, Subscription, TopicPartition

float32 = st.floats(0, 2.0**100, width=32)
loads = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 99)), float32
)
subscription_marks = st.builds(
    SubscriptionMarks,
    rejoin=st.integers(0, 2**64 - 1),
    draining=st.booleans(),
    load=loads,
    busy=st.booleans(),
)
assignment_marks = st.builds(
    AssignmentMarks,
    follow_up=st.booleans(),
    ahead=st.booleans(),
    heartbeat_interval=st.none()
    | st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=365)),
    leads=st.none() | st.builds(Generation, st.integers(-1, 2**31 - 1)),
    recalled=st.dictionaries(st.text(max_size=9), partition_sets, max_size=3),
)
marks_of_both_kinds: st.SearchStrategy[Marks] = subscription_marks | assignment_marks

EVERYTHING = SubscriptionMarks(
    rejoin=3, draining=True, load={TopicPartition("a", 0): 1.5, TopicPartition("b", 2): 0.0}
)
MAGIC = b"\xabkco\xbcop\xab"


def trailer(
    before: bytes,
    fields: list[tuple[int, bytes]],
    *,
    was: int = 0,
    kind: int = 1,
    version: int = 1,
) -> bytes:
    """Written by hand from the module's own description, for versions yet to come."""
    body = b"".join(struct.pack(">BI", tag, len(value)) + value for tag, value in fields)
    checked = before + body + struct.pack(">BBBI", was, kind, version, len(body))
    return checked + struct.pack(">I", zlib.crc32(checked)) + MAGIC


@given(user_data, marks_of_both_kinds)
def test_marks_survive(data: bytes | None, marks: Marks) -> None:
    assert split_marks(append_marks(data, marks)) == (data, marks)


@given(user_data, marks_of_both_kinds, marks_of_both_kinds)
def test_marks_upon_marks_come_off_one_by_one(
    data: bytes | None, first: Marks, second: Marks
) -> None:
    once = append_marks(data, first)
    assert split_marks(append_marks(once, second)) == (once, second)


def test_golden_bytes() -> None:
    written = append_marks(b"\0\0\0\5", SubscriptionMarks(rejoin=2, draining=True))
    assert written == trailer(b"\0\0\0\5", [(1, b"\0\0\0\0\0\0\0\2"), (2, b"")])
    interval = AssignmentMarks(follow_up=True, heartbeat_interval=timedelta(milliseconds=100))
    nothing = b"\0\0\0\0\xff\xff\xff\xff"
    fields = [(16, b""), (17, (100_000).to_bytes(8, "big"))]
    assert append_marks(b"", interval) == trailer(nothing, fields, was=2, kind=2)
    assert append_marks(None, interval) == trailer(nothing, fields, was=1, kind=2)
    recalled = AssignmentMarks(recalled={"me": Partitions({"t": [7]}), "you": NO_PARTITIONS})
    said = b"\0\2me\0\0\0\1\0\1t\0\0\0\1\0\0\0\7" + b"\0\3you\0\0\0\0"
    assert append_marks(b"x", recalled) == trailer(b"x", [(19, said)], kind=2)


@given(user_data, st.integers(0, 1000))
def test_a_forced_rejoin_changes_the_bytes(data: bytes | None, rejoin: int) -> None:
    before, after = (append_marks(data, SubscriptionMarks(rejoin=n)) for n in (rejoin, rejoin + 1))
    assert before != after
    assert before == append_marks(data, SubscriptionMarks(rejoin=rejoin))


def test_load_is_kept_to_seven_digits() -> None:
    load = {TopicPartition("a", 0): 1 / 3}
    _, marks = split_marks(append_marks(None, SubscriptionMarks(load=load)))
    assert isinstance(marks, SubscriptionMarks)
    assert marks.load == {TopicPartition("a", 0): float(np.float32(1 / 3))}


# --- what peers see ------------------------------------------------------------------------


@given(generations, subscription_marks)
def test_java_cooperative_sticky_reads_its_generation(
    generation: Generation, marks: SubscriptionMarks
) -> None:
    assert decode_generation(append_marks(encode_generation(generation), marks)) == generation


@given(partition_sets, generations, subscription_marks)
def test_sticky_v1_readers_read_their_claim(
    owned: Partitions, generation: Generation, marks: SubscriptionMarks
) -> None:
    claim = Claim(owned=owned, generation=generation)
    assert decode_sticky(append_marks(encode_sticky(claim), marks)) == claim


@pytest.mark.parametrize("nothing", [None, b""])
@given(marks=subscription_marks)
def test_absent_user_data_claims_nothing(nothing: bytes | None, marks: SubscriptionMarks) -> None:
    assert decode_sticky(append_marks(nothing, marks)) == Claim()


@given(partition_sets, generations, st.sampled_from(["v0", "v1", "generation"]))
def test_no_peers_bytes_are_taken_for_marks(
    owned: Partitions, generation: Generation, layout: str
) -> None:
    claim = encode_sticky(Claim(owned=owned, generation=generation))
    data = {"v0": claim[:-4], "v1": claim, "generation": encode_generation(generation)}[layout]
    assert split_marks(data) == (data, None)


def test_by_layout_no_peers_bytes_can_end_in_the_magic() -> None:
    """All end in a generation, a partition or a length; none of these is below -1."""
    assert int.from_bytes(append_marks(None, EVERYTHING)[-4:], "big", signed=True) < -1


@given(marks_of_both_kinds, user_data)
def test_marks_travel_in_a_subscription(marks: Marks, data: bytes | None) -> None:
    sent = encode_subscription(Subscription(topics=("a",), user_data=append_marks(data, marks)))
    assert split_marks(decode_subscription(sent).user_data) == (data, marks)


# --- other versions ------------------------------------------------------------------------


@given(
    user_data.filter(bool),
    st.lists(st.tuples(st.integers(100, 255), st.binary(max_size=20)), max_size=4),
    st.integers(2, 255),
)
def test_a_newer_versions_fields_are_skipped(
    data: bytes, unknown: list[tuple[int, bytes]], version: int
) -> None:
    fields = [*unknown[:2], (1, b"\0\0\0\0\0\0\0\7"), *unknown[2:], (2, b"")]
    newer = trailer(data, fields, version=version)
    assert split_marks(newer) == (data, SubscriptionMarks(rejoin=7, draining=True))


def test_a_field_may_grow_at_its_end() -> None:
    newer = trailer(b"x", [(1, b"\0\0\0\0\0\0\0\7 grown"), (2, b"since noon")], version=2)
    assert split_marks(newer) == (b"x", SubscriptionMarks(rejoin=7, draining=True))


def test_an_older_version_lacks_fields() -> None:
    assert split_marks(trailer(b"x", [])) == (b"x", SubscriptionMarks())
    assert split_marks(trailer(b"x", [], kind=2)) == (b"x", AssignmentMarks())


def test_an_unknown_kind_comes_off_unread() -> None:
    assert split_marks(trailer(b"x", [(1, b"?")], kind=9)) == (b"x", None)


# --- broken and hostile --------------------------------------------------------------------


@given(st.none() | st.binary(max_size=100))
def test_bytes_without_marks_come_back(data: bytes | None) -> None:
    assert split_marks(data) == (data, None)
    if data is not None:
        assert split_marks(data + MAGIC) == (data + MAGIC, None)


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0\5"])
def test_broken_marks_come_back_as_they_are(data: bytes | None) -> None:
    for spoilt in broken(append_marks(data, EVERYTHING), seed=0):
        if spoilt != append_marks(data, EVERYTHING):
            assert split_marks(spoilt) == (spoilt, None)


def test_marks_behind_other_bytes_than_theirs_are_not_believed() -> None:
    moved = b"other bytes" + append_marks(b"data", EVERYTHING)
    assert split_marks(moved) == (moved, None)


@pytest.mark.parametrize("was", [1, 2, 3, 255])
def test_a_footer_that_lies_about_the_user_data_is_not_believed(was: int) -> None:
    lying = trailer(b"not nothing", [], was=was)
    assert split_marks(lying) == (lying, None)


@given(
    st.sampled_from([1, 2]),
    st.lists(
        st.tuples(st.sampled_from([1, 2, 3, 16, 17, 18, 19]), st.binary(max_size=30)), max_size=5
    ),
)
def test_whatever_a_liar_signs_is_read(kind: int, fields: list[tuple[int, bytes]]) -> None:
    data, marks = split_marks(trailer(b"x", fields, kind=kind))
    assert data == b"x"
    match marks:
        case SubscriptionMarks():
            assert marks.rejoin >= 0
            assert all(0 <= load < float("inf") for load in marks.load.values())
        case AssignmentMarks():
            assert marks.heartbeat_interval is None or marks.heartbeat_interval > timedelta(0)
        case None:
            pytest.fail("a kind that we know gives marks")


def test_loads_that_are_none_are_dropped() -> None:
    partitions = Partitions({"a": [0, 1, 2, 3]})
    values = np.array([1, -1, np.inf, np.nan], ">f4").tobytes()
    load = encode_sticky(Claim(owned=partitions))[:-4] + values
    assert split_marks(trailer(b"x", [(3, load)])) == (
        b"x",
        SubscriptionMarks(load={TopicPartition("a", 0): 1.0}),
    )
    assert split_marks(trailer(b"x", [(3, load[:-1])])) == (b"x", SubscriptionMarks())


@pytest.mark.parametrize(
    "said", [b"\0", b"\0\2me\0\0\0\1", b"\0\2me\0\0\0\0\0\3yo", b"\0\1\xff\0\0\0\0"]
)
def test_what_was_recalled_is_read_as_a_whole_or_not_at_all(said: bytes) -> None:
    assert split_marks(trailer(b"x", [(19, said)], kind=2)) == (b"x", AssignmentMarks())


def test_the_longest_interval_is_a_timedelta() -> None:
    _, marks = split_marks(trailer(b"x", [(17, b"\xff" * 8)], kind=2))
    assert marks == AssignmentMarks(heartbeat_interval=timedelta(microseconds=2**64 - 1))


def test_a_cut_off_field_ends_the_fields() -> None:
    body = struct.pack(">BI", 2, 0) + struct.pack(">BI", 1, 999)
    checked = b"x" + body + struct.pack(">BBBI", 0, 1, 1, len(body))
    data = checked + struct.pack(">I", zlib.crc32(checked)) + MAGIC
    assert split_marks(data) == (b"x", SubscriptionMarks(draining=True))


def test_decode_claim_needs_the_marks_split_off() -> None:
    data, _ = split_marks(append_marks(encode_generation(Generation(4)), EVERYTHING))
    assert decode_claim(data) == Claim(generation=Generation(4))
