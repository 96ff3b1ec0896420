"""How a task learns what it reads: it asks the reader's process, over a Unix socket.

Where the workers run on the driver's host, as with ``local[…]``. The socket lets in nobody but this
user. `kafka_coop.spark.placement` decides.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_coop.spark.admission import Part
from kafka_coop.spark.errors import MembershipError
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.placement import ForgottenError, Placement, Portion
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")

_PAUSE: Final = 0.05
"""Seconds, where the system has no descriptor for one more connection, or no place in the queue."""

_PATIENCE: Final = 30.0
"""Seconds. The reader's process answers beside what it does for Spark, in a millisecond or so."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a task has, to be redeemed where it runs. Spark pickles it.

    Attributes:
        socket: Where the reader's process listens.
        batch: As `Placement.plan` told.
        task: From 0 on.
    """

    socket: str
    batch: int
    task: int

    def redeem(self) -> tuple[Part, ...]:
        """What the task reads, each time it is run.

        Raises:
            MembershipError: The reader's process is gone, as when the query was stopped, or knows
                no more. There is nothing to read instead: whatever it is, another task may have it.
        """
        asked = json.dumps([self.batch, self.task, str(os.getpid())])
        try:
            answer = json.loads(_ask(self.socket, asked))
        except (OSError, ValueError) as error:
            raise MembershipError(
                f"the process that planned this batch does not tell what task {self.task} reads "
                f"({type(error).__name__}: {error}): start the query again, if it was not stopped"
            ) from None
        if isinstance(answer, str):
            raise MembershipError(
                f"nobody knows any more what this task read ({answer}): compute a frame of "
                "foreachBatch in the batch that it is of, or keep it with persist()"
            )
        return tuple((TopicPartition(topic, p), Range(a, b)) for topic, p, a, b in answer)


class TicketOffice:
    """Redeems tickets, in threads of its own.

    Args:
        path: Where to listen. Nothing may be there.

    Raises:
        OSError: One can't listen there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._placement = Placement()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, name="kafka_coop tickets", daemon=True)
        try:
            self._listening.bind(str(path))
            path.chmod(0o600)
            self._listening.listen(socket.SOMAXCONN)
            self._thread.start()
        except BaseException:
            self._listening.close()
            raise

    @property
    def is_open(self) -> bool:
        """Not, where somebody has tidied up the temporary folder."""
        return self._path.exists()

    def issue(self, portions: Sequence[Portion]) -> list[Ticket]:
        """A ticket for each portion of a batch; whichever is for which, when they are redeemed."""
        with self._lock:
            batch = self._placement.plan(portions)
        return [Ticket(str(self._path), batch, task) for task in range(len(portions))]

    def close(self) -> None:
        """Tasks that ask now fail. May be called again, as when a signal interrupted it."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes whoever accepts, and waits
        self._listening.close()
        self._path.unlink(missing_ok=True)
        self._thread.join(1)

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                asking, _ = self._listening.accept()
            except OSError:  # closed; or too many files are open: the next one may be let in
                self._closing.wait(_PAUSE)
                continue
            try:
                # Of its own: a worker that is stopped in the midst holds up no other.
                threading.Thread(target=self._redeem, args=(asking,), daemon=True).start()
            except RuntimeError:  # the system has no thread for it
                self._redeem(asking)

    def _redeem(self, asking: socket.socket) -> None:
        """One question, a line; one answer: ``[[topic, partition, start, stop], …]``, or a text."""
        with asking, contextlib.suppress(OSError):
            asking.settimeout(_PATIENCE)
            with asking.makefile("rb") as question:
                line = question.readline()
            asking.sendall(f"{json.dumps(self._answer(line))}\n".encode())

    def _answer(self, line: bytes) -> list[list[str | int]] | str:
        try:
            batch, task, worker = json.loads(line)
            with self._lock:
                portion = self._placement.give(batch, task, worker)
        except (ForgottenError, ValueError, TypeError) as error:
            return str(error)
        return [[*of, span.start, span.stop] for of, span in portion]


def open_office(its: Rendezvous) -> TicketOffice | None:
    """None where one can't listen there: as in a temporary folder whose name is too long for it."""
    try:
        return TicketOffice(its.socket())
    except (OSError, RuntimeError) as error:
        _LOG.warning(
            "tasks don't get what their workers have read ahead, and read slower: a socket in the "
            "temporary folder can't be listened on (%s): set TMPDIR to another one, with a short "
            "path",
            error,
        )
        return None


def _ask(path: str, line: str) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_PATIENCE)
        _connect(asking, path)
        asking.sendall(f"{line}\n".encode())
        with asking.makefile("rb") as answer:
            return answer.readline()


def _connect(asking: socket.socket, path: str) -> None:
    """Where too many ask at once, a Unix socket refuses them, and does not have them wait."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            asking.connect(path)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return
