"""The user's thread of a simulated process: it polls, runs callbacks, commits, closes.

The twin of `consumer` and `handover`: steps are taken from the mailbox in their order, one at a
time; one that was taken is carried out whole, action by action, however long its callbacks
take; records are handed out while the lease holds, and of fetched partitions alone.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from kafka_coop.backend.mailbox import StartsFound, TopicErrors
from kafka_coop.membership import events as ev
from kafka_coop.membership.effects import (
    Action,
    CallAssigned,
    CallLost,
    CallRevoked,
    CommitPositions,
    Own,
    RaiseError,
    Release,
    Step,
)
from kafka_coop.offsets.ledger import Ledger
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.simulation.errands import Results
from kafka_coop.types import Generation, Partitions, TopicPartition

if TYPE_CHECKING:
    from kafka_coop.simulation.process import Process

_Waits = Generator[float | None, None, None]
"""Yields how long to wait; None: until somebody resumes it."""

_RECORDS_PER_POLL = 3

_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserHabits:
    """How a user uses the consumer. Seconds.

    Attributes:
        poll_interval: Between two polls that return records.
        callback: What each callback takes.
        auto_commit_interval: None: no auto-commit; then the user never commits by himself.
        commit_timeout: For the commit between on_revoke and the end of ownership, and others.
        close_patience: How long close() waits for anything to happen.
    """

    poll_interval: float = 0.4
    callback: float = 0.0
    auto_commit_interval: float | None = 1.0
    commit_timeout: float = 5.0
    close_patience: float = 5.0


class User:
    """The user's thread.

    Attributes:
        owned: What the user was given and has not been told to have lost.
        positions: Of the partitions that are fetched, the next record to deliver.
        closing: close() was called.
        drains_until: drain() was called, and its time is up then; infinity: it was not.
    """

    def __init__(self, process: Process, habits: UserHabits) -> None:
        self.owned: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.habits = habits
        self.callback_time = habits.callback
        self._process = process
        self._ledger = Ledger()
        self._awaiting: dict[TopicPartition, Generation] = {}
        self._found: dict[TopicPartition, tuple[Generation, OffsetAndMetadata, bool]] = {}
        self._polled_at = process.world.agenda.now
        self._polling = True
        self._frozen = False
        self._awake = False
        self._sleep = 0
        self._next_auto_commit = habits.auto_commit_interval
        self._work = 0.0
        self._step: _Waits | None = None
        self._committing = 0
        self.closing = False
        self.drains_until = _NEVER
        self._close_posted = False
        self._give_up_at = _NEVER

    # --- what others see of it -------------------------------------------------------------

    def last_poll(self) -> float:
        """When it was last seen polling; a user who waits in poll() is seen at every moment."""
        if self._polling and not self._frozen:
            return self._process.world.agenda.now
        return self._polled_at

    @property
    def polling(self) -> bool:
        """Whether it waits in poll(), as opposed to working, or being in a callback."""
        return self._polling and not self._frozen

    def wake_up(self) -> None:
        """Something is in the mailbox: a user who waits in poll() looks."""
        if self._polling and not self._awake and not self._frozen:
            self._awake = True
            self._process.hop(self._turn_if_polling)

    def freeze(self) -> None:
        """The process is stopped."""
        self._polled_at = self.last_poll()
        self._frozen = True

    def thaw(self) -> None:
        """The process runs again, and this thread with it."""
        if self._frozen:
            self._frozen = False
            self.wake_up()

    def jump(self, seconds: float) -> None:
        """The process' clock jumps forward."""
        self._polled_at -= seconds

    def work(self, seconds: float) -> None:
        """The records of the next poll take so long to process."""
        self._work = seconds

    def close(self) -> None:
        """The user closes as soon as whatever runs in this thread has returned."""
        self.closing = True
        self.wake_up()

    def drain(self, within: float) -> None:
        """The user drains: polls on until he owns nothing, or time is up; then closes.

        A second call can only shorten the time (`client.closing.Draining`).
        """
        process = self._process
        if self.closing:
            return
        if self.drains_until == _NEVER:
            process.drain()
        self.drains_until = min(self.drains_until, process.world.agenda.now + within)
        process.after(within, self.wake_up)
        self.wake_up()

    def stop_draining(self) -> None:
        """The user subscribes anew: he stays."""
        self.drains_until = _NEVER

    def commit(self) -> None:
        """The user commits all positions, asynchronously."""
        self._commit_async()

    # --- polling ---------------------------------------------------------------------------

    def _turn_if_polling(self) -> None:
        self._awake = False
        if self._polling:
            self._turn()

    def _poll_again(self, sleep: int) -> None:
        if self._polling and sleep == self._sleep:
            self._turn()

    def _turn(self) -> None:
        """One call of poll(): first what the membership wants, then records."""
        process = self._process
        now = self._polled_at = process.world.agenda.now
        self._polling = True
        while (item := process.mailbox.begin()) is not None:
            process.mailbox.done()  # no Ctrl-C strikes here
            self._give_up_at = now + self.habits.close_patience
            match item:
                case Step():
                    self._polling = False
                    self._resume(self._carry_out(item))
                    return
                case StartsFound():
                    self._take_starts(item)
                case TopicErrors():
                    pass
                case _ as never:
                    assert_never(never)
        if self.drains_until != _NEVER and (not self.owned or now >= self.drains_until):
            self.closing = True
        if self.closing:
            self._go_on_closing(now)
            return
        if self._next_auto_commit is not None and now >= self._next_auto_commit:
            assert self.habits.auto_commit_interval is not None
            self._next_auto_commit = now + self.habits.auto_commit_interval
            self._commit_async()
        self._deliver(now)
        self._sleep += 1
        if self._work:
            work, self._work = self._work, 0.0
            self._polling = False
            process.after(work, self._turn)
        else:
            process.after(self.habits.poll_interval, self._poll_again, self._sleep)

    def _deliver(self, now: float) -> None:
        process = self._process
        if not self.positions:
            return
        watcher = process.world.watcher
        if now >= process.mailbox.lease_until:
            if process.dialect is None or process.dialect.leased:
                watcher.held_back(process)
                return
            watcher.unleased(process)
        for partition, position in self.positions.items():
            until = position + _RECORDS_PER_POLL
            watcher.delivering(process, partition, until)
            self.positions[partition] = until

    # --- steps -----------------------------------------------------------------------------

    def _resume(self, waits: _Waits) -> None:
        self._step = waits
        try:
            delay = next(waits)
        except StopIteration:
            self._step = None
            self._turn()
            return
        if delay is not None:
            self._process.after(delay, self._resume, waits)

    def _carry_out(self, step: Step) -> _Waits:
        process = self._process
        process.world.watcher.begun(process, step)
        for action in step.actions:
            yield from self._act(action)
        process.post(process.handle, ev.StepDone(step_id=step.step_id, commit=timedelta(0)))

    def _act(self, action: Action) -> _Waits:
        process = self._process
        match action:
            case CallRevoked(partitions=ps) | CallLost(partitions=ps) | CallAssigned(partitions=ps):
                process.world.watcher.calling(process, action, ps)
                if self.callback_time:
                    yield self.callback_time
                if isinstance(action, CallAssigned):
                    self._begin_fetching()
            case CommitPositions(partitions=partitions):
                yield from self._commit_before_release(partitions)
                process.world.watcher.saved(process, partitions)
            case Release(partitions=partitions):
                process.world.watcher.releasing(process, partitions, self._to_commit(partitions))
                self._release(partitions)
            case Own(partitions=partitions, generation=generation):
                process.world.watcher.owning(process, partitions, generation)
                self.owned |= set(partitions)
                self._awaiting.update(dict.fromkeys(partitions, generation))
            case RaiseError(failure=failure):
                process.world.watcher.raised(process, failure)
            case _ as never:
                assert_never(never)

    def _release(self, partitions: Partitions) -> None:
        for partition in partitions:
            self.owned.discard(partition)
            self.positions.pop(partition, None)
            self._awaiting.pop(partition, None)
            self._found.pop(partition, None)
        self._ledger.forget(partitions)

    # --- where to start --------------------------------------------------------------------

    def _take_starts(self, answer: StartsFound) -> None:
        for starts, committed in ((answer.committed, True), (answer.reset, False)):
            for partition, start in starts.items():
                known = self._found.get(partition)
                if known is None or known[0] < answer.generation:
                    self._found[partition] = (answer.generation, start, committed)
        self._begin_fetching()

    def _begin_fetching(self) -> None:
        for partition, generation in tuple(self._awaiting.items()):
            found = self._found.get(partition)
            if found is None or found[0] != generation:
                continue
            _, start, committed = found
            del self._awaiting[partition], self._found[partition]
            if committed:
                self._ledger.started({partition: start})
            self._process.world.watcher.starting(self._process, partition, start.offset)
            self.positions[partition] = start.offset

    # --- commits ---------------------------------------------------------------------------

    def _to_commit(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        positions = self.positions
        return self._ledger.news(
            {p: OffsetAndMetadata(offset=positions[p]) for p in partitions if p in positions}
        )

    def _commit_async(self) -> None:
        offsets = self._to_commit(Partitions.of(self.positions))
        if offsets:
            self._committing += 1
            self._process.post(self._submit, offsets, None)

    def _commit_before_release(self, partitions: Partitions) -> _Waits:
        offsets = self._to_commit(partitions)
        if offsets:
            self._committing += 1
            self._process.post(self._submit, offsets, self._step)
            yield None

    def _submit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], resume: _Waits | None
    ) -> None:
        def done(results: Results) -> None:
            self._process.hop(self._committed, offsets, results, resume)

        self._process.errands.commit(offsets, self.habits.commit_timeout, done)

    def _committed(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        results: Results,
        resume: _Waits | None,
    ) -> None:
        self._committing -= 1
        taken = {
            p: o for p, o in offsets.items() if results.get(p) is ErrorCode.none and p in self.owned
        }
        self._ledger.committed(taken, self._ledger.next_commit())
        if resume is not None:
            self._resume(resume)
        elif self.closing:
            self.wake_up()

    # --- closing ---------------------------------------------------------------------------

    def _go_on_closing(self, now: float) -> None:
        """close(): what is being committed first, then the group, then the process ends."""
        process = self._process
        if not self._close_posted:
            if self._give_up_at == _NEVER:
                self._give_up_at = now + self.habits.close_patience / 2
            if self._committing and now < self._give_up_at:
                process.after(self._give_up_at - now, self.wake_up)
                return
            self._close_posted = True
            self._give_up_at = now + self.habits.close_patience
            process.post(process.handle, ev.Close())
        if process.mailbox.left or now >= self._give_up_at:
            process.world.watcher.closed(process)
            process.end()
        else:
            process.after(self._give_up_at - now, self.wake_up)
