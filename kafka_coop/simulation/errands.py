"""Commits and starting positions in a simulated process: the product's own, in virtual time.

Logs are endless and begin at 0, so ListOffsets is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka_coop.backend.errands import (
    Ask,
    Changed,
    Errand,
    OutOfTime,
    Rest,
    Surroundings,
    Wanted,
    patience,
)
from kafka_coop.backend.errands import Errands as Product
from kafka_coop.config import OffsetReset
from kafka_coop.offsets.starts import Starts
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Generation, Partitions, TopicPartition

if TYPE_CHECKING:
    from kafka_coop.simulation.process import Process

Results: TypeAlias = Mapping[TopicPartition, ErrorCode]


class _EndlessLogs(Product):
    def _list_offsets(self, search: Starts) -> Errand[None]:
        for partition in tuple(search.unlisted):
            del search.unlisted[partition]
            search.listed_at[partition] = OffsetAndMetadata(offset=0)
        yield from ()


@dataclass(slots=True, eq=False)
class _Running:
    errand: Errand[Any]
    done: Callable[[Any], None]
    waiting: int | None = None
    """Which wait for a change it is at; None: it waits for an answer, or is over."""
    over: bool = False


class Errands:
    """What one process asks of brokers beside the state machine's requests."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._running: list[_Running] = []
        self._waits = 0
        self._errands = _EndlessLogs(
            Surroundings(
                standing=process,
                settings=process.settings,
                reset=OffsetReset.EARLIEST,
                read_committed=True,
                tell=process.handle,
                owns=process.member.owns,
                giving_up=lambda: process.member.giving_up,
                going=lambda: process.member.going,
                found=process.put,
                wake=self.standing_changed,
            )
        )

    def standing_changed(self) -> None:
        """The coordinator or the identity has changed: whoever waited for it goes on."""
        if self._running:
            self._process.soon(self._go_on)

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        within: float,
        done: Callable[[Results], None],
    ) -> None:
        """Commits, one commit at a time; ``done`` gets each partition's error."""
        job = self._begin(self._errands.commit(offsets), done)
        self._process.after(within, self._out_of_time, job)

    def disown(self, partitions: Partitions) -> None:
        """These have left our ownership: no commit made before may be sent after."""
        self._errands.disown(partitions)

    def find_starts(self, partitions: Partitions, generation: Generation) -> None:
        """Finds where to start, and puts it into the mailbox."""
        member = self._process.member

        def still_wanted(some: Partitions) -> Partitions:
            return some if member.generation == generation else some & member.owned

        self._begin(
            self._errands.find_starts(partitions, generation, still_wanted=still_wanted),
            lambda _: None,
        )

    # --- running ---------------------------------------------------------------------------

    def _begin(self, errand: Errand[Any], done: Callable[[Any], None]) -> _Running:
        job = _Running(errand, done)
        self._running.append(job)
        self._send(job, None)
        return job

    def _send(self, job: _Running, answer: Any) -> None:
        if not job.over:
            self._step(job, lambda: job.errand.send(answer))

    def _out_of_time(self, job: _Running) -> None:
        if not job.over:
            self._step(job, lambda: job.errand.throw(OutOfTime()))

    def _step(self, job: _Running, step: Callable[[], Wanted]) -> None:
        job.waiting = None
        try:
            wanted = step()
        except StopIteration as ended:
            job.over = True
            self._running.remove(job)
            job.done(ended.value)
            return
        match wanted:
            case Ask(requests=((node, request),)):
                assert node is not None, "only ListOffsets asks any broker"
                self._process.ask(
                    node.node_id,
                    request,  # type: ignore[arg-type]  # of all requests, those of errands
                    lambda a: self._send(job, [a]),
                    timeout=patience(self._process.settings),
                )
            case Changed(at_most=at_most):
                self._waits += 1
                job.waiting = self._waits
                self._process.after(at_most, self._wake, job, self._waits)
            case Rest(seconds=seconds):
                self._process.after(seconds, self._send, job, None)
            case _:
                raise AssertionError(f"not in this simulation: {wanted}")

    def _wake(self, job: _Running, wait: int) -> None:
        if job.waiting == wait:
            self._send(job, None)

    def _go_on(self) -> None:
        for job in tuple(self._running):
            if job.waiting is not None:
                self._send(job, None)
