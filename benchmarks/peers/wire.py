"""A leader in another process: requests on its stdin, answers on its stdout.

A request is a letter and its fields, an answer a 0 and its fields, or a 1 and what went wrong.
Integers are big-endian; strings and bytes are an int32 length (-1: absent) and that many bytes.

    L  load     assignor, int8 own user data, topics, members ->
    R  run                                   -> int64 nanoseconds it took, int64 of CPU time
    A  answers                               -> int32 n, n * (member, bytes)

    topics      int32 n, n * (name, int32 partitions, int8 racked, and if so
                per partition: int32 n, n * rack)
    members     int32 n, n * (id, instance id, subscription)

``own user data`` has the peer read each subscription and make its client's own of it, before
anything is timed: everyone then leads a group of its own members. A run decodes all
subscriptions, assigns, and encodes all assignments.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from kafka_coop.testing.ending import wait_or_kill
from kafka_coop.types import Cluster

_INT8 = struct.Struct(">b")
_INT32 = struct.Struct(">i")
_TOOK = struct.Struct(">qq")

_CLOCK_OF_ALL_THREADS = 2
"""CPUCLOCK_SCHED: what the scheduler counted, in nanoseconds."""


class PeerUnavailableError(Exception):
    """This machine lacks what the peer needs; the text says what to install."""


class PeerError(Exception):
    """The peer failed, with its own words."""


class PeerTimeoutError(PeerError):
    """The peer took longer than it was given, and was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """The seconds of one run.

    Attributes:
        wall: Of the clock on the wall: what a group waits for.
        cpu: Of all threads of the process, the collector's among them: what it costs. Other
            processes on the same cores hardly change it.
    """

    wall: float
    cpu: float


class Peer:
    """One process. A context manager: leaving it ends the process."""

    def __init__(self, command: Sequence[str | os.PathLike[str]]) -> None:
        # A child that is one of our modules is found from the repository's root.
        root = Path(__file__).parents[2]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed in close()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, cwd=root
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to: IO[bytes] = self._process.stdin
        self._from: IO[bytes] = self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process, by closing its stdin; after ten seconds by force."""
        with contextlib.suppress(BrokenPipeError):  # it is gone already
            self._to.close()
        self._wait()
        self._from.close()
        self._said.close()

    def _wait(self) -> int:
        return wait_or_kill(self._process, 10)

    def peak_memory(self) -> int | None:
        """The most bytes the process has had in memory; None where the system does not tell.

        Linux alone: elsewhere, and in ``wait4``, a child's peak includes its parent's.
        """
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return None
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else None

    def cpu_time(self) -> float | None:
        """The seconds that all threads of the process have used so far; None where not Linux.

        Linux makes the number of a process's CPU clock from its pid, as ``clock_getcpuclockid``
        does.
        """
        if sys.platform != "linux":
            return None
        return time.clock_gettime((~self._process.pid << 3) | _CLOCK_OF_ALL_THREADS)

    # --- requests ----------------------------------------------------------------------

    def load(
        self,
        assignor: str,
        cluster: Cluster,
        members: Mapping[str, bytes],
        *,
        instance_ids: Mapping[str, str | None] | None = None,
        own_user_data: bool = False,
    ) -> None:
        """Hands the group over. Not timed."""
        with self._asking():
            self._write(b"L", string(assignor), _INT8.pack(own_user_data))
            self._write(_INT32.pack(len(cluster.partitions)))
            for topic, count in cluster.partitions.items():
                racks = (cluster.replica_racks or {}).get(topic)
                self._write(string(topic), _INT32.pack(count), _INT8.pack(racks is not None))
                for places in (racks or ())[:count]:
                    self._write(_INT32.pack(len(places)), *map(string, places))
            self._write(_INT32.pack(len(members)))
            for member, data in members.items():
                instance = (instance_ids or {}).get(member)
                self._write(string(member), string(instance), blob(data))

    def run(self, *, limit: float | None = None) -> Took:
        """Runs the leader's step once.

        Raises:
            PeerTimeoutError: It took longer than ``limit`` seconds. The peer is of no more use.
        """
        expired = threading.Event()

        def end() -> None:
            expired.set()
            self._process.kill()

        timer = threading.Timer(threading.TIMEOUT_MAX if limit is None else limit, end)
        timer.start()
        try:
            with self._asking():
                self._write(b"R")
            wall, cpu = _TOOK.unpack(self._read(_TOOK.size))
        except PeerError as error:
            if expired.is_set():
                raise PeerTimeoutError(f"longer than {limit} s") from error
            raise
        finally:
            timer.cancel()
        return Took(wall=wall / 1e9, cpu=cpu / 1e9)

    def answers(self) -> dict[str, bytes]:
        """Each member's assignment of the last run."""
        with self._asking():
            self._write(b"A")
        return {self._read_text(): self._read_bytes() or b"" for _ in range(self._read_int())}

    def lead(
        self,
        assignor: str,
        cluster: Cluster,
        members: Mapping[str, bytes],
        *,
        instance_ids: Mapping[str, str | None] | None = None,
    ) -> dict[str, bytes]:
        """Computes everyone's assignment: what `kafka_coop.leader.run_assignor` does."""
        self.load(assignor, cluster, members, instance_ids=instance_ids)
        self.run()
        return self.answers()

    # --- fields ------------------------------------------------------------------------

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Sends what is written inside as one request, and waits for its answer to begin."""
        try:
            yield
            self._to.flush()
        except BrokenPipeError:
            pass  # its last words are read instead of an answer
        if self._read(1) != b"\0":
            raise PeerError(self._read_text())

    def _write(self, *fields: bytes) -> None:
        for field in fields:
            self._to.write(field)

    def _read(self, size: int) -> bytes:
        data = self._from.read(size)
        if len(data) < size:
            status = self._wait()
            self._said.seek(0)
            last = self._said.read().decode(errors="replace")[-2000:]
            raise PeerError(f"ended with status {status}: {last}")
        return data

    def _read_int(self) -> int:
        number: int = _INT32.unpack(self._read(_INT32.size))[0]
        return number

    def _read_bytes(self) -> bytes | None:
        size = self._read_int()
        return None if size < 0 else self._read(size)

    def _read_text(self) -> str:
        return (self._read_bytes() or b"").decode()


def string(text: str | None) -> bytes:
    return blob(None if text is None else text.encode())


def blob(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data
