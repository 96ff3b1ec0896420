"""Spark's micro-batch engine as far as a source sees it: calls in the order that Spark makes them.

The engine (`Query`) is a thread; the reader (`Session`) is a process of its own, as in Spark, and
can be killed between all calls, and in their midst. Records are read in the engine's process, by
the code that tasks run. The order is that of Spark 4.3: latestOffset(start) follows the commit log,
a logged batch without a commit is replayed with partitions(start, end) first.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, NoReturn
from unittest.mock import patch

from spark_rereads import Batch, End, HandOver, Loss, Record, Run

import kafka_coop.spark.session
from kafka_coop.spark.admission import Part
from kafka_coop.spark.errors import MembershipError
from kafka_coop.spark.member import Member
from kafka_coop.spark.options import StreamOptions, stream_options
from kafka_coop.spark.planning import Planner
from kafka_coop.spark.reading import RangeTask, read_task
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.spark.session import Session
from kafka_coop.spark.stream import _stop_on_sigterm

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

AIM = "aim_at_what_is_there"
"""What Spark calls first where the trigger is AvailableNow."""

CALLS = (AIM, "latest", "tasks", "report")
"""And in the midst of these, after some time: the member's own thread is anywhere then."""

STEPS = tuple(
    f"{side} {name}"
    for name in ("assigned", "_take_in", "_claim", "commit_now", "commit_later", "revoked")
    for side in ("before", "after")
)
"""What the reader's member does, within a call or beside them: it dies before it, or after."""

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["kafka_coop.spark.session"])


class QueryDiedError(Exception):
    """The query was killed, or stopped."""


def serve(
    options: Mapping[str, str],
    pipe: Connection,
    *,
    run: Run | None = None,
    told: Connection | None = None,
    dies: Death | None = None,
    hasty: bool = False,
) -> None:
    """The reader's process: one call after the other, as Spark's runner makes them.

    It answers with a result and an error, and ends with the first error: confluent-kafka may make
    one of the `SystemExit` with which SIGTERM ends the process.

    Args:
        run: Whom its claims are to name, see `run_of`; None: nobody.
        told: Where is said which partitions went, and whether they were lost, and that it dies.
        dies: At one of `STEPS`; it needs `told`.
        hasty: A fault: what a batch is about to read is committed when it is planned.
    """
    _stop_on_sigterm()
    session = None
    near = run is not None and run.number % 2 == 1
    with contextlib.ExitStack() as noted:
        planning = noted.enter_context(_planning())
        if run is not None:
            noted.enter_context(_named(run))
        if told is not None:
            noted.enter_context(_telling(told))
        if told is not None and dies is not None:
            noted.enter_context(_dying(dies, told))
        try:
            while True:
                name, args = pipe.recv()
                try:
                    session = session or Session(stream_options(options), near=near)
                    result = _called(session, name, args, planning)
                    if hasty and name == "tasks" and session._member is not None:
                        session._member.holdings.finish()
                        session._member.commit_now()
                except Exception as error:  # noqa: BLE001  # Spark tells the query whatever it is
                    pipe.send((None, repr(error)))
                    break
                else:
                    pipe.send((result, None))
        except (EOFError, OSError):
            pass
        finally:
            if session is not None:
                session.close()


def _called(session: Session, name: str, args: Iterable[Any], planning: list[int]) -> Any:
    if name != "latest":
        return getattr(session, name)(*args)
    return session.latest(*args, limited=True), planning[0]


@contextlib.contextmanager
def _planning() -> Iterator[list[int]]:
    """When a batch was planned last, or tried to be: a call may have waited for long before."""
    plan, began = Planner.plan, [now()]

    def noted(planner: Planner, **options: Any) -> Any:
        began[0] = now()
        return plan(planner, **options)

    with patch.object(Planner, "plan", noted):
        yield began


@contextlib.contextmanager
def _telling(told: Connection) -> Iterator[None]:
    """At once, and not with the next answer: a run that is killed gives none."""
    lost, revoked, refused = Member.lost, Member.revoked, Member._refused
    handing_over = threading.local()

    def tell(kind: type[Loss | HandOver], partitions: Iterable[Any]) -> None:
        told.send((kind, now(), frozenset((of.topic, of.partition) for of in partitions)))

    def on_lost(member: Member, partitions: set[Any]) -> None:
        tell(Loss, partitions)
        lost(member, partitions)

    def on_revoke(member: Member, partitions: set[Any]) -> None:
        handing_over.is_under_way = True
        try:
            revoked(member, partitions)
        finally:
            handing_over.is_under_way = False
            tell(HandOver, partitions)

    def on_refusal(member: Member, error: Any, partitions: Iterable[Any]) -> None:
        partitions = list(partitions)
        if getattr(handing_over, "is_under_way", False):
            tell(Loss, partitions)
        refused(member, error, partitions)

    with (
        patch.object(Member, "lost", on_lost),
        patch.object(Member, "revoked", on_revoke),
        patch.object(Member, "_refused", on_refusal),
    ):
        yield


@contextlib.contextmanager
def _dying(dies: Death, told: Connection) -> Iterator[None]:
    side, name = dies.at.split()
    step, passed = getattr(Member, name), itertools.count(1)

    def die() -> NoReturn:
        told.send((Death, now(), frozenset()))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a signal that nobody can refuse")

    def mortal(member: Member, *args: Any, **options: Any) -> Any:
        is_due = next(passed) == dies.time
        if is_due and side == "before":
            die()
        result = step(member, *args, **options)
        if is_due:
            die()
        return result

    with patch.object(Member, name, mortal):
        yield


def _named(run: Run) -> contextlib.AbstractContextManager[object]:
    return patch.object(
        kafka_coop.spark.session,
        "_token",
        lambda: f"{run.query:04x}{run.number:04x}{secrets.token_hex(4)}",
    )


def run_of(claim: str) -> Run:
    """Who made it."""
    return Run(int(claim[:4], 16), int(claim[4:8], 16))


def now() -> int:
    """As brokers tell the time: milliseconds, cut off."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class Death:
    """How a run is killed: at the nth time at a point or step, or so long into the nth such call.

    Where that is no time at all it never hears the answer.
    """

    at: str
    time: int
    after: float = 0.0


@dataclass
class Checkpoint:
    """What outlives a run: the offset log, the commit log, and the sink.

    The sink is idempotent by the batch's number, as Spark's own are: a batch that is replayed is
    not written again. All write into `shared` besides, if there is one, as ``foreachBatch`` would:
    what is replayed, too.
    """

    query: int
    offsets: list[dict[str, Any]] = field(default_factory=list)
    committed: int = 0
    sink: dict[int, Batch] = field(default_factory=dict)
    unlike: list[int] = field(default_factory=list)
    """Batches that were replayed and read something new, which such a sink does not take."""
    runs: int = 0
    ends: dict[Run, End] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    hand_overs: list[HandOver] = field(default_factory=list)
    shared: Callable[[int, Iterable[Record]], None] | None = None

    def written(self) -> set[Record]:
        """All that is in the sink."""
        return {record for batch in list(self.sink.values()) for record in batch.records}


class Query:
    """One run of a query, from its checkpoint.

    Args:
        options: The source's.
        checkpoint: What the runs before have left.
        dies: Where it is killed.
        sink_takes: Seconds for a batch.
        ends: Whether it is over when all is read that was there (``Trigger.AvailableNow``).
        hasty: With a fault, see `serve`.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        checkpoint: Checkpoint,
        *,
        dies: Death | None = None,
        sink_takes: float = 0.0,
        ends: bool = False,
        hasty: bool = False,
    ) -> None:
        self._given = dict(options)
        self._options: StreamOptions = stream_options(options)
        self._checkpoint = checkpoint
        self._dies = dies
        self._sink_takes = sink_takes
        self._ends = ends
        checkpoint.runs += 1
        self._me = Run(checkpoint.query, checkpoint.runs)
        self._died_at: int | None = None
        self._passed: dict[str, int] = dict.fromkeys(POINTS + CALLS, 0)
        self._stopping = threading.Event()
        self._killed_after: float | None = None
        self._drained = False
        self.failure: str | None = None
        self._pipe, theirs = _PROCESSES.Pipe()
        self._told, tells = _PROCESSES.Pipe(duplex=False)
        self._reader = _PROCESSES.Process(
            target=serve,
            args=(self._given, theirs),
            kwargs={
                "run": self._me,
                "told": tells,
                "dies": dies if dies is not None and dies.at in STEPS else None,
                "hasty": hasty,
            },
            daemon=True,
        )
        self._reader.start()
        theirs.close()
        tells.close()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def has_died(self) -> bool:
        """Whether it was killed where it was to be; known when it has ended."""
        return self._died_at is not None

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
        self._drained = asked.is_done()
        self.stop()
        asked.clear()
        return self._drained

    def outage(self) -> None:
        """A broker goes away, for longer than a session perhaps: who dies then tells of no loss."""
        self._checkpoint.losses.append(Loss(by=self._me, at=now(), of=None))

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            with contextlib.suppress(QueryDiedError, EOFError, OSError):
                self._batches()
        except Exception as error:  # noqa: BLE001  # a task's: the query fails
            self.failure = repr(error)
        finally:
            self._note_the_end()
            reader = self._reader
            reader.terminate()
            reader.join(30 if self._killed_after is None else self._killed_after)
            reader.kill()
            reader.join()
            self._note_what_was_told()
            self._pipe.close()
            self._told.close()

    def _note_the_end(self) -> None:
        """Before the reader hears of it: from then on others may have what it held."""
        log = self._checkpoint
        log.ends[self._me] = End(at=self._died_at or now(), drained=self._drained)

    def _note_what_was_told(self) -> None:
        log = self._checkpoint
        with contextlib.suppress(EOFError):
            while True:
                kind, at, partitions = self._told.recv()
                if kind is Death:  # the engine has heard of it later
                    self._died_at = at
                    log.ends[self._me] = replace(log.ends[self._me], at=at)
                    continue
                noted = log.losses if kind is Loss else log.hand_overs
                noted.append(kind(by=self._me, at=at, of=partitions))

    def _batches(self) -> None:
        log = self._checkpoint
        if self._ends:
            self._call(AIM)
        if len(log.offsets) > log.committed:
            self._batch(log.offsets[log.committed])
        while True:
            self._reach("before latestOffset")
            start = log.offsets[-1] if log.offsets else {}
            end, asked = self._call("latest", start)
            planned = now()
            self._reach("planned")
            if end == start and self._ends:
                self._drained = True  # all that it did is committed
                return
            if end == start:
                continue
            log.offsets.append(end)
            self._reach("logged")
            self._batch(end, (asked, planned))

    def _batch(self, end: dict[str, Any], when: tuple[int, int] | None = None) -> None:
        """Runs it. Args: when: It was asked for, and planned; None: it is replayed."""
        log = self._checkpoint
        start = log.offsets[log.committed - 1] if log.committed else {}
        asked = now()
        tasks: list[RangeTask] = self._call("tasks", start, end)
        again: list[RangeTask] = self._call("tasks", start, end)  # for the query's other branch
        if self._parts(again) != self._parts(tasks):
            self.failure = "the branches of one batch read not the same"
            raise QueryDiedError
        asked, planned = when or (asked, now())
        self._reach("before read")
        records = tuple(record for task in tasks for record in self._read(task))
        self._reach("read")
        self._stopping.wait(self._sink_takes)
        batch = Batch(
            by=self._me, number=log.committed, records=records, asked=asked, planned=planned
        )
        if not {*records} <= {*log.sink.setdefault(log.committed, batch).records}:
            log.unlike.append(log.committed)
        if log.shared is not None:
            log.shared(log.query, records)
        self._reach("sink committed")
        log.committed += 1
        self._reach("batch committed")
        self._call("report")

    def _parts(self, tasks: Iterable[RangeTask]) -> list[Part]:
        try:
            return sorted(part for task in tasks for part in task.parts())
        except MembershipError:
            self._reader.join(1)
            if self._reader.is_alive():
                raise
            raise QueryDiedError from None  # nobody tells what a task reads

    def _read(self, task: RangeTask) -> Iterator[Record]:
        columns = ("topic", "partition", "offset")
        for batch in read_task(self._options, RangeTask(*self._parts([task]))):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            self._reach("in a task")

    def _call(self, name: str, *args: Any) -> Any:
        self._pipe.send((name, args))
        self._passed[name] += 1
        dies = self._dies
        due = dies is not None and (dies.at, dies.time) == (name, self._passed[name])
        if dies is not None and due and not (dies.after and self._pipe.poll(dies.after)):
            self._kill()
        while not self._pipe.poll(0.05):
            if self._stopping.is_set():
                raise QueryDiedError
        result, error = self._pipe.recv()
        if error is not None:
            self.failure = error
            raise QueryDiedError
        return result

    def _reach(self, point: str) -> None:
        if self._stopping.is_set():
            raise QueryDiedError
        self._passed[point] += 1
        dies = self._dies
        if dies is not None and (dies.at, dies.time) == (point, self._passed[point]):
            self._kill()

    def _kill(self) -> NoReturn:
        self._died_at = now()
        if self._reader.pid is not None:
            os.kill(self._reader.pid, signal.SIGKILL)
        raise QueryDiedError


def random_death(rng: random.Random) -> Death | None:
    """Where a run is to be killed; None: it is not."""
    if rng.random() < 0.3:
        return None
    after = rng.choice([0.0, 0.001, 0.01, 0.1])
    at, time_ = rng.choice([*POINTS, *CALLS, *STEPS]), rng.randint(1, 4)
    return Death(at=at, time=1 if at == AIM else time_, after=after)
