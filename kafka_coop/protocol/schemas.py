"""kio's description of a message in one version: loaded on first use, read by our own reader.

kio describes every message of Kafka in every version as dataclasses; importing them all would
take seconds, so a version is imported when it is first spoken.

Requests are written by kio. Answers are read here, by kio's description but not by its reader:
that one (0.6) allocates whatever an array's length claims, and a length that lies aborts the
process, where no exception handler helps. This reader believes a length once that many elements
could be there. It gives dicts: a field that a version lacks is missing, and `dict.get` says
what stands for it. Tagged fields are skipped: no answer we read carries one that we need.
"""

from __future__ import annotations

import io
import struct
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.primitives import (
    decode_text,
    lying,
    read_int16,
    read_int32,
    truncated,
)

Values: TypeAlias = dict[str, Any]
"""A message's or nested structure's fields by kio's names."""
Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

_LONGEST_VARINT = 5


@dataclass(frozen=True, slots=True)
class RequestSchema:
    """A request in one version.

    Attributes:
        flexible: Whether it is one with tagged fields (KIP-482).
    """

    flexible: bool
    _module: Any
    _entity: Any
    _write: Callable[[Any, Any], None]

    def encode(self, values: Values) -> bytes:
        """Returns the request's bytes. Values for fields that the version lacks are left out."""
        buffer = io.BytesIO()
        self._write(buffer, _known(self._entity, values))
        return buffer.getvalue()

    def has(self, name: str) -> bool:
        """Whether the version has that field at its top."""
        return name in self._entity.__dataclass_fields__

    def nested(self, name: str, **values: Any) -> Any:
        """Returns a structure to stand inside the request."""
        return _known(getattr(self._module, name), values)


def _known(entity: Any, values: Values) -> Any:
    names = entity.__dataclass_fields__
    return entity(**{name: value for name, value in values.items() if name in names})


@cache
def request_schema(api: str, version: int) -> RequestSchema:
    """Loads a request's description, ``api`` as in ``join_group``."""
    module = import_module(f"kio.schema.{api}.v{version}.request")
    entity = getattr(module, _class_name(api) + "Request")
    write = import_module("kio.serial").entity_writer(entity)
    return RequestSchema(entity.__flexible__, module, entity, write)


@dataclass(frozen=True, slots=True)
class ResponseSchema:
    """An answer in one version.

    Attributes:
        header_flexible: Whether its header has tagged fields. ApiVersions' never has.
    """

    header_flexible: bool
    _read: Reader

    def decode(self, data: bytes, at: int) -> Values:
        """Reads the answer that begins there; what follows it is ignored.

        Raises:
            MalformedDataError: The bytes are none.
        """
        values: Values = self._read(data, at)[0]
        return values


@cache
def response_schema(api: str, version: int) -> ResponseSchema:
    """Loads an answer's description, ``api`` as in ``join_group``."""
    module = import_module(f"kio.schema.{api}.v{version}.response")
    entity = getattr(module, _class_name(api) + "Response")
    return ResponseSchema(entity.__header_schema__.__flexible__, _entity_reader(entity).read)


def _class_name(api: str) -> str:
    return "".join(word.capitalize() for word in api.split("_"))


# --- compiling a description into a reader -------------------------------------------------


class _Field(NamedTuple):
    """How to read one field.

    ``code``: what `struct` calls it, where it has a fixed size and needs no thought.
    ``smallest``: how many bytes it takes at least.
    """

    name: str
    smallest: int
    read: Reader
    code: str = ""
    convert: Callable[[Any], Any] | None = None


class _Type(NamedTuple):
    smallest: int
    read: Reader


_FIXED: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "bool": ("?", None),
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "error_code": ("h", None),  # converted by `_error_code`, below
    "timedelta_i32": ("i", None),
    "timedelta_i64": ("q", None),
    "uuid": ("16s", None),
}


def _error_code(number: int) -> ErrorCode:
    """A code from a newer broker counts as UNKNOWN_SERVER_ERROR, as in Java."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.unknown_server_error


def _milliseconds(number: int) -> timedelta:
    try:
        return timedelta(milliseconds=number)
    except OverflowError:
        raise MalformedDataError(f"{number} ms are longer than a timedelta") from None


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "error_code": _error_code,
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "uuid": lambda raw: UUID(bytes=raw),
}
