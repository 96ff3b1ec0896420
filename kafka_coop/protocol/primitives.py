"""Kafka's non-flexible primitives, read from bytes that may lie.

All integers are big-endian. Each reader takes the bytes and where to begin, and returns the
value and where it ended. A length is believed only once that many bytes are known to be there,
so that four bytes can't ask for two gigabytes.
"""

from __future__ import annotations

import struct

from kafka_coop.errors import MalformedDataError
from kafka_coop.types import MAX_STRING_BYTES

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


def read_int16(data: bytes, at: int) -> tuple[int, int]:
    """Returns the int16 at `at`, and where it ended."""
    if at + 2 > len(data):
        raise truncated(data, at)
    return INT16.unpack_from(data, at)[0], at + 2


def read_int32(data: bytes, at: int) -> tuple[int, int]:
    """Returns the int32 at `at`, and where it ended."""
    if at + 4 > len(data):
        raise truncated(data, at)
    return INT32.unpack_from(data, at)[0], at + 4


def read_array_length(data: bytes, at: int, *, smallest: int) -> tuple[int, int]:
    """Returns an array's length, and where its first element begins.

    A null array counts as empty, as librdkafka and franz-go have it.

    Args:
        data: All the bytes.
        at: Where the length begins.
        smallest: How many bytes an element has at least.
    """
    length, at = read_int32(data, at)
    if length < -1 or length * smallest > len(data) - at:
        raise MalformedDataError(
            f"an array of {length} elements at byte {at - 4}, where {len(data) - at} bytes follow"
        )
    return max(length, 0), at


def read_nullable_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Returns bytes with an int32 length, or None, and where they ended."""
    length, at = read_int32(data, at)
    if length == -1:
        return None, at
    end = at + length
    if length < 0 or end > len(data):
        raise lying(data, at - 4, length)
    return data[at:end], end


def read_nullable_string(data: bytes, at: int) -> tuple[str | None, int]:
    """Returns a string with an int16 length, or None, and where it ended."""
    length, at = read_int16(data, at)
    if length == -1:
        return None, at
    end = at + length
    if length < 0 or end > len(data):
        raise lying(data, at - 2, length)
    return decode_text(data[at:end], at), end


def decode_text(raw: bytes, at: int) -> str:
    """Returns the bytes' text; `at` tells the error where they were."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedDataError(f"a string at byte {at} is no UTF-8: {error.reason}") from error


def encode_string(text: str | None) -> bytes:
    """Returns a nullable string with its int16 length.

    Raises:
        ValueError: It is longer than 32,767 bytes.
    """
    if text is None:
        return INT16.pack(-1)
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(raw)} bytes: Kafka's limit is {MAX_STRING_BYTES}")
    return INT16.pack(len(raw)) + raw


def encode_bytes(value: bytes | None) -> bytes:
    """Returns nullable bytes with their int32 length."""
    return INT32.pack(-1) if value is None else INT32.pack(len(value)) + value


def truncated(data: bytes, at: int) -> MalformedDataError:
    """The error for bytes that end too early."""
    return MalformedDataError(f"cut off: {len(data)} bytes, more expected at byte {at}")


def lying(data: bytes, at: int, length: int) -> MalformedDataError:
    """The error for a length that the bytes don't keep."""
    return MalformedDataError(f"a length of {length} at byte {at} of {len(data)}")
