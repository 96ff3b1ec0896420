from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_samples import EVERY_VERSION, kio_class, kio_write

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.response_reader import message_reader, skip_tagged_fields


def untagged(value: Any) -> Any:
    """kio's entity as the reader gives it: dicts, without tagged fields, null arrays empty."""
    if isinstance(value, tuple):
        return tuple(map(untagged, value))
    if not dataclasses.is_dataclass(value):
        return value
    return {
        f.name: untagged(getattr(value, f.name))
        for f in dataclasses.fields(value)
        if "tag" not in f.metadata
    }


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=10)
@given(data=st.data())
def test_every_field_is_what_kio_wrote(api: str, version: int, data: st.DataObject) -> None:
    entity = kio_class(api, version, "Response")
    value = data.draw(st.from_type(entity))
    written = kio_write(value)
    values, end = message_reader(entity)(b"##" + written, 2)
    assert end == 2 + len(written)
    expected = untagged(value)
    for name in ("topic_id",):  # kio reads and writes the zero UUID as None
        for topic in expected.get("topics", ()):
            if name in topic and topic[name] is None:
                topic[name] = values["topics"][expected["topics"].index(topic)][name]
                assert topic[name].int == 0
    assert values == expected


@pytest.mark.parametrize(
    "length", ["ffffffff07", "ffffffff0f", "feffffff0f", "8080808008", "ffffff7f"]
)
def test_a_lying_length_costs_no_memory(length: str) -> None:
    """kio's own reader (0.6.5) takes 16 bytes for each claimed element, or aborts."""
    read = message_reader(kio_class("metadata", 12, "Response"))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedDataError, match=r"a length of \d{9}"):
            read(b"\0\0\0\0" + bytes.fromhex(length) + bytes(30), 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_varint_has_an_end() -> None:
    with pytest.raises(MalformedDataError, match="varint"):
        skip_tagged_fields(b"\x80" * 6, 0)


def test_tagged_fields_are_skipped() -> None:
    assert skip_tagged_fields(bytes.fromhex("020103aabbcc800100ff"), 0) == 9


@pytest.mark.parametrize("data", ["", "01", "0100", "010005", "0100058000"])
def test_tagged_fields_that_are_cut_off_are_malformed(data: str) -> None:
    with pytest.raises(MalformedDataError):
        skip_tagged_fields(bytes.fromhex(data), 0)
