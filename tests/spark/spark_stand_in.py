"""Spark's micro-batch engine as far as a source sees it: calls in the order that Spark makes them.

The engine (`Query`) is a thread; the reader (`Session`) is a process of its own, as in Spark, and
can be killed between all calls, and in their midst. Records are read in the engine's process, by
the code that tasks run. The order is that of Spark 4.3: latestOffset(start) follows the commit log,
a logged batch without a commit is replayed with partitions(start, end) first.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from confluent_kafka import Consumer, TopicPartition

from kafka_coop.spark.options import StreamOptions, stream_options
from kafka_coop.spark.reading import RangeTask, read_task
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.spark.session import Session
from kafka_coop.spark.stream import _stop_on_sigterm

Record = tuple[str, int, int]
"""Topic, partition, offset."""

POINTS = (
    "before latestOffset",
    "planned",
    "logged",
    "before read",
    "in a task",
    "read",
    "sink committed",
    "batch committed",
)
"""Where a query can die: between any two of Spark's steps."""

CALLS = ("latest", "tasks")
"""And in the midst of these, after some time: the member's own thread is anywhere then."""

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["kafka_coop.spark.session"])


class QueryDiedError(Exception):
    """The query was killed, or stopped."""


def serve(options: Mapping[str, str], pipe: Connection, *, hasty: bool = False) -> None:
    """The reader's process: one call after the other, as Spark's runner makes them.

    Args:
        hasty: A fault: what a batch is about to read is committed when it is planned.
    """
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
                if hasty and name == "tasks" and session._member is not None:
                    session._member.holdings.finish()
                    session._member.commit_now()
            except Exception as error:  # noqa: BLE001  # Spark tells the query whatever it is
                pipe.send((None, repr(error), session.lost if session else frozenset()))
            else:
                pipe.send((result, None, session.lost))
    except (EOFError, OSError):
        pass
    finally:
        if session is not None:
            session.close()


@dataclass(frozen=True, kw_only=True)
class Death:
    """How a run is killed: at the nth time at a point, or so long into the nth such call."""

    at: str
    time: int
    after: float = 0.0


@dataclass
class Checkpoint:
    """What outlives a run: the offset log, the commit log, and the sink.

    The sink is idempotent by the batch's number, as Spark's own are: a batch that is replayed is
    not written again.
    """

    offsets: list[dict[str, Any]] = field(default_factory=list)
    committed: int = 0
    sink: dict[int, list[Record]] = field(default_factory=dict)
    exposed: set[Record] = field(default_factory=set)
    """Records that were in the sink when a run ended, and that the group did not know to be:
    another member may read those once more. Also those of a partition's last two batches whose
    session was lost while they were written, and of those that a broker's absence fell into: the
    group may have given them to others before it heard that they were read."""
    unlike: list[int] = field(default_factory=list)
    """Batches that were replayed and read something new, which such a sink does not take."""

    def planned(self, since: int) -> Iterator[Record]:
        """What the batches from this one on read, by their offsets."""
        for offset in self.offsets[since:]:
            for key, (start, stop) in offset["tps"].items():
                topic, _, index = key.rpartition(":")
                yield from ((topic, int(index), n) for n in range(start, stop))

    def expose(self, records: Iterable[Record]) -> None:
        """Another member may read these once more."""
        self.exposed |= set(records)

    def written(self) -> list[Record]:
        """All that is in the sink."""
        return [record for records in list(self.sink.values()) for record in records]


class Query:
    """One run of a query, from its checkpoint."""

    def __init__(
        self,
        options: Mapping[str, str],
        checkpoint: Checkpoint,
        *,
        dies: Death | None = None,
        sink_takes: float = 0.0,
        hasty: bool = False,
    ) -> None:
        self._given = dict(options)
        self._options: StreamOptions = stream_options(options)
        self._checkpoint = checkpoint
        self._dies = dies
        self._sink_takes = sink_takes
        self._lost: set[tuple[str, int]] = set()
        self._passed: dict[str, int] = dict.fromkeys(POINTS + CALLS, 0)
        self._stopping = threading.Event()
        self._killed_after: float | None = None
        self._drained = False
        self.failure: str | None = None
        self._pipe, theirs = _PROCESSES.Pipe()
        self._reader = _PROCESSES.Process(
            target=serve, args=(self._given, theirs), kwargs={"hasty": hasty}, daemon=True
        )
        self._reader.start()
        theirs.close()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self, *, killed_after: float | None = None) -> None:
        """As ``query.stop()``: at any moment, the reader gets SIGTERM.

        Args:
            killed_after: And SIGKILL so much later, in the midst of its leaving.
        """
        self._killed_after = killed_after
        self._stopping.set()
        self._thread.join()

    def drain(self) -> bool:
        """As `kafka_coop.spark.drain`. Returns whether it was: the run may have ended before."""
        if not self._checkpoint.offsets:
            return False
        asked = Rendezvous(self._checkpoint.offsets[-1]["id"])
        asked.ask()
        while self.is_running and not asked.is_done():
            self._thread.join(0.05)
        drained = asked.is_done()
        self._drained = drained
        self.stop()
        asked.clear()
        return drained

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """A broker is away meanwhile, for longer than a session perhaps."""
        log = self._checkpoint
        since = max(len(log.offsets) - 2, 0)
        yield
        log.expose(log.planned(since))

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
            reader.terminate()
            reader.join(30 if self._killed_after is None else self._killed_after)
            reader.kill()
            reader.join()
            self._pipe.close()

    def _note_what_is_exposed(self) -> None:
        """At the moment of death: a killed member's partitions go nowhere for a session's time."""
        known = self._committed()
        log = self._checkpoint
        exposed = {r for r in log.written() if r[2] >= known.get(r[:2], 0)}
        # What an earlier run left behind may be with others by now, who have not committed it yet.
        if self._drained and (left := exposed - log.exposed):
            self.failure = f"drained, and {sorted(left)[:5]} are not committed"
        log.exposed |= exposed

    def _committed(self) -> dict[tuple[str, int], int]:
        """By a consumer: an AdminClient's question ends the process when the broker dies."""
        settings = {
            "bootstrap.servers": self._given["kafka.bootstrap.servers"],
            "group.id": self._options.group,
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
        read = {of for end in self._checkpoint.offsets for of in end["tps"]}
        asked = [
            TopicPartition(key.rpartition(":")[0], int(key.rpartition(":")[2])) for key in read
        ]
        with Consumer(settings) as reader:
            found = reader.committed(asked, 120) if asked else []
        return {(one.topic, one.partition): max(one.offset, 0) for one in found}

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
        records = sorted(record for task in tasks for record in self._read(task))
        self._reach("read")
        self._stopping.wait(self._sink_takes)
        if not {*records} <= {*log.sink.setdefault(log.committed, records)}:
            log.unlike.append(log.committed)
        self._reach("sink committed")
        log.committed += 1
        self._reach("batch committed")

    def _read(self, task: RangeTask) -> Iterator[Record]:
        columns = ("topic", "partition", "offset")
        for batch in read_task(self._options, task):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            self._reach("in a task")

    def _call(self, name: str, *args: Any) -> Any:
        self._pipe.send((name, args))
        self._passed[name] += 1
        dies = self._dies
        due = dies is not None and (dies.at, dies.time) == (name, self._passed[name])
        if dies is not None and due and not self._pipe.poll(dies.after):
            self._kill()
        while not self._pipe.poll(0.05):
            if self._stopping.is_set():
                raise QueryDiedError
        result, error, lost = self._pipe.recv()
        self._lose({tuple(of) for of in lost} - self._lost)
        if error is not None:
            self.failure = error
            raise QueryDiedError
        return result

    def _lose(self, partitions: set[tuple[str, int]]) -> None:
        """Their session is over: others read on from what is committed, or have already."""
        self._lost |= partitions
        log = self._checkpoint
        log.expose(of for of in log.planned(-2) if of[:2] in partitions)

    def _reach(self, point: str) -> None:
        if self._stopping.is_set():
            raise QueryDiedError
        self._passed[point] += 1
        dies = self._dies
        if dies is not None and (dies.at, dies.time) == (point, self._passed[point]):
            self._kill()

    def _kill(self) -> NoReturn:
        if self._reader.pid is not None:
            os.kill(self._reader.pid, signal.SIGKILL)
        raise QueryDiedError


def random_death(rng: random.Random) -> Death | None:
    """Where a run is to be killed; None: it is not."""
    if rng.random() < 0.3:
        return None
    after = rng.choice([0.0, 0.001, 0.01, 0.1])
    return Death(at=rng.choice([*POINTS, *CALLS]), time=rng.randint(1, 4), after=after)
