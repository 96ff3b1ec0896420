"""Spark's micro-batch engine as far as a source sees it: calls in the order that Spark makes them.

The engine (`Query`) is a thread; the reader (`Session`) is a process of its own, as in Spark, and
can be killed at every call. Records are read in the engine's process, by the code that tasks run.
The order is that of Spark 4.3: latestOffset(start) follows the commit log, a logged batch without
a commit is replayed with partitions(start, end) first.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions

from kafka_coop.spark.options import StreamOptions, stream_options
from kafka_coop.spark.reading import RangeTask, read_range
from kafka_coop.spark.session import Session
from kafka_coop.spark.stream import _stop_on_sigterm
from kafka_coop.testing.cluster import quiet_admin

Record = tuple[str, int, int]
"""Topic, partition, offset."""

POINTS = (
    "before latestOffset",
    "planned",
    "logged",
    "before read",
    "read",
    "sink committed",
    "batch committed",
)
"""Where a query can die: between any two of Spark's steps."""

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["kafka_coop.spark.session"])


class QueryDiedError(Exception):
    """The query was killed, or stopped."""


def serve(options: Mapping[str, str], pipe: Connection) -> None:
    """The reader's process: one call after the other, as Spark's runner makes them."""
    _stop_on_sigterm()
    session = None
    try:
        while True:
            name, args = pipe.recv()
            try:
                session = session or Session(stream_options(options))
                result = getattr(session, name)(
                    *args, **({"limited": True} if name == "latest" else {})
                )
            except Exception as error:  # noqa: BLE001  # Spark tells the query whatever it is
                pipe.send((None, repr(error), session.lost if session else frozenset()))
            else:
                pipe.send((result, None, session.lost))
    except (EOFError, OSError):
        pass
    finally:
        if session is not None:
            session.close()


@dataclass
class Checkpoint:
    """What outlives a run: the offset log, the commit log, and the sink."""

    offsets: list[dict[str, Any]] = field(default_factory=list)
    committed: int = 0
    sink: list[Record] = field(default_factory=list)
    exposed: set[Record] = field(default_factory=set)
    """Records that were in the sink when a run ended, and that the group did not know to be:
    those may be read twice."""
    lost: set[tuple[str, int]] = field(default_factory=set)
    """Partitions whose session was lost while tasks were writing: the same."""


class Query:
    """One run of a query, from its checkpoint."""

    def __init__(
        self, options: Mapping[str, str], checkpoint: Checkpoint, *, dies_at: tuple[str, int] | None
    ) -> None:
        self._given = dict(options)
        self._options: StreamOptions = stream_options(options)
        self._checkpoint = checkpoint
        self._dies_at = dies_at
        self._passed: dict[str, int] = dict.fromkeys(POINTS, 0)
        self._stopping = threading.Event()
        self.failure: str | None = None
        self._admin = quiet_admin(options["kafka.bootstrap.servers"])
        self._pipe, theirs = _PROCESSES.Pipe()
        self._reader = _PROCESSES.Process(target=serve, args=(self._given, theirs), daemon=True)
        self._reader.start()
        theirs.close()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """As ``query.stop()``: at any moment, the reader gets SIGTERM."""
        self._stopping.set()
        self._thread.join()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            with contextlib.suppress(QueryDiedError, EOFError, OSError):
                self._batches()
        except Exception as error:  # noqa: BLE001  # a task's: the query fails
            self.failure = repr(error)
        finally:
            self._note_what_is_exposed()
            reader = self._reader
            if reader.is_alive() and reader.pid is not None:
                os.kill(reader.pid, signal.SIGTERM)
            reader.join(30)
            self._pipe.close()

    def _note_what_is_exposed(self) -> None:
        """At the moment of death: a killed member's partitions go nowhere for a session's time."""
        asked = [ConsumerGroupTopicPartitions(self._options.group)]
        (future,) = self._admin.list_consumer_group_offsets(asked).values()
        known = {(p.topic, p.partition): p.offset for p in future.result(30).topic_partitions}
        log = self._checkpoint
        log.exposed |= {r for r in log.sink if r[2] >= known.get(r[:2], 0)}

    def _batches(self) -> None:
        log = self._checkpoint
        if len(log.offsets) > log.committed:
            self._batch(log.offsets[log.committed])
        while True:
            self._reach("before latestOffset")
            start = log.offsets[-1] if log.offsets else {}
            end = self._call("latest", start)
            self._reach("planned")
            if end == start:
                continue
            log.offsets.append(end)
            self._reach("logged")
            self._batch(end)

    def _batch(self, end: dict[str, Any]) -> None:
        log = self._checkpoint
        start = log.offsets[log.committed - 1] if log.committed else {}
        tasks: list[RangeTask] = self._call("tasks", start, end)
        self._reach("before read")
        records = [record for task in tasks for record in self._read(task)]
        self._reach("read")
        log.sink += records
        self._reach("sink committed")
        log.committed += 1
        self._reach("batch committed")

    def _read(self, task: RangeTask) -> Iterator[Record]:
        for batch in read_range(self._options, task):
            for offset in batch.column("offset").to_pylist():
                yield (task.of.topic, task.of.partition, offset)

    def _call(self, name: str, *args: Any) -> Any:
        self._pipe.send((name, args))
        while not self._pipe.poll(0.05):
            if self._stopping.is_set():
                raise QueryDiedError
        result, error, lost = self._pipe.recv()
        self._checkpoint.lost |= {tuple(of) for of in lost}
        if error is not None:
            self.failure = error
            raise QueryDiedError
        return result

    def _reach(self, point: str) -> None:
        if self._stopping.is_set():
            raise QueryDiedError
        self._passed[point] += 1
        if self._dies_at == (point, self._passed[point]) and self._reader.pid is not None:
            os.kill(self._reader.pid, signal.SIGKILL)
            raise QueryDiedError


def random_death(rng: random.Random) -> tuple[str, int] | None:
    """Where a run is to be killed; None: it is not."""
    return None if rng.random() < 0.3 else (rng.choice(POINTS), rng.randint(1, 4))
