from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.broker.frames import FrameSplitter, frame
from kafka_coop.errors import MalformedDataError

payloads = st.lists(st.binary(min_size=4, max_size=40), max_size=6)


@given(payloads, st.lists(st.integers(1, 30), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    sent: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(frame(each) for each in sent)
    splitter = FrameSplitter(max_bytes=40)
    received: list[bytes] = []
    at = 0
    for size in itertools.cycle(cuts):
        if at >= len(stream):
            break
        splitter.feed(stream[at : at + size])
        received += splitter.frames()
        at += size
    assert received == sent
    assert splitter.unfinished == 0


@given(payloads, st.integers(0, 43))
def test_a_cut_stream_keeps_its_rest(sent: list[bytes], missing: int) -> None:
    stream = b"".join(frame(each) for each in [*sent, bytes(40)])
    splitter = FrameSplitter(max_bytes=40)
    splitter.feed(stream[: len(stream) - 1 - missing])
    assert list(splitter.frames()) == sent
    assert splitter.unfinished == 43 - missing


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"\xff\xff\xff\xff", "-1 bytes"),
        (b"\x80\x00\x00\x00", "-2147483648 bytes"),
        (b"\x00\x00\x00\x00", "cannot have 0 bytes"),
        (b"\x00\x00\x00\x03", "cannot have 3 bytes"),
        (b"\x00\x00\x00\x29", "receive.message.max.bytes=40"),
        (b"\x15\x03\x03\x00", "TLS listener"),
        (b"HTTP/1.1 400", "not Kafka's"),
    ],
)
def test_an_impossible_length_is_refused_after_the_frames_before_it(head: bytes, said: str) -> None:
    splitter = FrameSplitter(max_bytes=40)
    splitter.feed(frame(b"good") + head)
    frames = splitter.frames()
    assert next(frames) == b"good"
    with pytest.raises(MalformedDataError, match=said):
        next(frames)


def test_the_largest_frame_allowed_is_taken() -> None:
    splitter = FrameSplitter(max_bytes=40)
    splitter.feed(frame(bytes(40)))
    assert list(splitter.frames()) == [bytes(40)]


def test_who_has_not_logged_in_yet_may_not_say_much() -> None:
    """It may be anybody: what it says is read into objects that take many times its bytes."""
    splitter = FrameSplitter(max_bytes=1 << 30, greeting=True)
    splitter.feed(frame(bytes(1 << 20)))
    assert len(next(splitter.frames())) == 1 << 20
    head = ((1 << 20) + 1).to_bytes(4, "big")
    splitter.feed(head)
    with pytest.raises(MalformedDataError, match="before the login is done"):
        next(splitter.frames())
    splitter.greeted()
    assert list(splitter.frames()) == []
    small = FrameSplitter(max_bytes=40, greeting=True)
    small.feed(head)
    with pytest.raises(MalformedDataError, match=r"receive.message.max.bytes=40"):
        next(small.frames())
