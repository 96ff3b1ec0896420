"""What a member leaves behind: one entry for each record that it processed, in its order.

A member appends to its journal before the next poll, and so before the offsets are committed.
What a killed member had handed to the operating system is there after its end; what it had
committed is therefore always in its journal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_coop.closeable import Closeable
from kafka_coop.demo.flights import Flight

ENTRY: Final = np.dtype(
    [
        ("partition", "<u2"),
        ("offset", "<i8"),
        ("departure_delay", "<i2"),
        ("arrival_delay", "<i2"),
        ("origin", "S3"),
        ("destination", "S3"),
    ]
)
NO_DELAY: Final = -(2**15)
"""In place of minutes, where the flight never left or arrived."""

_PACKED: Final = struct.Struct("<Hqhh3s3s")


def encode_entry(partition: int, offset: int, flight: Flight) -> bytes:
    """One entry.

    Raises:
        struct.error: A delay of more than 32,767 minutes.
    """
    departure, arrival = flight.departure_delay, flight.arrival_delay
    return _PACKED.pack(
        partition,
        offset,
        NO_DELAY if departure is None else departure,
        NO_DELAY if arrival is None else arrival,
        flight.origin.encode("ascii"),
        flight.destination.encode("ascii"),
    )


class Journal(Closeable):
    """Appends entries to a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")

    def append(self, entries: Iterable[bytes]) -> None:
        """Hands the entries to the operating system: they outlive this process."""
        self._file.write(b"".join(entries))
        self._file.flush()

    def close(self) -> None:
        """Closes the file. A second call does nothing."""
        self._file.close()


def read_journal(path: Path) -> NDArray[np.void]:
    """The entries of a journal; none where the member died before it made one.

    An entry that a kill cut short is left out: it was not committed.
    """
    data = path.read_bytes() if path.exists() else b""
    return np.frombuffer(data, ENTRY, count=len(data) // ENTRY.itemsize)
