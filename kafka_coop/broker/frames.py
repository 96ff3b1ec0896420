"""Kafka's framing: every message is an int32 length and that many bytes."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_coop.errors import MalformedDataError

_LENGTH_BYTES = 4
_SMALLEST = 4
"""A response is at least its correlation id."""

_GREETING_BYTES = 1 << 20
"""Most of an answer of who has not logged in yet, and proved nothing: versions take two thousand.
What a hundred million hold, read into objects, would fill the memory."""

_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How a TLS alert and a TLS handshake record begin."""


def frame(payload: bytes) -> bytes:
    """The payload with its length in front."""
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


class FrameSplitter:
    """Cuts a stream of bytes, which arrives in any pieces, into frames.

    Nothing is allocated ahead of what arrived, so a hostile length costs no memory.

    Args:
        max_bytes: Of a frame.
        greeting: It is to be far smaller, until `greeted`.
    """

    __slots__ = ("_buffer", "_later", "_max_bytes")

    def __init__(self, *, max_bytes: int, greeting: bool = False) -> None:
        self._buffer = bytearray()
        self._max_bytes = min(max_bytes, _GREETING_BYTES) if greeting else max_bytes
        self._later = max_bytes

    def greeted(self) -> None:
        """The other end is who it is to be."""
        self._max_bytes = self._later

    @property
    def unfinished(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Takes in what was received. `frames` gives out what it completed."""
        self._buffer += data

    def frames(self) -> Iterator[bytes]:
        """The frames complete so far, without their lengths; each is given out once.

        Raises:
            MalformedDataError: The next length is negative, too small to be a response, or
                larger than ``receive.message.max.bytes``. Frames before it were given out.
        """
        buffer = self._buffer
        while len(buffer) >= _LENGTH_BYTES:
            length = int.from_bytes(buffer[:_LENGTH_BYTES], "big", signed=True)
            if not _SMALLEST <= length <= self._max_bytes:
                raise MalformedDataError(self._complaint(length))
            end = _LENGTH_BYTES + length
            if len(buffer) < end:
                return
            complete = bytes(buffer[_LENGTH_BYTES:end])
            del buffer[:end]
            yield complete

    def _complaint(self, length: int) -> str:
        if self._buffer.startswith(_TLS_RECORDS):
            return (
                "the answer is a TLS record: the port is a TLS listener, spoken to in plaintext; "
                "set security.protocol to SSL or SASL_SSL"
            )
        if self._buffer.startswith(b"HTTP"):
            return "the answer is HTTP: the port is not Kafka's; check bootstrap.servers"
        if self._max_bytes < length and self._max_bytes < self._later:
            return (
                f"an answer of {length} bytes before the login is done; check that the port is "
                "Kafka's"
            )
        if length > self._max_bytes:
            return (
                f"a response of {length} bytes is larger than receive.message.max.bytes="
                f"{self._max_bytes}; raise it, or check that the port is Kafka's"
            )
        return f"a response cannot have {length} bytes; check that the port is Kafka's"
