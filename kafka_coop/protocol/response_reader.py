"""Reads answers by kio's description of them, without kio's reader.

kio's own reader (0.6) allocates whatever an array's length claims before it looks for the
elements; a length that lies then aborts the whole process, where no exception handler helps.
This one believes a length once that many elements could be there.

A message becomes a dict by field name. Fields that its version lacks are missing, so that
`dict.get` says what stands for them. Tagged fields (KIP-482) are skipped: no answer that we
read carries one that we need.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from datetime import timedelta
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.primitives import decode_text, lying, read_int16, read_int32, truncated

Values: TypeAlias = dict[str, Any]
Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
_Step: TypeAlias = Callable[[bytes, int, Values], int]

_LONGEST_VARINT = 5
_CODES = {int(code): code for code in ErrorCode}


def _error_code(number: int) -> ErrorCode:
    """A code newer than kio counts as UNKNOWN_SERVER_ERROR, as it does in Java."""
    return _CODES.get(number, ErrorCode.unknown_server_error)


def _milliseconds(number: int) -> timedelta:
    try:
        return timedelta(milliseconds=number)
    except OverflowError:
        raise MalformedDataError(f"a duration of {number} ms") from None


def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)


_FIXED: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "bool": ("?", None),
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "error_code": ("h", _error_code),
    "timedelta_i32": ("i", _milliseconds),
    "timedelta_i64": ("q", _milliseconds),
    "uuid": ("16s", _uuid),
}
"""kio's names of the types of fixed size -> `struct`'s name, and what becomes of the value."""


class _Kind(NamedTuple):
    """How to read one field.

    Attributes:
        name: The field's name.
        smallest: How many bytes it takes at least.
        code: `struct`'s name for it, "" where its size varies.
        convert: What becomes of a value of fixed size; None: it stays.
        read: How to read one of varying size.
    """

    name: str
    smallest: int
    code: str = ""
    convert: Callable[[Any], Any] | None = None
    read: Reader | None = None


def message_reader(entity: Any) -> Reader:
    """Compiles a kio dataclass into the reader of its bytes.

    The reader returns a dict and where the message ended, and raises MalformedDataError and
    nothing else, whatever the bytes.
    """
    return _structure(entity)[1]


def _structure(entity: Any) -> tuple[int, Reader]:
    """Returns how many bytes the structure takes at least, and its reader."""
    flexible: bool = entity.__flexible__
    kinds = [_kind(f, flexible=flexible) for f in fields(entity) if "tag" not in f.metadata]
    steps = list(_steps(kinds))
    if flexible:
        steps.append(_skip_tagged_fields)

    def read(data: bytes, at: int) -> tuple[Values, int]:
        values: Values = {}
        for step in steps:
            at = step(data, at, values)
        return values, at

    return sum(kind.smallest for kind in kinds) + flexible, read


def _kind(field: Field[Any], *, flexible: bool) -> _Kind:
    arguments = typing.get_args(field.type)
    nullable = type(None) in arguments
    inner = next((a for a in arguments if a is not type(None)), None) if nullable else field.type
    kafka_type = field.metadata.get("kafka_type")
    length = _compact_length if flexible else _array_length
    if typing.get_origin(inner) is tuple:
        smallest, element = _element(typing.get_args(inner)[0], kafka_type, flexible=flexible)
        return _Kind(field.name, 1 if flexible else 4, read=_array(length, smallest, element))
    if kafka_type in _FIXED:
        code, convert = _FIXED[kafka_type]
        return _Kind(field.name, struct.calcsize(">" + code), code, convert)
    smallest, reader = _text_or_bytes(kafka_type, flexible=flexible, nullable=nullable)
    return _Kind(field.name, smallest, read=reader)


def _element(item: Any, kafka_type: str | None, *, flexible: bool) -> tuple[int, Reader]:
    if kafka_type is None:
        return _structure(item)
    if kafka_type in _FIXED:
        code, convert = _FIXED[kafka_type]
        return struct.calcsize(">" + code), _single(struct.Struct(">" + code), convert)
    return _text_or_bytes(kafka_type, flexible=flexible, nullable=False)


def _steps(kinds: list[_Kind]) -> Iterator[_Step]:
    """One step a field, but one for all of fixed size that stand together."""
    for fixed, run in groupby(kinds, key=lambda kind: bool(kind.code)):
        if fixed:
            yield _fixed_step(list(run))
        else:
            yield from map(_varying_step, run)


def _fixed_step(kinds: list[_Kind]) -> _Step:
    layout = struct.Struct(">" + "".join(kind.code for kind in kinds))
    names = [kind.name for kind in kinds]
    conversions = [(kind.name, kind.convert) for kind in kinds if kind.convert]
    size, unpack = layout.size, layout.unpack_from

    def step(data: bytes, at: int, values: Values) -> int:
        if at + size > len(data):
            raise truncated(data, at)
        values.update(zip(names, unpack(data, at), strict=True))
        for name, convert in conversions:
            values[name] = convert(values[name])
        return at + size

    return step


def _varying_step(kind: _Kind) -> _Step:
    name, read = kind.name, kind.read
    assert read is not None, "only types of fixed size have none"

    def step(data: bytes, at: int, values: Values) -> int:
        values[name], at = read(data, at)
        return at

    return step


def _single(layout: struct.Struct, convert: Callable[[Any], Any] | None) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        if at + layout.size > len(data):
            raise truncated(data, at)
        (value,) = layout.unpack_from(data, at)
        return (convert(value) if convert else value), at + layout.size

    return read


# --- what varies in size -------------------------------------------------------------------


def _array(length: Reader, smallest: int, element: Reader) -> Reader:
    """The reader of an array; null counts as empty."""

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        count, begin = length(data, at)
        if count < -1 or count * smallest > len(data) - begin:
            raise lying(data, at, count)
        elements = []
        at = begin
        for _ in range(count):
            value, at = element(data, at)
            elements.append(value)
        return tuple(elements), at

    return read


def _text_or_bytes(kafka_type: str | None, *, flexible: bool, nullable: bool) -> tuple[int, Reader]:
    """Returns how many bytes it takes at least, and its reader.

    Null where Kafka has none counts as empty: so librdkafka's mock cluster answers a JoinGroup,
    a SyncGroup or a FindCoordinator that it refuses, and the error is what matters there.
    """
    text = kafka_type == "string"
    if not text and kafka_type != "bytes":
        raise TypeError(f"no reader for kio's type {kafka_type!r}")
    length = _compact_length if flexible else read_int16 if text else read_int32
    empty: str | bytes = "" if text else b""

    def read(data: bytes, at: int) -> tuple[str | bytes | None, int]:
        size, begin = length(data, at)
        if size == -1:
            return (None if nullable else empty), begin
        end = begin + size
        if size < 0 or end > len(data):
            raise lying(data, at, size)
        raw = data[begin:end]
        return (decode_text(raw, begin) if text else raw), end

    return (1 if flexible else 2 if text else 4), read


def _array_length(data: bytes, at: int) -> tuple[int, int]:
    return read_int32(data, at)


def _compact_length(data: bytes, at: int) -> tuple[int, int]:
    """A length as flexible versions write it: one more than it is, so that 0 is null."""
    number, at = _varint(data, at)
    return number - 1, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for nth in range(_LONGEST_VARINT):
        if at + nth >= len(data):
            raise truncated(data, at)
        byte = data[at + nth]
        value |= (byte & 0x7F) << 7 * nth
        if byte < 0x80:  # noqa: PLR2004  # the bit that says "more"
            return value, at + nth + 1
    raise MalformedDataError(f"a varint of more than {_LONGEST_VARINT} bytes at byte {at}")


def _skip_tagged_fields(data: bytes, at: int, _values: Values) -> int:
    count, at = _varint(data, at)
    for _ in range(count):
        _, at = _varint(data, at)
        size, begin = _varint(data, at)
        at = begin + size
        if at > len(data):
            raise lying(data, begin, size)
    return at


def skip_tagged_fields(data: bytes, at: int) -> int:
    """Returns where the tagged fields that begin there end.

    Raises:
        MalformedDataError: The bytes are none.
    """
    return _skip_tagged_fields(data, at, {})
